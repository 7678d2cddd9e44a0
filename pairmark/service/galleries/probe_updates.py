"""Kept probes brought up to a moment of their gallery: see `kept.py`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.progress import report
from pairmark.models.core.subjects import SampleSets
from pairmark.service.errors import SearchTooLong
from pairmark.service.galleries import item_repository
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.gallery_view import GalleryView, Key, whose
from pairmark.service.galleries.kept_probes import KeptProbes
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.subject_search import SubjectTemplates
from pairmark.service.runtime.scoring import Served

Float32 = NDArray[np.float32]
Indices = NDArray[np.int64]

PROBES_AT_A_TIME = 64
MAX_TEMPLATES = 10_000
"""Most items of one subject that a probe of the subject is compared with."""


class ProbeUpdate:
    """Brings probes up to a view, a few probes at a time; it can be left and resumed."""

    def __init__(
        self, galleries: Galleries, state: State, served: Served, kept: KeptProbes, view: GalleryView
    ) -> None:
        self._galleries, self._state, self._kept, self.view = galleries, state, kept, view
        self._records = kept.records.copy()
        self._enrol(served)
        self._todo = self._planned(self._records["own_items"] == 0)
        self._n = len(self._todo)

    def _planned(self, strangers: NDArray[np.bool_]) -> list[Callable[[], None]]:
        """Pieces of work that bring the strangers' best scores up to the view."""
        records, view = self._records, self.view
        self._found: dict[int, str] = {}
        records["at"][~strangers] = -1
        anew = strangers & ~view.holds(records["at"])
        records["best"][anew] = -np.inf
        rest = np.flatnonzero(strangers & ~anew)
        # Like with like: what a few probes have in common as their best score need not be looked below.
        rest = rest[np.argsort(-records["best"][rest], kind="stable")]
        todo = [partial(self._search, some, 0) for some in _pieces(np.flatnonzero(anew))]
        if view.seq > self._kept.seq:
            todo += [partial(self._search, some, self._kept.seq) for some in _pieces(rest)]
        return [*todo, self._number]

    def _enrol(self, served: Served) -> None:
        """See who of the probes' subjects is enrolled, and score those whose items changed."""
        records, kept, state = self._records, self._kept, self._state
        with self._galleries.database.read() as session:
            now = item_repository.stamps(session, state.id, kept.subjects)
        for at, subject in enumerate(kept.subjects):
            n, newest = now.get(subject, (0, 0))
            record = records[at]
            if (n, newest) == (record["own_items"], record["own_newest"]):
                continue
            if n:
                with self._galleries.database.read() as session:
                    items = item_repository.subject_rows(session, state, subject, MAX_TEMPLATES)
                # Erased since: found by nobody.
                own = (
                    -np.inf if items is None else self._own(served, kept.vectors[at : at + 1], items.vectors)
                )
                record["own"] = own
            record["own_items"], record["own_newest"] = n, newest

    def _own(self, served: Served, probe: Float32, items: Float32) -> float:
        """Score of a probe with its own subject."""
        return float(served.score(probe, items).max())

    def run(self, deadline: float | None = None, share: float = 0.9) -> KeptProbes:
        """Search until everything is done; that is reported as ``share`` of the whole work. `SearchTooLong` when the
        deadline passed; what was done is kept for the next call."""
        while self._todo:
            if deadline is not None and time.monotonic() > deadline:
                raise SearchTooLong(
                    f"much was written to gallery {self._state.name!r}: its threshold is being brought up to date "
                    f"({1 - len(self._todo) / self._n:.0%} done); ask again"
                )
            report(share * (1 - len(self._todo) / self._n), "searching with probes")
            self._todo[0]()
            self._todo.pop(0)
        return replace(self._kept, records=self._records, seq=self.view.seq, size=self.view.n_items)

    def _search(self, some: Indices, after: int) -> None:
        """Best scores of some probes with what was written after a sequence number."""
        records = self._records
        least = records["best"][some].min()
        elsewhere = None if after else self._galleries.views.elsewhere(self._state, (), self.view.seq)
        hits = self.view.search(
            self._kept.vectors[some],
            1,
            above=np.float32(least) if np.isfinite(least) else None,
            elsewhere=elsewhere,
            after=after,
        )
        for at, found in zip(some.tolist(), hits, strict=True):
            if found and np.float32(found[0].score) > records["best"][at]:
                records["best"][at], self._found[at] = found[0].score, found[0].id

    def _number(self) -> None:
        """Note which rows gave the best scores; one that was replaced or erased since the view counts as gone."""
        if not self._found:
            return
        with self._galleries.database.read() as session:
            seqs = item_repository.seqs_of(session, self._state.id, sorted(set(self._found.values())))
        for at, id in self._found.items():
            seq = seqs.get(id, -1)
            self._records["at"][at] = seq if seq <= self.view.seq else -1


