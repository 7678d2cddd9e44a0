"""Operating points without scoring, and what live scores look like: what people choose a threshold from."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from pairmark.service.api import metrics
from pairmark.service.api.models import Name, Number
from pairmark.service.api.query import FROM_QUERY
from pairmark.service.api.scoring import ThreeWayQuery
from pairmark.service.api.services import InServices
from pairmark.service.errors import UnknownCalibration


class LiveOut(BaseModel):
    """What was counted of a version's live scores since the service started."""

    scores: int
    decided: dict[str, dict[str, int]] = Field(
        description="by rate asked for: `n` decisions, `matched` of them"
    )
    windows: int = Field(description="windows of scores compared with calibration")
    alarms: int
    alarm: bool | None = Field(
        description="whether the newest window differs from calibration; null: none is whole"
    )
    distance: float | None = None
    limit: float | None = Field(None, description="distances above it raise the alarm")
    unrelated: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="by rate asked for: `pairs` of vectors from unrelated requests, `above` the threshold, and "
        "`alarms` that the false positive rate in use is above the promised one",
    )


async def get_operating_point(
    services: InServices, name: Name, version: Number, query: Annotated[ThreeWayQuery, FROM_QUERY]
) -> JSONResponse:
    """The threshold at a false positive rate and what is promised about it: what /match would use, without a pair."""
    found = await services.runtime.in_thread(lambda: services.store.version(name, version))
    chosen = query.calibration or found.calibration_id
    if chosen is None or chosen not in {one.id for one in found.calibrations}:
        what = "has no calibration" if chosen is None else f"has no calibration {chosen[:64]!r}"
        raise UnknownCalibration(f"{name}:{version} {what}", field="calibration")
    decision = await services.runtime.decide(
        None,
        query.fpr,
        query.confidence,
        query.method,
        chosen,
        fnr=query.fnr,
        simultaneous=query.simultaneous,
    )
    # As it is: of single vectors a decision says nothing of samples.
    return JSONResponse(decision.public)


def get_live(services: InServices, name: Name, version: Number) -> dict[str, Any] | None:
    """Live scores against those of calibration, counted over all serving processes; null before the first score."""
    services.store.version(name, version)
    metrics.publish_live(services.runtime.live.watches(), services.runtime.unrelated.versions())
    return metrics.live(name, version)
