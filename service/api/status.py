"""Whether the service is alive and ready, and its metrics."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import BaseModel

from pairmark.service.api import metrics
from pairmark.service.api.house import InHouse


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(BaseModel):
    """Requests are answered at full speed."""

    status: Literal["ready"] = "ready"


async def healthz() -> Alive:
    """Alive: says nothing about the database."""
    return Alive()


async def readyz(house: InHouse) -> Ready:
    """Ready: kernels are warm, and the database answers."""
    house.runtime.ready()
    await house.runtime.in_thread(house.database.ping)
    return Ready()


async def scrape(house: InHouse) -> Response:
    """Metrics in the Prometheus text format."""
    depths = await house.runtime.in_thread(house.queue.depths)
    metrics.publish_live(house.runtime.live.watches())
    body, media_type = metrics.exposition(depths)
    return Response(body, media_type=media_type)
