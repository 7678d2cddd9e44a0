"""Requests and answers about keys."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from pairmark.service.names import MAX_TENANT
from pairmark.service.pagination import Page
from pairmark.wire.base import Moment, Text
from pairmark.wire.operations import TenantFields

Scope = Literal["score", "decide", "gallery", "train", "import", "admin"]
Level = Literal["read", "items", "all"]
"""How much of a gallery a scope covers, each with what is before it: reading, its items, and the gallery itself."""
MAX_DAYS = 36_500
GRANTS_TEXT = (
    "`score`, `decide` (decisions without scores), `gallery`, `train`, `import` or `admin` (which includes the "
    "others), each perhaps on one resource: `score:people`, `gallery:people`, `gallery:people:read`, "
    "`gallery:people:items` (items, not the gallery itself)"
)


class KeyRequest(BaseModel, extra="forbid"):
    """A key to create."""

    name: str = Field(min_length=1, max_length=200, description="name of the key, for example its owner")
    scopes: list[str] = Field(
        min_length=1, max_length=100, description=GRANTS_TEXT, examples=[["decide:people"]]
    )
    tenant: str | None = Field(
        None,
        min_length=1,
        max_length=MAX_TENANT,
        description="tenant whose names alone the key sees: those that begin with it and a slash. Default: that of the "
        "key that asks",
        examples=["acme"],
    )
    expires_in_days: float | None = Field(
        None, gt=0, le=MAX_DAYS, description="days until it expires; default: never"
    )
    rate: float | None = Field(
        None, gt=0, le=1e6, description="most requests per second; default: `PAIRMARK_RATE_LIMIT`"
    )


class Quotas(BaseModel, extra="forbid"):
    """Amounts of what a tenant stores and runs; as a limit, 0 is none."""

    vectors: int | None = Field(None, ge=0, le=2**53, description="vectors enrolled in galleries")
    rows: int | None = Field(None, ge=0, le=2**53, description="rows of datasets")
    bytes: int | None = Field(
        None, ge=0, le=2**53, description="bytes of datasets, models, calibrations and enrolled vectors"
    )
    jobs: int | None = Field(None, ge=0, le=2**53, description="jobs that wait or run")
    keys: int | None = Field(None, ge=0, le=2**53, description="keys that are not revoked")


class TenantOut(BaseModel, TenantFields):
    """A tenant: a prefix of names, with its quotas and what it uses of them."""

    quotas: Annotated[Quotas, Text("the limits in force; 0: none")]
    use: Quotas


class TenantPage(Page[TenantOut]):
    """Tenants by name."""


class RotationRequest(BaseModel, extra="forbid"):
    """How to replace a key."""

    overlap_hours: float = Field(
        24.0, ge=0, le=24 * 365, description="hours for which the old key remains valid"
    )


class KeyOut(BaseModel, from_attributes=True):
    """A key's entry, without the key itself."""

    id: str
    name: str
    scopes: list[str]
    tenant: str | None = Field(None, description="tenant whose names alone it sees")
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
