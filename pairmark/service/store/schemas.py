"""Requests and answers about models and versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.calibration.origins import Guarantee
from pairmark.service.datasets.promises import Promise
from pairmark.service.heldout.schemas import Evidence, OverlapOut, RocOut
from pairmark.service.pagination import Page
from pairmark.wire.base import Moment, Rate
from pairmark.wire.models import (
    AliasFields,
    CalibrationFields,
    EvaluationFields,
    LineageFields,
    ModelFields,
    SeenPointFields,
    VersionFields,
    VersionSummaryFields,
)


class AliasOut(BaseModel, AliasFields):
    """Where an alias points. `revision` changes with every move: it is the alias's ETag."""


class AliasChangeOut(BaseModel, from_attributes=True):
    """One move of an alias."""

    version: int
    previous: int | None
    by: str
    at: Moment
    reason: str | None = Field(description="the reason given when the alias was moved; null: none was given")


class AliasChangePage(Page[AliasChangeOut]):
    """Moves of an alias, newest first."""


class CalibrationOut(BaseModel, CalibrationFields):
    """A calibration: the held-out scores from which operating points are computed."""


class CalibrationPage(Page[CalibrationOut]):
    """Some calibrations, newest first."""


class FprBandOut(BaseModel):
    """Upper bounds of the false positive rate that hold at all thresholds at once."""

    thresholds: list[float] = Field(description="float32 values, descending")
    fpr: list[float] = Field(
        description="upper bounds of the false positive rate at `thresholds`, in the same order"
    )
    confidence: float = Field(description="the confidence with which all bounds hold at once")
    method: Literal["finite-sample"]
    guarantee: Guarantee = Field(description="as of an operating point of this calibration")


class CalibrationDetail(CalibrationOut):
    """A calibration with its curve for people."""

    curve: dict[str, Any]
    band: FprBandOut | None = Field(
        None, description="with `band=true`; null if the data support no rate at all thresholds at once"
    )


class Lineage(BaseModel, LineageFields):
    """Where a version comes from. Trainings whose lineage differs only in job and time give equal artefacts."""

    model_config = ConfigDict(extra="allow")


class VersionSummary(BaseModel, VersionSummaryFields):
    """A version's summary."""


class VersionOut(VersionSummary, VersionFields):
    """Everything about a version."""

    promise: Promise | None = Field(
        description="the smallest false positive rate that its calibration can guarantee, and how many more people "
        "the next power of ten needs; null if it cannot be computed from the sizes"
    )


class ReviewPolicy(BaseModel, extra="forbid"):
    """Which decisions of a model are kept for reviews, and for how long."""

    share: float = Field(1.0, gt=0, le=1, description="the chance with which each decision is kept")
    per_hour: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="most decisions kept of an hour, on average: beyond, the chance of the whole hour is halved",
    )
    days: float = Field(30, gt=0, le=400, description="how long they are kept")
    sides: bool = Field(
        False, description="keep the two sides as they were sent, for reviewers to look at; else `refs` only"
    )
    fall_back: bool = Field(
        False,
        description="when a review shows that more is wrong than it allows, move `production` back to the version "
        "before",
    )


DECIDED_RATES: Final = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Rates at which a key that may only decide is answered, where the model's policy lists no others."""


class Policy(BaseModel, extra="forbid"):
    """What a model may promise, and what is kept of its decisions. A member that is left out stays as it is."""

    reviews: ReviewPolicy | None = Field(
        None, description="which decisions are kept for reviews; null: none, and those that were are deleted"
    )
    allow_asymptotic: bool | None = Field(
        None,
        description="whether `method=auto` may answer by the bootstrap, whose guarantee is asymptotic, when the "
        "finite-sample method refuses; null: as the server's setting says",
    )
    rates: list[Rate] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="false positive rates at which keys with `decide` alone are answered, so that no series of "
        f"questions brackets a score; null: {', '.join(f'{rate:g}' for rate in DECIDED_RATES)}",
    )


class LeaderboardEntry(BaseModel):
    """One scorer, measured on the same held-out data as the others."""

    name: str
    role: Literal["model", "baseline"]
    value: float
    interval: list[float] | None
    difference: float = Field(description="the model's value minus this scorer's value")
    difference_interval: list[float] | None = Field(
        description="interval of the difference, paired over the same draws of people or rows"
    )
    tpr_at_fpr: dict[str, float] | None = None
    learner: str | None = Field(None, description="the learner kind")
    params: dict[str, Any] | None = None


class LeaderboardOut(BaseModel):
    """A version compared with simple baselines, best first."""

    model_config = ConfigDict(extra="allow")

    task: Literal["pairs", "rankings", "classification"]
    judged_by: str
    confidence: float
    items: list[LeaderboardEntry]
    left_out: list[dict[str, str]] = Field(
        description="baselines that could not be measured, with the reason"
    )
    best_baseline: str | None
    beaten: bool = Field(description="whether a baseline is better than the model, by more than chance")
    verdict: str | None = Field(description="the comparison with the baselines, as a sentence")
    classification: LeaderboardOut | None = Field(
        None, description="for classifiers: the leaderboard by accuracy"
    )
    race: Any = Field(None, description="the candidates that the learner compared by cross-validation")


