"""Calibrations of galleries with people who are not enrolled, and thresholds that follow every write and erasure.

A calibration at sequence number c holds, for each probe, its best score in the gallery and the number of the item that
gave it. At a later moment the best score is the larger one of that and of the best among the items written since; where
the item itself is gone, the probe is searched anew. So the scores are those of a calibration made just now, from the
rows in the database alone: nothing has to be written beside an item, and nothing is lost with a process.

Probes whose subject was enrolled meanwhile are no strangers: they leave the rate, and say how often their subject is
missed, until the subject is erased again. The theory is in `calibration.identification`.
"""

import secrets
import threading
import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.identification import GalleryCalibration, IdentificationPoint
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.schemas.base import iso
from pairmark.schemas.galleries import GalleryCalibrationOut, GalleryCalibrationRequest, ModelOfGallery
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.held_out import cells_for
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.errors import (
    Conflict,
    DamagedRow,
    InvalidInput,
    SearchTooLong,
    TooLarge,
    UnknownCalibration,
    UnsupportedRate,
)
from pairmark.service.galleries import repository
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.repository import RECORD, scores_of
from pairmark.service.galleries.rows import ItemForm, Matrix, RecordForm, form_of, subject_text
from pairmark.service.galleries.view import GalleryView
from pairmark.service.runtime.operating_points import ServedPoint, plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow, GalleryRow

PROBES_AT_A_TIME = 64
MAX_TEMPLATES = 10_000
"""Most items of one subject that a probe, or a verification, is compared with."""
MAX_PROBE_BYTES = 64 * 2**20
"""Of all probes of a calibration."""
CACHED_CALIBRATIONS = 16
"""Calibrations whose probes one process holds."""


@dataclass(frozen=True)
class ScoredProbes:
    """Probes and what they score in a gallery at ``seq``.

    Attributes
    ----------
    id : of the calibration, "" while it has none. revision : counts erasures of probes.
    subjects : n different texts. vectors : (n, d), as the model takes them. records : (n,) of `RECORD`.
    size : items of the gallery.
    """

    id: str
    revision: int
    subjects: list[str]
    vectors: Matrix
    records: NDArray[np.void]
    seq: int
    size: int

    @classmethod
    def unsearched(cls, subjects: list[str], vectors: Matrix) -> "ScoredProbes":
        """Probes that were never compared with anything."""
        records = np.zeros(len(subjects), dtype=RECORD)
        records["best"], records["at"] = -np.inf, -1
        return cls("", 0, subjects, vectors, records, 0, 0)

    @classmethod
    def of_row(
        cls, row: GalleryCalibrationRow, form: ItemForm, stored: list[tuple[str, bytes]]
    ) -> "ScoredProbes":
        """The probes that a calibration keeps: subjects and bodies, by place."""
        vectors, sound = form.rows([body for _, body in stored])
        records = np.frombuffer(row.kept or b"", dtype=RECORD)
        if len(records) != len(stored) or not sound.all():
            raise ValueError(f"{len(records)} scores of probes, and {len(stored)} probes")
        size, subjects = int(row.summary["gallery_size"]), [subject for subject, _ in stored]
        return cls(row.id, row.revision, subjects, vectors, records, row.seq, size)

    @cached_property
    def calibration(self) -> GalleryCalibration:
        """What the strangers among them say; there must be one."""
        best, mated = scores_of(self.records)
        return GalleryCalibration(best, gallery_size=max(self.size, 1), mated_scores=mated)


def rescore_probes(
    galleries: Galleries, state: GalleryRow, version: LoadedVersion, probes: ScoredProbes, view: GalleryView
) -> ScoredProbes:
    """Probes with the scores that they have in a view of the gallery (blocking)."""
    records = probes.records.copy()
    _score_enrolled(galleries, state, version, probes, records)
    strangers = records["own_items"] == 0
    _search_items(galleries, state, probes, records, strangers, view)
    return replace(probes, records=records, seq=view.seq, size=view.n_items)


