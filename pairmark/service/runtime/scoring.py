"""Vectors in, scores and operating points out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic_core import to_json
from scipy.sparse import csr_array, issparse

from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.operating_points import Calibration
from pairmark.models.calibration.points import InsufficientCalibrationData
from pairmark.models.calibration.system_weights import SystemWeights
from pairmark.models.core.subjects import SampleSets
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.promises import Promise, population_of, ways_from
from pairmark.service.errors import InsufficientCalibration, InvalidInput, ModelNotCapable
from pairmark.service.runtime.catalogue import VersionEntry
from pairmark.service.runtime.vectors import Features, VectorPairs, check_finite, to_rows
from pairmark.service.store.schemas import Imported
from pairmark.service.store.subjects import SubjectClass

Float32 = NDArray[np.float32]
MEASURED = 256
MOST_POINTS = 4_096
FEW, FEW_NUMBERS = 64, 1_000_000
"""So few pairs, of so few numbers, take no time worth a thread."""


@dataclass(kw_only=True, eq=False)
class LoadedVersion:
    """A version in memory, ready to score.

    Attributes
    ----------
    entry : which version it is. estimator : the fitted learner.
    n_features : numbers a vector. accepts_sparse : whether sparse vectors are scored as they are.
    ignores_unknown : whether indices beyond ``n_features`` are ignored.
    feature_names, label_names, class_names : of the training data, where known.
    seconds_a_point : about how long one point takes to rank or classify.
    seconds_a_pair : how long a pair took in the last batch of at least `MEASURED`.
    public, json : how answers name the version.
    """

    entry: VersionEntry
    estimator: Any
    n_features: int
    accepts_sparse: bool
    ignores_unknown: bool = False
    feature_names: list[str] | None = None
    label_names: list[str] | None = None
    class_names: list[str] | None = None
    seconds_a_point: float = 0.0
    seconds_a_pair: float = math.inf

    def __post_init__(self) -> None:
        self.calibration_id = self.entry.calibration_id
        self.public = {"name": self.entry.name, "version": self.entry.version, "kind": self.entry.kind}
        self.json = to_json(self.public)

    def seconds(self, n_pairs: int) -> float:
        """About how long so many pairs take to score."""
        if n_pairs <= FEW:
            return 0.0 if n_pairs * self.n_features <= FEW_NUMBERS else math.inf
        return n_pairs * self.seconds_a_pair

    def score(self, left: Any, right: Any) -> Float32:
        """Scores of finite float32 rows of the model's dimension; a single row meets every row of the other side.

        Returns
        -------
        (n,) float32, higher is more similar; swapping the sides changes no bit.
        """
        n = max(left.shape[0], right.shape[0])
        left, right = _repeated(left, n), _repeated(right, n)
        # Both sides were validated as they were parsed, so the estimator's own checks are not paid again.
        if n < MEASURED:
            scores: Float32 = self.estimator._pair_score(left, right)
        else:
            start = time.perf_counter()
            scores = self.estimator._pair_score(left, right)
            self.seconds_a_pair = (time.perf_counter() - start) / n
        check_finite(scores, "score of pair", "left")
        return scores

    def aggregation(self, name: str) -> str:
        """How subjects of several samples are compared: what ``auto`` means for this model, or what was asked."""
        able: tuple[str, ...] = self.estimator.aggregations
        if name == "auto":
            return able[0]
        if name not in able:
            raise ModelNotCapable(
                f"aggregation {name!r} needs a PLDA model that scores log-likelihood ratios; {self.entry.name}:"
                f"{self.entry.version} ({self.entry.kind}) has {', '.join(able)}",
                field="aggregation",
                aggregations=list(able),
            )
        return name

    def score_subjects(self, left: SampleSets, right: SampleSets, how: str) -> Float32:
        """Scores of subjects of several samples, (n,); ``how`` is what `aggregation` returned."""
        scores: Float32 = self.estimator._subject_score(left, right, how)
        check_finite(scores, "score of pair", "left")
        return scores

    def score_pairs(self, pairs: VectorPairs, aggregation: str = "auto") -> Float32:
        """Scores of parsed pairs, checked against the model's dimension."""
        sparse = self.accepts_sparse
        form = {
            "accepts_sparse": sparse,
            "ignores_unknown": self.ignores_unknown,
            "estimator": self.estimator,
        }
        left = to_rows(pairs.left, "left", self.n_features, **form)
        right = to_rows(pairs.right, "right", self.n_features, **form)
        if sparse and (issparse(left) != issparse(right)):
            left, right = csr_array(left), csr_array(right)
        if pairs.counts is not None:
            a, b = (
                SampleSets.of_rows(rows, counts)
                for rows, counts in zip((left, right), pairs.counts, strict=True)
            )
            return self.score_subjects(a, b, self.aggregation(aggregation))
        if aggregation != "auto":
            self.aggregation(aggregation)
        return self.score(left, right)

    def explain(self, pairs: VectorPairs, aggregation: str = "auto") -> tuple[float, dict[str, Any]]:
        """One pair's score, with the learner's explanation."""
        explain = getattr(self.estimator, "explain", None)
        if explain is None:
            raise ModelNotCapable(f"{self.entry.kind} cannot explain its scores", capability="explain")
        if pairs.n_pairs != 1:
            raise InvalidInput(
                f"the request has {pairs.n_pairs} pairs; expected one to explain", field="left"
            )
        left, right = (
            to_rows(side, name, self.n_features, accepts_sparse=False, estimator=self.estimator)
            for side, name in ((pairs.left, "left"), (pairs.right, "right"))
        )
        score = float(self.score_pairs(pairs, aggregation)[0])
        if pairs.counts is None:
            return score, explain(left, right, feature_names=self.feature_names)
        how = self.aggregation(aggregation)
        grid = self.estimator.score_against(left, right)
        # Of all pairs of samples the one whose score is nearest to that of the subjects stands for them.
        i, j = np.unravel_index(int(np.argmin(np.abs(grid - np.float32(score)))), grid.shape)
        return score, {
            "aggregation": how,
            "samples": [len(left), len(right)],
            "sample_scores": grid,
            "explained_samples": [int(i), int(j)],
            "explanation": explain(left[i : i + 1], right[j : j + 1], feature_names=self.feature_names),
        }


