"""Kept probes brought up to a view of their gallery, so that they score as if they were searched anew in it."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.subjects import SampleSets
from pairmark.service.errors import SearchTooLong
from pairmark.service.galleries.calibration.kept_probes import KeptProbes
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView, Owner, owner_of
from pairmark.service.galleries.index.subject_search import SubjectTemplates
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.item_forms import Matrix, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.runtime.versions import LoadedVersion

PROBES_AT_A_TIME = 64
MAX_TEMPLATES = 10_000
"""Most items of one subject that a probe, or a verification, is compared with."""


class ProbeUpdate:
    """Brings probes up to a view, a few probes at a time; it can be left and resumed."""

    def __init__(
        self,
        galleries: Galleries,
        state: GalleryState,
        version: LoadedVersion,
        probes: KeptProbes,
        view: GalleryView,
    ) -> None:
        self._galleries, self._state, self._probes, self.view = galleries, state, probes, view
        self._records = probes.records.copy()
        self._todo: list[Callable[[], None]] = [partial(self._list_enrolled, version)]
        self._n_searches = 0

    def _planned(self, strangers: NDArray[np.bool_]) -> list[Callable[[], None]]:
        """Pieces of work that bring the strangers' best scores up to the view."""
        records, view = self._records, self.view
        # 1. Where the row that gave a best score was replaced or erased, the score is void: search the whole gallery.
        # 2. Else only rows written after the last update can beat it: search those.
        # 3. Note the sequence numbers of the rows that gave new best scores.
        self._best_ids: dict[int, str] = {}
        records["at"][~strangers] = -1
        lost = strangers & ~view.holds(records["at"])
        records["best"][lost] = -np.inf
        unchanged = np.flatnonzero(strangers & ~lost)
        # Like with like: what a few probes have in common as their best score need not be looked below.
        unchanged = unchanged[np.argsort(-records["best"][unchanged], kind="stable")]
        todo = [partial(self._search, places, 0) for places in _pieces(np.flatnonzero(lost))]
        if view.seq > self._probes.seq:
            todo += [partial(self._search, places, self._probes.seq) for places in _pieces(unchanged)]
        return [*todo, self._number]

    def _list_enrolled(self, version: LoadedVersion) -> None:
        """See who of the probes' subjects is enrolled: those whose items changed are scored, then strangers search."""
        with self._galleries.database.read() as session:
            stamps = item_repository.stamps(session, self._state.id, self._probes.subjects)
        enrolments = [stamps.get(subject, (0, 0)) for subject in self._probes.subjects]
        stale = np.flatnonzero(
            [
                enrolment != (record["own_items"], record["own_newest"])
                for enrolment, record in zip(enrolments, self._records, strict=True)
            ]
        )
        self._todo += [partial(self._score_enrolled, version, enrolments, piece) for piece in _pieces(stale)]
        self._todo.append(self._plan_searches)

    def _plan_searches(self) -> None:
        searches = self._planned(self._records["own_items"] == 0)
        self._todo += searches
        self._n_searches = len(searches)

    def _score_enrolled(
        self, version: LoadedVersion, enrolments: list[tuple[int, int]], places: Int64
    ) -> None:
        """Score probes with the items of their own subjects."""
        records, probes, state = self._records, self._probes, self._state
        form = form_of(version.estimator, state.dimension)
        for at in places.tolist():
            subject, (n, newest), record = probes.subjects[at], enrolments[at], records[at]
            if n:
                with self._galleries.database.read() as session:
                    items = item_repository.subject_rows(session, state, form, subject, MAX_TEMPLATES)
                # Erased since: found by nobody.
                own = (
                    -np.inf
                    if items is None
                    else self._own(version, probes.vectors[at : at + 1], items.vectors)
                )
                record["own"] = own
            record["own_items"], record["own_newest"] = n, newest

    def _own(self, version: LoadedVersion, probe: Matrix, items: Matrix) -> float:
        return float(version.score(probe, items).max())

    def run(self, deadline: float | None = None, share: float = 0.9) -> KeptProbes:
        """Search until everything is done; that is reported as ``share`` of the whole work. `SearchTooLong` when the
        deadline passed; what was done is kept for the next call."""
        while self._todo:
            # Nothing is counted before it is known how many searches there are.
            progress = 1 - len(self._todo) / self._n_searches if self._n_searches else 0.0
            if deadline is not None and time.monotonic() > deadline:
                raise SearchTooLong(
                    f"much was written to gallery {self._state.name!r}: its threshold is being brought up to date "
                    f"({100 * progress:.0f} % done); ask again"
                )
            report(share * progress, "searching with probes")
            self._todo[0]()
            self._todo.pop(0)
        return replace(self._probes, records=self._records, seq=self.view.seq, size=self.view.n_items)

    def _search(self, places: Int64, after: int) -> None:
        """Best scores of some probes with what was written after a sequence number."""
        records = self._records
        lowest_best = records["best"][places].min()
        other_search = None if after else self._galleries.views.cluster_search(self._state, (), self.view.seq)
        hits = self.view.search(
            self._probes.vectors[places],
            1,
            above=np.float32(lowest_best) if np.isfinite(lowest_best) else None,
            other_search=other_search,
            after=after,
        )
        for at, probe_hits in zip(places.tolist(), hits, strict=True):
            if probe_hits and np.float32(probe_hits[0].score) > records["best"][at]:
                records["best"][at], self._best_ids[at] = probe_hits[0].score, probe_hits[0].id

    def _number(self) -> None:
        """Note which rows gave the best scores; one that was replaced or erased since the view counts as gone."""
        if not self._best_ids:
            return
        with self._galleries.database.read() as session:
            seqs = item_repository.seqs_of(session, self._state.id, sorted(set(self._best_ids.values())))
        for at, id in self._best_ids.items():
            seq = seqs.get(id, -1)
            self._records["at"][at] = seq if seq <= self.view.seq else -1


