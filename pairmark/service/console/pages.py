"""The console: server-rendered pages over the public API.

Nothing comes from elsewhere, nothing is inline, and every value is escaped by the template engine.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.console import forms, galleries, models, overview, records, reviews, session
from pairmark.service.console.frame import HERE

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


@router.get("/static/{file:path}", response_class=Response)
@needs("open")
async def static_file(request: Request, file: str) -> Response:
    """A style sheet, script or picture of the pages."""
    return await _static().get_response(file, request.scope)


@cache
def _static() -> StaticFiles:
    return StaticFiles(directory=HERE / "static")


ROUTERS: Final = (
    overview.router,
    models.router,
    galleries.router,
    reviews.router,
    forms.router,
    records.router,
    session.router,
    router,
)
