"""The audit log over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import AfterValidator, Field

from pairmark.schemas.audit import AuditPage
from pairmark.service.api.query import PageQuery
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices, names_of

router = APIRouter(tags=["audit"], route_class=GuardedRoute)


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


class AuditQuery(PageQuery):
    """Which entries."""

    actor: str | None = Field(
        None, max_length=200, description="only changes by this actor, e.g. `key 0123456789ab`"
    )
    action: str | None = Field(
        None, max_length=64, description="only this action (`alias.move`) or group of actions (`alias`)"
    )
    resource: str | None = Field(
        None,
        max_length=400,
        description="only changes to this resource (`model:faces:3`) or to everything below it (`model:faces`, "
        "`model`)",
    )
    since: Annotated[datetime, AfterValidator(_in_utc)] | None = Field(
        None, description="only changes since this time, ISO 8601", examples=["2026-01-31T12:00:00Z"]
    )


@router.get("/audit")
@needs("admin")
def list_audit(http: Request, services: InServices, query: Annotated[AuditQuery, Query()]) -> AuditPage:
    """Who changed what, newest first; an admin of a tenant sees the tenant's. An entry is committed with its
    change."""
    since = None if query.since is None else query.since.timestamp()
    return services.audit.page(
        **query.model_dump(exclude={"since"}), since=since, tenant=names_of(http).tenant
    )
