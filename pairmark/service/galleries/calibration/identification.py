"""Calibrating and measuring a gallery with labelled probes; the theory is in `calibration.identification`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.identification import cmc
from pairmark.schemas.base import iso
from pairmark.schemas.galleries import (
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryEvaluationOut,
    GalleryEvaluationRequest,
    ModelOfGallery,
    ProbesRequest,
)
from pairmark.schemas.jobs import JobOut, Task
from pairmark.service.datasets.ingest import Datasets, dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.errors import (
    Conflict,
    InvalidInput,
    UnknownCalibration,
    UnknownEvaluation,
    UnsupportedRate,
)
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import KeptProbes, score_columns, scores_of
from pairmark.service.galleries.calibration.probe_updates import ProbeUpdate, SubjectProbeUpdate
from pairmark.service.galleries.calibration.probes import ProbeReader, Probes, ranks_of, search_left_out
from pairmark.service.galleries.calibration.thresholds import (
    MAX_KEPT_BYTES,
    Thresholds,
    calibration_of,
    point_of,
)
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView, ItemHit
from pairmark.service.galleries.index.subject_search import SubjectHit
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.item_forms import Matrix, form_of
from pairmark.service.galleries.repository import GalleryState, Measured
from pairmark.service.jobs.claims import NewJob
from pairmark.service.jobs.leases import persist
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.runtime.points import plain
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow, GalleryEvaluationRow

Ending = Callable[[Session, str], None]
"""Called in the transaction that keeps a measurement, with its id."""


class Identification:
    """Makes, stores and shows what probes say about galleries (all blocking)."""

    def __init__(
        self,
        galleries: Galleries,
        datasets: Datasets,
        store: ModelStore,
        settings: Settings,
        thresholds: Thresholds,
    ) -> None:
        self._galleries = galleries
        self._thresholds = thresholds
        self._reader = ProbeReader(galleries, datasets, store)
        self._queue = JobQueue(galleries.database, settings)

    def submit(self, name: str, task: Task, request: ProbesRequest) -> JobOut:
        """Queue a calibration or an evaluation as a job, with probes of a dataset."""
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
        self,
        name: str,
        version: LoadedVersion,
        request: GalleryCalibrationRequest,
        *,
        ending: Ending | None = None,
    ) -> GalleryCalibrationOut:
        state, probes, warnings = self._reader.read(name, version, request, refuse_overlap=True)
        if probes.enrolled.all():
            raise InvalidInput(
                f"all {len(probes.subjects)} subjects of the probes are enrolled; expected some who are not, because "
                "the threshold comes from their scores",
                field="subjects",
            )
        aggregation = None if request.aggregation is None else version.aggregation(request.aggregation)
        view = self._galleries.views.live(state, version.estimator).view(state.seq)
        probe_set = self._searched(state, version, probes, aggregation, view)
        calibration = probe_set.calibration
        keeps = request.keep_probes and sum(map(len, probes.bodies)) <= MAX_KEPT_BYTES
        if request.keep_probes and not keeps:
            warnings.append(
                f"the probes take more than {MAX_KEPT_BYTES >> 20} MiB and are not kept: the threshold does not follow "
                "the gallery, and is refused once more than a tenth of it has changed"
            )

        def make(session: Session) -> GalleryCalibrationRow:
            row = GalleryCalibrationRow(
                id=secrets.token_hex(16),
                gallery_id=state.id,
                model_id=state.model_id,
                version=state.version,
                aggregation=aggregation,
                created_at=self._galleries.database.now(session),
                **score_columns(
                    probe_set.records,
                    probe_set.seq,
                    probe_set.size,
                    {"state": calibration.to_state()[1], "warnings": warnings},
                ),
            )
            if not keeps:
                row.kept = None
            repository.add(session, row)
            if keeps:
                probe_repository.add_probes(session, row, probe_set.subjects, probes.bodies)
            return row

        return calibration_out(state, self._store(state, make, ending))

    def calibration(self, name: str, id: str) -> GalleryCalibrationOut:
        state, row = self._measured_row(name, GalleryCalibrationRow, id)
        if row is None:
            raise UnknownCalibration(f"gallery {name!r} has no calibration {id[:64]!r}", field="calibration")
        return calibration_out(state, row)

    def evaluate(
        self,
        name: str,
        version: LoadedVersion,
        request: GalleryEvaluationRequest,
        *,
        ending: Ending | None = None,
    ) -> GalleryEvaluationOut:
        """Measure who is found: CMC, FNIR at FPIR, and what the gallery's own threshold does; kept under an id."""
        state, probes, warnings = self._reader.read(name, version, request, refuse_overlap=False)
        view = self._galleries.views.live(state, version.estimator).view(state.seq)
        aggregation = None if request.aggregation is None else version.aggregation(request.aggregation)
        scored = self._searched(state, version, probes, aggregation, view, share=0.4)
        best, own = scores_of(scored.records)
        search = partial(self._subjects, state, view, aggregation)
        ranks = ranks_of(search, probes, scored.records, request.max_rank)
        identification: list[dict[str, Any]] = []
        if best.size:
            for rate in request.fpir:
                try:
                    identification.append(
                        plain(point_of(scored.calibration, rate, request.confidence).as_dict())
                    )
                except UnsupportedRate as error:
                    identification.append({"fpir": rate, "refused": error.detail, **error.facts})
        else:
            warnings.append("every probe's subject is enrolled, so nothing is known of strangers")
        threshold, calibrated = self._calibrated(state, version, request, best, own, aggregation, warnings)
        left_out = None
        if request.leave_one_out:
            if threshold is None:
                thresholds = [entry["threshold"] for entry in identification if "threshold" in entry]
                threshold = thresholds[0] if thresholds else None
            if threshold is None:
                warnings.append("leave-one-out needs a threshold: calibrate the gallery, or send strangers")
            else:
                with self._galleries.database.read() as session:
                    form = form_of(version.estimator, state.dimension)
                    items = item_repository.read_range(session, state, form, 0, view.seq)
                    left_out = search_left_out(search, items, threshold, request.confidence)
        curve = cmc(ranks, request.max_rank, request.confidence) if ranks.size else None
        result = plain(
            {
                "gallery": name,
                "model": version.public,
                "gallery_size": view.n_items,
                "aggregation": aggregation,
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

        def make(session: Session) -> GalleryEvaluationRow:
            row = GalleryEvaluationRow(
                id=secrets.token_hex(16),
                gallery_id=state.id,
                result=result,
                created_at=self._galleries.database.now(session),
            )
            repository.add(session, row)
            return row

        return evaluation_out(self._store(state, make, ending))

    def _searched(
        self,
        state: GalleryState,
        version: LoadedVersion,
        probes: Probes,
        aggregation: str | None,
        view: GalleryView,
        share: float = 0.9,
    ) -> KeptProbes:
        """The probes with their scores in a view of the gallery, which is that share of the whole work."""
        fresh = KeptProbes.unsearched(probes.subjects, probes.vectors, aggregation)
        way = ProbeUpdate if aggregation is None else SubjectProbeUpdate
        return way(self._galleries, state, version, fresh, view).run(share=share)

    def _subjects(
        self, state: GalleryState, view: GalleryView, aggregation: str | None, probes: Matrix, k: int
    ) -> list[list[ItemHit]] | list[list[SubjectHit]]:
        """The best subjects of each probe, by their best item or, with ``aggregation``, as wholes."""
        views = self._galleries.views
        if aggregation is not None:
            return views.live(state, view.estimator).subjects.at(view, aggregation).search(probes, k)
        return view.search(probes, k, other_search=views.cluster_search(state, (), view.seq), by_subject=True)

    def _store(
        self, state: GalleryState, make: Callable[[Session], Measured], ending: Ending | None
    ) -> Measured:
        """What ``make`` inserts, unless the gallery was moved or deleted meanwhile."""

        def keep(session: Session) -> Measured:
            current = repository.state_by_id(session, state.id)
            if current is None or (current.model_id, current.version) != (state.model_id, state.version):
                raise Conflict(f"gallery {state.name!r} was moved or deleted meanwhile")
            row = make(session)
            if ending is not None:
                ending(session, row.id)
            return row

        if ending is not None:
            # A job's work is not thrown away because the database is away for a moment.
            return persist(self._galleries.database, keep)
        with self._galleries.database.write() as session:
            return keep(session)

    def _measured_row(
        self, name: str, table: type[Measured], id: str
    ) -> tuple[GalleryState, Measured | None]:
        state = self._galleries.state(name)
        askable = id.isascii() and id.isalnum() and len(id) <= 32
        with self._galleries.database.read() as session:
            return state, repository.find(session, table, state.id, id) if askable else None

    def evaluation(self, name: str, id: str) -> GalleryEvaluationOut:
        _, row = self._measured_row(name, GalleryEvaluationRow, id)
        if row is None:
            raise UnknownEvaluation(f"gallery {name!r} has no evaluation {id[:64]!r}", field="evaluation")
        return evaluation_out(row)

    def _calibrated(
        self,
        state: GalleryState,
        version: LoadedVersion,
        request: GalleryEvaluationRequest,
        best: NDArray[np.float32],
        own: NDArray[np.float32],
        aggregation: str | None,
        warnings: list[str],
    ) -> tuple[float | None, dict[str, Any] | None]:
        """The threshold that the gallery's own calibration gives, and what it does to these probes; both None where it
        gives none, with the reason among the warnings unless nothing was calibrated."""
        if not request.fpir:
            return None, None
        try:
            point, threshold, _ = self._thresholds.at(
                state, version, request.fpir[0], request.confidence, aggregation=aggregation
            )
        except UnknownCalibration:
            return None, None
        except (UnsupportedRate, Conflict) as error:
            warnings.append(f"the gallery's own threshold was not tried: {error.detail}")
            return None, None
        observed = {
            "seen_fpir": float((best > threshold).mean()) if best.size else None,
            "seen_fnir": float((own <= threshold).mean()) if own.size else None,
        }
        return float(threshold), {**point, **observed}


def calibration_out(state: GalleryState, row: GalleryCalibrationRow) -> GalleryCalibrationOut:
    n_changed = max(state.seq - row.seq, 0)
    size = int(row.summary["gallery_size"])
    same_version = (row.model_id, row.version) == (state.model_id, state.version)
    return GalleryCalibrationOut(
        id=row.id,
        gallery=state.name,
        model=ModelOfGallery(
            name=state.model if same_version else "(earlier)",
            version=row.version,
            kind=state.kind if same_version else None,
        ),
        aggregation=row.aggregation,
        n_probes=int(row.summary["n_probes"]),
        n_mated=int(row.summary["n_mated"]),
        gallery_size=size,
        smallest_fpir=calibration_of(row).smallest_fpir(),
        changed=n_changed,
        probes_kept=row.kept is not None,
        stale=not same_version or (row.kept is None and n_changed > 0),
        warnings=list(row.summary["warnings"]),
        created_at=iso(row.created_at),
    )


def evaluation_out(row: GalleryEvaluationRow) -> GalleryEvaluationOut:
    return GalleryEvaluationOut.model_validate(
        {**row.result, "id": row.id, "created_at": iso(row.created_at)}
    )
