"""API keys and tenants."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
)

from pairmark.schemas.base import Answer, Moment, Page, Request

Scope = Literal["score", "decide", "gallery", "train", "import", "admin"]
Level = Literal["read", "items", "all"]
"""How much of a gallery a scope covers, each with what is before it: reading, its items, and the gallery itself."""
MAX_DAYS = 36_500
GRANTS_TEXT = (
    "`score`, `decide` (decisions without scores), `gallery`, `train`, `import` or `admin` (which includes the "
    "others), each perhaps on one resource: `score:people`, `gallery:people`, `gallery:people:read`, "
    "`gallery:people:items` (items, not the gallery itself)"
)
MAX_TENANT = 50
"""Characters of a tenant's name."""


class KeyRequest(Request):
    """A key to create."""

    name: str = Field(
        min_length=1,
        max_length=200,
        description="name of the key, for example its owner",
        examples=["turnstile"],
    )
    scopes: list[str] = Field(
        min_length=1,
        max_length=100,
        description=GRANTS_TEXT,
        examples=[["decide:people", "gallery:people:read"]],
    )
    tenant: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_TENANT,
        description="tenant whose names alone the key sees: those that begin with it and a slash. Default: that of "
        "the "
        "key that asks",
        examples=["acme"],
    )
    expires_in_days: float | None = Field(
        None, gt=0, le=MAX_DAYS, description="days until it expires; default: never", examples=[90]
    )
    rate: float | None = Field(
        None, gt=0, le=1e6, description="most requests per second; default: `PAIRMARK_RATE_LIMIT`"
    )


class RotationRequest(Request):
    """How to replace a key."""

    overlap_hours: float = Field(
        24.0, ge=0, le=24 * 365, description="hours for which the old key remains valid", examples=[24]
    )


class KeyOut(Answer):
    """A key's entry, without the key itself."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    name: str = Field(description="its name", examples=["turnstile"])
    scopes: list[str] = Field(description="what the key may do", examples=[["decide:people"]])
    tenant: str | None = Field(None, description="tenant whose names alone it sees")
    rate: float | None = Field(
        None, description="requests per second that the key may send; null: `PAIRMARK_RATE_LIMIT`"
    )
    created_at: Moment = Field(description="when it was created")
    expires_at: Moment | None = Field(None, description="when it stops working; null: never")
    last_used_at: Moment | None = Field(None, description="accurate to about half a minute")
    revoked_at: Moment | None = Field(description="when it was revoked; null: it was not")
    replaces: str | None = Field(None, description="id of the key that it replaces, after a rotation")


class KeyPage(Page[KeyOut]):
    """Keys in order of creation, including revoked ones."""


class NewKey(KeyOut):
    """A new key."""

    key: str = Field(
        description="the key, shown only once; the service stores its hash", examples=["pm_8c1f_..."]
    )
