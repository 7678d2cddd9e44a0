"""The console: server-rendered pages over the public API.

Nothing comes from elsewhere, nothing is inline, and every value is escaped by the template engine.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from fastapi import Request
from fastapi.responses import Response
from fastapi.staticfiles import StaticFiles

from pairmark.service.api.routing import Route
from pairmark.service.console import forms, galleries, models, overview, records, reviews, session
from pairmark.service.console.frame import HERE


async def static_file(request: Request, file: str) -> Response:
    """A style sheet, script or picture of the pages."""
    return await _static().get_response(file, request.scope)


@cache
def _static() -> StaticFiles:
    return StaticFiles(directory=HERE / "static")


ROUTES: Final = (
    *overview.ROUTES,
    *models.ROUTES,
    *galleries.ROUTES,
    *reviews.ROUTES,
    *forms.ROUTES,
    *records.ROUTES,
    *session.ROUTES,
    Route("GET", "/static/{file:path}", static_file, access="open", gives="application/octet-stream"),
)
