"""Answer schemas of the routes that the edge calls directly, for the OpenAPI document."""

from __future__ import annotations

from pydantic import BaseModel, Field

from pairmark.models.calibration.origins import GUARANTEES, Guarantee
from pairmark.wire.models import Imported
from pairmark.wire.scoring import (
    IMPORTED_TEXT,
    ORIGIN_TEXT,
    ClassesFields,
    ExplanationFields,
    ModelUsedFields,
    OperatingPointFields,
)


class ModelUsedOut(BaseModel, ModelUsedFields, title="ModelUsed"):
    """The version that answered."""

    kind: str


class UnlikeOut(BaseModel, title="UnlikePair"):
    """A pair with a row unlike those who calibrated."""

    pair: int = Field(description="0-based")
    rows: list[str] = Field(
        description="which rows: `left`, `right`, of subjects `left[2]`", examples=[["left"]]
    )


class WarningOut(BaseModel, title="Warning"):
    """What limits the whole answer."""

    code: str = Field(examples=["inputs-moved"])
    detail: str


class ScoresOut(BaseModel):
    """Similarities, one per pair, in order. Higher is more similar; swapping the sides does not change a bit."""

    model: ModelUsedOut
    scores: list[float] = Field(description="float32 values")
    aggregation: str | None = Field(None, description="how subjects of several samples were compared")
    log_lr: list[float] | None = Field(
        None, description="with `log_lr`: natural log-likelihood ratios, one per pair"
    )
    lr_method: str | None = Field(None, description="with `log_lr`: the method that was used")
    calibration_id: str | None = Field(None, description="with `log_lr`: id of the calibration that was used")
    origin: str | None = Field(None, description=f"with `log_lr`: {ORIGIN_TEXT}")
    imported: Imported | None = Field(None, description=f"with `log_lr`: {IMPORTED_TEXT}")
    unlike: list[UnlikeOut] | None = Field(
        None, description="with `detail`: pairs with a row unlike calibration's"
    )


class MatchOut(BaseModel):
    """A decision about one pair."""

    score: float | None = Field(None, description="absent for keys that may only decide")
    match: bool = Field(
        description="score > threshold, strictly, compared in float32; never where there is a `reason`"
    )
    reason: str | None = Field(
        None,
        description="why it does not match whatever it scores: `unlike-calibration`, a row unlike those of the people "
        "who calibrated; `too-little-to-compare`, of records",
    )
    unlike: list[str] | None = Field(
        None, description="the rows that are: `left`, `right`, of subjects `left[2]`"
    )
    decision: str | None = Field(None, description="with `fnr`: match, review or different")
    log_lr: float | None = Field(None, description="with `log_lr`: the natural log-likelihood ratio")
    log10_fpr: float | None = Field(
        None,
        description="with `detail`: the share of different pairs that score this high is at most 10 to this power, "
        "at the requested confidence and for all scores at once. Its values are steps; the lowest is the lowest that "
        "the data support",
    )


class OperatingPointOut(BaseModel, OperatingPointFields):
    """A threshold, and what is guaranteed at it."""

    guarantee: Guarantee = Field(
        description="; ".join(f"`{name}`: {holds}" for name, holds in GUARANTEES.items())
    )


class MatchesOut(BaseModel):
    """Decisions, one per pair, in order."""

    model: ModelUsedOut | None = Field(description="null for scores of another system")
    matches: list[MatchOut]
    operating_point: OperatingPointOut
    warnings: list[WarningOut] | None = Field(
        None, description="`inputs-moved`: rows are no longer like those of the calibration"
    )


class ExplanationOut(BaseModel, ExplanationFields):
    """Why a pair has its score."""


class VectorsOut(BaseModel):
    """Vectors, one per point, in order."""

    model: ModelUsedOut
    vectors: list[list[float]] = Field(description="float32 values")


class ClassesOut(BaseModel, ClassesFields):
    """Labels, one per point, in order."""