def embedded(version: LoadedVersion, features: Features) -> Float32:
    """A version's own vectors of points, (n, n_components) C-contiguous float32."""
    rows = to_rows(
        features.rows,
        "features",
        version.n_features,
        accepts_sparse=version.accepts_sparse,
        ignores_unknown=version.ignores_unknown,
        estimator=version.estimator,
    )
    vectors = np.ascontiguousarray(version.estimator.transform(rows), dtype=np.float32)
    check_finite(vectors, "vector of point", "features")
    return vectors


def _repeated(rows: Any, n: int) -> Any:
    if rows.shape[0] == n:
        return rows
    if isinstance(rows, np.ndarray):
        return np.repeat(rows, n, axis=0)
    return rows[np.zeros(n, dtype=np.intp)]


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """A threshold and what is promised about it. A pair matches when its score is greater, compared in float32."""

    threshold: np.float32
    public: dict[str, Any]
    json: bytes
    rate: str = ""
    """The rate that was asked for, as metrics name it."""
    lower: np.float32 | None = None
    """At or below it a pair is different, and between the two to be reviewed; None where no `fnr` was asked for."""

    def decided(self, scores: Float32) -> NDArray[np.uint8]:
        """0: different, 1: match, 2: review."""
        codes = (scores > self.threshold).astype(np.uint8)
        if self.lower is not None:
            codes[(scores > self.lower) & (codes == 0)] = 2
        return codes

    def matches(self, scores: Float32) -> NDArray[np.bool_]:
        """Which scores match."""
        matched: NDArray[np.bool_] = scores > self.threshold
        return matched

    def match_list(self, scores: list[float]) -> list[bool]:
        """As `matches`, of a few scores: an array costs more than they do. Doubles of float32 order as these."""
        threshold = float(self.threshold)
        return [score > threshold for score in scores]


class LoadedCalibration(NamedTuple):
    """A calibration, the name and version that it was made for (None: scores made elsewhere), and the class of subjects
    that it is of (None: single vectors); its number in the ledger; how several systems' scores are combined (None: it
    is of one score); how it came in a file (None: it was made here); the number of classes that a closed-set
    calibration is of (None: not known); and its name."""

    calibration: Calibration
    owner: tuple[str, int] | None
    subjects: SubjectClass | None = None
    number: int | None = None
    weights: SystemWeights | None = None
    imported: Imported | None = None
    classes: int | None = None
    name: str = ""


class Ratios(NamedTuple):
    """The likelihood ratios of a calibration."""

    calibration_id: str
    maps: LikelihoodRatios
    origin: str
    imported: Imported | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """Which calibration they are of, and how that came about, as operating points state it."""
        return {"calibration_id": self.calibration_id, "origin": self.origin, "imported": self.imported}


class PointRequest(NamedTuple):
    """What an operating point is asked for by."""

    calibration_id: str
    fpr: float
    confidence: float
    method: str
    fnr: float | None = None
    simultaneous: bool = False
    allow_asymptotic: bool = False
    """Whether ``auto`` may answer by bootstrap."""


