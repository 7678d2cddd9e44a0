"""What declarations are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, overload


class Record:
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


@dataclass(frozen=True)
class Text:
    """What a member means, for the OpenAPI document."""

    description: str

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core), "description": self.description}


@dataclass(frozen=True)
class Limits:
    """Between what a number lies, for the OpenAPI document."""

    minimum: float
    maximum: float

    def __get_pydantic_json_schema__(
        self, core: Any, handler: Callable[[Any], dict[str, Any]]
    ) -> dict[str, Any]:
        return {**handler(core), "minimum": self.minimum, "maximum": self.maximum}


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: None) -> None: ...
def iso(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _AsIso:
    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(
            lambda at: iso(at) if isinstance(at, float) else at, handler(source)
        )


Moment = Annotated[str, _AsIso()]
"""A time in an answer, as ISO 8601; rows hold seconds since the epoch."""
