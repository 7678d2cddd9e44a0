"""Calibrations: of scores of other systems, and what a calibration can promise."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from pairmark.schemas.models import (
    CalibrationDetail,
    CalibrationOut,
    CalibrationPage,
    ScoresOptions,
    ScoresRequest,
)
from pairmark.service.api.query import Paging
from pairmark.service.api.routing import BULK, GuardedRoute, needs
from pairmark.service.api.services import InServices, check_may, names_of
from pairmark.service.errors import InvalidInput, UnknownCalibration
from pairmark.service.runtime.parsing import list_of, parse_lists, read_scores
from pairmark.service.store.calibrations import unknown_calibration
from pairmark.service.store.versions import calibration_without_origin

router = APIRouter(tags=["calibrations"], route_class=GuardedRoute)


Unit = int | str


def _read_same(text: bytes, name: str) -> list[int | bool]:
    labels: list[Any] = list_of(bool | int | str)(text, name)
    for at, label in enumerate(labels):
        if isinstance(label, str):
            if label not in ("0", "1"):
                raise InvalidInput(
                    f"{name}[{at}] is {label[:50]!r}; expected 1 (same) or 0 (different)",
                    field=f"{name}[{at}]",
                )
            labels[at] = int(label)
    return labels


_UNITS = list_of(Unit, optional=True)
SCORES_LISTS = {
    "scores": read_scores,
    "same": _read_same,
    "left_unit": _UNITS,
    "right_unit": _UNITS,
    "blocks": lambda text, name: "components" if text.strip() == b'"components"' else _UNITS(text, name),
}


@router.post("/calibrations", status_code=201)
@needs(
    "train",
    limits=BULK,
    decode=partial(parse_lists, ScoresRequest, readers=SCORES_LISTS, options=ScoresOptions),
)
async def add_calibration(
    http: Request, services: InServices, response: Response, request: ScoresRequest
) -> CalibrationOut:
    """Calibrate scores of another system. `POST /match?fpr=..&calibration=ID {"scores": [..]}` then decides."""
    check_may(http, "train", request.name, unknown=UnknownCalibration)
    calibration = await services.runtime.batch_place.run(
        lambda: services.store.calibrations.add_scores(**dict(request))
    )
    response.headers["Location"] = f"/calibrations/{calibration.id}"
    return calibration


@router.get("/calibrations")
@needs("train")
def list_calibrations(http: Request, services: InServices, query: Paging) -> CalibrationPage:
    """Calibrations that the key may see, newest first."""
    names = names_of(http).resources("train")
    return services.store.calibrations.page(limit=query.limit, cursor=query.cursor, names=names)


@router.get("/calibrations/{calibration_id}")
@needs("any")
async def get_calibration(
    http: Request,
    services: InServices,
    calibration_id: Annotated[str, Path(max_length=64)],
) -> CalibrationDetail:
    """A calibration with its curve: the rate and its bound at each threshold taken alone.

    The key must be allowed to see the calibration's model. For scores of other systems it needs access to all models,
    or `train` on the calibration's name.
    """
    calibration = await asyncio.to_thread(services.store.calibrations.detail, calibration_id)
    grants = names_of(http)
    if not grants.allows("train", calibration.model or calibration.name):
        models = grants.resources("score", "train")
        if (calibration.model or calibration.name) not in models or (
            calibration.model is None and models.members is not None
        ):
            raise unknown_calibration(calibration_id)
        calibration = calibration_without_origin(calibration)
    return calibration
