"""Operating points of calibrations, each computed once."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pydantic_core import to_json, to_jsonable_python

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.operating_point import (
    InsufficientCalibrationData,
    without_guarantee,
)
from pairmark.models.calibration.records import supports_columns, without_columns
from pairmark.models.core.arrays import Bool
from pairmark.schemas.models import Imported
from pairmark.schemas.scoring import PointParameters
from pairmark.service.caches import BoundedCache
from pairmark.service.datasets.guarantees import population_of, ways_from
from pairmark.service.errors import InvalidInput, UnsupportedRate
from pairmark.service.store.subjects import SubjectClass

MOST_POINTS, MOST_CALIBRATIONS = 4_096, 32
"""Points and calibrations that are kept."""
Thresholds = tuple[Any, Any]
"""The threshold, and with `fnr` the lower one: of a pattern, numbers; of pairs, (n,) float32. NaN: nothing matches."""
UNSUPPORTED = np.float32(np.nan), np.float32(np.nan)
plain = partial(to_jsonable_python, inf_nan_mode="null", fallback=lambda value: value.tolist())
"""A value in JSON's own types: numpy's unwrapped, infinities as null."""


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """A threshold and what is guaranteed about it. A pair matches when its score is greater, compared in float32."""

    threshold: np.float32
    public: dict[str, Any]
    json: bytes = b""
    lower: np.float32 | None = None
    """At or below it a pair is different, and between the two to be reviewed; None where no `fnr` was asked for."""
    inputs: RowRanges | None = None
    """What rows must be like for a match; None where that was not kept."""
    request: "PointRequest | None" = None
    """What it was asked for by; None where no calibration decides."""
    warnings: tuple[dict[str, str], ...] = ()

    @property
    def hidden(self) -> dict[str, Any]:
        """What a key that may only decide is told: nothing that a score could be held against."""
        return {name: fact for name, fact in self.public.items() if "threshold" not in name}

    def moved(self, warning: dict[str, str]) -> "ServedPoint":
        """The point after inputs have moved: it decides as before and guarantees nothing."""
        public = without_guarantee(self.public, warning["detail"].rstrip("."))
        # That was checked, and is not so.
        public["assumes"] = [each for each in public["assumes"] if each["assumption"] != "people-alike"]
        return replace(self, public=public, json=to_json(public), warnings=(warning,))


def point_of_best_f1(threshold: float, metrics: dict[str, Any], inputs: RowRanges | None) -> ServedPoint:
    """The point that has the best F1 on a version's held-out pairs; ``metrics`` : the version's."""
    public = {
        "decision": "best-f1",
        "threshold": threshold,
        "guarantee": "none",
        "meaning": "Nothing is guaranteed: the threshold has the best F1 on held-out pairs, mixed as these are.",
        "assumes": [],
        **{name: metrics[name] for name in ("f1", "precision", "recall")},
    }
    return ServedPoint(threshold=np.float32(threshold), public=public, json=to_json(public), inputs=inputs)


class LoadedCalibration(NamedTuple):
    """A calibration in memory.

    Attributes
    ----------
    owner : name and version of the model that it was made for; None: scores made elsewhere.
    subjects : the class of subjects that it is of; None: single vectors.
    number : its number in the ledger.
    imported : how it came in a file; None: it was made here.
    classes : the number of classes that a closed-set calibration is of; None: not known.
    name : its own.
    """

    calibration: Calibration
    owner: tuple[str, int] | None
    subjects: SubjectClass | None = None
    number: int | None = None
    imported: Imported | None = None
    classes: int | None = None
    name: str = ""


class Rate(NamedTuple):
    """At which rate, of comparisons or of whole searches, a request asks to decide."""

    fpr: float
    method: str = "auto"
    confidence: float = PointParameters.model_fields["confidence"].default
    simultaneous: bool = False
    calibration: str | None = None
    fnr: float | None = None


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
    complete_only: bool = False
    """Whether pairs that lack a column are refused."""


class OperatingPoints:
    """Operating points, each computed once; calibrations are immutable, so a point never grows old."""

    def __init__(self, load: Callable[[str], LoadedCalibration]) -> None:
        self._load = load
        self._calibrations: BoundedCache[str, LoadedCalibration] = BoundedCache(MOST_CALIBRATIONS)
        self._points: BoundedCache[PointRequest, ServedPoint] = BoundedCache(MOST_POINTS)
        self._thresholds: BoundedCache[tuple[PointRequest, bytes], Thresholds] = BoundedCache(MOST_POINTS)

    def fetch(self, calibration_id: str) -> LoadedCalibration:
        """The calibration of an id (blocking)."""
        entry = self._calibrations.get(calibration_id)
        if entry is None:
            entry = self._load(calibration_id)
            self._calibrations.put(calibration_id, entry)
        return entry

    def cached(self, request: PointRequest) -> ServedPoint | None:
        """The point, when it was computed before."""
        return self._points.get(request)

    def compute(self, request: PointRequest, *, shows_scores: bool = False) -> ServedPoint:
        """The operating point (blocking: may read a calibration and search its tables). A refusal carries
        ``smallest_fpr``, ``required_units`` and, where scores are shown, the thresholds of other methods
        (``alternatives``)."""
        calibration_id, fpr = request.calibration_id, request.fpr
        entry = self.fetch(calibration_id)
        calibration = entry.calibration
        class_facts = {} if entry.subjects is None else entry.subjects.facts
        try:
            point = calibration.operating_point(**_arguments(request, entry.number))
        except InsufficientCalibrationData as error:
            smallest, needed = (
                error.smallest_fpr.get("finite-sample"),
                error.required_units.get("finite-sample"),
            )
            raise UnsupportedRate(
                str(error),
                ways=ways_from(fpr, smallest, needed, calibration.facts.unit_name)
                if request.fnr is None
                else [],
                smallest_fpr=plain(error.smallest_fpr),
                required_units=plain(error.required_units),
                calibration_id=calibration_id,
                **({"alternatives": plain(error.alternatives)} if shows_scores else {}),
                **class_facts,
            ) from error
        except ValueError as error:
            raise InvalidInput(str(error)) from error
        public = {**plain(point.as_dict()), "calibration_id": calibration_id, **class_facts}
        if request.complete_only:
            # No pair that lacks a cell is decided, so that nothing is assumed of it.
            public["assumes"] = [one for one in public["assumes"] if one["assumption"] != "missing-at-random"]
        if calibration.facts.folds is not None:
            public["meaning"] += (
                f" The threshold comes from {calibration.facts.folds} folds, whose models each score people they never "
                "saw; the model that answers learned from all of them."
            )
        public["number"] = entry.number
        public["imported"] = entry.imported
        if entry.classes is not None and point.guarantee != "none":
            public["population"] = {"classes": entry.classes}
            public["meaning"] += f" It holds among {population_of(entry.classes)}."
        if (entry.number or 1) > 1 and not point.simultaneous and point.guarantee != "none":
            public["meaning"] += (
                f" This is calibration {entry.number} on this dataset: the guarantee is not for the best of them, "
                "unless it was chosen without looking at them; simultaneous=true is for all."
            )
        served_point = ServedPoint(
            threshold=np.float32(point.threshold),
            public=public,
            json=to_json(public),
            lower=None if point.fnr_threshold is None else np.float32(point.fnr_threshold),
            inputs=calibration.inputs,
            request=request,
            warnings=()
            if point.fpr_interval is None
            else ({"code": "few-negatives", "detail": point.meaning},),
        )
        self._points.put(request, served_point)
        return served_point

    def cached_thresholds(self, request: PointRequest, pattern: bytes) -> Thresholds | None:
        """Those of pairs that lack a pattern of columns, when they were worked out before."""
        return self._thresholds.get((request, pattern))

    def forget(self, calibration_id: str, pattern: bytes) -> None:
        """Let go of what decides pairs that lack a pattern of columns."""
        self._thresholds.drop(
            [
                key
                for key, _ in self._thresholds.entries()
                if (key[0].calibration_id, key[1]) == (calibration_id, pattern)
            ]
        )

    def thresholds(self, request: PointRequest, pattern: bytes, columns: Bool, estimator: Any) -> Thresholds:
        """Those of pairs that lack ``columns`` (blocking: scores the calibration's records without these); the stricter
        ones of all calibration pairs and of those that lack just these of themselves. `UNSUPPORTED` where the
        calibration's people do not suffice, or their records were not kept."""
        entry = self.fetch(request.calibration_id)
        calibration = entry.calibration
        thresholds: Thresholds = UNSUPPORTED
        if supports_columns(calibration, columns, request.fpr, request.confidence):
            with suppress(ValueError):
                points = without_columns(calibration, columns, estimator).points(
                    **_arguments(request, entry.number)
                )
                thresholds = (
                    max(np.float32(point.threshold) for point in points),
                    min(np.float32(point.fnr_threshold or 0) for point in points),
                )
        self._thresholds.put((request, pattern), thresholds)
        return thresholds


def _arguments(request: PointRequest, number: int | None) -> dict[str, Any]:
    """What `Calibration.operating_point` takes; ``number`` : the calibration's in the ledger."""
    names = ("fpr", "confidence", "method", "allow_asymptotic", "simultaneous", "fnr")
    candidate = number if request.simultaneous else None
    return {"candidate": candidate, **{name: getattr(request, name) for name in names}}
