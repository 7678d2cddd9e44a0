"""What requests and answers are made of: vectors, records, pages, moments."""

import re
from collections.abc import Iterator, KeysView
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Self, TypeVar, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    model_validator,
)

T = TypeVar("T")

TWO_VERSIONS = r"^[1-9][0-9]{0,8},[1-9][0-9]{0,8}$"
ROW_LIST = r"^\d{1,15}(,\d{1,15}){0,99}$"
PRINTABLE = r"^[^\x00-\x1f\x7f]+$"
KEY_TEXT = r"^[\x21-\x7e]+$"
ID_TEXT = "^[0-9a-zA-Z_-]+$"
FORMS = {
    TWO_VERSIONS: "two version numbers, such as 1,2",
    ROW_LIST: "0-based rows separated by commas, at most 100, such as 0,17",
    PRINTABLE: "text without control characters",
    KEY_TEXT: "ASCII characters without blanks",
    ID_TEXT: "letters, digits, '_' or '-'",
}
"""What a text has to look like, as refusals say it."""


class Request(BaseModel):
    """The members of a JSON body or a form; values are coerced: "5" is a number."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class Body(BaseModel):
    """What may be long, taken as it is."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class QueryModel(BaseModel):
    """The query of an address. A parameter without a value counts as not given; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value != ""}


class Answer(BaseModel):
    """A JSON object that the service answers with.

    The service makes and checks it as any model. A client reads it with `from_json`, which checks nothing, so that
    answers of newer and older services can be read too: a member that is missing is None, and ``answer["name"]`` gives
    any member of the JSON as it came, those too that are not declared here.
    """

    model_config = ConfigDict(from_attributes=True, frozen=True, defer_build=True)

    _json: dict[str, Any] | None = PrivateAttr(None)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The answer that a JSON object holds."""
        if not isinstance(value, dict):
            raise TypeError(f"expected a JSON object from the service, got {type(value).__name__}")
        members = {
            name: _read(_answer_in(field.annotation), value.get(name))
            for name, field in cls.model_fields.items()
        }
        answer = cast(Self, cls.model_construct(**members))
        answer._json = value
        return answer

    @property
    def json(self) -> dict[str, Any]:  # type: ignore[override]
        """The JSON object."""
        return self.model_dump(mode="json") if self._json is None else self._json

    def __getitem__(self, name: str) -> Any:
        return self.json[name]

    def __contains__(self, name: object) -> bool:
        return name in self.json

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]
        return iter(self.json)

    def __eq__(self, other: object) -> bool:
        return self.json == (other.json if isinstance(other, Answer) else other)

    __hash__ = None  # type: ignore[assignment]

    def keys(self) -> KeysView[str]:
        """Names of the JSON's members, so that ``dict(answer)`` and ``{**answer}`` work."""
        return self.json.keys()

    def get(self, name: str, default: Any = None) -> Any:
        """A member of the JSON, or the default."""
        return self.json.get(name, default)


def _answer_in(annotation: Any) -> type[Answer] | None:
    """The kind of answer that a member holds, or a list of them; None: it is left as it is."""
    if isinstance(annotation, type) and issubclass(annotation, Answer):
        return annotation
    if get_origin(annotation) is dict:
        return None
    return next(filter(None, map(_answer_in, get_args(annotation))), None)


def _read(kind: type[Answer] | None, value: Any) -> Any:
    if kind is None:
        return value
    if isinstance(value, list):
        return [_read(kind, each) for each in value]
    return kind.from_json(value) if isinstance(value, dict) else value


class Page(BaseModel, Generic[T]):
    """Some entries of a list."""

    items: list[T] = Field(description="the entries of this page")
    next_cursor: str | None = Field(
        None, description="send it as `cursor` to get the next page; null on the last page"
    )


def iso(seconds: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Moment = Annotated[
    str,
    BeforeValidator(lambda at: iso(at) if isinstance(at, float) else at),
    Field(examples=["2026-01-31T12:00:00.000Z"]),
]
"""A time in an answer, as ISO 8601; rows hold seconds since the epoch."""
Rate = Annotated[float, Field(gt=0, lt=1)]
"""A rate, or a confidence."""


RESERVED = frozenset({"samples", "indices", "values"})
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (Unicode's Cc), those that set the direction of text (Bidi_Control), and halves of characters."""
FLOAT32_MAX = 3.4028234663852886e38
EXPECTED = (
    'a vector (a list of numbers), a list of vectors, or sparse vectors {"indices": [..], "values": [..]}; for a model '
    'of records {"column": value, ..}'
)
FAST = Field(fail_fast=True)
Number = Annotated[float, Field(ge=-FLOAT32_MAX, le=FLOAT32_MAX)]
"""A number that float32 holds; NaN and infinities are outside these bounds."""


class SparseVector(Body):
    """A vector by its non-zero entries; `indices` are 0-based and distinct."""

    indices: Annotated[list[int], FAST] = Field(
        description="0-based columns of the entries, all different", examples=[[0, 17]]
    )
    values: Annotated[list[Number], FAST] = Field(
        description="the entries, in the order of `indices`", examples=[[0.5, 2.0]]
    )


Cell = bool | float | str | None | list[float]


def _named_freely(record: dict[str, Cell]) -> dict[str, Cell]:
    if not RESERVED.isdisjoint(record):
        # A sparse vector or a subject that is not quite one: what is wrong with that is said instead.
        raise ValueError(f"no column is called {' or '.join(sorted(RESERVED))}")
    return record


Record = Annotated[dict[str, Cell], AfterValidator(_named_freely)]
"""A record of a table: from column to value. No column is called ``indices``, ``values`` or ``samples``."""
Dense = Annotated[list[Number], FAST]
Vectors = Annotated[
    Dense
    | Annotated[list[Dense], FAST]
    | SparseVector
    | Annotated[list[SparseVector], FAST]
    | Record
    | Annotated[list[Record], FAST],
    Field(union_mode="left_to_right"),
]


class Subject(Body):
    """One person or thing with several samples; `aggregation` says how their scores are combined."""

    samples: Annotated[
        Annotated[list[Dense], FAST] | Annotated[list[SparseVector], FAST] | Annotated[list[Record], FAST],
        Field(
            union_mode="left_to_right",
            description="vectors, sparse vectors or records of the same person or thing",
            examples=[[[0.1, 0.2, 0.3], [0.1, 0.25, 0.3]]],
        ),
    ]


Side = Annotated[
    Dense
    | Annotated[list[Dense], FAST]
    | SparseVector
    | Annotated[list[SparseVector], FAST]
    | Subject
    | Annotated[list[Subject], FAST]
    | Record
    | Annotated[list[Record], FAST],
    Field(union_mode="left_to_right"),
]
EXPECTED_SIDE = f'{EXPECTED}, or a subject {{"samples": [vector, ..]}} or a list of subjects'
LONGEST_REF = 512


def _plain_text(ref: str) -> str:
    if UNSEEN.search(ref):
        raise ValueError(
            "expected a name without control characters and characters that set the direction of text"
        )
    return ref


StoredRef = Annotated[str, Field(min_length=1, max_length=LONGEST_REF)]
Ref = Annotated[StoredRef, AfterValidator(_plain_text)]
"""A caller's own name of a side."""
RefPair = Annotated[list[Ref], Field(min_length=2, max_length=2)]
REFS_TEXT = "kept with decisions for reviews, if the model's policy keeps any; at most 512 characters each"
