"""What held-out data show of a version."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
)

from pairmark.schemas.base import Answer


class OverlapOut(Answer):
    """How much of a dataset is training data of the version."""

    rows: int = Field(description="number of rows that are in the training data too", examples=[0])
    identities: int = Field(description="number of identities that are in the training data too")
    first_rows: list[int] = Field(default_factory=list, description="0-based rows, the first 20 at most")
    first_identities: list[str] = Field(default_factory=list, description="the first 20 at most")


class RocBands(Answer):
    """Intervals of both rates, at each threshold alone."""

    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    guarantee: Literal["asymptotic"] = Field(
        "asymptotic",
        description="intervals come from resampled units",
    )
    fpr_low: list[float] = Field(description="lower ends for the false positive rates")
    fpr_high: list[float] = Field(description="upper ends for the false positive rates")
    tpr_low: list[float] = Field(description="lower ends for the true positive rates")
    tpr_high: list[float] = Field(description="upper ends for the true positive rates")


class RocOut(Answer):
    """The ROC on held-out pairs: rates of `score > threshold`."""

    fpr: list[float] = Field(description="false positive rates, ascending", examples=[[0.0, 0.01, 1.0]])
    tpr: list[float] = Field(
        description="true positive rates, in the same order", examples=[[0.41, 0.95, 1.0]]
    )
    thresholds: list[float] = Field(description="float32 values, descending", examples=[[8.1, 3.2, -7.5]])
    bands: RocBands | None = Field(None, description="confidence bands; null: none were computed")
    groups: dict[str, Any] | None = Field(
        None,
        description="error rates of each group of people at the thresholds in use, with intervals, if the version "
        "was trained with `groups: compare`",
    )


class LikelihoodOut(Answer):
    """The quality of a version's log-likelihood ratios on held-out pairs."""

    method: Literal["logistic", "pav", "own"] = Field(
        description="how scores become log-likelihood ratios", examples=["logistic"]
    )
    cllr: float = Field(
        description="cost in bits, averaged over all priors; 0: perfect; 1: no information", examples=[0.142]
    )
    cllr_min: float = Field(
        description="the cost after the best non-decreasing map, fitted on the same pairs", examples=[0.138]
    )
    calibration_loss: float = Field(
        description="cllr - cllr_min: the cost of bad calibration", examples=[0.004]
    )
    misleading_same: float = Field(
        description="share of same pairs with a negative log-likelihood ratio", examples=[0.027]
    )
    misleading_different: float = Field(
        description="share of different pairs with a positive log-likelihood ratio", examples=[0.021]
    )
    limits: tuple[float, float] = Field(
        description="the smallest and the largest log-likelihood ratio that is ever stated",
        examples=[[-4.6, 9.2]],
    )


class IdentificationAt(Answer):
    """FNIR at one FPIR."""

    fpir: float = Field(
        description="false positive identification rate: share of searches of strangers that return somebody"
    )
    threshold: float = Field(description="the threshold that gives this FPIR", examples=[3.2])
    fnir: float = Field(
        description="false negative identification rate: share of searches of enrolled people that miss them"
    )
    interval: tuple[float, float] = Field(description="lower and upper end of the confidence interval")


class IdentificationCurve(Answer):
    """FNIR against FPIR by threshold."""

    fpir: list[float] = Field(
        description="false positive identification rate: share of searches of strangers that return somebody"
    )
    fnir: list[float] = Field(
        description="false negative identification rate: share of searches of enrolled people that miss them"
    )
    thresholds: list[float] = Field(
        description="float32 values, in the same order", examples=[[8.1, 3.2, -7.5]]
    )


class CmcOut(Answer):
    """How often the right person is among the first k results, by k."""

    rank: list[int] = Field(description="numbers of results considered, from 1")
    rate: list[float] = Field(description="share of searches with the right person among that many results")
    low: list[float] = Field(description="lower ends of the intervals, in the same order")
    high: list[float] = Field(description="upper ends of the intervals, in the same order")
    n_probes: int = Field(description="number of searches", examples=[700])
    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])


class IdentificationOut(Answer):
    """Simulated gallery searches with held-out people: half are enrolled, with one sample each, half are strangers."""

    gallery_size: int = Field(
        description="number of people, or of items, that each search compared with", examples=[500]
    )
    n_mated: int = Field(description="number of searches of enrolled people", examples=[500])
    n_strangers: int = Field(description="number of searches of people who are not enrolled", examples=[700])
    divisions: int = Field(
        description="number of divisions into enrolled people and strangers; rates are means over them"
    )
    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    at: list[IdentificationAt] = Field(description="error rates at chosen FPIRs")
    curve: IdentificationCurve = Field(description="FNIR against FPIR")
    cmc: CmcOut = Field(description="how often the right person is among the first k results")


class RateOut(Answer):
    """A rate with its interval."""

    value: float = Field(description="the measured value")
    interval: tuple[float, float] = Field(description="lower and upper end of the confidence interval")


class TimeAt(Answer):
    """Errors of pairs whose samples were taken this far apart."""

    shortest: float = Field(description="the shortest time between the two samples")
    longest: float = Field(description="the longest time between the two samples")
    n_pairs: int = Field(description="number of same pairs")
    n_units: int = Field(description="number of people; each has the same weight", examples=[1196])
    fnmr_at_fmr: dict[str, RateOut] = Field(
        description="FNMR at thresholds that give these FMRs over all pairs"
    )


class TimesOut(Answer):
    """Errors by the time between two samples."""

    unit: str = Field(description="`days`, or empty if the dataset's times are plain numbers")
    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    at: list[TimeAt] = Field(description="errors, by time between the samples")


class Evidence(Answer):
    """What was measured on a version's held-out data in addition to the ROC."""

    likelihood_ratios: list[LikelihoodOut] = Field(
        default_factory=list, description="quality of the log-likelihood ratios, by method"
    )
    identification: IdentificationOut | None = Field(
        None, description="simulated gallery searches; null: there are too few people"
    )
    by_time: TimesOut | None = Field(
        None, description="errors by time between two samples; null: the dataset has no times"
    )
    left_out: dict[str, str] = Field(
        default_factory=dict, description="what was not measured, with the reason"
    )
