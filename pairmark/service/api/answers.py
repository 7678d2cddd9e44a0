"""Answer schemas of the routes that the edge calls directly, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from pairmark.models.calibration.origins import GUARANTEES, Guarantee
from pairmark.service.store.schemas import Imported


class ModelUsed(BaseModel):
    """The version that answered."""

    name: str
    version: int
    kind: str


class ScoresOut(BaseModel):
    """Similarities, one per pair, in order. Higher is more similar; swapping the sides does not change a bit."""

    model: ModelUsed
    scores: list[float] = Field(description="float32 values")
    aggregation: str | None = Field(None, description="how subjects of several samples were compared")
    log_lr: list[float] | None = Field(
        None, description="with `log_lr`: natural log-likelihood ratios, one per pair"
    )
    lr_method: str | None = Field(None, description="with `log_lr`: the method that was used")
    calibration_id: str | None = Field(None, description="with `log_lr`: id of the calibration that was used")


class MatchOut(BaseModel):
    """A decision about one pair."""

    score: float | None = Field(None, description="absent for keys that may only decide")
    match: bool = Field(description="score > threshold, strictly, compared in float32")
    decision: str | None = Field(None, description="with `fnr`: match, review or different")
    log_lr: float | None = Field(None, description="with `log_lr`: the natural log-likelihood ratio")
    log10_fpr: float | None = Field(
        None,
        description="with `detail`: the share of different pairs that score this high is at most 10 to this power, "
        "at the requested confidence and for all scores at once. Its values are steps; the lowest is the lowest that "
        "the data support",
    )


class OperatingPointOut(BaseModel):
    """A threshold, and what is guaranteed at it."""

    fpr: float = Field(description="the requested rate")
    threshold: float = Field(description="a float32 value")
    fpr_upper_bound: float = Field(
        description="the true rate is at most this, with the stated confidence. For `method=estimate` it is the "
        "finite-sample bound at the threshold, or 1 if there is none"
    )
    confidence: float
    method: str = Field(description="finite-sample, bootstrap or estimate")
    tpr: float | None = Field(description="share of same pairs that match at this threshold")
    tpr_interval: list[float] | None
    n_units: int = Field(
        description="number of independent people (open-set) or samples (closed-set) that it is based on"
    )
    n_negative_pairs: int
    observed_fpr: float = Field(description="the rate on the calibration pairs at this threshold")
    n_independent: int = Field(description="number of pairs that share no unit; `finite-sample` counts these")
    origin: str = Field(
        description="how the calibration pairs came about: `all` pairs of the units, `drawn` by Pairmark, listed at "
        "`random`, inside of `blocks`, `independent` of each other, a random sample of a `population`; or, with "
        "nothing guaranteed, `unknown`, `unnamed` (no units) `assumed` (people were guessed) or "
        "`imported` (in a file that is not signed)"
    )
    population: dict[str, int] | None = Field(
        None,
        description="whom the promise is about where that is a stated set: closed-set, the number of `classes` among "
        "which it holds; with `finite-population`, its `pairs`, and how many of them were `judged`",
    )
    price: dict[str, Any] | None = Field(
        None,
        description="near the fewest units that the rate takes: `tpr` to expect over the random number that the "
        "service draws for these people, `low` and `high` (nine in ten lie between), and `steady_units`, the number of "
        "units from which it hardly plays a part; null elsewhere",
    )
    number: int | None = Field(
        None,
        description="this calibration's number among those on people in common, from 1; a pointwise guarantee is not "
        "for the best of several",
    )
    imported: Imported | None = Field(
        None,
        description="whether the calibration came in a file: `signed`, or `unsigned`, which guarantees nothing; null: "
        "it was made here",
    )
    simultaneous: bool = Field(
        description="whether the guarantee holds for all rates at once or only for this one"
    )
    candidate: int | None = Field(
        None,
        description="with `simultaneous`: this version's number among those calibrated on people in common",
    )
    promise: str = Field(
        description="`pointwise`: the guarantee is for this rate and for a version that was chosen without looking "
        "at its calibration, for example by the test part; `simultaneous`: it is for all rates and all versions in "
        "the dataset's ledger"
    )
    fnr: float | None = Field(None, description="the requested false negative rate")
    fnr_threshold: float | None = Field(
        None, description="a pair with this score or a lower one is different"
    )
    fnr_upper_bound: float | None = Field(
        None,
        description="upper bound of the false negative rate; both bounds hold with the stated confidence",
    )
    review_same: float | None = Field(
        None,
        description="with `fnr`: share of the same calibration pairs that are between the two thresholds",
    )
    review_different: float | None = Field(
        None,
        description="with `fnr`: share of the different calibration pairs that are between the two thresholds",
    )
    guarantee: Guarantee = Field(
        description="; ".join(f"`{name}`: {holds}" for name, holds in GUARANTEES.items())
    )
    meaning: str = Field(
        description="the guarantee in words: what holds, for whom and under which assumption, or what would change it"
    )
    protocol: str
    calibration_id: str
    samples: list[int] | None = Field(
        None,
        description="for subjects: the numbers of samples that the decision is calibrated for, larger first",
    )
    aggregation: str | None = Field(None, description="for subjects: how their samples are compared")


class MatchesOut(BaseModel):
    """Decisions, one per pair, in order."""

    model: ModelUsed | None = Field(description="null for scores of another system")
    matches: list[MatchOut]
    operating_point: OperatingPointOut


class ExplanationOut(BaseModel):
    """Why a pair has its score."""

    model: ModelUsed
    score: float
    explanation: dict[str, Any] = Field(
        description="for trees, the path; for weighted metrics, the contributions of the features"
    )


class VectorsOut(BaseModel):
    """Vectors, one per point, in order."""

    model: ModelUsed
    vectors: list[list[float]] = Field(description="float32 values")


class ClassesOut(BaseModel):
    """Labels, one per point, in order."""

    model: ModelUsed
    labels: list[str] = Field(description="the most probable label of each point, as the dataset names it")
    probabilities: list[dict[str, float]] = Field(
        description="for each point, the probability of every label; they sum to 1"
    )
