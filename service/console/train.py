"""Upload, choose a learner, and train."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused

AT = "/console/train"


class TrainQuery(Query):
    """What the form starts with."""

    dataset: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=100)
    learner: str | None = Field(None, max_length=100)
    params: str | None = Field(None, max_length=4000, description="JSON of parameters to start with")


async def train_page(request: Request, query: Annotated[TrainQuery, FROM_QUERY]) -> HTMLResponse:
    """The form that ends in a training job."""
    api = Api(request)
    datasets, learners = await asyncio.gather(api.get("/datasets", limit=100), api.get("/learners"))
    for answer in (datasets, learners):
        if not answer.ok:
            return refused(request, answer, AT)
    kinds = sorted(learners.data["items"], key=lambda one: not one["kind"].endswith("-auto"))
    return page(
        request,
        "train.html",
        status=200 if may(request, "train") else 403,
        at=AT,
        datasets=datasets.data["items"],
        learners=kinds,
        chosen=query,
    )


ROUTES = (Route("GET", AT, train_page, access="any", query=TrainQuery, gives="text/html"),)