@dataclass(eq=False)
class BaseScores:
    """What probes score with the subjects of one base, whatever was touched since: best score, and whose it is.

    Attributes
    ----------
    base : the base, as long as anybody else holds it. searched : (n,) whether a probe was searched.
    best, best_owner : its best score, and whose that is.
    """

    base: weakref.ref[SubjectTemplates]
    searched: NDArray[np.bool_] = field(repr=False)
    best: Float32 = field(repr=False)
    best_owner: list[Owner | None] = field(repr=False)

    @classmethod
    def of(cls, base: SubjectTemplates, n: int) -> BaseScores:
        """Of no probe yet."""
        searched = np.zeros(n, dtype=np.bool_)
        return cls(weakref.ref(base), searched, np.full(n, -np.inf, dtype=np.float32), [None] * n)


class SubjectProbeUpdate(ProbeUpdate):
    """The same with probes that are compared with whole subjects.

    A subject's score may rise or fall with each of its items, so a write or an erasure touches the subject as a whole:
    probes meet the touched subjects as they are now, and the others, of which the best is known, need no search, except
    for probes whose best one was touched.
    """

    def __init__(
        self,
        galleries: Galleries,
        state: GalleryState,
        version: LoadedVersion,
        probes: KeptProbes,
        view: GalleryView,
        base_scores: BaseScores | None = None,
    ) -> None:
        assert probes.aggregation is not None
        self._aggregation = probes.aggregation
        self._subjects = galleries.views.live(state, version.estimator).subjects.at(view, self._aggregation)
        base = self._subjects.base
        n = len(probes.records)
        if base_scores is None or base_scores.base() is not base or base_scores.searched.size != n:
            base_scores = BaseScores.of(base, n)
        self.base_scores = base_scores
        super().__init__(galleries, state, version, probes, view)

    def _own(self, version: LoadedVersion, probe: Matrix, items: Matrix) -> float:
        enrolled = SampleSets.of_rows(items, np.array([len(items)]))
        return float(version.score_subjects(SampleSets.of_rows(probe), enrolled, self._aggregation)[0])

    def _planned(self, strangers: NDArray[np.bool_]) -> list[Callable[[], None]]:
        self._records["best"][strangers] = -np.inf
        unknown = np.flatnonzero(strangers & ~self.base_scores.searched)
        return [
            *(partial(self._search_base, places) for places in _pieces(unknown)),
            *(partial(self._meet_touched, places) for places in _pieces(np.flatnonzero(strangers))),
        ]

    def _search_base(self, places: Int64) -> None:
        hits = self._subjects.base.best(SampleSets.of_rows(self._probes.vectors[places]), 1, None)
        for at, probe_hits in zip(places.tolist(), hits, strict=True):
            if probe_hits:
                subject, id = probe_hits[0].subject, probe_hits[0].id or ""
                self.base_scores.best[at] = probe_hits[0].score
                self.base_scores.best_owner[at] = owner_of(subject, id)
        self.base_scores.searched[places] = True

    def _meet_touched(self, places: Int64) -> None:
        # 1. A best score with a subject of the base that was not touched stands.
        # 2. Where the best subject was touched, search the base again, without all touched subjects.
        # 3. Every probe meets the touched subjects as they are now.
        best, touched = self._records["best"], self._subjects.touched
        best_touched = np.array(
            [self.base_scores.best_owner[at] in touched for at in places.tolist()], dtype=np.bool_
        )
        best[places[~best_touched]] = self.base_scores.best[places[~best_touched]]
        for templates, members, left_out in (
            (self._subjects.base, places[best_touched], touched),
            (self._subjects.fresh, places if touched else places[:0], frozenset()),
        ):
            if members.size:
                sets = SampleSets.of_rows(self._probes.vectors[members])
                for at, probe_hits in zip(
                    members.tolist(), templates.best(sets, 1, None, left_out), strict=True
                ):
                    if probe_hits:
                        best[at] = max(best[at], np.float32(probe_hits[0].score))


def _pieces(which: Int64) -> list[Int64]:
    return [which[at : at + PROBES_AT_A_TIME] for at in range(0, len(which), PROBES_AT_A_TIME)]
