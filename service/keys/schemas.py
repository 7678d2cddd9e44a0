"""What the keys room answers."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Scope = Literal["score", "gallery", "train", "admin"]


class KeyOut(BaseModel):
    """A key as it is listed: never the key itself."""

    id: str
    name: str
    scopes: list[Scope]
    created_at: str
    revoked_at: str | None


class NewKey(KeyOut):
    """A key just made."""

    key: str = Field(description="shown this once; only its hash is kept")
