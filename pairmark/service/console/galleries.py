"""Gallery pages: items, search, verification and erasure."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY
from pairmark.service.api.routing import Route
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import CursorQuery, listing, page

ON_A_PAGE = 25


class ItemsPageQuery(CursorQuery):
    """Which items."""

    subject: str | None = Field(None, max_length=512)


async def galleries_page(request: Request, query: Annotated[CursorQuery, FROM_QUERY]) -> HTMLResponse:
    """Galleries by name."""
    api = Api(request)
    galleries = await api.need("/galleries", limit=ON_A_PAGE, cursor=query.cursor)
    able = [
        model["name"]
        for model in await api.items("/models", limit=ON_A_PAGE)
        if any(
            "search" in version["capabilities"] and "production" in version["aliases"]
            for version in model["versions"]
        )
    ]
    return page(request, "galleries.html", **listing(galleries, query), models=able)


async def show_gallery(
    request: Request, name: str, query: Annotated[ItemsPageQuery, FROM_QUERY]
) -> HTMLResponse:
    """One gallery with its items."""
    api = Api(request)
    gallery = await api.need(f"/galleries/{name}")
    items = await api.need(f"/galleries/{name}/items", limit=ON_A_PAGE, **query.model_dump())
    path = f"/galleries/{name}/calibrations/{gallery['calibration']}"
    calibration = (await api.get(path)).body if gallery["calibration"] else None
    return page(
        request,
        "gallery.html",
        gallery=gallery,
        calibration=calibration,
        **listing(items, query),
        subject=query.subject or "",
    )


ROUTES = (
    Route("GET", "/console/galleries", galleries_page, access="any", query=CursorQuery, gives="text/html"),
    Route(
        "GET",
        "/console/galleries/{name}",
        show_gallery,
        access="any",
        query=ItemsPageQuery,
        gives="text/html",
    ),
)
