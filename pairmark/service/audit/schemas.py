"""Audit entries as clients see them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from pairmark.service.pagination import Page
from pairmark.wire.base import Moment


class AuditEntry(BaseModel, from_attributes=True):
    """One change. Entries contain names and numbers, but no vectors, keys or identities."""

    id: int
    at: Moment
    actor: str = Field(
        description="who made the change: `key ID`, `loopback`, `local`, `command line USER`, `job ID` or `worker NAME`"
    )
    action: str = Field(description="what was done, e.g. `alias.move`")
    tenant: str | None = Field(description="whose view of the log shows it")
    resource: str = Field(description="what was changed, e.g. `model:faces@production`")
    before: dict[str, Any] | None = Field(description="the value before; null if it is new")
    after: dict[str, Any] | None = Field(description="the value after; null if it was deleted")
    request_id: str | None = Field(description="id of the request that made the change, as in the logs")
    trace_id: str | None = Field(description="id of the W3C trace that the request belonged to")


class AuditPage(Page[AuditEntry]):
    """Some entries, newest first."""
