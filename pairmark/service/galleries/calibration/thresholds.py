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
from collections.abc import Callable
from typing import Any

import numpy as np

from pairmark.models.calibration.identification import GalleryCalibration, IdentificationPoint
from pairmark.models.calibration.operating_point import InsufficientCalibrationData, without_guarantee
from pairmark.service.caches import BoundedCache
from pairmark.service.errors import Conflict, DamagedRow, SearchTooLong, UnknownCalibration, UnsupportedRate
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import KeptProbes, load, score_columns
from pairmark.service.galleries.calibration.probe_repository import CalibrationHead
from pairmark.service.galleries.calibration.probe_updates import BaseScores, ProbeUpdate, SubjectProbeUpdate
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView
from pairmark.service.galleries.items.item_forms import ItemForm, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.runtime.points import plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.tables import GalleryCalibrationRow

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