def _score_enrolled(
    galleries: Galleries,
    state: GalleryRow,
    version: LoadedVersion,
    probes: ScoredProbes,
    records: NDArray[np.void],
) -> None:
    """Score probes with the items of their own subjects, those whose items changed."""
    form = form_of(version.estimator, state.dimension)
    with galleries.database.read() as session:
        stamps = repository.stamps(session, state.id, probes.subjects)
    for place, subject in enumerate(probes.subjects):
        n, newest = stamps.get(subject, (0, 0))
        if (n, newest) == (records["own_items"][place], records["own_newest"][place]):
            continue
        records["own_items"][place], records["own_newest"][place] = n, newest
        if n:
            with galleries.database.read() as session:
                items = repository.subject_rows(session, state, form, subject, MAX_TEMPLATES)
            probe = probes.vectors[place : place + 1]
            # Erased since: found by nobody.
            records["own"][place] = -np.inf if items is None else version.score(probe, items.vectors).max()


def _search_items(
    galleries: Galleries,
    state: GalleryRow,
    probes: ScoredProbes,
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
    for places, after in searches:
        lowest_best = records["best"][places].min()
        hits = view.search(
            probes.vectors[places],
            1,
            above=np.float32(lowest_best) if np.isfinite(lowest_best) else None,
            other_search=None if after else galleries.views.cluster.searching(state, (), view.seq),
            after=after,
        )
        for place, probe_hits in zip(places.tolist(), hits, strict=True):
            if probe_hits and np.float32(probe_hits[0].score) > records["best"][place]:
                records["best"][place], best_ids[place] = probe_hits[0].score, probe_hits[0].id
    with galleries.database.read() as session:
        seqs = repository.seqs_of(session, state.id, sorted(set(best_ids.values())))
    for place, id in best_ids.items():
        # One that was replaced or erased since the view counts as gone.
        seq = seqs.get(id, -1)
        records["at"][place] = seq if seq <= view.seq else -1


def _pieces(places: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [places[at : at + PROBES_AT_A_TIME] for at in range(0, len(places), PROBES_AT_A_TIME)]


class Thresholds:
    """Thresholds at rates of a whole search, each for the gallery as it is at the search (blocking)."""

    def __init__(self, galleries: Galleries) -> None:
        self._galleries = galleries
        self._probes: BoundedCache[str, ScoredProbes] = BoundedCache(CACHED_CALIBRATIONS)
        self._updating: BoundedCache[str, threading.Lock] = BoundedCache(CACHED_CALIBRATIONS)

    def for_rate(
        self,
        state: GalleryRow,
        version: LoadedVersion,
        fpir: float,
        confidence: float,
        deadline: float | None = None,
    ) -> tuple[ServedPoint, GalleryView]:
        """The operating point, and the view of the gallery that it is exact for.
        `SearchTooLong` when another thread is still at work when the deadline passes.
        """
        with self._galleries.database.read() as session:
            head = repository.newest_head(session, state)
        if head is None:
            raise UnknownCalibration(
                f"gallery {state.name!r} has no calibration with {state.model}:{state.version}; make one with "
                f"POST /galleries/{state.name}/calibrations from people who are not enrolled",
                field="fpir",
            )
        probes, view = self._at_one_moment(state, version, head, deadline)
        point = _point_of(probes, state, fpir, confidence)
        facts = {**plain(point.as_dict()), "calibration_id": head.id, "sequence": probes.seq}
        return ServedPoint(np.float32(point.threshold), facts), view

    def _at_one_moment(
        self, state: GalleryRow, version: LoadedVersion, head: GalleryCalibrationRow, deadline: float | None
    ) -> tuple[ScoredProbes, GalleryView]:
        live = self._galleries.views.live(state, version.estimator)
        form = form_of(version.estimator, state.dimension)
        view = live.view(state.seq)
        while (probes := self._newest(head, form)).seq != view.seq:
            if probes.seq < view.seq:
                self._catch_up(state, version, head, view, deadline)
                continue
            # Another search was faster: its view holds what this one's does.
            view = live.view(probes.seq)
            if view.seq < probes.seq:
                raise DamagedRow(
                    f"gallery {state.name!r} is damaged: its sequence number went back; restore a backup",
                    table="galleries",
                    row=state.name,
                )
        return probes, view

    def _newest(self, head: GalleryCalibrationRow, form: ItemForm) -> ScoredProbes:
        """The newest known scores of a calibration, of this process or of the database."""
        probes = self._probes.get(head.id)
        if probes is None or probes.revision != head.revision:
            with self._galleries.database.read(one_moment=True) as session:
                row = session.get(GalleryCalibrationRow, head.id)
                if row is None or row.kept is None:
                    raise Conflict("the calibration was replaced just now: ask again", calibration_id=head.id)
                probes = ScoredProbes.of_row(row, form, repository.probes_of(session, head.id))
            self._probes.put(head.id, probes)
        return probes

    def _catch_up(
        self,
        state: GalleryRow,
        version: LoadedVersion,
        head: GalleryCalibrationRow,
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
                self._probes.put(head.id, rescore_probes(self._galleries, state, version, probes, view))
        finally:
            lock.release()

    def keep_up(self) -> None:
        """Store what this process worked out, and let go of probes that were erased or replaced."""
        for id, probes in self._probes.entries():
            with self._galleries.database.read() as session:
                head = repository.head_of(session, id)
            if head is None or head.revision != probes.revision:
                self._probes.drop([id])
            elif probes.seq > head.seq:
                with self._galleries.database.write() as session:
                    row = session.get(GalleryCalibrationRow, id, with_for_update=True)
                    # Unless probes were erased meanwhile, or somebody was faster.
                    if row is not None and row.revision == probes.revision and row.seq < probes.seq:
                        repository.store_scores(row, probes.records, probes.seq, probes.size)


def _point_of(probes: ScoredProbes, state: GalleryRow, fpir: float, confidence: float) -> IdentificationPoint:
    """The operating point, or `UnsupportedRate`."""
    if not np.any(probes.records["own_items"] == 0):
        raise Conflict(
            f"every probe of the calibration of gallery {state.name!r} was enrolled or erased since: calibrate again "
            f"(POST /galleries/{state.name}/calibrations)",
            calibration_id=probes.id,
        )
    try:
        return probes.calibration.operating_point(fpir, confidence)
    except InsufficientCalibrationData as error:
        raise UnsupportedRate(
            str(error), smallest_fpr=plain(error.smallest_fpr), required_units=plain(error.required_units)
        ) from error


class Identification:
    """Makes, stores and shows calibrations of galleries (all blocking)."""

    def __init__(self, galleries: Galleries, datasets: Datasets, store: ModelStore) -> None:
        self._galleries = galleries
        self._datasets = datasets
        self._store = store

    def calibrate(
        self, name: str, version: LoadedVersion, request: GalleryCalibrationRequest
    ) -> GalleryCalibrationOut:
        """Calibrate with a dataset whose labels (or, without labels, ids of rows) are subjects; it must hold nothing
        that the version was trained on."""
        data = self._datasets.load(self._datasets.get(request.dataset).id)
        if data.y is None and data.row_ids is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has neither labels nor ids; expected the subject of each row as "
                "its label, or as its id where each has one row",
                field="dataset",
            )
        overlap = self._store.overlap(version.entry.name, version.entry.version, data)
        warnings = []
        if overlap is not None and overlap.identities:
            # Of rows, and of identities in open-set use, it is refused.
            warnings.append(
                f"{overlap.identities} identities of the probes were trained on: figures may be too good"
            )
        form = form_of(version.estimator, version.n_features)
        rows: Any = cells_for(form.schema if isinstance(form, RecordForm) else None, data)
        if not isinstance(form, RecordForm):
            rows = np.array(rows.toarray() if data.is_sparse else rows, dtype=np.float32)
        if data.y is None:
            subjects = [subject_text(id, "dataset: an id") for id in data.row_ids or ()]
        else:
            names = [subject_text(identity, "dataset: a label") for identity in data.identities]
            subjects = [names[code] for code in np.asarray(data.y).tolist()]
        return self.calibrate_rows(name, version, rows, subjects, request.random_state, warnings)

    def calibrate_rows(
        self,
        name: str,
        version: LoadedVersion,
        rows: Matrix,
        subjects: list[str],
        seed: int = 0,
        warnings: list[str] | None = None,
    ) -> GalleryCalibrationOut:
        """Calibrate with rows of some subjects.

        Parameters
        ----------
        rows : (n, d) float32, or cells of records as `Schema.records` makes them.
        seed : draws one row of each subject.
        """
        state = self._galleries.state(name)
        form = form_of(version.estimator, state.dimension)
        if (state.model_id, state.version) != (version.entry.model_id, version.entry.version):
            raise Conflict(f"gallery {name!r} moved to another version just now: ask again")
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        if state.columns is None and rows.shape[1] != state.dimension:
            raise InvalidInput(
                f"probes have {rows.shape[1]} numbers; the gallery's vectors have {state.dimension}",
                field="dataset",
                expected_dimension=state.dimension,
            )
        # One probe a subject, drawn without a look at scores: several of one person are not independent.
        first: dict[str, int] = {}
        for place in np.random.default_rng(seed).permutation(len(subjects)).tolist():
            first.setdefault(subjects[place], place)
        places = sorted(first.values())
        drawn, drawn_subjects = rows[places], [subjects[place] for place in places]
        bodies = form.bodies(drawn)
        if sum(map(len, bodies)) > MAX_PROBE_BYTES:
            raise TooLarge(
                f"the probes take more than {MAX_PROBE_BYTES >> 20} MiB; send fewer people",
                limit=MAX_PROBE_BYTES,
            )
        vectors = form.model_rows(drawn) if isinstance(form, RecordForm) else drawn
        view = self._galleries.views.live(state, version.estimator).view(state.seq)
        unsearched = ScoredProbes.unsearched(drawn_subjects, vectors)
        probes = rescore_probes(self._galleries, state, version, unsearched, view)
        if probes.records["own_items"].all():
            raise InvalidInput(
                f"all {len(drawn_subjects)} subjects of the probes are enrolled; expected some who are not, because "
                "the threshold comes from their scores",
                field="dataset",
            )
        summary = {"state": probes.calibration.to_state()[1], "warnings": warnings or []}
        with self._galleries.database.write() as session:
            current = repository.gallery(session, state.id)
            if current is None or (current.model_id, current.version) != (state.model_id, state.version):
                raise Conflict(f"gallery {name!r} was moved or deleted meanwhile")
            row = GalleryCalibrationRow(
                id=secrets.token_hex(16),
                gallery_id=state.id,
                model_id=state.model_id,
                version=state.version,
                created_at=self._galleries.database.now(session),
                summary=summary,
            )
            repository.store_scores(row, probes.records, probes.seq, probes.size)
            repository.add_calibration(session, row, drawn_subjects, bodies)
        return calibration_out(state, row)

    def calibration(self, name: str, id: str) -> GalleryCalibrationOut:
        state = self._galleries.state(name)
        with self._galleries.database.read() as session:
            row = repository.find_calibration(session, state.id, id)
        if row is None:
            raise UnknownCalibration(f"gallery {name!r} has no calibration {id[:64]!r}", field="calibration")
        return calibration_out(state, row)


def calibration_out(state: GalleryRow, row: GalleryCalibrationRow) -> GalleryCalibrationOut:
    same_version = (row.model_id, row.version) == (state.model_id, state.version)
    best, mated = (np.frombuffer(scores, dtype="<f4") for scores in (row.best, row.mated))
    calibration = GalleryCalibration.from_state({"best": best, "mated": mated}, row.summary["state"])
    return GalleryCalibrationOut(
        id=row.id,
        gallery=state.name,
        model=ModelOfGallery(
            name=state.model if same_version else "(earlier)",
            version=row.version,
            kind=state.kind if same_version else None,
        ),
        n_probes=int(row.summary["n_probes"]),
        n_mated=int(row.summary["n_mated"]),
        gallery_size=int(row.summary["gallery_size"]),
        smallest_fpir=calibration.smallest_fpir(),
        changed=max(state.seq - row.seq, 0),
        stale=not same_version or row.kept is None,
        warnings=list(row.summary["warnings"]),
        created_at=iso(row.created_at),
    )
