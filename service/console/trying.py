"""Try a model: score and explain a pair, rank labels, before any code is written."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused
from pairmark.service.store.refs import PRODUCTION, split_ref

AT = "/console/try"
SUGGESTED = 25
"""Models offered by name; any other can be typed."""
FIELDS_SHOWN = 40
"""Above this many features a form of one field each helps nobody; the vector is pasted."""


class TryQuery(Query):
    """Which model, and perhaps which rows of which dataset."""

    model: str | None = Field(None, max_length=200)
    dataset: str | None = Field(None, max_length=200)
    left: int | None = Field(None, ge=0, lt=2**53)
    right: int | None = Field(None, ge=0, lt=2**53)


async def try_page(request: Request, query: Annotated[TryQuery, FROM_QUERY]) -> HTMLResponse:
    """A form for what the chosen model can do."""
    api = Api(request)
    listed, datasets = await asyncio.gather(
        api.get("/models", limit=SUGGESTED), api.get("/datasets", limit=100)
    )
    if not listed.ok:
        return refused(request, listed, AT)
    choices = [
        f"{model['name']}:{alias['version']}"
        for model in listed.data["items"]
        for alias in model["aliases"]
        if alias["alias"] == PRODUCTION
    ]
    chosen = query.model or (choices[0] if choices else None)
    version: dict[str, Any] | None = None
    if chosen is not None:
        name, mark, number = split_ref(chosen)
        if mark != ":":
            alias = await api.get(f"/models/{name}/aliases/{number or PRODUCTION}")
            number = str(alias.data["version"]) if alias.ok else "1"
        answer = await api.get(f"/models/{name}/versions/{number}")
        if not answer.ok:
            return refused(request, answer, AT)
        version, chosen = answer.data, f"{name}:{number}"
    return page(
        request,
        "try.html",
        at=AT,
        choices=choices,
        chosen=chosen,
        version=version,
        query=query,
        datasets=(datasets.found or {"items": []})["items"] if may(request, "train") else [],
        fields=_fields(version),
    )


def _fields(version: dict[str, Any] | None) -> list[str]:
    """The features of a form; none where there are too many."""
    if version is None or version["n_features"] > FIELDS_SHOWN:
        return []
    return version["feature_names"] or [f"x{at}" for at in range(version["n_features"])]


ROUTES = (Route("GET", AT, try_page, access="any", query=TryQuery, gives="text/html"),)
