"""Operating points without scoring a pair, and the live check."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from pairmark.service.api import metrics
from pairmark.service.api.models import Name, Number
from pairmark.service.api.query import FROM_QUERY
from pairmark.service.api.scoring import ThreeWayQuery
from pairmark.service.api.services import InServices
from pairmark.service.errors import InvalidInput, UnknownCalibration
from pairmark.service.runtime.scoring import Served
from pairmark.service.store.subjects import SubjectClass


class PointOfVersionQuery(ThreeWayQuery):
    """An operating point of a version, for single vectors or for subjects of so many samples."""

    left_samples: int | None = Field(
        None, ge=1, description="samples of the one side, where subjects are compared; default 1"
    )
    right_samples: int | None = Field(None, ge=1, description="samples of the other side; default 1")
    aggregation: Literal["auto", "mean", "plda", "best", "median"] = Field(
        "auto", description="how subjects are compared; `auto` is what the version does by itself"
    )


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
    services: InServices, name: Name, version: Number, query: Annotated[PointOfVersionQuery, FROM_QUERY]
) -> JSONResponse:
    """The operating point that /match would use at a false positive rate, without scoring a pair.

    `left_samples` and `right_samples` ask for subjects with that many samples, calibrated on demand.
    """
    found = await services.runtime.in_thread(lambda: services.store.version(name, version))
    chosen = query.calibration or found.calibration_id
    if chosen is None or chosen not in {one.id for one in found.calibrations}:
        what = "has no calibration" if chosen is None else f"has no calibration {chosen[:64]!r}"
        raise UnknownCalibration(f"{name}:{version} {what}", field="calibration")
    served = subjects = None
    if query.left_samples is not None or query.right_samples is not None:
        served = await services.runtime.version(name, version)
        subjects = _subjects(query, served, services.settings.max_subject_samples)
    decision = await services.runtime.decide(
        served,
        query.fpr,
        query.confidence,
        query.method,
        chosen,
        fnr=query.fnr,
        simultaneous=query.simultaneous,
        subjects=subjects,
    )
    # As it is: of single vectors a decision says nothing of samples.
    return JSONResponse(decision.public)


def _subjects(query: PointOfVersionQuery, served: Served, limit: int) -> SubjectClass | None:
    """The class of subjects that is asked about; None for single vectors."""
    k, p = query.left_samples or 1, query.right_samples or 1
    for field, count in (("left_samples", k), ("right_samples", p)):
        if count > limit:
            raise InvalidInput(f"{field} is {count}; expected at most {limit}", field=field)
    return None if k == p == 1 else SubjectClass(max(k, p), min(k, p), served.aggregation(query.aggregation))


def get_live(services: InServices, name: Name, version: Number) -> dict[str, Any] | None:
    """Live scores compared with those of calibration, over all serving processes; null before the first score."""
    services.store.version(name, version)
    metrics.publish_live(services.runtime.live.watches(), services.runtime.unrelated.versions())
    return metrics.live(name, version)