class HardPair(BaseModel):
    """A held-out pair: 0-based rows of the version's dataset."""

    left: int
    right: int
    score: float


class ErrorsOut(BaseModel):
    """Held-out pairs that a version gets wrong, hardest first."""

    model: str
    version: int
    dataset: str | None = Field(description="the dataset that the rows belong to")
    kind: Literal["false-match", "false-non-match"]
    fpr: float | None
    threshold: float | None = Field(
        description="the threshold of the operating point at `fpr`; null: pairs are not restricted to one threshold"
    )
    of: int = Field(description="number of scored pairs of that kind")
    items: list[HardPair]
    more: bool = Field(description="whether there are more errors than were kept or requested")


class ScoreHistograms(BaseModel):
    """Scores of the held-out pairs, counted in bins. The outermost bins include all scores beyond them."""

    edges: list[float] = Field(description="edges of the bins, one more than there are bins")
    same: list[int]
    different: list[int]


class PromisedRate(BaseModel):
    """What a version guarantees at one false positive rate, or why it does not."""

    fpr: float
    threshold: float | None = None
    fpr_upper_bound: float | None = None
    confidence: float | None = None
    method: str | None = None
    guarantee: Guarantee | None = None
    assumes: list[dict[str, str]] | None = None
    tpr: float | None = None
    tpr_interval: tuple[float, float] | None = None
    n_units: int | None = None
    refused: str | None = Field(None, description="why the calibration guarantees nothing at this rate")
    smallest_fpr: float | None = Field(None, description="if refused: the smallest rate that is guaranteed")


class ModelCard(BaseModel):
    """A model card, after Mitchell et al. (2019)."""

    details: list[str]
    intended_use: list[str]
    training_data: list[str]
    evaluation_data: list[str]
    factors: list[str]
    limits: list[str]


class ReportOut(BaseModel):
    """Everything that is known about a version, in one document."""

    version: VersionOut
    card: ModelCard
    promises: list[PromisedRate] = Field(
        description="guarantees at common rates, by the version's own calibration"
    )
    leaderboard: LeaderboardOut | None
    roc: RocOut | None
    histograms: ScoreHistograms | None
    evidence: Evidence | None = Field(
        description="likelihood ratios, gallery searches and errors by number of enrolled samples, on held-out "
        "people; null for versions that do not score pairs, or were trained by an earlier release"
    )


class ModelOut(BaseModel, ModelFields):
    """A model: a name, its versions and its aliases."""

    policy: Policy


class ModelPage(Page[ModelOut]):
    """Some models, by name."""


class VersionPage(Page[VersionSummary]):
    """Some versions of a model, newest first."""


class SeenOperatingPoint(BaseModel, SeenPointFields):
    """One of a version's operating points, and the rates at its threshold on other data."""


class EvaluationOut(BaseModel, EvaluationFields):
    """A version measured on another dataset."""

    roc: RocOut
    overlap: OverlapOut


@dataclass(frozen=True, kw_only=True)
class NewCalibration:
    """A calibration whose blob is stored, to be registered."""

    name: str
    blob: str
    protocol: str
    summary: dict[str, Any]
    dataset_id: str | None
    dataset_sha256: str | None
    parent_id: str | None = None
    subjects: str | None = None


@dataclass(frozen=True, kw_only=True)
class NewVersion:
    """A version whose blobs are stored, to be registered."""

    model: str
    kind: str
    capabilities: list[str]
    params: dict[str, Any]
    metrics: dict[str, Any]
    lineage: dict[str, Any]
    facts: dict[str, Any]
    artefact: str
    artefact_sha256: str
    report: str | None
    calibration: NewCalibration | None
    job_id: str | None
    among: NewCalibration | None = None
    """Of pairs among their rivals, of the same people."""

    def columns(self) -> dict[str, Any]:
        """What its row holds as it is."""
        return {
            name: value for name, value in vars(self).items() if name not in ("model", "calibration", "among")
        }


class LedgerEntry(BaseModel):
    """A calibration on one dataset version."""

    number: int = Field(description="number in the order of calibration, from 1")
    model: str
    version: int
    calibration_id: str
    calibrated_at: Moment


class LedgerOut(BaseModel):
    """Every version that was calibrated on one dataset version, including deleted ones.

    With `simultaneous=true`, a rate is guaranteed for all of them at once, so you may choose any of them by its
    operating points. Without it, the guarantee is for one version that was chosen in another way, for example by the
    test part.
    """

    dataset: str
    dataset_sha256: str
    candidates: int = Field(description="number of calibrations")
    versions: list[LedgerEntry]
