"""What calls return: records with named, typed fields.

``answer["name"]`` gives any member of the JSON as it came, those too that a newer service adds; ``answer.json`` is
all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from inspect import get_annotations
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from pairmark.client.errors import ClientError
from pairmark.wire.base import Fields
from pairmark.wire.datasets import DatasetFields
from pairmark.wire.galleries import (
    CandidatesFields,
    GalleryFields,
    HitFields,
    ItemFields,
    ReceiptFields,
    SearchFields,
    UpsertFields,
    VerificationFields,
)
from pairmark.wire.jobs import JobFields
from pairmark.wire.models import (
    AliasFields,
    CalibrationFields,
    EvaluationFields,
    LearnerFields,
    ModelFields,
    VersionFields,
)
from pairmark.wire.scoring import (
    ClassesFields,
    ExplanationFields,
    ModelUsedFields,
    OperatingPointFields,
    RankingFields,
    RankingsFields,
)


@dataclass(frozen=True, eq=False, kw_only=True)
class Answer:
    """Base of all answers; each kind is a dataclass like this one, of the members that `pairmark.wire` declares."""

    json: dict[str, Any] = field(repr=False)
    _makers: ClassVar[dict[str, Callable[[Any], Any] | None]] = {}

    def __init_subclass__(cls) -> None:
        members = _members(cls)
        cls.__annotations__ = members | get_annotations(cls)
        for name in members:
            # Not the default that the service has: a member that an answer lacks is None.
            setattr(cls, name, field())
        dataclass(frozen=True, eq=False, kw_only=True)(cls)
        cls._makers = {name: _maker(hint) for name, hint in members.items()}

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


_RECORDS: dict[type[Fields], type[Answer]] = {}


def _record_of(kind: type[Fields]) -> type[Answer]:
    """The record that is made of a declaration: the nearest that has a name here, else one of its own."""
    record = _RECORDS.get(kind)
    if record is None:
        declarations = [base for base in kind.__mro__ if issubclass(base, Fields) and base is not Fields]
        records = [
            child for base in declarations for child in base.__subclasses__() if issubclass(child, Answer)
        ]
        record = records[0] if records else type(kind.__name__.removesuffix("Fields"), (Answer, kind), {})
        _RECORDS[kind] = record
    return record


def _maker(hint: Any) -> Callable[[Any], Any] | None:
    """What makes a member of this type of its JSON; None where that is left as it is."""
    if isinstance(hint, type) and issubclass(hint, Fields):
        return lambda value: _record_of(hint).of(value)
    makers = [make for part in get_args(hint) if (make := _maker(part)) is not None]
    if not makers:
        return None
    make = makers[0]
    return (lambda values: [make(value) for value in values]) if get_origin(hint) is list else make


def _members(kind: type) -> dict[str, Any]:
    """Types of the members that the declarations below a class name."""
    declared = [base for base in kind.__mro__ if issubclass(base, Fields) and not issubclass(base, Answer)]
    return {name: hint for base in reversed(declared) for name, hint in get_type_hints(base).items()}


class ModelUsed(Answer, ModelUsedFields):
    """The version that answered."""


class OperatingPoint(Answer, OperatingPointFields):
    """A threshold and what is promised at it: a pair matches when ``score > threshold``."""


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
    reasons : (n,) why a pair does not match whatever it scores, such as ``unlike-calibration``; else None.
    warnings : what limits the whole answer, each with ``code`` and ``detail``.
    """

    matches: NDArray[np.bool_]
    scores: NDArray[np.float32]
    operating_point: OperatingPoint
    model: ModelUsed | None
    decisions: list[str] | None = None
    log_lr: NDArray[np.float64] | None = None
    reasons: list[str | None] = field(default_factory=list)
    warnings: list[dict[str, str]] = field(default_factory=list)


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


@dataclass(frozen=True, kw_only=True)
class CandidateScores:
    """Candidate pairs among their rivals.

    Attributes
    ----------
    scores : (n,) float32.
    matches : (n,) bool, where a false positive rate was asked for.
    operating_point : the threshold and its promise, likewise.
    model : the version that answered.
    """

    scores: NDArray[np.float32]
    matches: NDArray[np.bool_] | None
    operating_point: OperatingPoint | None
    model: ModelUsed


class Explanation(Answer, ExplanationFields):
    """Why one pair scores as it does."""


class Ranking(Answer, RankingFields):
    """Labels of one point, best first; ``positions`` start at 0."""


class Rankings(Answer, RankingsFields):
    """Rankings of each point."""


class Classes(Answer, ClassesFields):
    """The most probable label of each point, and the probability of every label."""


class Hit(Answer, HitFields):
    """One item of a gallery that a search found."""


class Candidates(Answer, CandidatesFields):
    """How a search of many records chose what it scored."""


class SearchResult(Answer, SearchFields):
    """Hits of each query, best first; with a rate only matches, and an empty list means "unknown"."""


class Verification(Answer, VerificationFields):
    """Whether a probe is of a subject."""


class Enrolled(Answer, UpsertFields):
    """What an upsert did; ``errors`` name the row of each item that was refused."""


class Gallery(Answer, GalleryFields):
    """A gallery."""


class Item(Answer, ItemFields):
    """An item of a gallery."""


class Receipt(Answer, ReceiptFields):
    """What an erasure removed, and what remains elsewhere."""


class Dataset(Answer, DatasetFields):
    """A dataset."""


class Job(Answer, JobFields):
    """A job; ``version`` is what it registered, ``error`` why it failed."""


class Learner(Answer, LearnerFields):
    """A kind of learner; ``params`` is the JSON Schema of its parameters."""


class Model(Answer, ModelFields):
    """A model with its aliases."""


class Version(Answer, VersionFields):
    """One version of a model."""


class Alias(Answer, AliasFields):
    """Where an alias points."""


class Calibration(Answer, CalibrationFields):
    """A calibration: what it is of, its counts, and the rates it supports."""


class Evaluation(Answer, EvaluationFields):
    """A version measured on another dataset."""
