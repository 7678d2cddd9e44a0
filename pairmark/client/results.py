"""What calls return: records with named, typed fields.

``answer["name"]`` gives any member of the JSON as it came, those too that a newer service adds; ``answer.json`` is
all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from pairmark.client.errors import ClientError

JobState = Literal["queued", "running", "succeeded", "failed", "cancelled"]


@dataclass_transform(frozen_default=True, eq_default=False, kw_only_default=True)
@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Base of all answers; each kind is a dataclass like this one."""

    json: dict[str, Any] = field(repr=False)
    _makers: ClassVar[dict[str, Callable[[Any], Any] | None]] = {}

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False, kw_only=True)(cls)
        cls._makers = {
            member.name: member.metadata.get("of") for member in fields(cls) if member.name != "json"
        }

    @classmethod
    def of(cls, value: Any) -> Self:
        """The record of a JSON object; members that it does not know stay in `json`."""
        if not isinstance(value, dict):
            raise ClientError(f"expected a JSON object from the service, got {type(value).__name__}")
        values = {
            name: make(value[name]) if make is not None and value.get(name) is not None else value.get(name)
            for name, make in cls._makers.items()
        }
        return cls(json=value, **values)

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def __contains__(self, name: object) -> bool:
        return name in self.json

    def __iter__(self) -> Iterator[str]:
        return iter(self.json)

    def __len__(self) -> int:
        return len(self.json)

    def __eq__(self, other: object) -> bool:
        return self.json == (other.json if isinstance(other, Answer) else other)

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> Any:
        """Names of the JSON's members, so that ``dict(answer)`` and ``{**answer}`` work."""
        return self.json.keys()

    def get(self, name: str, default: Any = None) -> Any:
        """A member of the JSON, or the default."""
        return self.json.get(name, default)


def _part(kind: type[Answer]) -> Any:
    return field(metadata={"of": kind.of})


def _parts(kind: type[Answer]) -> Any:
    return field(metadata={"of": lambda values: [kind.of(value) for value in values]})


class ModelUsed(Answer):
    """The version that answered."""

    name: str
    version: int
    kind: str | None


class OperatingPoint(Answer):
    """A threshold and what is promised at it: a pair matches when ``score > threshold``."""

    fpr: float
    threshold: float
    fpr_upper_bound: float
    confidence: float
    method: str
    guarantee: str
    protocol: str
    tpr: float | None
    tpr_interval: list[float] | None
    n_units: int
    n_negative_pairs: int
    calibration_id: str


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Decisions at a false positive rate.

    Attributes
    ----------
    matches : (n,) bool, ``scores > threshold``.
    scores : (n,) float32.
    operating_point : the threshold and its promise.
    model : the version that answered (None where the scores were given).
    decisions : (n,) match, review or different, where a false negative rate was asked for too.
    log_lr : (n,) natural log-likelihood ratios, if they were requested.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: OperatingPoint
    model: ModelUsed | None
    decisions: list[str] | None = None
    log_lr: NDArray[np.float64] | None = None


@dataclass(frozen=True, kw_only=True)
class BayesResult:
    """Decisions by prior and costs; no error rate is promised.

    Attributes
    ----------
    same : (n,) bool, whether calling a pair the same costs less on average.
    log_lr : (n,) natural log likelihood ratios. posterior : (n,) chances that pairs are the same. scores : (n,)
        float32. None each for keys that may only decide.
    bayes : what the decisions follow from: prior, cost_ratio, thresholds, calibration.
    model : the version that answered (None where the scores were given).
    """

    same: NDArray[np.bool_]
    log_lr: NDArray[np.float64] | None
    posterior: NDArray[np.float64] | None
    scores: NDArray[np.float32] | None
    bayes: dict[str, Any]
    model: ModelUsed | None


class Explanation(Answer):
    """Why one pair scores as it does."""

    model: ModelUsed = _part(ModelUsed)
    score: float
    explanation: dict[str, Any]


