"""Calibrating a gallery with labelled probes; the theory is in `calibration.identification`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.core.progress import listening
from pairmark.schemas.base import iso
from pairmark.schemas.galleries import (
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    ModelOfGallery,
    ProbesRequest,
)
from pairmark.schemas.jobs import JobOut
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets, dataset_out
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.db import Database
from pairmark.service.errors import (
    Conflict,
    InvalidInput,
    UnknownCalibration,
)
from pairmark.service.galleries import repository
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.calibration.kept_probes import KeptProbes, score_columns
from pairmark.service.galleries.calibration.thresholds import (
    MAX_KEPT_BYTES,
    calibration_of,
    updated,
)
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.rows import (
    ItemForm,
    Matrix,
    RecordForm,
    VectorForm,
    form_of,
    refuse_wholes,
    subject_text,
)
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.jobs.queue import Claim, JobQueue, NewJob, Progress, persist
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import cells_for
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow


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


Ending = Callable[[Session, str], None]
"""Called in the transaction that keeps a calibration, with its id."""


class Identification:
    """Makes, stores and shows calibrations of galleries (all blocking)."""

    def __init__(
        self,
        galleries: Galleries,
        datasets: Datasets,
        store: ModelStore,
        settings: Settings,
    ) -> None:
        self._galleries = galleries
        self._reader = ProbeReader(galleries, datasets, store)
        self._queue = JobQueue(galleries.database, settings)

    def submit(self, name: str, request: GalleryCalibrationRequest) -> JobOut:
        """Queue a calibration as a job, with probes of a dataset."""
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
                task="gallery-calibration",
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
        unsearched = KeptProbes.unsearched(probes.subjects, probes.vectors, aggregation)
        probe_set = updated(self._galleries, state, version, unsearched, view)
        calibration = probe_set.calibration
        keeps = request.keep_probes and sum(map(len, probes.bodies)) <= MAX_KEPT_BYTES
        if request.keep_probes and not keeps:
            warnings.append(
                f"the probes take more than {MAX_KEPT_BYTES >> 20} MiB and are not kept: nothing is guaranteed "
                "from the first change of the gallery on"
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
        state = self._galleries.state(name)
        with self._galleries.database.read() as session:
            row = probe_repository.find_calibration(session, state.id, id)
        if row is None:
            raise UnknownCalibration(f"gallery {name!r} has no calibration {id[:64]!r}", field="calibration")
        return calibration_out(state, row)

    def _store(
        self, state: GalleryState, make: Callable[[Session], GalleryCalibrationRow], ending: Ending | None
    ) -> GalleryCalibrationRow:
        """What ``make`` inserts, unless the gallery was moved or deleted meanwhile."""

        def keep(session: Session) -> GalleryCalibrationRow:
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


STAGES = {"loading": (0.0, 0.05), "searching": (0.05, 1.0)}


class Measurer:
    """Runs one attempt at a gallery's calibration."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._settings = db, settings
        self._queue = JobQueue(db, settings)
        self._store = ModelStore(db, blobs, settings)
        self._datasets = Datasets(db, blobs, settings)

    def run(self, claim: Claim) -> str:
        """Calibrate; returns the calibration's id."""
        assert claim.gallery is not None
        progress = Progress(self._queue, claim, STAGES)
        progress.stage("loading")
        galleries = Galleries(self._db, self._settings)
        try:
            state = galleries.state(claim.gallery)
            runtime = Runtime(self._store, self._db, self._settings)
            version = asyncio.run(runtime.version_for(f"{state.model}:{state.version}", "search"))
            identification = Identification(galleries, self._datasets, self._store, self._settings)
            # The version of the dataset that there was when the job was submitted.
            params: dict[str, Any] = {**claim.params, "dataset": claim.dataset}
            request = GalleryCalibrationRequest.model_validate(params)

            def end(session: Session, id: str) -> None:
                self._queue.finish(claim, session, result={"calibration": id}, message=f"calibration {id}")

            progress.stage("searching")
            with listening(progress.within):
                return identification.calibrate(state.name, version, request, ending=end).id
        finally:
            galleries.close()
