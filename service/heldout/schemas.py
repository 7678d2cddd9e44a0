"""Schemas of held-out splits and of reports about them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION

Protocol = Literal["auto", "open-set", "closed-set"]
GroupRole = Literal["together", "compare"]
ROLE_TEXT = (
    "what the dataset's group column is: `together`, rows of one group depend on each other (one person's recordings, "
    "say) and are never split; `compare`, groups are populations whose rates are to be compared"
)
DEFAULT_EVALUATION_PAIRS = 200_000


class EvaluationRequest(BaseModel):
    """How a job holds data out, and how many pairs it scores there."""

    model_config = ConfigDict(extra="forbid")

    protocol: Protocol = Field(
        "auto",
        description="open-set: the people in use were never seen in training; closed-set: the classes are those of "
        "training. auto means open-set from 30 identities up.",
    )
    calibration_fraction: float = Field(
        CALIBRATION_FRACTION,
        gt=0.0,
        lt=1.0,
        description="share held out for the operating point, and used for nothing else",
    )
    test_fraction: float = Field(TEST_FRACTION, gt=0.0, lt=1.0, description="share held out for the report")
    groups: GroupRole = Field("together", description=ROLE_TEXT)
    n_pairs: int = Field(
        DEFAULT_EVALUATION_PAIRS, ge=2, description="most pairs scored in each of the two held-out parts"
    )
    target_fpr: float | None = Field(
        None,
        gt=0.0,
        lt=0.5,
        description="the false positive rate that will be asked for: where `calibration_fraction` is not given it "
        "follows from this, and versions are compared around it",
    )


class OverlapOut(BaseModel):
    """How much of a dataset the version was trained on."""

    rows: int
    identities: int
    first_rows: list[int] = Field(default_factory=list, description="0-based, at most 20 of them")
    first_identities: list[str] = Field(default_factory=list, description="at most 20 of them")


class RocBands(BaseModel):
    """Intervals of both rates: at each threshold by itself, or at all of them and for both rates at once."""

    kind: Literal["pointwise", "simultaneous"]
    confidence: float
    guarantee: Literal["asymptotic"] = Field(
        "asymptotic",
        description="drawn from resampled units. A bound of the false positive rate at every threshold that is "
        "finite-sample: `GET /calibrations/{id}?band=true`",
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
        None, description="absent from versions evaluated before they were kept"
    )
    groups: dict[str, Any] | None = Field(
        None,
        description="false and true positive rate of each group of people at the served thresholds, with intervals; "
        "where the version was trained with `groups: compare`",
    )


class DetOut(BaseModel):
    """The DET curve in ISO/IEC 19795-1 words, at `score > threshold`; usually drawn on axes of normal deviates."""

    fmr: list[float]
    fnmr: list[float]
    thresholds: list[float] = Field(description="float32 values, descending")
    bands: dict[str, Any] | None = None
    simultaneous_bands: dict[str, Any] | None = None


class TippettOut(BaseModel):
    """Shares of same and of different pairs with at least each log likelihood ratio."""

    log_lr: list[float] = Field(description="natural, ascending")
    same: list[float]
    different: list[float]


class CrossEntropyOut(BaseModel):
    """Empirical cross-entropy in bits, by prior."""

    prior_log_odds: list[float] = Field(description="natural")
    ece: list[float] = Field(description="of the likelihood ratios as they are given")
    ece_min: list[float] = Field(description="after the best rising map of the same pairs")
    ece_neutral: list[float] = Field(description="of knowing nothing but the prior")


class LikelihoodOut(BaseModel):
    """What a version's log likelihood ratios are worth on held-out pairs."""

    method: Literal["logistic", "pav", "own"]
    cllr: float = Field(description="cost in bits over all priors; 0 is perfect, 1 is knowing nothing")
    cllr_min: float = Field(description="what the best rising map of the same pairs would leave")
    calibration_loss: float = Field(description="cllr - cllr_min: the cost of bad calibration")
    misleading_same: float = Field(description="share of same pairs whose evidence speaks for different")
    misleading_different: float = Field(description="share of different pairs whose evidence speaks for same")
    limits: tuple[float, float] = Field(description="the least and the greatest log LR that is ever stated")
    tippett: TippettOut
    ece: CrossEntropyOut


class IdentificationAt(BaseModel):
    """What is missed at one rate of false alarms."""

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
    """How often the right person is among the first so many."""

    rank: list[int]
    rate: list[float]
    low: list[float]
    high: list[float]
    n_probes: int
    confidence: float


class IdentificationOut(BaseModel):
    """Searches in galleries played with held-out people: half enrolled with one sample each, the others strangers."""

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
    """Errors with so many enrolled samples and one probe."""

    samples: int
    eer: float
    fnmr_at_fmr: dict[str, RateOut]


class EnrolmentOut(BaseModel):
    """Errors by number of enrolled samples, of the same held-out people."""

    n_people: int
    rule: str = Field(description="how the samples' scores become one")
    confidence: float
    at: list[EnrolmentAt]


class TimeAt(BaseModel):
    """Errors of pairs whose samples lie so far apart in time."""

    shortest: float
    longest: float
    n_pairs: int = Field(description="same pairs")
    n_units: int = Field(description="people, who weigh equally")
    fnmr_at_fmr: dict[str, RateOut] = Field(description="at thresholds of all pairs")


class TimesOut(BaseModel):
    """Errors by the time between two samples."""

    unit: str = Field(description="`days`, or empty for numbers as the dataset has them")
    confidence: float
    at: list[TimeAt]


class Evidence(BaseModel):
    """What was measured on a version's held-out part beside its ROC."""

    likelihood_ratios: list[LikelihoodOut] = Field(default_factory=list)
    identification: IdentificationOut | None = None
    by_samples: EnrolmentOut | None = None
    by_time: TimesOut | None = None
    left_out: dict[str, str] = Field(default_factory=dict, description="what was not measured, and why")
