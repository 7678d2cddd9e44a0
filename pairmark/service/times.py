"""Times as ISO 8601 text, for people and JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, overload

from pydantic import BeforeValidator


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: None) -> None: ...
def iso(seconds: float | None) -> str | None:
    """Seconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _as_iso(at: Any) -> Any:
    return iso(at) if isinstance(at, float) else at


Moment = Annotated[str, BeforeValidator(_as_iso)]
"""A time in an answer, as ISO 8601; rows hold seconds since the epoch."""
