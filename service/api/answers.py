"""Answer schemas of the routes that the edge calls directly, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class ModelUsed(BaseModel):
    """The version that answered."""

    name: str
    version: int
    kind: str


class ScoresOut(BaseModel):
    """Similarities, one a pair, in order. Higher is more similar; swapping the sides changes no bit."""

    model: ModelUsed
    scores: list[float] = Field(description="float32 values")
    aggregation: str | None = Field(None, description="how subjects of several samples were compared")
    log_lr: list[float] | None = Field(
        None, description="with `log_lr`: natural log likelihood ratios, one a pair"
    )
    lr_method: str | None = Field(None, description="with `log_lr`: the map that they come from")
    calibration_id: str | None = Field(None, description="with `log_lr`: the calibration that holds the map")


class MatchOut(BaseModel):
    """A decision about one pair."""

    score: float | None = Field(None, description="absent for keys that may only decide")
    match: bool = Field(description="score > threshold, strictly, compared in float32")
    decision: str | None = Field(None, description="with `fnr`: match, review or different")
    log_lr: float | None = Field(None, description="with `log_lr`: the natural log likelihood ratio")
    log10_fpr: float | None = Field(
        None,
        description="with `detail`: at most 10 to this power of different pairs score so high, with the confidence "
        "asked for and for all scores at once; comes in steps, and stops where the data stop",
    )


class OperatingPointOut(BaseModel):
    """The threshold, and what is promised about it."""

    fpr: float = Field(description="the rate asked for")
    threshold: float = Field(description="a float32 value")
    fpr_upper_bound: float = Field(
        description="with the stated confidence the true rate is at most this; for method=estimate finite-sample, "
        "and 1 where nothing can be said"
    )
    confidence: float
    method: str = Field(description="finite-sample, bootstrap or estimate")
    tpr: float | None = Field(description="share of same pairs that match at this threshold")
    tpr_interval: list[float] | None
    n_units: int = Field(description="independent people (open-set) or samples (closed-set) behind it")
    n_negative_pairs: int
    observed_fpr: float = Field(description="the rate at the threshold on the calibration pairs")
    n_independent: int = Field(description="pairs that share no unit, which finite-sample counts")
    units: str = Field(
        description="given; independent: each pair by itself; or assumed: nothing said who the points belong to, so "
        "nothing is guaranteed"
    )
    simultaneous: bool = Field(description="whether the promise holds for all rates at once, or for this one")
    candidate: int | None = Field(
        None,
        description="with simultaneous: this version's number among those calibrated on the same dataset version, for "
        "all of which the promise holds at once",
    )
    promise: str = Field(
        description="pointwise: of this rate and this version, chosen without a look at its calibration, say by the "
        "test part; simultaneous: of all rates, and of all versions in the dataset's ledger"
    )
    fnr: float | None = Field(None, description="the false negative rate asked for")
    fnr_threshold: float | None = Field(None, description="at or below it a pair is different")
    fnr_upper_bound: float | None = Field(
        None, description="with the stated confidence both rates are at most their bounds"
    )
    review_same: float | None = Field(
        None, description="with fnr: share of same calibration pairs between the two thresholds"
    )
    review_different: float | None = Field(
        None, description="with fnr: share of different calibration pairs between the two thresholds"
    )
    guarantee: str = Field(
        description="finite-sample, whatever the distribution of scores; asymptotic: the confidence is approached as "
        "units grow; none: an estimate without a guarantee"
    )
    protocol: str
    calibration_id: str
    samples: list[int] | None = Field(
        None,
        description="subjects of several samples: the numbers that the decision is calibrated for, larger first",
    )
    aggregation: str | None = Field(None, description="subjects of several samples: how they are compared")


class MatchesOut(BaseModel):
    """Decisions, one a pair, in order."""

    model: ModelUsed | None = Field(description="null for scores made elsewhere")
    matches: list[MatchOut]
    operating_point: OperatingPointOut


class ExplanationOut(BaseModel):
    """Why a pair has its score."""

    model: ModelUsed
    score: float
    explanation: dict[str, Any] = Field(
        description="for trees the path; for weighted metrics the contributions"
    )


class VectorsOut(BaseModel):
    """Vectors, one a point, in order."""

    model: ModelUsed
    vectors: list[list[float]] = Field(description="float32 values")


class ClassesOut(BaseModel):
    """Labels, one a point, in order."""

    model: ModelUsed
    labels: list[str] = Field(description="the most probable label of each point, as the dataset names it")
    probabilities: list[dict[str, float]] = Field(description="of every label, for each point; they sum to 1")