class OperatingPoints:
    """Operating points, each computed once; calibrations are immutable, so a point never grows old."""

    def __init__(
        self, load: Callable[[str], LoadedCalibration], promised: Callable[[tuple[str, int]], Promise | None]
    ) -> None:
        self._promised = promised
        self.fetch = lru_cache(maxsize=32)(load)
        """The calibration of an id (blocking)."""
        self._points: BoundedCache[PointRequest, ServedPoint] = BoundedCache(MOST_POINTS)

    def _ways(
        self, fpr: float, refusal: InsufficientCalibrationData, entry: LoadedCalibration
    ) -> list[dict[str, Any]]:
        """Ways out of a refusal. The version's dataset stays unnamed: who may decide need not know it."""
        smallest, n_units = (
            refusal.smallest_fpr.get("finite-sample"),
            refusal.required_units.get("finite-sample"),
        )
        if entry.owner is None:
            return ways_from(fpr, smallest, n_units, None)
        return ways_from(fpr, smallest, n_units, self._promised(entry.owner), entry.owner[0])

    def at_hand(self, request: PointRequest) -> ServedPoint | None:
        """The point, when it was computed before."""
        return self._points.get(request)

    def compute(self, request: PointRequest) -> ServedPoint:
        """The operating point (blocking: may read a calibration and search its tables). A refusal carries
        ``smallest_fpr``, ``required_units`` and what other methods would answer (``alternatives``)."""
        served_point = self._points.get(request)
        if served_point is not None:
            return served_point
        calibration_id, fpr = request.calibration_id, request.fpr
        entry = self.fetch(calibration_id)
        calibration = entry.calibration
        of = {} if entry.subjects is None else entry.subjects.facts
        try:
            point = calibration.operating_point(
                fpr,
                request.confidence,
                request.method,
                allow_asymptotic=request.allow_asymptotic,
                simultaneous=request.simultaneous,
                candidate=entry.number if request.simultaneous and request.method != "bootstrap" else None,
                fnr=request.fnr,
            )
        except InsufficientCalibrationData as error:
            raise InsufficientCalibration(
                str(error),
                ways=self._ways(fpr, error, entry) if request.fnr is None else [],
                smallest_fpr=plain(error.smallest_fpr),
                required_units=plain(error.required_units),
                alternatives=plain(error.alternatives),
                calibration_id=calibration_id,
                **of,
            ) from error
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        promise = "simultaneous" if point.simultaneous else "pointwise"
        number = entry.number
        public = {**plain(asdict(point)), "promise": promise, "calibration_id": calibration_id, **of}
        public["number"] = number
        public["imported"] = entry.imported
        if entry.classes is not None and point.guarantee != "none":
            public["population"] = {"classes": entry.classes}
            public["meaning"] += f" It holds among {population_of(entry.classes)}."
        if number is not None and number > 1 and not point.simultaneous and point.guarantee != "none":
            public["meaning"] += (
                f" This is calibration {number} on these people: the guarantee is not for the best of them, unless it "
                "was chosen without looking at them; simultaneous=true is for all."
            )
        served_point = ServedPoint(
            threshold=np.float32(point.threshold),
            public=public,
            json=to_json(public),
            rate=f"{fpr:g}",
            lower=None if point.fnr_threshold is None else np.float32(point.fnr_threshold),
        )
        self._points.put(request, served_point)
        return served_point

    def log10_fpr(
        self, calibration_id: str, scores: Float32, confidence: float, method: str
    ) -> NDArray[np.float64]:
        """How rare each score is among different pairs, in powers of ten; see `Calibration.log10_fpr` (blocking)."""
        bound_method = method if method == "bootstrap" else "finite-sample"
        return self.fetch(calibration_id).calibration.log10_fpr(
            scores, confidence=confidence, method=bound_method
        )

    def band(self, calibration_id: str, confidence: float = 0.95) -> dict[str, Any] | None:
        """Finite-sample bounds that hold at every threshold at once; see `Calibration.fpr_band` (blocking)."""
        calibration = self.fetch(calibration_id).calibration
        band = calibration.fpr_band(confidence, "finite-sample")
        if band is None:
            return None
        return {
            "thresholds": band.thresholds.tolist(),
            "fpr": band.fpr.tolist(),
            "confidence": band.confidence,
            "method": band.method,
            "guarantee": calibration.guarantee,
        }

    def combined(self, calibration_id: str, scores: NDArray[Any]) -> NDArray[np.float32]:
        """Scores made elsewhere as the calibration is of them: several systems' combined (blocking). Scores are (n,),
        or (n, n_systems)."""
        weights = self.fetch(calibration_id).weights
        n_columns = 1 if scores.ndim == 1 else scores.shape[1]
        n_systems = 1 if weights is None else weights.weight.size
        if n_columns != n_systems or (scores.ndim > 1) != (weights is not None):
            takes = (
                "one number per pair"
                if weights is None
                else f"a list of {n_systems} a pair, one of each system"
            )
            raise InvalidInput(
                f"scores has {n_columns} per pair; this calibration takes {takes}", field="scores"
            )
        single = scores.astype(np.float32)
        return single if weights is None else weights.combined(single)


def plain(value: Any) -> Any:
    """The value in JSON's own types: numpy scalars unwrapped, infinities as null."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
