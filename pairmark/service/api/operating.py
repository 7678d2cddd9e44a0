"""Operating points without scoring a pair, and the inputs that were decided on."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse

from pairmark.schemas.models import InputsOut
from pairmark.schemas.scoring import OperatingPointOut, PointOfVersionParameters
from pairmark.service.api import metrics
from pairmark.service.api.models import Name, Number
from pairmark.service.api.query import QueryModel
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices
from pairmark.service.errors import InvalidInput, UnknownCalibration
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.calibrations import SubjectClass

router = APIRouter(tags=["models"], route_class=GuardedRoute)


class PointOfVersionQuery(QueryModel, PointOfVersionParameters):
    """An operating point of a version, for single vectors or for subjects of several samples."""


@router.get("/models/{name:name}/versions/{version}/operating-point", response_model=OperatingPointOut)
@needs("scores")
async def get_operating_point(
    services: InServices, name: Name, version: Number, query: Annotated[PointOfVersionQuery, Query()]
) -> JSONResponse:
    """The operating point that `/match` uses at a false positive rate, without scoring a pair.

    `left_samples` and `right_samples` request the operating point for subjects with that many samples. It is
    calibrated on the first request.
    """
    out = await asyncio.to_thread(services.store.version, name, version)
    calibration_id = query.calibration or out.calibration_id
    if calibration_id is None or calibration_id not in {calibration.id for calibration in out.calibrations}:
        what = (
            "has no calibration" if calibration_id is None else f"has no calibration {calibration_id[:64]!r}"
        )
        raise UnknownCalibration(f"{name}:{version} {what}", field="calibration")
    loaded_version = subjects = None
    if query.left_samples is not None or query.right_samples is not None:
        loaded_version = await services.runtime.version(name, version)
        subjects = _subjects(query, loaded_version, services.settings.max_subject_samples)
    point = await services.runtime.operating_point(
        loaded_version,
        query.fpr,
        query.confidence,
        query.method,
        calibration_id,
        fnr=query.fnr,
        simultaneous=query.simultaneous,
        subjects=subjects,
    )
    # As it is: of single vectors a point says nothing of samples.
    return JSONResponse(point.public)


def _subjects(query: PointOfVersionQuery, version: LoadedVersion, limit: int) -> SubjectClass | None:
    """The class of subjects that is asked about; None for single vectors."""
    k, p = query.left_samples or 1, query.right_samples or 1
    for field, count in (("left_samples", k), ("right_samples", p)):
        if count > limit:
            raise InvalidInput(f"{field} is {count}; expected at most {limit}", field=field)
    if k == p == 1:
        return None
    samples = max(k, p), min(k, p)
    return SubjectClass(*samples, version.aggregation(query.aggregation, samples))


@router.get(
    "/models/{name:name}/versions/{version}/inputs", summary="Get inputs", response_model=InputsOut | None
)
@needs("scores")
def get_inputs(services: InServices, name: Name, version: Number) -> dict[str, Any] | None:
    """Rows compared with those of the calibration, over all serving processes; null before the first decision."""
    calibration = services.store.version(name, version).calibration_id
    metrics.publish_inputs(services.runtime.inputs.watches())
    totals, moved = metrics.inputs(name, version), services.runtime.moved(calibration)
    if totals is None and moved is None:
        return None
    counts = totals or {"rows": 0, "unlike": 0, "today": {"all": 0, "unlike": 0}, "decided": {}}
    return counts | {"moved": None if moved is None else moved["detail"]}