class Ranking(Answer):
    """Labels of one point, best first; ``positions`` start at 0."""

    labels: list[str]
    positions: dict[str, int]
    scores: dict[str, float]
    confidence: float | None
    pairwise: dict[str, Any] | None


class Rankings(Answer):
    """Rankings of each point."""

    model: ModelUsed = _part(ModelUsed)
    rankings: list[Ranking] = _parts(Ranking)


class Classes(Answer):
    """The most probable label of each point, and the probability of every label."""

    model: ModelUsed = _part(ModelUsed)
    labels: list[str]
    probabilities: list[dict[str, float]]


class Hit(Answer):
    """One item of a gallery that a search found."""

    id: str
    subject: str | None
    score: float
    match: bool | None


class SearchResult(Answer):
    """Hits of each query, best first; with a rate only matches, and an empty list means "unknown"."""

    model: ModelUsed = _part(ModelUsed)
    results: list[list[Hit]] = field(
        metadata={"of": lambda lists: [[Hit.of(hit) for hit in hits] for hits in lists]}
    )
    operating_point: dict[str, Any] | None
    warning: str | None


class Verification(Answer):
    """Whether a probe is of a subject."""

    model: ModelUsed = _part(ModelUsed)
    subject: str
    match: bool
    score: float
    id: str
    items: int
    operating_point: dict[str, Any]


class Enrolled(Answer):
    """What an upsert did; ``errors`` name the row of each item that was refused."""

    upserted: int
    n_errors: int
    errors: list[dict[str, Any]]


class Gallery(Answer):
    """A gallery."""

    name: str
    model: ModelUsed = _part(ModelUsed)
    dimension: int
    items: int
    subjects: int | None
    sequence: int
    fields: list[str]


class Item(Answer):
    """An item of a gallery."""

    id: str
    subject: str | None
    metadata: dict[str, Any] | None
    vector: list[float] | None


class Receipt(Answer):
    """What an erasure removed, and what remains elsewhere."""

    gallery: str
    id: str | None
    subject: str | None
    items: int
    index_blocks: int
    database_complete: bool
    pending: list[str]
    erased_at: str


class Dataset(Answer):
    """A dataset."""

    id: str
    name: str
    version: int
    sha256: str
    rows: int
    features: int
    label_role: str
    n_labels: int
    label_counts: dict[str, int]
    warnings: list[str]


class Job(Answer):
    """A job; ``version`` is what it registered, ``error`` why it failed."""

    id: str
    state: JobState
    progress: float
    stage: str
    message: str
    model: str
    version: int | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    attempts: list[dict[str, Any]]


class Learner(Answer):
    """A kind of learner; ``params`` is the JSON Schema of its parameters."""

    kind: str
    title: str
    capabilities: list[str]
    params: dict[str, Any]


class Model(Answer):
    """A model with its aliases."""

    name: str
    latest_version: int
    aliases: list[dict[str, Any]]


class Version(Answer):
    """One version of a model."""

    model: str
    version: int
    kind: str
    capabilities: list[str]
    aliases: list[str]
    calibration_id: str | None
    params: dict[str, Any]
    metrics: dict[str, Any]
    lineage: dict[str, Any]
    facts: dict[str, Any]


class Alias(Answer):
    """Where an alias points."""

    model: str
    alias: str
    version: int
    revision: int


class Calibration(Answer):
    """A calibration: what it is of, its counts, and the rates it supports."""

    id: str
    name: str
    model: str | None
    version: int | None
    protocol: str
    summary: dict[str, Any]


class Evaluation(Answer):
    """A version measured on another dataset."""

    model: str
    version: int
    dataset: str
    protocol: str
    metrics: dict[str, Any]
    roc: dict[str, Any]
    operating_points: list[dict[str, Any]]
    overlap: dict[str, Any]
    warnings: list[str]
