"""Gallery pages: items, search, verification and erasure."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused

AT = "/console/galleries"
ON_A_PAGE = 25


class CursorQuery(Query):
    """Which page."""

    cursor: str | None = Field(None, max_length=1000)


class ItemsQuery(CursorQuery):
    """Which items."""

    subject: str | None = Field(None, max_length=512)


async def galleries_page(request: Request, query: Annotated[CursorQuery, FROM_QUERY]) -> HTMLResponse:
    """Galleries by name."""
    api = Api(request)
    answer, models = await asyncio.gather(
        api.get("/galleries", limit=ON_A_PAGE, cursor=query.cursor), api.get("/models", limit=ON_A_PAGE)
    )
    if not answer.ok:
        return refused(request, answer, AT)
    able = [
        model["name"]
        for model in (models.found or {"items": []})["items"]
        if any(
            "search" in one["capabilities"] and "production" in one["aliases"] for one in model["versions"]
        )
    ]
    return page(
        request,
        "galleries.html",
        at=AT,
        galleries=answer.data["items"],
        next_cursor=answer.data["next_cursor"],
        first=query.cursor is None,
        models=able,
    )


async def show_gallery(request: Request, name: str, query: Annotated[ItemsQuery, FROM_QUERY]) -> HTMLResponse:
    """One gallery with its items."""
    api = Api(request)
    answer, items = await asyncio.gather(
        api.get(f"/galleries/{name}"),
        api.get(f"/galleries/{name}/items", limit=ON_A_PAGE, cursor=query.cursor, subject=query.subject),
    )
    for one in (answer, items):
        if not one.ok:
            return refused(request, one, AT)
    gallery = answer.data
    path = f"/galleries/{name}/calibrations/{gallery['calibration']}"
    calibration = (await api.get(path)).found if gallery["calibration"] else None
    return page(
        request,
        "gallery.html",
        at=AT,
        gallery=gallery,
        calibration=calibration,
        items=items.data["items"],
        next_cursor=items.data["next_cursor"],
        first=query.cursor is None,
        subject=query.subject or "",
    )


ROUTES = (
    Route("GET", AT, galleries_page, access="any", query=CursorQuery, gives="text/html"),
    Route(
        "GET", "/console/galleries/{name}", show_gallery, access="any", query=ItemsQuery, gives="text/html"
    ),
)
