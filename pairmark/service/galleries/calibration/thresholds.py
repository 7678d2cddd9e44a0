"""Thresholds of a calibrated gallery, which follow every write and erasure by probes that are kept.

A calibration at sequence number c holds, for each probe, its best score in the gallery and the number of the item that
gave it. At a later moment the best score is the larger one of that and of the best among the items written since; where
the item itself is gone, the probe is searched anew. So the scores are those of a calibration made just now, from the
rows in the database alone: nothing has to be written beside an item, and nothing is lost with a process.

Where whole subjects are searched, every item that is written or erased changes its subject's score, and all probes are
searched anew.

Probes whose subject was enrolled meanwhile are no strangers: they leave the rate, and say how often their subject is
missed, until the subject is erased again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import GalleryCalibration, IdentificationPoint
from pairmark.models.calibration.operating_point import InsufficientCalibrationData, without_guarantee
from pairmark.models.core.progress import report
from pairmark.models.core.scores import SampleSets
from pairmark.service.caches import BoundedCache
from pairmark.service.errors import Conflict, DamagedRow, SearchTooLong, UnknownCalibration, UnsupportedRate
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import KeptProbes, load, score_columns
from pairmark.service.galleries.calibration.probe_repository import CalibrationHead
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import ItemForm, Matrix, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.runtime.points import plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.tables import GalleryCalibrationRow

PROBES_AT_A_TIME = 64
MAX_TEMPLATES = 10_000
"""Most items of one subject that a probe, or a verification, is compared with."""


def updated(
    galleries: Galleries, state: GalleryState, version: LoadedVersion, probes: KeptProbes, view: GalleryView
) -> KeptProbes:
    """Probes with the scores that they have in a view of the gallery (blocking)."""
    records = probes.records.copy()
    _score_enrolled(galleries, state, version, probes, records)
    strangers = records["own_items"] == 0
    if probes.aggregation is None:
        _search_items(galleries, state, probes, records, strangers, view)
    else:
        subjects = galleries.views.live(state, version.estimator).subjects.at(view, probes.aggregation)
        records["best"][strangers] = -np.inf
        for places in _pieces(np.flatnonzero(strangers)):
            for at, hits in zip(places, subjects.search(probes.vectors[places], 1), strict=True):
                records["best"][at] = hits[0].score if hits else -np.inf
    return replace(probes, records=records, seq=view.seq, size=view.n_items)


def _score_enrolled(
    galleries: Galleries,
    state: GalleryState,
    version: LoadedVersion,
    probes: KeptProbes,
    records: NDArray[np.void],
) -> None:
    """Score probes with the items of their own subjects, those whose items changed."""
    form = form_of(version.estimator, state.dimension)
    with galleries.database.read() as session:
        stamps = item_repository.stamps(session, state.id, probes.subjects)
    for at, subject in enumerate(probes.subjects):
        n, newest = stamps.get(subject, (0, 0))
        if (n, newest) == (records["own_items"][at], records["own_newest"][at]):
            continue
        records["own_items"][at], records["own_newest"][at] = n, newest
        if n:
            with galleries.database.read() as session:
                items = item_repository.subject_rows(session, state, form, subject, MAX_TEMPLATES)
            probe = probes.vectors[at : at + 1]
            # Erased since: found by nobody.
            records["own"][at] = -np.inf if items is None else _own(version, probes, probe, items.vectors)


def _own(version: LoadedVersion, probes: KeptProbes, probe: Matrix, items: Matrix) -> float:
    if probes.aggregation is None:
        return float(version.score(probe, items).max())
    enrolled = SampleSets.of_rows(items, np.array([len(items)]))
    return float(version.score_subjects(SampleSets.of_rows(probe), enrolled, probes.aggregation)[0])


def _search_items(
    galleries: Galleries,
    state: GalleryState,
    probes: KeptProbes,
    records: NDArray[np.void],
    strangers: NDArray[np.bool_],
    view: GalleryView,
) -> None:
    """Bring the strangers' best scores up to a view."""
    # 1. Where the row that gave a best score was replaced or erased, the score is void: search the whole gallery.
    # 2. Else only rows written after the last update can beat it: search those.
    # 3. Note the sequence numbers of the rows that gave new best scores.
    records["at"][~strangers] = -1
    lost = strangers & ~view.holds(records["at"])
    records["best"][lost] = -np.inf
    unchanged = np.flatnonzero(strangers & ~lost)
    # Like with like: what a few probes have in common as their best score need not be looked below.
    unchanged = unchanged[np.argsort(-records["best"][unchanged], kind="stable")]
    searches = [(places, 0) for places in _pieces(np.flatnonzero(lost))]
    if view.seq > probes.seq:
        searches += [(places, probes.seq) for places in _pieces(unchanged)]
    best_ids: dict[int, str] = {}
    for number, (places, after) in enumerate(searches):
        report(0.9 * number / len(searches), "searching with probes")
        lowest_best = records["best"][places].min()
        hits = view.search(
            probes.vectors[places],
            1,
            above=np.float32(lowest_best) if np.isfinite(lowest_best) else None,
            other_search=None if after else galleries.views.cluster_search(state, (), view.seq),
            after=after,
        )
        for at, probe_hits in zip(places.tolist(), hits, strict=True):
            if probe_hits and np.float32(probe_hits[0].score) > records["best"][at]:
                records["best"][at], best_ids[at] = probe_hits[0].score, probe_hits[0].id
    with galleries.database.read() as session:
        seqs = item_repository.seqs_of(session, state.id, sorted(set(best_ids.values())))
    for at, id in best_ids.items():
        # One that was replaced or erased since the view counts as gone.
        seq = seqs.get(id, -1)
        records["at"][at] = seq if seq <= view.seq else -1


