"""Whether the service is alive and ready, and its metrics."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from pairmark.service.api import metrics
from pairmark.service.api.readings import deployment_text
from pairmark.service.api.routing import GuardedRoute, content, needs
from pairmark.service.api.services import InServices
from pairmark.service.errors import NotReady
from pairmark.service.jobs.queue import START_ONE

router = APIRouter(tags=["status"], route_class=GuardedRoute)


log = logging.getLogger(__name__)


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = Field("alive", description="`alive`")


class Ready(BaseModel):
    """The service is ready."""

    status: Literal["ready"] = Field("ready", description="`ready`")
    workers: int = Field(description="number of workers that are alive and take queued jobs")
    warnings: list[str] = Field(description="problems that need attention, although requests are answered")


@router.get("/healthz", summary="Check liveness")
@needs("open")
async def healthz() -> Alive:
    """The process is alive. Does not check the database."""
    return Alive()


@router.get("/readyz", summary="Check readiness")
@needs("open")
async def readyz(request: Request, services: InServices) -> Ready:
    """Ready: kernels are compiled and the database answers. Answers within two seconds, with the reason if not."""
    if request.app.state.closing.is_set():
        raise NotReady("the service is stopping; it still answers the requests that arrive")
    services.runtime.ready()
    workers = await services.readiness.answer()
    warnings = [] if workers else [f"no worker is alive: {START_ONE}"]
    return Ready(workers=workers, warnings=warnings)


@router.get(
    "/metrics",
    summary="Get metrics",
    response_class=Response,
    responses=content("text/plain", {"type": "string"}),
)
@needs("metrics")
async def scrape(services: InServices) -> Response:
    """Metrics in the Prometheus text format. If the database does not answer in time, its metrics are left out."""
    try:
        readings = await services.readings.answer()
    except NotReady:
        readings = None
    metrics.publish_inputs(services.runtime.inputs.watches())
    places = {"home": services.settings.home}
    if "://" not in services.settings.resolved_artefacts:
        places["artefacts"] = Path(services.settings.resolved_artefacts)
    body, media_type = metrics.exposition()
    return Response(body + deployment_text(readings, places), media_type=media_type)
