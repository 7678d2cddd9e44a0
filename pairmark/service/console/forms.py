"""Forms: upload and train; and try a model, before any code is written."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.routing import GuardedRoute, QueryModel, needs
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page
from pairmark.service.names import PRODUCTION, split_ref

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


SUGGESTED = 25
"""Models offered by name; any other can be typed."""
FIELDS_SHOWN = 40
"""Above this many features a form of one field each helps nobody; the vector is pasted."""


class TrainQuery(QueryModel):
    """What the form starts with."""

    dataset: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=100)
    learner: str | None = Field(None, max_length=100)
    params: str | None = Field(None, max_length=4000, description="JSON of parameters to start with")


class TryQuery(QueryModel):
    """Which model, and perhaps which rows of which dataset."""

    model: str | None = Field(None, max_length=200)
    dataset: str | None = Field(None, max_length=200)
    left: int | None = Field(None, ge=0, lt=2**53)
    right: int | None = Field(None, ge=0, lt=2**53)


@router.get("/console/train")
@needs("any")
async def train_page(request: Request, query: Annotated[TrainQuery, Query()]) -> HTMLResponse:
    """The form that ends in a training job."""
    api = Api(request)
    datasets = (await api.need("/datasets", limit=100))["items"]
    learners = (await api.need("/learners"))["items"]
    return page(
        request,
        "train.html",
        status=200 if may(request, "train") else 403,
        datasets=datasets,
        learners=sorted(learners, key=lambda learner: not learner["kind"].endswith("-auto")),
        chosen=query,
    )


@router.get("/console/try")
@needs("any")
async def try_page(request: Request, query: Annotated[TryQuery, Query()]) -> HTMLResponse:
    """A form for what the chosen model can do: score and explain a pair, rank labels."""
    api = Api(request)
    models = (await api.need("/models", limit=SUGGESTED))["items"]
    choices = [
        f"{model['name']}:{alias['version']}"
        for model in models
        for alias in model["aliases"]
        if alias["alias"] == PRODUCTION
    ]
    ref = query.model or (choices[0] if choices else None)
    version: dict[str, Any] | None = None
    if ref is not None:
        name, mark, number = split_ref(ref)
        if mark != ":":
            alias = await api.get(f"/models/{name}/aliases/{number or PRODUCTION}")
            number = str(alias.data["version"]) if alias.ok else "1"
        version = await api.need(f"/models/{name}/versions/{number}")
        ref = f"{name}:{number}"
    return page(
        request,
        "try.html",
        choices=choices,
        chosen=ref,
        version=version,
        query=query,
        datasets=await api.items("/datasets", limit=100) if may(request, "train") else [],
        fields=_fields(version),
    )


def _fields(version: dict[str, Any] | None) -> list[str]:
    """The features of a form; none where there are too many."""
    if version is None or version["n_features"] > FIELDS_SHOWN:
        return []
    return version["feature_names"] or [f"x{at}" for at in range(version["n_features"])]
