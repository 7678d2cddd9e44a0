"""Calibrations, of versions and of scores made elsewhere; and the kinds of learners."""

import asyncio
import math
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from pairmark.models.registry import learner_specs
from pairmark.schemas.base import Page
from pairmark.schemas.models import (
    CalibrationOut,
    LearnerOut,
    ScoresOptions,
    ScoresRequest,
)
from pairmark.service.api.access import TABLE
from pairmark.service.api.routing import JSON, Call, GuardedRoute, Paging, PlainRoute, needs
from pairmark.service.api.services import InServices, check_may, names_of
from pairmark.service.datasets.lists import TableForm
from pairmark.service.errors import InvalidInput, UnknownCalibration
from pairmark.service.scoring.requests import list_of, parse_lists, read_scores
from pairmark.service.store.calibrations import unknown_calibration
from pairmark.service.store.versions import calibration_without_origin

router = APIRouter(tags=["calibrations"], route_class=GuardedRoute)
scores = APIRouter(tags=["calibrations"], route_class=PlainRoute)


Unit = int | str


def _read_same(text: bytes, name: str) -> list[int | bool]:
    labels: list[Any] = list_of(bool | int | str)(text, name)
    for place, label in enumerate(labels):
        if isinstance(label, str):
            if label not in ("0", "1"):
                raise InvalidInput(
                    f"{name}[{place}] is {label[:50]!r}; expected 1 (same) or 0 (different)",
                    field=f"{name}[{place}]",
                )
            labels[place] = int(label)
    return labels


_UNITS = list_of(Unit)
SCORES_LISTS = {
    "scores": read_scores,
    "same": _read_same,
    "left_unit": _UNITS,
    "right_unit": _UNITS,
}

SCORES_TABLE = TableForm(
    columns={"score": "scores", **{name: name for name in ("same", "left_unit", "right_unit")}},
    optional=("left_unit", "right_unit"),
)


@scores.post("/calibrations", status_code=201, response_model=CalibrationOut)
@needs("train", limits=TABLE, body=ScoresRequest, table=SCORES_TABLE)
async def add_calibration(call: Call) -> Response:
    """Calibrate scores of another system. `POST /match?fpr=..&calibration=ID {"scores": [..]}` then decides.

    In place of JSON, a form takes the lists as a file: CSV or Parquet with the columns `score`, `same`, `left_unit` and
    `right_unit`. The same rows give the same calibration.
    """
    services = call.services
    request = await call.parsed(lambda body: parse_lists(ScoresRequest, body, SCORES_LISTS, ScoresOptions))
    check_may(call, "train", request.name, unknown=UnknownCalibration)
    calibration = await call.work.run(
        math.inf, lambda: services.store.calibrations.add_scores(**dict(request))
    )
    headers = {"Location": f"/calibrations/{calibration.id}"}
    return Response(calibration.model_dump_json(), 201, headers, media_type=JSON)


@router.get("/calibrations")
@needs("train")
def list_calibrations(http: Request, services: InServices, query: Paging) -> Page[CalibrationOut]:
    """Calibrations that the key may see, newest first."""
    names = names_of(http).resources("train")
    return services.store.calibrations.page(limit=query.limit, cursor=query.cursor, names=names)


@router.get("/calibrations/{calibration_id}")
@needs("any")
async def get_calibration(
    http: Request,
    services: InServices,
    calibration_id: Annotated[str, Path(max_length=64, description="the calibration's id")],
) -> CalibrationOut:
    """A calibration: what it was made from, and the smallest rate that each method supports.

    The key must be allowed to see the calibration's model. For scores of other systems it needs access to all models,
    or `train` on the calibration's name.
    """
    _, calibration = await asyncio.to_thread(services.store.calibrations.load, calibration_id)
    grants = names_of(http)
    if not grants.allows("train", calibration.model or calibration.name):
        models = grants.resources("score", "train")
        if (calibration.model or calibration.name) not in models or (
            calibration.model is None and models.members is not None
        ):
            raise unknown_calibration(calibration_id)
        calibration = calibration_without_origin(calibration)
    return calibration


learners = APIRouter(tags=["learners"], route_class=GuardedRoute)


@learners.get("/learners")
@needs("any")
async def list_learners() -> Page[LearnerOut]:
    """Every learner, with the JSON Schema of its parameters."""
    return Page[LearnerOut](
        items=[
            LearnerOut(
                kind=spec.kind,
                title=spec.title,
                capabilities=sorted(spec.capabilities),
                needs=spec.needs,
                accepts_sparse=spec.accepts_sparse,
                takes_unlabelled=spec.takes_unlabelled,
                params=spec.params.model_json_schema(),
            )
            for spec in learner_specs()
        ]
    )
