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


class Evidence(Answer):
    """What was measured on a version's held-out data in addition to the ROC."""

    likelihood_ratios: list[dict[str, Any]] = Field(
        default_factory=list,
        description="by `method`, the cost of its log-likelihood ratios in bits: `cllr`, `cllr_min` after the best "
        "non-decreasing map, `calibration_loss`; shares of pairs with misleading ratios, and the `limits` of all",
    )
    identification: dict[str, Any] | None = Field(
        None,
        description="simulated searches, half of the people enrolled with one sample each: `fnir` at each `fpir`, and "
        "the CMC; null: there are too few people",
    )
    by_time: dict[str, Any] | None = Field(
        None, description="errors by time between two samples; null: the dataset has no times"
    )
    left_out: dict[str, str] = Field(
        default_factory=dict, description="what was not measured, with the reason"
    )
