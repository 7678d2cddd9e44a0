"""Datasets and what is in one."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused

AT = "/console/datasets"
ON_A_PAGE = 25


class CursorQuery(Query):
    """Which page."""

    cursor: str | None = Field(None, max_length=1000)


async def datasets_page(request: Request, query: Annotated[CursorQuery, FROM_QUERY]) -> HTMLResponse:
    """Every stored version, newest first."""
    answer = await Api(request).get("/datasets", limit=ON_A_PAGE, cursor=query.cursor)
    if not answer.ok:
        return refused(request, answer, AT)
    return page(
        request,
        "datasets.html",
        at=AT,
        datasets=answer.data["items"],
        next_cursor=answer.data["next_cursor"],
        first=query.cursor is None,
    )


async def show_dataset(request: Request, ref: str) -> HTMLResponse:
    """One version of a dataset."""
    answer = await Api(request).get(f"/datasets/{ref}")
    if not answer.ok:
        return refused(request, answer, AT)
    return page(request, "dataset.html", at=AT, dataset=answer.data)


ROUTES = (
    Route("GET", AT, datasets_page, access="any", query=CursorQuery, gives="text/html"),
    Route("GET", "/console/datasets/{ref}", show_dataset, access="any", gives="text/html"),
)
