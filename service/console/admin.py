"""Pages for administrators: keys, the audit log, and the settings."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused

KEYS = "/console/keys"
AUDIT = "/console/audit"
SETTINGS = "/console/settings"
ON_A_PAGE = 50


class AuditQuery(Query):
    """Which entries."""

    actor: str | None = Field(None, max_length=200)
    action: str | None = Field(None, max_length=64)
    resource: str | None = Field(None, max_length=400)
    cursor: str | None = Field(None, max_length=1000)


async def audit_page(request: Request, query: Annotated[AuditQuery, FROM_QUERY]) -> HTMLResponse:
    """Every change: who did what to what, newest first."""
    asked = query.model_dump()
    answer = await Api(request).get("/audit", limit=ON_A_PAGE, **asked)
    if not answer.ok:
        return refused(request, answer, AUDIT)
    return page(
        request,
        "audit.html",
        at=AUDIT,
        entries=answer.data["items"],
        next_cursor=answer.data["next_cursor"],
        first=query.cursor is None,
        asked=asked,
    )


async def keys_page(request: Request) -> HTMLResponse:
    """API keys: what each may do, since when and until when."""
    answer = await Api(request).get("/keys", limit=200)
    if not answer.ok:
        return refused(request, answer, KEYS)
    return page(request, "keys.html", at=KEYS, keys=answer.data["items"])


async def settings_page(request: Request) -> HTMLResponse:
    """The settings in force, those that were changed first."""
    answer = await Api(request).get("/settings")
    if not answer.ok:
        return refused(request, answer, SETTINGS)
    return page(request, "settings.html", at=SETTINGS, settings=answer.data["items"])


ROUTES = (
    Route("GET", AUDIT, audit_page, access="any", query=AuditQuery, gives="text/html"),
    Route("GET", KEYS, keys_page, access="any", gives="text/html"),
    Route("GET", SETTINGS, settings_page, access="any", gives="text/html"),
)
