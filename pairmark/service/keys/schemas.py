"""Requests and answers about keys."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pairmark.service.pagination import Page
from pairmark.service.times import Moment

Scope = Literal["score", "decide", "gallery", "train", "import", "admin"]
Level = Literal["read", "items", "all"]
"""How much of a gallery a scope covers, each with what is before it: reading, its items, and the gallery itself."""
MAX_DAYS = 36_500
GRANTS_TEXT = (
    "`score`, `decide` (decisions without scores), `gallery`, `train`, `import` or `admin` (which includes the "
    "others), each perhaps on one resource: `score:people`, `gallery:people`, `gallery:people:read`, "
    "`gallery:people:items` (items, not the gallery itself)"
)


class KeyRequest(BaseModel):
    """A key to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="name of the key, for example its owner")
    scopes: list[str] = Field(
        min_length=1, max_length=100, description=GRANTS_TEXT, examples=[["decide:people"]]
    )
    expires_in_days: float | None = Field(
        None, gt=0, le=MAX_DAYS, description="days until it expires; default: never"
    )
    rate: float | None = Field(
        None, gt=0, le=1e6, description="most requests per second; default: `PAIRMARK_RATE_LIMIT`"
    )


class RotationRequest(BaseModel):
    """How to replace a key."""

    model_config = ConfigDict(extra="forbid")

    overlap_hours: float = Field(
        24.0, ge=0, le=24 * 365, description="hours for which the old key remains valid"
    )


class KeyOut(BaseModel):
    """A key's entry, without the key itself."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    name: str
    scopes: list[str]
    rate: float | None = None
    created_at: Moment
    expires_at: Moment | None = None
    last_used_at: Moment | None = Field(None, description="accurate to about half a minute")
    revoked_at: Moment | None
    replaces: str | None = Field(None, description="id of the key that it replaces, after a rotation")


class KeyPage(Page[KeyOut]):
    """Keys in order of creation, including revoked ones."""


class NewKey(KeyOut):
    """A new key."""

    key: str = Field(description="the key, shown only once; the service stores its hash")
