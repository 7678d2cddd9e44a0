"""Calibrating and measuring a gallery with labelled probes; the theory is in `calibration.identification`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from sqlalchemy.orm import Session

from pairmark.models.calibration.identification import GalleryCalibration, cmc
from pairmark.service.datasets.ingest import Datasets, dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.errors import (
    Conflict,
    InsufficientCalibration,
    InvalidInput,
    UnknownCalibration,
    UnknownEvaluation,
)
from pairmark.service.galleries import probe_repository, repository
from pairmark.service.galleries.catching_up import CatchingUp, CatchingUpSubjects, KeptProbes
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.kept import MAX_KEPT_BYTES, Thresholds, calibration_of, is_stale, point_of
from pairmark.service.galleries.probe_scores import ProbeScores
from pairmark.service.galleries.probes import Float32, ProbeReader
from pairmark.service.galleries.records import columns_of
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.schemas import (
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryEvaluationOut,
    GalleryEvaluationRequest,
    ModelOfGallery,
    ProbesRequest,
)
from pairmark.service.jobs.leases import persist
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.jobs.schemas import JobOut, NewJob, Task
from pairmark.service.runtime.scoring import Served, plain
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow, GalleryEvaluationRow
from pairmark.service.times import iso

Ending = Callable[[Session, str], None]


class Identification:
    """Makes, stores and shows what probes say about galleries (all blocking)."""

    def __init__(
        self,
        galleries: Galleries,
        datasets: Datasets,
        store: ModelStore,
        settings: Settings,
        thresholds: Thresholds | None = None,
    ) -> None:
        self._galleries = galleries
        self._thresholds = Thresholds(galleries) if thresholds is None else thresholds
        self._reader = ProbeReader(galleries, datasets, store)
        self._scores = ProbeScores(galleries)
        self._queue = JobQueue(galleries.database, settings)

    def submit(self, name: str, task: Task, request: ProbesRequest) -> JobOut:
        """Queue a calibration or an evaluation as a job, with probes of a dataset.

        Raises
        ------
        InvalidInput
            When the probes came with the request: those are measured at once.
        Conflict
            When the gallery is empty.
        """
        state = self._galleries.state(name)
        if request.dataset is None or request.vectors is not None or request.subjects is not None:
            raise InvalidInput(
                "a job takes its probes from a dataset; expected dataset, without vectors and subjects",
                field="dataset",
            )
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        probes = request.dataset

        def prepare(session: Session) -> NewJob:
            dataset = dataset_out(dataset_of(session, probes, hold=True))
            return NewJob(
                task=task,
                gallery=name,
                learner=state.kind,
                dataset_id=dataset.id,
                dataset=f"{dataset.name}:{dataset.version}",
                model=state.model,
                params=request.model_dump(mode="json", exclude={"dataset", "vectors", "subjects"}),
            )

        return self._queue.enqueue(prepare)

    def calibrate(
        self, name: str, served: Served, request: GalleryCalibrationRequest, *, ending: Ending | None = None
    ) -> GalleryCalibrationOut:
        """Learn what strangers score in a gallery.

        Parameters
        ----------
        ending : called in the transaction that keeps the calibration, with its id.

        Raises
        ------
        InvalidInput
            When every probe's subject is enrolled, or probes are not of the expected form.
        CalibrationOverlap
            When a dataset of probes holds rows or identities that the version was trained on.
        Conflict
            When the gallery is empty or moved to another version meanwhile.
        """
        state, probes, warnings = self._reader.read(name, served, request, refuse_overlap=True)
        view = self._scores.view(state, served)
        strangers = ~probes.enrolled
        if not strangers.any():
            raise InvalidInput(
                f"all {len(probes.subjects)} subjects of the probes are enrolled; expected some who are not, because "
                "the threshold comes from their scores",
                field="subjects",
            )
        how = None if request.aggregation is None else served.aggregation(request.aggregation)
        fresh = KeptProbes.unsearched(probes.subjects, probes.vectors, how)
        way = CatchingUp if how is None else CatchingUpSubjects
        kept = way(self._galleries, state, served, fresh, view).run()
        calibration = kept.calibration
        keeps = request.keep_probes and probes.vectors.nbytes <= MAX_KEPT_BYTES
        if request.keep_probes and not keeps:
            warnings.append(
                f"the probes take more than {MAX_KEPT_BYTES >> 20} MiB and are not kept: the threshold does not follow "
                "the gallery, and is refused once more than a tenth of it has changed"
            )
        row: GalleryCalibrationRow | None = None

        def keep(session: Session) -> None:
            nonlocal row
            row = GalleryCalibrationRow(
                id=secrets.token_hex(16),
                gallery_id=state.id,
                model_id=state.model_id,
                version=state.version,
                aggregation=how,
                created_at=self._galleries.database.now(session),
                **columns_of(
                    kept.records,
                    kept.seq,
                    kept.size,
                    {"state": calibration.to_state()[1], "warnings": warnings},
                ),
            )
            if not keeps:
                row.kept = None
            self._still_there(session, state)
            repository.add(session, row)
            if keeps:
                probe_repository.add_probes(session, row, kept.subjects, kept.vectors)
            if ending is not None:
                ending(session, row.id)

        self._kept(keep, ending)
        assert row is not None
        return calibration_out(state, row, state.seq)

    def calibration(self, name: str, id: str) -> GalleryCalibrationOut:
        """A calibration, or `UnknownCalibration`."""
        state = self._galleries.state(name)
        with self._galleries.database.read() as session:
            row = repository.find(session, GalleryCalibrationRow, state.id, id) if _askable(id) else None
        if row is None:
            raise UnknownCalibration(f"gallery {name!r} has no calibration {id[:64]!r}", field="calibration")
        return calibration_out(state, row, state.seq)

    def evaluate(
        self, name: str, served: Served, request: GalleryEvaluationRequest, *, ending: Ending | None = None
    ) -> GalleryEvaluationOut:
        """Measure who is found: CMC, FNIR at FPIR, and what the gallery's own threshold does; kept under an id.

        Parameters
        ----------
        ending : called in the transaction that keeps the evaluation, with its id.
        """
        state, probes, warnings = self._reader.read(name, served, request, refuse_overlap=False)
        view = self._scores.view(state, served)
        how = None if request.aggregation is None else served.aggregation(request.aggregation)
        own = self._scores.mated(state, served, probes, how)
        ranks = self._scores.ranks(state, view, probes, own, request.max_rank, how)
        best = self._scores.best(state, view, probes.vectors[~probes.enrolled], (0.5, 0.8), how)
        identification: list[dict[str, Any]] = []
        if best.size:
            calibration = GalleryCalibration(best, gallery_size=view.n_items, mated_scores=own)
            for rate in request.fpir:
                try:
                    identification.append(plain(point_of(calibration, rate, request.confidence).as_dict()))
                except InsufficientCalibration as error:
                    identification.append({"fpir": rate, "refused": error.detail, **error.facts})
        else:
            warnings.append("every probe's subject is enrolled, so nothing is known of strangers")
        threshold, calibrated = self._calibrated(state, served, request, best, own, how)
        left_out = None
        if request.leave_one_out:
            if threshold is None:
                known = [entry["threshold"] for entry in identification if "threshold" in entry]
                threshold = known[0] if known else None
            if threshold is None:
                warnings.append("leave-one-out needs a threshold: calibrate the gallery, or send strangers")
            else:
                left_out = self._scores.left_out(state, view, threshold, request.confidence, how)
        curve = cmc(ranks, request.max_rank, request.confidence) if ranks.size else None
        result = plain(
            {
                "gallery": name,
                "model": served.model,
                "gallery_size": view.n_items,
                "aggregation": how,
                "n_mated": int(own.size),
                "n_strangers": int(best.size),
                "rank_1": None if curve is None else curve["rate"][0],
                "cmc": curve,
                "identification": identification,
                "calibrated": calibrated,
                "leave_one_out": left_out,
                "warnings": warnings,
            }
        )
        row: GalleryEvaluationRow | None = None

        def keep(session: Session) -> None:
            nonlocal row
            self._still_there(session, state)
            row = GalleryEvaluationRow(
                id=secrets.token_hex(16),
                gallery_id=state.id,
                result=result,
                created_at=self._galleries.database.now(session),
            )
            repository.add(session, row)
            if ending is not None:
                ending(session, row.id)

        self._kept(keep, ending)
        assert row is not None
        return evaluation_out(row)

    def _kept(self, keep: Callable[[Session], None], ending: Ending | None) -> None:
        database = self._galleries.database
        if ending is None:
            with database.write() as session:
                keep(session)
        else:
            # A job's work is not thrown away because the database is away for a moment.
            persist(database, keep)

    def evaluation(self, name: str, id: str) -> GalleryEvaluationOut:
        """An evaluation, or `UnknownEvaluation`."""
        state = self._galleries.state(name)
        with self._galleries.database.read() as session:
            row = repository.find(session, GalleryEvaluationRow, state.id, id) if _askable(id) else None
        if row is None:
            raise UnknownEvaluation(f"gallery {name!r} has no evaluation {id[:64]!r}", field="evaluation")
        return evaluation_out(row)

    def _calibrated(
        self,
        state: State,
        served: Served,
        request: GalleryEvaluationRequest,
        best: Float32,
        own: Float32,
        how: str | None,
    ) -> tuple[float | None, dict[str, Any] | None]:
        if not request.fpir:
            return None, None
        try:
            point, threshold, _ = self._thresholds.at(
                state, served, request.fpir[0], request.confidence, aggregation=how
            )
        except (UnknownCalibration, InsufficientCalibration, Conflict):
            return None, None
        seen = {
            "seen_fpir": float((best > threshold).mean()) if best.size else None,
            "seen_fnir": float((own <= threshold).mean()) if own.size else None,
        }
        return float(threshold), {**point, **seen}

    def _still_there(self, session: Any, state: State) -> None:
        now = repository.state_by_id(session, state.id)
        if now is None or (now.model_id, now.version) != (state.model_id, state.version):
            raise Conflict(f"gallery {state.name!r} was moved or deleted meanwhile")


def calibration_out(state: State, row: GalleryCalibrationRow, seq: int) -> GalleryCalibrationOut:
    """A calibration as JSON shows it."""
    changed = max(seq - row.seq, 0)
    size = int(row.summary["gallery_size"])
    same = (row.model_id, row.version) == (state.model_id, state.version)
    return GalleryCalibrationOut(
        id=row.id,
        gallery=state.name,
        model=ModelOfGallery(
            name=state.model if same else "(earlier)", version=row.version, kind=state.kind if same else None
        ),
        aggregation=row.aggregation,
        n_probes=int(row.summary["n_probes"]),
        n_mated=int(row.summary["n_mated"]),
        gallery_size=size,
        smallest_fpir=calibration_of(row).smallest_fpir(),
        changed=changed,
        probes_kept=row.kept is not None,
        stale=not same or (row.kept is None and is_stale(size, changed)),
        warnings=list(row.summary["warnings"]),
        created_at=iso(row.created_at),
    )


def evaluation_out(row: GalleryEvaluationRow) -> GalleryEvaluationOut:
    """An evaluation as JSON shows it."""
    return GalleryEvaluationOut.model_validate(
        {**row.result, "id": row.id, "created_at": iso(row.created_at)}
    )


def _askable(id: str) -> bool:
    return id.isascii() and id.isalnum() and len(id) <= 32
