"""Calibrating and measuring a gallery with labelled probes; the theory is in `calibration.identification`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.identification import cmc, leave_one_subject_out
from pairmark.models.core.progress import listening, report
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
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets, dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.db import Database
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
from pairmark.service.galleries.calibration.thresholds import (
    MAX_KEPT_BYTES,
    ProbeUpdate,
    SubjectProbeUpdate,
    Thresholds,
    calibration_of,
    point_of,
)
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.index.gallery_view import GalleryView, ItemHit, SubjectHit
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import (
    ItemForm,
    Matrix,
    RecordForm,
    StoredRows,
    VectorForm,
    form_of,
    refuse_wholes,
    subject_text,
)
from pairmark.service.galleries.repository import GalleryState, Measured
from pairmark.service.heldout.pairs import cells_for
from pairmark.service.jobs.child import Progress
from pairmark.service.jobs.claims import Claim, NewJob
from pairmark.service.jobs.queue import JobQueue, persist
from pairmark.service.runtime.points import plain
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow, GalleryEvaluationRow

MAX_LEFT_OUT = 2_000
"""Enrolled subjects that are searched among the others for an estimate."""

Search = Callable[[Matrix, int], Sequence[Sequence[ItemHit | SubjectHit]]]
"""Probes and k -> the k best subjects of each."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """One probe a subject.

    Attributes
    ----------
    vectors : (n, d), as the model takes them. bodies : the same as the database stores them.
    subjects : n different texts. enrolled : (n,) whether the gallery has the subject.
    """

    vectors: Matrix
    bodies: list[bytes]
    subjects: list[str]
    enrolled: NDArray[np.bool_]


class ProbeReader:
    """Reads what a request names, and looks up who is enrolled (all blocking)."""

    def __init__(self, galleries: Galleries, datasets: Datasets, store: ModelStore) -> None:
        self._galleries = galleries
        self._datasets = datasets
        self._store = store

    def read(
        self, name: str, version: LoadedVersion, request: ProbesRequest, *, refuse_overlap: bool
    ) -> tuple[GalleryState, Probes, list[str]]:
        """The gallery, one probe a subject, and warnings."""
        state = self._galleries.state(name)
        if (state.model_id, state.version) != (version.entry.model_id, version.entry.version):
            raise Conflict(f"gallery {name!r} moved to another version just now: ask again")
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        form = form_of(version.estimator, state.dimension)
        if request.aggregation is not None:
            refuse_wholes(form)
        raw_rows, subjects, warnings = self._labelled(version, request, form, refuse_overlap)
        if isinstance(form, VectorForm) and raw_rows.shape[1] != state.dimension:
            raise InvalidInput(
                f"probes have {raw_rows.shape[1]} numbers; the gallery's vectors have {state.dimension}",
                field="vectors",
                expected_dimension=state.dimension,
            )
        # One probe a subject, drawn without a look at scores: several of one person are not independent.
        order = np.random.default_rng(request.random_state).permutation(len(subjects))
        first: dict[str, int] = {}
        for at in order.tolist():
            first.setdefault(subjects[at], at)
        rows = sorted(first.values())
        drawn_subjects = [subjects[at] for at in rows]
        with self._galleries.database.read() as session:
            stamps = item_repository.stamps(session, state.id, drawn_subjects)
        enrolled = np.array([subject in stamps for subject in drawn_subjects], dtype=np.bool_)
        drawn_rows = raw_rows[rows]
        vectors = form.model_rows(drawn_rows) if isinstance(form, RecordForm) else drawn_rows
        probes = Probes(
            vectors=vectors, bodies=form.bodies(drawn_rows), subjects=drawn_subjects, enrolled=enrolled
        )
        return state, probes, warnings

    def _labelled(
        self, version: LoadedVersion, request: ProbesRequest, form: ItemForm, refuse_overlap: bool
    ) -> tuple[Matrix, list[str], list[str]]:
        if (request.dataset is None) == (request.vectors is None):
            raise InvalidInput("expected either dataset, or vectors and subjects", field="dataset")
        if request.dataset is not None:
            return self._of_dataset(version, request.dataset, form, refuse_overlap)
        rows, subjects = request.vectors, request.subjects
        if rows is None or not len(rows) or subjects is None or len(subjects) != len(rows):
            n, n_rows = (0 if given is None else len(given) for given in (subjects, rows))
            raise InvalidInput(
                f"there are {n_rows} vectors and {n} subjects; expected equal numbers, at least one",
                field="subjects",
            )
        whose = [subject_text(subject, "subjects") for subject in subjects]
        if isinstance(form, RecordForm) or isinstance(rows[0], dict):
            cells, problems = form.read_json(rows)
            bad = next((at for at, problem in enumerate(problems) if problem is not None), None)
            if bad is not None:
                raise InvalidInput(f"vectors[{bad}]: {problems[bad]}", field=f"vectors[{bad}]")
            return cells, whose, []
        if len({len(row) for row in rows}) != 1:
            raise InvalidInput("vectors are of different lengths; expected one", field="vectors")
        with np.errstate(over="ignore"):
            vectors = np.array(rows, dtype=np.float32)
        if not vectors.shape[1] or not np.isfinite(vectors).all():
            raise InvalidInput(
                "vectors hold NaN, infinities or nothing; expected finite numbers", field="vectors"
            )
        return vectors, whose, []

    def _of_dataset(
        self, version: LoadedVersion, reference: str, form: ItemForm, refuse_overlap: bool
    ) -> tuple[Matrix, list[str], list[str]]:
        data = self._datasets.load(self._datasets.get(reference).id)
        if data.y is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has no labels; expected the subject of each row as its label",
                field="dataset",
            )
        overlap = self._store.overlap(version.entry.name, version.entry.version, data, refuse=refuse_overlap)
        warnings = []
        if overlap is not None and (overlap.rows or overlap.identities):
            warnings.append(
                f"{overlap.rows} rows and {overlap.identities} identities of the probes were trained on: figures may "
                "be too good"
            )
        schema = form.schema if isinstance(form, RecordForm) else None
        X: Any = cells_for(schema, data)
        vectors = (
            X if schema is not None else np.array(X.toarray() if data.is_sparse else X, dtype=np.float32)
        )
        names = [subject_text(identity, "dataset: a label") for identity in data.identities]
        return vectors, [names[code] for code in np.asarray(data.y).tolist()], warnings


def ranks_of(search: Search, probes: Probes, records: NDArray[np.void], max_rank: int) -> NDArray[np.int64]:
    """Rank of each enrolled probe's own subject among subjects, ties against it; max_rank + 1 for later. ``records``:
    the probes' scores, see `RECORD`."""
    enrolled = np.flatnonzero(records["own_items"] > 0)
    ranks: list[int] = []
    for at in enrolled.tolist():
        report(0.4 + 0.4 * len(ranks) / enrolled.size, "ranking the enrolled")
        hits = search(probes.vectors[at : at + 1], max_rank + 1)[0]
        own_score = records["own"][at]
        n_better = sum(
            hit.subject != probes.subjects[at] and np.float32(hit.score) >= own_score for hit in hits
        )
        ranks.append(min(1 + n_better, max_rank + 1))
    return np.array(ranks, dtype=np.int64)


