"""How rows are held out, and what is told of measuring them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.pairs.splits import CALIBRATION_FRACTION, TEST_FRACTION

Protocol = Literal["auto", "open-set", "closed-set"]
GroupRole = Literal["together", "compare"]
ROLE_TEXT = (
    "what the dataset's group column is: `together`, rows of one group depend on each other (one person's recordings, "
    "say) and are never torn apart; `compare`, groups are populations whose rates are to be told apart"
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
    """Intervals at each threshold by itself."""

    kind: Literal["pointwise"]
    confidence: float
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
    groups: dict[str, Any] | None = Field(
        None,
        description="false and true positive rate of each group of people at the served thresholds, with intervals; "
        "where the version was trained with `groups: compare`",
    )
