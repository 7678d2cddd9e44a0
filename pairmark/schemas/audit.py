"""Audit entries."""

from __future__ import annotations

from typing import Any

from pydantic import (
    Field,
)

from pairmark.schemas.base import Answer, Moment, Page


class AuditEntry(Answer):
    """One change. Entries contain names and numbers, but no vectors, keys or identities."""

    id: int = Field(description="its id", examples=[42])
    at: Moment = Field(description="when it happened")
    actor: str = Field(
        description="who made the change: `key ID`, `loopback`, `local`, `command line USER`, `job ID` or `worker "
        "NAME`",
        examples=["key 8c1f"],
    )
    action: str = Field(description="what was done, e.g. `alias.move`", examples=["alias.move"])
    tenant: str | None = Field(description="whose view of the log shows it")
    resource: str = Field(
        description="what was changed, e.g. `model:faces@production`", examples=["model:people@production"]
    )
    before: dict[str, Any] | None = Field(
        description="the value before; null if it is new", examples=[{"version": 1}]
    )
    after: dict[str, Any] | None = Field(
        description="the value after; null if it was deleted", examples=[{"version": 2}]
    )
    request_id: str | None = Field(
        description="id of the request that made the change, as in the logs", examples=["a1b2c3d4-17"]
    )
    trace_id: str | None = Field(description="id of the W3C trace that the request belonged to")


class AuditPage(Page[AuditEntry]):
    """Some entries, newest first."""