def search_left_out(
    search: Search, items: Iterable[StoredRows], threshold: float, confidence: float
) -> dict[str, Any] | None:
    """Search for enrolled subjects, one item each, among the others."""
    best: dict[str, float] = {}
    for rows in items:
        for at, subject in enumerate(rows.subjects):
            if subject is None or subject in best or len(best) >= MAX_LEFT_OUT:
                continue
            report(0.8 + 0.2 * len(best) / MAX_LEFT_OUT, "leaving one out")
            hits = search(rows.vectors[at : at + 1], 2)[0]
            best[subject] = next((hit.score for hit in hits if hit.subject != subject), -np.inf)
        if len(best) >= MAX_LEFT_OUT:
            break
    if len(best) < 2:
        return None
    return leave_one_subject_out(np.array(list(best.values())), np.array(list(best)), threshold, confidence)


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


STAGES = {"loading": (0.0, 0.05), "searching": (0.05, 1.0)}


class Measurer:
    """Runs one attempt at a gallery's calibration or evaluation."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._settings = db, settings
        self._queue = JobQueue(db, settings)
        self._store = ModelStore(db, blobs, settings)
        self._datasets = Datasets(db, blobs, settings)

    def run(self, claim: Claim) -> str:
        """Measure and keep what was found; returns its id."""
        assert claim.gallery is not None
        progress = Progress(self._queue, claim, STAGES)
        progress.stage("loading")
        galleries = Galleries(self._db, self._settings)
        try:
            state = galleries.state(claim.gallery)
            runtime = Runtime(self._store, self._db, self._settings)
            version = asyncio.run(runtime.version_for(f"{state.model}:{state.version}", "search"))
            identification = Identification(
                galleries, self._datasets, self._store, self._settings, Thresholds(galleries)
            )
            # The version of the dataset that there was when the job was submitted.
            params: dict[str, Any] = {**claim.params, "dataset": claim.dataset}
            product = "calibration" if claim.task == "gallery-calibration" else "evaluation"

            def end(session: Session, id: str) -> None:
                self._queue.finish(claim, session, result={product: id}, message=f"{product} {id}")

            progress.stage("searching")
            with listening(progress.within):
                if product == "calibration":
                    calibration = GalleryCalibrationRequest.model_validate(params)
                    return identification.calibrate(state.name, version, calibration, ending=end).id
                evaluation = GalleryEvaluationRequest.model_validate(params)
                return identification.evaluate(state.name, version, evaluation, ending=end).id
        finally:
            galleries.close()
