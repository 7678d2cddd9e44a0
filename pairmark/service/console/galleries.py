"""Gallery pages: items, search, verification and erasure."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import CursorQuery, listing, page

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


ON_A_PAGE = 25


class ItemsPageQuery(CursorQuery):
    """Which items."""

    subject: str | None = Field(None, max_length=512)


@router.get("/console/galleries")
@needs("any")
async def galleries_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
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


@router.get("/console/galleries/{name:name}")
@needs("any")
async def show_gallery(
    request: Request, name: str, query: Annotated[ItemsPageQuery, Query()]
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
