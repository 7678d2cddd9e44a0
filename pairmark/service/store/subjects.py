"""Calibrations of subjects of several samples, made when they are first asked for."""

import threading
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.records import MOST_PAIRS, CalibrationRecords, score_subject_pairs
from pairmark.models.core.scores import SampleSets
from pairmark.models.pairs.sampling import HeldOutPairs, SubjectPairs, TooFewSamples, subject_pairs
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.held_out import rows_for, split_codes
from pairmark.service.errors import (
    CalibrationOverlap,
    TooLarge,
    UnknownDataset,
    UnsupportedRate,
    refusals,
)
from pairmark.service.store.calibrations import REFUSED, Calibrations
from pairmark.service.store.versions import VersionStore
from pairmark.service.tables import CalibrationRow, ModelVersion

MAX_PAIRS = 100_000
MAX_SAMPLE_PAIRS = 2_000_000
"""Pairs of samples that one calibration scores at most, where each is scored by itself."""
KEPT_REFUSALS = 1_024


class SubjectClass(NamedTuple):
    """What a decision about subjects is calibrated for: samples of both sides, the larger number first."""

    k: int
    p: int
    aggregation: str

    @property
    def key(self) -> str:
        """As the database has it."""
        return f"{self.k}+{self.p} {self.aggregation}"

    @property
    def facts(self) -> dict[str, Any]:
        """As answers name it."""
        return {"samples": [self.k, self.p], "aggregation": self.aggregation}


