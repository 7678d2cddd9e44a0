"""Requests and answers about keys."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Scope = Literal["score", "decide", "gallery", "train", "import", "admin"]
MAX_DAYS = 36_500
GRANTS_TEXT = (
    "`score`, `decide` (decisions without scores), `gallery`, `train`, `import` or `admin` (which includes the "
    "others), each perhaps on one resource: `score:people`, `gallery:people`, `gallery:people:read`"
)


class KeyRequest(BaseModel):
    """A key to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="whose it is")
    scopes: list[str] = Field(
        min_length=1, max_length=100, description=GRANTS_TEXT, examples=[["decide:people"]]
    )
    expires_in_days: float | None = Field(None, gt=0, le=MAX_DAYS, description="default: it does not expire")
    rate: float | None = Field(
        None, gt=0, le=1e6, description="requests a second that it may send; default PAIRMARK_RATE_LIMIT"
    )


class RotationRequest(BaseModel):
    """How a key is replaced."""

    model_config = ConfigDict(extra="forbid")

    overlap_hours: float = Field(
        24.0, ge=0, le=24 * 365, description="how long the old key goes on beside the new one"
    )


class KeyOut(BaseModel):
    """A key as it is listed: never the key itself."""

    id: str
    name: str
    scopes: list[str]
    rate: float | None = None
    created_at: str
    expires_at: str | None = None
    last_used_at: str | None = Field(None, description="to about half a minute")
    revoked_at: str | None
    replaces: str | None = Field(None, description="the key it was made from by rotation")


class KeyPage(BaseModel):
    """Keys in the order they were made, revoked ones too."""

    items: list[KeyOut]
    next_cursor: str | None = None


class NewKey(KeyOut):
    """A key just made."""

    key: str = Field(description="shown this once; only its hash is kept")