def _pieces(places: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [places[at : at + PROBES_AT_A_TIME] for at in range(0, len(places), PROBES_AT_A_TIME)]


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
        self._updating: BoundedCache[str, threading.Lock] = BoundedCache(KEPT_CALIBRATIONS)
        self._points: BoundedCache[tuple[str, int, int, float, float], IdentificationPoint] = BoundedCache(
            MOST_POINTS
        )
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
        `SearchTooLong` when another thread is still at work when the deadline passes.

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
            self._catch_up(state, version, head, view, deadline)

    def _newest(self, head: CalibrationHead, form: ItemForm) -> KeptProbes:
        """The newest known scores of a calibration, of this process or of the database."""
        probes = self._probes.get(head.id)
        if probes is None or probes.revision != head.revision:
            with self._galleries.database.read(one_moment=True) as session:
                probes = load(session, head.id, form)
            if probes is None:
                raise Conflict("the calibration was replaced just now: ask again", calibration_id=head.id)
            self._probes.put(head.id, probes)
        return probes

    def _catch_up(
        self,
        state: GalleryState,
        version: LoadedVersion,
        head: CalibrationHead,
        view: GalleryView,
        deadline: float | None,
    ) -> None:
        # One thread a calibration works, to the end; others wait for it, until their deadline.
        lock = self._updating.get_or_make(head.id, threading.Lock)
        wait = -1 if deadline is None else max(deadline - time.monotonic(), 0.001)
        if not lock.acquire(timeout=wait):
            raise SearchTooLong(
                f"much was written to gallery {state.name!r}: its threshold is being brought up to date; ask again"
            )
        try:
            probes = self._newest(head, form_of(version.estimator, state.dimension))
            if probes.seq < view.seq:
                self._probes.put(head.id, updated(self._galleries, state, version, probes, view))
        finally:
            lock.release()

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
        for id, probes in self._probes.entries():
            with self._galleries.database.read() as session:
                head = probe_repository.head_of(session, id)
            if head is None or not head.keeps_probes or head.revision != probes.revision:
                self._probes.drop([id])
            elif probes.seq > head.seq:
                with self._galleries.database.write() as session:
                    row = session.get(GalleryCalibrationRow, id)
                    if row is not None:
                        values = score_columns(probes.records, probes.seq, probes.size, row.summary)
                        probe_repository.bring_up(session, id, probes.revision, values)


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
