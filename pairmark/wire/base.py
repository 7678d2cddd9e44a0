"""What declarations are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, overload


class Fields:
    """Base of declarations: an object of an answer, by its members' names, types, descriptions and defaults.

    The service makes a model of it (``class JobOut(BaseModel, JobFields)``), the client a record (``class Job(Answer,
    JobFields)``). A member that is a record itself is of the model, or the client's record, that was made of that one.
    """

    def __getitem__(self, name: str) -> Any:
        """A member by its name in JSON."""
        return getattr(self, name)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any, /) -> Any:
        return handler(next(kind for kind in cls.__subclasses__() if hasattr(kind, "model_fields")))


class Parameters:
    """Base of what requests hold: the members of a body, or the parameters of a query.

    The service makes a model of it (``class MatchQuery(Query, MatchParameters)``), the command line options. An object
    of it holds what was given; its other attributes are the defaults.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


@dataclass(frozen=True)
class Text:
    """What a member means, for the OpenAPI document.

    Parameters
    ----------
    help : the same for ``--help``, where an option says it shorter.
    example : a value, for the document.
    """

    description: str
    help: str = ""
    example: Any = None

    @staticmethod
    def of(field: Any) -> str | None:
        """What a field of a model means."""
        texts = (entry.description for entry in field.metadata if isinstance(entry, Text))
        description: str | None = field.description
        return next(texts, description)

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        description = {"description": self.description} if self.description else {}
        examples = {} if self.example is None else {"examples": [self.example]}
        return {**handler(core), **description, **examples}


@dataclass(frozen=True)
class Limits:
    """Between what a number lies, or how long a text or a list is. The service refuses what lies outside."""

    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None
    shortest: int | None = None
    longest: int | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        schema = handler(source)
        limited = schema["schema"] if schema["type"] == "nullable" else schema
        names = {"minimum": "ge", "maximum": "le", "above": "gt", "below": "lt"}
        names |= {"shortest": "min_length", "longest": "max_length"}
        limited.update(
            {name: value for field, name in names.items() if (value := getattr(self, field)) is not None}
        )
        return schema


Rate = Annotated[float, Limits(above=0, below=1)]
"""A rate, or a confidence."""


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: None) -> None: ...
def iso(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class Read:
    """How the service reads a value, before it checks the type."""

    read: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.read, handler(source))


Moment = Annotated[str, Read(lambda at: iso(at) if isinstance(at, float) else at)]
"""A time in an answer, as ISO 8601; rows hold seconds since the epoch."""
