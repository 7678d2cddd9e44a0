"""Thresholds of a calibrated gallery, which follow every write and erasure by probes that are kept.

A calibration at sequence number c holds, for each probe, its best score in the gallery and the number of the item that
gave it. At a later moment the best score is the larger one of that and of the best among the items written since; where
the item itself is gone, the probe is searched anew. So the scores are those of a calibration made just now, from the
rows in the database alone: nothing has to be written beside an item, and nothing is lost with a process.

Where whole subjects are searched, every item that is written or erased changes its subject's score: probes meet the
subjects that were touched as they are now, and keep their best score among the others.

Probes whose subject was enrolled meanwhile are no strangers: they leave the rate, and say how often their subject is
missed, until the subject is erased again.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import GalleryCalibration, IdentificationPoint
from pairmark.models.calibration.operating_point import InsufficientCalibrationData, without_guarantee
from pairmark.models.core.arrays import Float32, Int64
from pairmark.models.core.progress import report
from pairmark.models.core.subjects import SampleSets
from pairmark.service.caches import BoundedCache
from pairmark.service.errors import Conflict, DamagedRow, SearchTooLong, UnknownCalibration, UnsupportedRate
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import KeptProbes, load, score_columns
from pairmark.service.galleries.calibration.probe_repository import CalibrationHead
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView, Owner, SubjectTemplates, owner_of
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import ItemForm, Matrix, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.runtime.points import plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.tables import GalleryCalibrationRow

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

    def run(self, deadline: float | None = None) -> KeptProbes:
        """Search until everything is done. `SearchTooLong` when the
        deadline passed; what was done is kept for the next call."""
        while self._todo:
            # Nothing is counted before it is known how many searches there are.
            progress = 1 - len(self._todo) / self._n_searches if self._n_searches else 0.0
            if deadline is not None and time.monotonic() > deadline:
                raise SearchTooLong(
                    f"much was written to gallery {self._state.name!r}: its threshold is being brought up to date "
                    f"({100 * progress:.0f} % done); ask again"
                )
            report(progress, "searching with probes")
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


MAX_KEPT_BYTES = 64 * 2**20
"""Vectors of more bytes are not kept with a calibration."""
MOST_POINTS = 4_096
"""Thresholds that one process remembers."""
KEPT_CALIBRATIONS = 16
"""Calibrations whose probes one process holds."""


class Thresholds:
    """Thresholds at rates of a whole search, each for the gallery as it is at the search (blocking)."""

    def __init__(self, galleries: Galleries) -> None:
        self._galleries = galleries
        self._probes: BoundedCache[str, KeptProbes] = BoundedCache(KEPT_CALIBRATIONS)
        self._updates: dict[str, ProbeUpdate] = {}
        self._base_scores: dict[str, BaseScores] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._stored_seqs: dict[str, int] = {}
        self._points: BoundedCache[tuple[str, int, int, float, float], IdentificationPoint] = BoundedCache(
            MOST_POINTS
        )
        self._lock = threading.Lock()
        galleries.on_import = self.follow

    def at(
        self,
        state: GalleryState,
        version: LoadedVersion,
        fpir: float,
        confidence: float,
        deadline: float | None = None,
        aggregation: str | None = None,
    ) -> tuple[dict[str, Any], np.float32, GalleryView]:
        """The operating point as JSON shows it, its threshold, and the view of the gallery that it is exact for.
        `SearchTooLong` when so much was written that the deadline passed; the next call resumes the work.

        Parameters
        ----------
        aggregation : of searches for whole subjects; None: for single items.
        """
        with self._galleries.database.read() as session:
            head = probe_repository.newest_head(session, state, aggregation)
        if head is None:
            of = "" if aggregation is None else f" of subjects by {aggregation}"
            example = "" if aggregation is None else f' and "aggregation": "{aggregation}"'
            raise UnknownCalibration(
                f"gallery {state.name!r} has no calibration{of} with {state.model}:{state.version}; make one with "
                f"POST /galleries/{state.name}/calibrations from people who are not enrolled{example}",
                field="fpir",
            )
        if head.keeps_probes:
            probes, view = self._at_one_moment(state, version, head, deadline)
            key = (probes.id, probes.revision, probes.seq, fpir, confidence)
            point = self._point(key, lambda: _calibration(probes, state))
        else:
            view = self._galleries.views.live(state, version.estimator).view(state.seq)
            key = (head.id, head.revision, head.seq, fpir, confidence)
            point = self._point(key, lambda: self._unkept(head))
        facts = {**plain(point.as_dict()), "calibration_id": head.id, "sequence": key[2]}
        if not head.keeps_probes and state.seq != head.seq:
            facts = without_guarantee(
                facts,
                f"{state.seq - head.seq} rows of the gallery were written or removed since it was calibrated, and the "
                f"probes were not kept: calibrate again (POST /galleries/{state.name}/calibrations)",
            )
        if aggregation is not None:
            facts["aggregation"] = aggregation
        return facts, np.float32(point.threshold), view

    def _point(
        self, key: tuple[str, int, int, float, float], calibration: Callable[[], GalleryCalibration]
    ) -> IdentificationPoint:
        point = self._points.get(key)
        if point is None:
            point = point_of(calibration(), key[3], key[4])
            self._points.put(key, point)
        return point

    def _unkept(self, head: CalibrationHead) -> GalleryCalibration:
        with self._galleries.database.read() as session:
            row = session.get_one(GalleryCalibrationRow, head.id)
            return calibration_of(row)

    # ------------------------------------------------------------ following the gallery

    def _at_one_moment(
        self, state: GalleryState, version: LoadedVersion, head: CalibrationHead, deadline: float | None
    ) -> tuple[KeptProbes, GalleryView]:
        live = self._galleries.views.live(state, version.estimator)
        form = form_of(version.estimator, state.dimension)
        view = live.view(state.seq)
        while True:
            probes = self._newest(head, form)
            if probes.seq == view.seq:
                return probes, view
            if probes.seq > view.seq:
                # Another search was faster: its view holds what this one's does.
                view = live.view(probes.seq)
                if view.seq < probes.seq:
                    raise DamagedRow(
                        f"gallery {state.name!r} is damaged: its sequence number went back; restore a backup",
                        table="galleries",
                        row=state.name,
                    )
                continue
            probes = self._caught_up(state, version, head, view, deadline)

    def _newest(self, head: CalibrationHead, form: ItemForm) -> KeptProbes:
        """The newest known scores of a calibration, of this process or of the database."""
        probes = self._probes.get(head.id)
        if probes is None or probes.revision != head.revision:
            with self._galleries.database.read(one_moment=True) as session:
                stored_probes = load(session, head.id, form)
            if stored_probes is None:
                raise Conflict("the calibration was replaced just now: ask again", calibration_id=head.id)
            probes = stored_probes
            with self._lock:
                self._updates.pop(head.id, None)
                # Its places are those of the probes that were there.
                self._base_scores.pop(head.id, None)
                self._stored_seqs[head.id] = probes.seq
                for evicted_id in self._probes.put(head.id, probes):
                    self._forget(evicted_id)
        return probes

    def _caught_up(
        self,
        state: GalleryState,
        version: LoadedVersion,
        head: CalibrationHead,
        view: GalleryView,
        deadline: float | None,
    ) -> KeptProbes:
        # One thread a calibration works; others wait for it. A deadline leaves the work where it is, for the next call.
        with self._lock:
            lock = self._locks.setdefault(head.id, threading.Lock())
        wait = -1 if deadline is None else max(deadline - time.monotonic(), 0.001)
        if not lock.acquire(timeout=wait):
            raise SearchTooLong(
                f"much was written to gallery {state.name!r}: its threshold is being brought up to date; ask again"
            )
        try:
            probes = self._newest(head, form_of(version.estimator, state.dimension))
            if probes.seq >= view.seq:
                return probes  # Done while this thread waited.
            probe_update = self._updates.get(head.id)
            if probe_update is None:
                probe_update = self._new_update(state, version, probes, view)
                with self._lock:
                    self._updates[head.id] = probe_update
            updated = probe_update.run(deadline)
            with self._lock:
                self._updates.pop(head.id, None)
                current = self._probes.get(head.id)
                # Not over probes that were erased meanwhile.
                if current is not None and current.revision == updated.revision:
                    self._probes.put(head.id, updated)
            return updated
        finally:
            lock.release()

    def _new_update(
        self, state: GalleryState, version: LoadedVersion, probes: KeptProbes, view: GalleryView
    ) -> ProbeUpdate:
        if probes.aggregation is None:
            return ProbeUpdate(self._galleries, state, version, probes, view)
        probe_update = SubjectProbeUpdate(
            self._galleries, state, version, probes, view, self._base_scores.get(probes.id)
        )
        with self._lock:
            self._base_scores[probes.id] = probe_update.base_scores
        return probe_update

    def follow(self, state: GalleryState, version: LoadedVersion) -> None:
        """Bring a gallery's probes up to date after a bulk import, before a search waits for it."""
        hows = (None, *version.estimator.aggregations)
        with self._galleries.database.read() as session:
            heads = [probe_repository.newest_head(session, state, how) for how in hows]
        for head in heads:
            if head is not None and head.keeps_probes:
                self._at_one_moment(state, version, head, None)

    def keep_up(self) -> None:
        """Store what this process worked out, and let go of probes that were erased or replaced."""
        for _, probes in self._probes.entries():
            with self._galleries.database.read() as session:
                revision = probe_repository.revision_of(session, probes.id)
            if revision != probes.revision:
                with self._lock:
                    self._forget(probes.id)
            elif probes.seq > self._stored_seqs.get(probes.id, 0):
                with self._galleries.database.write() as session:
                    row = session.get(GalleryCalibrationRow, probes.id)
                    if row is not None:
                        values = score_columns(probes.records, probes.seq, probes.size, row.summary)
                        probe_repository.bring_up(session, probes.id, probes.revision, values)
                self._stored_seqs[probes.id] = probes.seq

    def _forget(self, id: str) -> None:
        self._probes.drop([id])
        for by_id in (self._updates, self._stored_seqs, self._base_scores):
            by_id.pop(id, None)


def calibration_of(row: GalleryCalibrationRow) -> GalleryCalibration:
    return GalleryCalibration.from_state(
        {"best": np.frombuffer(row.best, dtype="<f4"), "mated": np.frombuffer(row.mated, dtype="<f4")},
        row.summary["state"],
    )


def point_of(calibration: GalleryCalibration, fpir: float, confidence: float) -> IdentificationPoint:
    """The operating point, or `UnsupportedRate`."""
    try:
        return calibration.operating_point(fpir, confidence)
    except InsufficientCalibrationData as error:
        raise UnsupportedRate(
            str(error), smallest_fpr=plain(error.smallest_fpr), required_units=plain(error.required_units)
        ) from error


def _calibration(probes: KeptProbes, state: GalleryState) -> GalleryCalibration:
    if not np.any(probes.records["own_items"] == 0):
        raise Conflict(
            f"every probe of the calibration of gallery {state.name!r} was enrolled or erased since: calibrate again "
            f"(POST /galleries/{state.name}/calibrations)",
            calibration_id=probes.id,
        )
    return probes.calibration