class SubjectCalibrations:
    """Finds and makes calibrations of classes of subjects (all blocking)."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions, self._calibrations = versions, calibrations
        self._lock = threading.Lock()
        self._refused: BoundedCache[tuple[str, SubjectClass], UnsupportedRate] = BoundedCache(KEPT_REFUSALS)

    def of(self, parent: str, subjects: SubjectClass, estimator: Any) -> str:
        """The id of the calibration of a class, drawn from the people of the calibration ``parent``; made where there
        is none yet. `UnsupportedRate` when they cannot support the class, `TooLarge` when ``parent`` has as
        many classes as are allowed."""
        row, name = self._calibrations.row(parent)
        child = self._find(parent, subjects)
        if child is not None:
            return child
        failure = self._refused.get((parent, subjects))
        if failure is not None:
            raise UnsupportedRate(failure.detail, **failure.facts)
        # One at a time: a second request for the same class takes what the first one made.
        with self._lock:
            child = self._find(parent, subjects)
            if child is not None:
                return child
            limit = self._versions.settings.max_subject_classes
            with self._versions.db.read() as session:
                n = session.scalar(select(func.count()).where(CalibrationRow.parent_id == parent)) or 0
            if n >= limit:
                raise TooLarge(
                    f"calibration {parent} was made for {n} classes of subjects; at most {limit} are kept "
                    "(PAIRMARK_MAX_SUBJECT_CLASSES): send subjects with numbers of samples that were asked for before",
                    limit=limit,
                )
            try:
                return self._make(row, name, subjects, estimator)
            except UnsupportedRate as error:
                self._refused.put((parent, subjects), error)
                raise

    def _find(self, parent: str, subjects: SubjectClass) -> str | None:
        with self._versions.db.read() as session:
            child = CalibrationRow.parent_id == parent, CalibrationRow.subjects == subjects.key
            return session.scalar(select(CalibrationRow.id).where(*child))

    def _make(self, parent: CalibrationRow, name: str | None, subjects: SubjectClass, estimator: Any) -> str:
        if name is None or parent.version is None:
            raise refusal(
                subjects,
                "the calibration is for scores of another system: calibrate the scores of these subjects",
            )
        version = self._versions.row(name, parent.version)
        data, rows = self._held_out(parent, version, name, subjects)
        pairs = _draw_pairs(data, rows, subjects)
        X = rows_for(estimator, data, self._versions.settings.max_dense_bytes)
        sets = SampleSets(rows=X, index=rows[pairs.index], counts=pairs.counts)
        scores = score_subject_pairs(estimator, sets, pairs.left, pairs.right, subjects.aggregation)
        drawn = HeldOutPairs(
            left=pairs.left, right=pairs.right, same=pairs.same, units=pairs.units, protocol="open-set"
        )
        with refusals(REFUSED):
            calibration = Calibration.fit(scores, drawn.same, drawn.units, **drawn.origin)
        calibration.with_inputs(self._calibrations.load(parent.id)[0].inputs)
        calibration.with_records(CalibrationRecords.of(sets, drawn, subjects.aggregation))
        facts: dict[str, Any] = {
            **{key: parent.summary[key] for key in ("dataset",) if key in parent.summary},
            **subjects.facts,
            "parent": parent.id,
            "people": pairs.n_people,
            "mated_people": pairs.n_mated,
        }
        try:
            return self._calibrations.register(
                calibration,
                name=f"{parent.name} ({subjects.key})"[:200],
                facts=facts,
                dataset_id=parent.dataset_id,
                dataset_sha256=parent.dataset_sha256,
                model=(name, version.version),
                default=False,
                parent_id=parent.id,
                subjects=subjects.key,
            ).id
        except IntegrityError:
            child = self._find(parent.id, subjects)
            if child is None:
                raise
            # Another process made it meanwhile, from the same draw.
            return child

    def _held_out(
        self, parent: CalibrationRow, version: ModelVersion, name: str, subjects: SubjectClass
    ) -> tuple[LabelledData, NDArray[np.int64]]:
        """The people whom the parent calibration is of: a dataset and its rows to draw from."""
        if parent.protocol != "open-set":
            raise refusal(
                subjects,
                f"{name}:{version.version} is calibrated for classes that it knows (closed-set), where samples are the "
                "units: calibrate it with protocol=open-set on people it never saw",
            )
        again = (
            f"calibrate {name}:{version.version} on a dataset of people it never saw (POST .../calibrations)"
        )
        reference = parent.summary.get("dataset")
        if parent.dataset_id is None or reference is None:
            raise refusal(subjects, f"the data of the calibration is not on this server: {again}")
        try:
            data = self._calibrations.datasets.load(parent.dataset_id)
        except UnknownDataset as error:
            raise refusal(
                subjects, f"dataset {reference} was deleted: upload it again, and {again}"
            ) from error
        if data.y is None:
            raise refusal(
                subjects,
                f"dataset {reference} lists pairs and does not say whose each row is: {again}, with a label column",
            )
        if parent.summary.get("part") == "held-out":
            stored = self._versions.report(version)
            rows = np.empty(0, dtype=np.int64) if stored is None else stored.calibration_rows
            if not rows.size or int(rows.max()) >= len(data):
                raise refusal(
                    subjects, f"the version does not say which rows of {reference} were held out: {again}"
                )
            return data, rows
        try:
            self._calibrations.refuse_overlap(version, name, data, "open-set")
        except CalibrationOverlap as error:
            raise refusal(subjects, f"{error.detail}: {again}") from error
        return data, np.arange(len(data), dtype=np.int64)


def _draw_pairs(data: LabelledData, rows: NDArray[np.int64], subjects: SubjectClass) -> SubjectPairs:
    y = np.asarray(data.y)[rows]
    units = split_codes(data, "open-set")[0][rows]
    cells = 1 if subjects.aggregation == "plda" else subjects.k * subjects.p
    try:
        return subject_pairs(
            y,
            subjects.k,
            subjects.p,
            n_pairs=max(
                1_000, min(MAX_PAIRS if data.schema is None else MOST_PAIRS, MAX_SAMPLE_PAIRS // cells)
            ),
            units=units,
        )
    except TooFewSamples as error:
        raise refusal(
            subjects,
            f"of the held-out people {error.n_people} have {error.n_samples} samples; expected at least two, and as "
            f"many as the rate asked for takes: bring people with {subjects.k + subjects.p} samples each "
            f"(POST .../calibrations), or use at most {error.largest} samples a side",
            people=error.n_people,
            needed_samples=subjects.k + subjects.p,
            largest_samples=error.largest,
        ) from error


def refusal(subjects: SubjectClass, detail: str, **facts: Any) -> UnsupportedRate:
    """A class that nothing is known of."""
    return UnsupportedRate(
        f"there is no calibration for subjects of {subjects.k} and {subjects.p} samples by {subjects.aggregation}: "
        f"{detail}",
        smallest_fpr={"finite-sample": None, "bootstrap": None},
        required_units={},
        alternatives={},
        **subjects.facts,
        **facts,
    )
