"""Audit entries as clients see them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class AuditEntry(BaseModel):
    """One change. Names and numbers only: no vectors, no keys, no identities."""

    id: int
    at: str
    actor: str = Field(
        description="who: `key ID`, `loopback`, `local`, `command line USER`, `job ID` or `worker NAME`"
    )
    action: str = Field(description="what was done, e.g. `alias.move`")
    resource: str = Field(description="to what, e.g. `model:faces@production`")
    before: dict[str, Any] | None = Field(description="what it was; null when it is new")
    after: dict[str, Any] | None = Field(description="what it is now; null when it is gone")
    request_id: str | None = Field(description="of the request that did it, as in the logs")
    trace_id: str | None = Field(description="of the W3C trace that the request belonged to")


class AuditPage(BaseModel):
    """Some entries, newest first."""

    items: list[AuditEntry]
    next_cursor: str | None
