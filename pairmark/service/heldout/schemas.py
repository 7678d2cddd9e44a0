"""Schemas of held-out splits and of reports about them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from pairmark.wire.jobs import EvaluationParameters


class EvaluationRequest(BaseModel, EvaluationParameters, extra="forbid"):
    """Which data a job holds out, and how many held-out pairs it scores."""


class OverlapOut(BaseModel):
    """How much of a dataset is training data of the version."""

    rows: int
    identities: int
    first_rows: list[int] = Field(default_factory=list, description="0-based rows, the first 20 at most")
    first_identities: list[str] = Field(default_factory=list, description="the first 20 at most")


class RocBands(BaseModel):
    """Intervals of both rates: at each threshold alone (pointwise), or for all thresholds and both rates at once."""

    kind: Literal["pointwise", "simultaneous"]
    confidence: float
    guarantee: Literal["asymptotic"] = Field(
        "asymptotic",
        description="intervals come from resampled units. For finite-sample bounds of the false positive rate at all "
        "thresholds, use `GET /calibrations/{id}?band=true`",
    )
    fpr_low: list[float]
    fpr_high: list[float]
    tpr_low: list[float]
    tpr_high: list[float]


class RocOut(BaseModel):
    """The ROC on held-out pairs: rates of `score > threshold`."""

    fpr: list[float]
    tpr: list[float]
    thresholds: list[float] = Field(description="float32 values, descending")
    bands: RocBands | None = None
    simultaneous_bands: RocBands | None = Field(
        None, description="absent for versions evaluated by an earlier release"
    )
    groups: dict[str, Any] | None = Field(
        None,
        description="error rates of each group of people at the thresholds in use, with intervals, if the version "
        "was trained with `groups: compare`",
    )


class LikelihoodOut(BaseModel):
    """The quality of a version's log-likelihood ratios on held-out pairs."""

    method: Literal["logistic", "pav", "own"]
    cllr: float = Field(description="cost in bits, averaged over all priors; 0: perfect; 1: no information")
    cllr_min: float = Field(
        description="the cost after the best non-decreasing map, fitted on the same pairs"
    )
    calibration_loss: float = Field(description="cllr - cllr_min: the cost of bad calibration")
    misleading_same: float = Field(description="share of same pairs with a negative log-likelihood ratio")
    misleading_different: float = Field(
        description="share of different pairs with a positive log-likelihood ratio"
    )
    limits: tuple[float, float] = Field(
        description="the smallest and the largest log-likelihood ratio that is ever stated"
    )


class IdentificationAt(BaseModel):
    """FNIR at one FPIR."""

    fpir: float
    threshold: float
    fnir: float
    interval: tuple[float, float]


class IdentificationCurve(BaseModel):
    """FNIR against FPIR by threshold."""

    fpir: list[float]
    fnir: list[float]
    thresholds: list[float]


class CmcOut(BaseModel):
    """How often the right person is among the first k results, by k."""

    rank: list[int]
    rate: list[float]
    low: list[float]
    high: list[float]
    n_probes: int
    confidence: float


class IdentificationOut(BaseModel):
    """Simulated gallery searches with held-out people: half are enrolled, with one sample each, half are strangers."""

    gallery_size: int
    n_mated: int
    n_strangers: int
    divisions: int
    confidence: float
    at: list[IdentificationAt]
    curve: IdentificationCurve
    cmc: CmcOut


class RateOut(BaseModel):
    """A rate with its interval."""

    value: float
    interval: tuple[float, float]


class EnrolmentAt(BaseModel):
    """Errors with this number of enrolled samples and one probe."""

    samples: int
    rule: str | None = Field(None, description="how the scores of so many samples are combined")
    eer: float
    fnmr_at_fmr: dict[str, RateOut]


class EnrolmentOut(BaseModel):
    """Errors by number of enrolled samples, measured on the same held-out people."""

    n_people: int
    rule: str = Field(
        description="how the scores of several samples are combined: of the most samples in `at`"
    )
    confidence: float
    at: list[EnrolmentAt]


class TimeAt(BaseModel):
    """Errors of pairs whose samples were taken this far apart."""

    shortest: float
    longest: float
    n_pairs: int = Field(description="number of same pairs")
    n_units: int = Field(description="number of people; each has the same weight")
    fnmr_at_fmr: dict[str, RateOut] = Field(
        description="FNMR at thresholds that give these FMRs over all pairs"
    )


class TimesOut(BaseModel):
    """Errors by the time between two samples."""

    unit: str = Field(description="`days`, or empty if the dataset's times are plain numbers")
    confidence: float
    at: list[TimeAt]


class Evidence(BaseModel):
    """What was measured on a version's held-out data in addition to the ROC."""

    likelihood_ratios: list[LikelihoodOut] = Field(default_factory=list)
    identification: IdentificationOut | None = None
    by_samples: EnrolmentOut | None = None
    by_time: TimesOut | None = None
    left_out: dict[str, str] = Field(
        default_factory=dict, description="what was not measured, with the reason"
    )
