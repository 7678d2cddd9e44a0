"""Calibrating and measuring a gallery with labelled probes; the theory is in `calibration.identification`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.identification import GalleryCalibration, cmc, leave_one_subject_out
from pairmark.models.core.progress import report
from pairmark.models.core.subjects import SampleSets
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
from pairmark.service.galleries.catching_up import MAX_TEMPLATES, CatchingUp, CatchingUpSubjects, KeptProbes
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.kept import (
    MAX_KEPT_BYTES,
    Thresholds,
    calibration_of,
    is_stale,
    point_of,
)
from pairmark.service.galleries.records import columns_of
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import text_of
from pairmark.service.galleries.schemas import (
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryEvaluationOut,
    GalleryEvaluationRequest,
    ModelOfGallery,
    ProbesRequest,
)
from pairmark.service.galleries.templates import SubjectHit
from pairmark.service.galleries.view import Hit, View
from pairmark.service.jobs.leases import persist
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.jobs.schemas import JobOut, NewJob, Task
from pairmark.service.runtime.scoring import Served, plain
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryCalibrationRow, GalleryEvaluationRow
from pairmark.service.times import iso

Ending = Callable[[Session, str], None]
Float32 = NDArray[np.float32]

PROBES_AT_A_TIME = 64
MAX_LEFT_OUT = 2_000
"""Enrolled subjects that are searched among the others for an estimate."""


@dataclass(frozen=True, kw_only=True)
class Probes:
    """One probe a subject.

    Attributes
    ----------
    vectors : (n, d). subjects : n different texts. enrolled : (n,) whether the gallery has the subject.
    """

    vectors: Float32
    subjects: list[str]
    enrolled: NDArray[np.bool_]


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
        self._datasets = datasets
        self._store = store
        self._settings = settings
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
                "as a job, probes come from a dataset; expected dataset, and no vectors or subjects",
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
        state, probes, warnings = self._probes(name, served, request, refuse_overlap=True)
        view = self._view(state, served)
        strangers = ~probes.enrolled
        if not strangers.any():
            raise InvalidInput(
                f"all {len(probes.subjects)} subjects of the probes are enrolled; expected some who are not: what they "
                "score is what a threshold is made from",
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
            repository.add_calibration(session, row)
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
            row = repository.find_calibration(session, state.id, id) if _askable(id) else None
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
        state, probes, warnings = self._probes(name, served, request, refuse_overlap=False)
        view = self._view(state, served)
        how = None if request.aggregation is None else served.aggregation(request.aggregation)
        own = self._mated(state, served, probes, how)
        ranks = self._ranks(state, view, probes, own, request.max_rank, how)
        best = self._best(state, view, probes.vectors[~probes.enrolled], (0.5, 0.8), how)
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
                left_out = self._left_out(state, view, threshold, request.confidence, how)
        curve = None
        if ranks.size:
            curve = cmc(ranks, request.max_rank, request.confidence).as_dict()
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
            repository.add_evaluation(session, row)
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
            row = repository.find_evaluation(session, state.id, id) if _askable(id) else None
        if row is None:
            raise UnknownEvaluation(f"gallery {name!r} has no evaluation {id[:64]!r}", field="evaluation")
        return evaluation_out(row)

    # ------------------------------------------------------------ probes

    def _probes(
        self, name: str, served: Served, request: ProbesRequest, *, refuse_overlap: bool
    ) -> tuple[State, Probes, list[str]]:
        state = self._galleries.state(name)
        if (state.model_id, state.version) != (served.entry.model_id, served.entry.version):
            raise Conflict(f"gallery {name!r} moved to another version just now: ask again")
        if not state.items:
            raise Conflict(f"gallery {name!r} is empty: enrol people first")
        vectors, subjects, warnings = self._given(served, request, refuse_overlap)
        if vectors.shape[1] != state.dimension:
            raise InvalidInput(
                f"probes have {vectors.shape[1]} numbers; the gallery's vectors have {state.dimension}",
                field="vectors",
                expected_dimension=state.dimension,
            )
        # One probe a subject, drawn without a look at scores: several of one person are not independent.
        order = np.random.default_rng(request.random_state).permutation(len(subjects))
        first: dict[str, int] = {}
        for at in order.tolist():
            first.setdefault(subjects[at], at)
        rows = sorted(first.values())
        chosen = [subjects[at] for at in rows]
        with self._galleries.database.read() as session:
            known = repository.stamps(session, state.id, chosen)
        enrolled = np.array([subject in known for subject in chosen], dtype=np.bool_)
        return state, Probes(vectors=vectors[rows], subjects=chosen, enrolled=enrolled), warnings

    def _given(
        self, served: Served, request: ProbesRequest, refuse_overlap: bool
    ) -> tuple[Float32, list[str], list[str]]:
        if (request.dataset is None) == (request.vectors is None):
            raise InvalidInput("expected either dataset, or vectors and subjects", field="dataset")
        if request.dataset is not None:
            return self._of_dataset(served, request.dataset, refuse_overlap)
        given, subjects = request.vectors, request.subjects
        if not given or subjects is None or len(subjects) != len(given):
            n = 0 if subjects is None else len(subjects)
            raise InvalidInput(
                f"there are {len(given or ())} vectors and {n} subjects; expected as many of each, at least one",
                field="subjects",
            )
        if len({len(row) for row in given}) != 1:
            raise InvalidInput("vectors are of different lengths; expected one", field="vectors")
        with np.errstate(over="ignore"):
            vectors = np.array(given, dtype=np.float32)
        if not vectors.shape[1] or not np.isfinite(vectors).all():
            raise InvalidInput(
                "vectors hold NaN, infinities or nothing; expected finite numbers", field="vectors"
            )
        return vectors, [text_of(subject, "subjects") for subject in subjects], []

    def _of_dataset(
        self, served: Served, reference: str, refuse_overlap: bool
    ) -> tuple[Float32, list[str], list[str]]:
        data = self._datasets.load(self._datasets.get(reference).id)
        if data.y is None:
            raise InvalidInput(
                f"dataset {data.name}:{data.version} has no labels; expected one a row, the subject",
                field="dataset",
            )
        overlap = self._store.overlap(served.entry.name, served.entry.version, data, refuse=refuse_overlap)
        warnings = []
        if overlap is not None and (overlap.rows or overlap.identities):
            warnings.append(
                f"{overlap.rows} rows and {overlap.identities} identities of the probes were trained on: figures may "
                "be too good"
            )
        X: Any = data.X
        vectors = np.array(X.toarray() if data.is_sparse else X, dtype=np.float32)
        return vectors, [data.identities[code] for code in np.asarray(data.y).tolist()], warnings

    # ------------------------------------------------------------ scores

    def _view(self, state: State, served: Served) -> View:
        return self._galleries.views.live(state, served.estimator).view(state.seq)

    def _searched(
        self, state: State, view: View, probes: Float32, k: int, how: str | None, *, by_subject: bool = False
    ) -> list[list[Hit]] | list[list[SubjectHit]]:
        """Hits among items, or with ``how`` among subjects as wholes."""
        if how is not None:
            return self._galleries.views.live(state, view.estimator).subjects.at(view, how).search(probes, k)
        elsewhere = self._galleries.views.elsewhere(state, (), view.seq)
        return view.search(probes, k, elsewhere=elsewhere, by_subject=by_subject)

    def _best(
        self, state: State, view: View, probes: Float32, span: tuple[float, float], how: str | None
    ) -> Float32:
        """Best score of each probe in the gallery; -inf for none. Tells progress from one of ``span`` to the other."""
        found: list[float] = []
        for start in range(0, len(probes), PROBES_AT_A_TIME):
            report(span[0] + (span[1] - span[0]) * start / len(probes), "searching with strangers")
            some = self._searched(state, view, probes[start : start + PROBES_AT_A_TIME], 1, how)
            found += [hits[0].score if hits else -np.inf for hits in some]
        return np.array(found, dtype=np.float32)

    def _mated(self, state: State, served: Served, probes: Probes, how: str | None) -> Float32:
        """Score of each enrolled probe with its own subject: the best of its items, or with all of them as a whole."""
        scores = []
        for at in np.flatnonzero(probes.enrolled).tolist():
            with self._galleries.database.read() as session:
                items = repository.subject_rows(session, state, probes.subjects[at], MAX_TEMPLATES)
            probe = probes.vectors[at : at + 1]
            if items is None:
                # Erased since the probes were looked up: found by nobody.
                scores.append(-np.inf)
            elif how is None:
                scores.append(served.score(probe, items.vectors).max())
            else:
                enrolled = SampleSets.of_rows(items.vectors, np.array([len(items)]))
                scores.append(served.score_subjects(SampleSets.of_rows(probe), enrolled, how)[0])
        return np.array(scores, dtype=np.float32)

    def _ranks(
        self, state: State, view: View, probes: Probes, own: Float32, max_rank: int, how: str | None
    ) -> NDArray[np.int64]:
        """Rank of each enrolled probe's own subject among subjects, ties against it; max_rank + 1 for later."""
        ranks: list[int] = []
        for at, mine in zip(np.flatnonzero(probes.enrolled).tolist(), own, strict=True):
            report(0.5 * len(ranks) / own.size, "ranking the enrolled")
            probe = probes.vectors[at : at + 1]
            hits = self._searched(state, view, probe, max_rank + 1, how, by_subject=True)[0]
            others = sum(hit.subject != probes.subjects[at] and np.float32(hit.score) >= mine for hit in hits)
            ranks.append(min(1 + others, max_rank + 1))
        return np.array(ranks, dtype=np.int64)

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

    def _left_out(
        self, state: State, view: View, threshold: float, confidence: float, how: str | None
    ) -> dict[str, Any] | None:
        """Search enrolled subjects, one item each, among the others."""
        best: list[float] = []
        subjects: list[str | None] = []
        seen: set[str] = set()
        with self._galleries.database.read() as session:
            for rows in repository.read_range(session, state, 0, view.seq):
                fresh = []
                for at, subject in enumerate(rows.subjects):
                    if subject is not None and subject not in seen and len(seen) < MAX_LEFT_OUT:
                        seen.add(subject)
                        fresh.append(at)
                for at in fresh:
                    report(0.8 + 0.2 * len(best) / MAX_LEFT_OUT, "leaving one out")
                    probe = rows.vectors[at : at + 1]
                    hits = self._searched(state, view, probe, 2, how, by_subject=True)[0]
                    others = [hit.score for hit in hits if hit.subject != rows.subjects[at]]
                    best.append(others[0] if others else -np.inf)
                    subjects.append(rows.subjects[at])
                if len(seen) >= MAX_LEFT_OUT:
                    break
        if len(subjects) < 2:
            return None
        found = leave_one_subject_out(np.array(best), np.array(subjects), threshold, confidence)
        return {
            "fpir": found.fpir,
            "interval": list(found.interval),
            "n_subjects": found.n_subjects,
            "threshold": threshold,
            "label": found.label,
        }

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
            name=state.model if same else "(earlier)",
            version=row.version,
            kind=state.kind if same else None,
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