@dataclass(eq=False)
class BaseScores:
    """What probes score with the subjects of one base, whatever was touched since: best score, and whose it is.

    Attributes
    ----------
    base : the base, as long as anybody else holds it. known : (n,) whether a probe was searched.
    """

    base: weakref.ref[SubjectTemplates]
    known: NDArray[np.bool_] = field(repr=False)
    best: Float32 = field(repr=False)
    whose: list[Key | None] = field(repr=False)

    @classmethod
    def of(cls, base: SubjectTemplates, n: int) -> BaseScores:
        """Of no probe yet."""
        known = np.zeros(n, dtype=np.bool_)
        return cls(weakref.ref(base), known, np.full(n, -np.inf, dtype=np.float32), [None] * n)


class SubjectProbeUpdate(ProbeUpdate):
    """The same with probes that are compared with whole subjects.

    A subject's score may rise or fall with each of its items, so a write or an erasure touches the subject as a whole:
    probes meet the touched subjects as they are now, and the others, of which the best is known, need no search, except
    for probes whose best one was touched.
    """

    def __init__(
        self,
        galleries: Galleries,
        state: State,
        served: Served,
        kept: KeptProbes,
        view: GalleryView,
        searched: BaseScores | None = None,
    ) -> None:
        assert kept.aggregation is not None
        self._how = kept.aggregation
        self._subjects = galleries.views.live(state, served.estimator).subjects.at(view, self._how)
        base = self._subjects.base
        fits = searched is not None and searched.base() is base and searched.known.size == len(kept.records)
        self.searched = searched if searched is not None and fits else BaseScores.of(base, len(kept.records))
        super().__init__(galleries, state, served, kept, view)

    def _own(self, served: Served, probe: Float32, items: Float32) -> float:
        enrolled = SampleSets.of_rows(items, np.array([len(items)]))
        return float(served.score_subjects(SampleSets.of_rows(probe), enrolled, self._how)[0])

    def _planned(self, strangers: NDArray[np.bool_]) -> list[Callable[[], None]]:
        self._records["best"][strangers] = -np.inf
        unknown = np.flatnonzero(strangers & ~self.searched.known)
        return [
            *(partial(self._know, some) for some in _pieces(unknown)),
            *(partial(self._meet, some) for some in _pieces(np.flatnonzero(strangers))),
        ]

    def _know(self, some: Indices) -> None:
        hits = self._subjects.base.best(SampleSets.of_rows(self._kept.vectors[some]), 1, None)
        for at, found in zip(some.tolist(), hits, strict=True):
            if found:
                subject, id = found[0].subject, found[0].id or ""
                self.searched.best[at], self.searched.whose[at] = found[0].score, whose(subject, id)
        self.searched.known[some] = True

    def _meet(self, some: Indices) -> None:
        best, touched = self._records["best"], self._subjects.touched
        moved = np.array([self.searched.whose[at] in touched for at in some.tolist()], dtype=np.bool_)
        best[some[~moved]] = self.searched.best[some[~moved]]
        for templates, probes, without in (
            (self._subjects.base, some[moved], touched),
            (self._subjects.fresh, some if touched else some[:0], frozenset()),
        ):
            if probes.size:
                sets = SampleSets.of_rows(self._kept.vectors[probes])
                for at, found in zip(probes.tolist(), templates.best(sets, 1, None, without), strict=True):
                    if found:
                        best[at] = max(best[at], np.float32(found[0].score))


def _pieces(which: Indices) -> list[Indices]:
    return [which[at : at + PROBES_AT_A_TIME] for at in range(0, len(which), PROBES_AT_A_TIME)]
