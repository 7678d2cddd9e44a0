"""Galleries: make and move them, enrol, look up, erase, calibrate, evaluate. Searches are in `search.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse

from pairmark.service.api.house import Cursor, House, InHouse, Limit
from pairmark.service.api.problems import UnsupportedMediaType, responses
from pairmark.service.errors import InvalidInput
from pairmark.service.galleries.imports import KINDS, ImportOptions, file_batches, json_batches
from pairmark.service.galleries.pictures import MEDIA_TYPES, cmc_picture
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.galleries.schemas import (
    GalleryCalibrationOut,
    GalleryEvaluationOut,
    GalleryEvaluationRequest,
    GalleryOut,
    GalleryPage,
    GalleryRequest,
    ItemOut,
    ItemPage,
    ProbesRequest,
    Receipt,
    UpsertOut,
)
from pairmark.service.jobs.schemas import JobOut, Task
from pairmark.service.runtime.scoring import Served

router = APIRouter(tags=["galleries"])
Name = Annotated[str, Path(max_length=200, description="the gallery's name")]
ItemId = Annotated[str, Path(max_length=512, description="the item's id; it may hold slashes")]
Subject = Annotated[str, Path(max_length=512, description="the subject; it may hold slashes")]
MeasurementId = Annotated[str, Path(max_length=64)]
CAPABILITY = "search"
Made = TypeVar("Made", GalleryCalibrationOut, GalleryEvaluationOut)
_TASKS: Final[dict[str, Task]] = {
    "calibration": "gallery-calibration",
    "evaluation": "gallery-evaluation",
}


async def version_of(house: House, state: State) -> Served:
    """The version that serves a gallery, loaded."""
    return await house.runtime.version_for(f"{state.model}:{state.version}", CAPABILITY)


@router.get("/galleries", response_model=GalleryPage)
def list_galleries(house: InHouse, limit: Limit = 50, cursor: Cursor = None) -> GalleryPage:
    """Galleries by name."""
    return house.galleries.page(limit, cursor)


@router.put(
    "/galleries/{gallery}",
    response_model=GalleryOut,
    responses={201: {"model": GalleryOut, "description": "made"}, **responses(404, 409)},
)
async def put_gallery(
    house: InHouse, response: Response, gallery: Name, request: GalleryRequest
) -> GalleryOut:
    """Make a gallery for a model's version, or move it to another one.

    Moving a gallery with items indexes it anew in the background (`moving_to` says so); the version it has serves it
    until then. Calibrations are of one version: calibrate again after a move.
    """
    served = await house.runtime.version_for(request.model, CAPABILITY)
    made, new = await house.runtime.in_thread(lambda: house.galleries.put(gallery, served))
    if new:
        response.status_code = 201
        response.headers["Location"] = f"/galleries/{made.name}"
    return made


@router.get("/galleries/{gallery}", response_model=GalleryOut, responses=responses(404))
def get_gallery(house: InHouse, gallery: Name) -> GalleryOut:
    """A gallery: its version, items and metadata fields."""
    return house.galleries.get(gallery)


@router.delete("/galleries/{gallery}", status_code=204, response_class=Response, responses=responses(404))
def delete_gallery(house: InHouse, gallery: Name) -> None:
    """Delete a gallery with everything in it: rows, index files, calibrations, evaluations."""
    house.galleries.delete(gallery)


_ITEMS_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["items"],
                    "additionalProperties": False,
                    "properties": {
                        "items": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "type": "object",
                                "required": ["id", "vector"],
                                "properties": {
                                    "id": {"type": "string", "minLength": 1, "maxLength": 512},
                                    "subject": {"type": ["string", "null"], "minLength": 1, "maxLength": 512},
                                    "vector": {"type": "array", "items": {"type": "number"}},
                                    "metadata": {"type": ["object", "null"]},
                                },
                            },
                        }
                    },
                },
                "examples": {
                    "one item": {
                        "value": {
                            "items": [
                                {
                                    "id": "a-1",
                                    "subject": "a",
                                    "vector": [0.12, -0.4, 1.7],
                                    "metadata": {"site": "north", "year": 2024},
                                }
                            ]
                        }
                    }
                },
            },
            **{
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind in KINDS
                if "json" not in kind
            },
        },
    }
}


@router.put(
    "/galleries/{gallery}/items",
    response_model=UpsertOut,
    responses=responses(404, 409, 415, 429, 507),
    openapi_extra=_ITEMS_BODY,
)
async def upsert_items(
    house: InHouse,
    request: Request,
    gallery: Name,
    prefix: Annotated[str, Query(max_length=256, description="raw float32: what ids start with")] = "",
    first: Annotated[int, Query(ge=0, lt=2**53, description="raw float32: number of the first row's id")] = 0,
    id: Annotated[str, Query(max_length=256, description="CSV, Parquet: column of ids")] = "id",
    subject: Annotated[
        str, Query(max_length=256, description="CSV, Parquet: column of subjects")
    ] = "subject",
    metadata: Annotated[
        str | None,
        Query(max_length=4096, description="CSV, Parquet: columns kept as metadata, joined by commas"),
    ] = None,
) -> UpsertOut:
    """Enrol items, or replace those of the same id.

    Rows that can be stored are stored, each batch of them at once; the others are told in `errors` with their 0-based
    place. When none could be: 422 with the same list. Within one request an id counts once, the first time.

    Bulk: `application/x-npz` with arrays `ids`, `vectors` and perhaps `subjects` and `metadata` (JSON texts);
    `application/octet-stream` of float32 rows, whose ids are `prefix` and a number; CSV and Parquet with a column of
    ids, perhaps of subjects, and a column a number (Parquet: or one list column).
    """
    kind = KINDS.get(
        request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    )
    if kind is None:
        raise UnsupportedMediaType(f"items come as {', '.join(KINDS)}")
    state = await house.runtime.in_thread(lambda: house.galleries.state(gallery))
    served = await version_of(house, state)
    errors = RowErrors()
    if kind == "json":
        body = await request.body()
        async with house.galleries.write_place() as place:
            return await place.run(
                lambda: house.galleries.write(
                    gallery, json_batches(body, state.dimension, errors), errors, served
                )
            )
    options = ImportOptions(
        prefix=prefix,
        first=first,
        id=id,
        subject=subject,
        metadata=tuple(name for name in (metadata or "").split(",") if name),
    )
    async with house.galleries.import_place() as place:
        with house.galleries.workspace() as folder:
            upload, scratch = folder / "upload", folder / "scratch"
            scratch.mkdir()
            with upload.open("wb") as stream:
                async for piece in request.stream():
                    stream.write(piece)

            def work() -> UpsertOut:
                batches = file_batches(
                    kind, upload, scratch, state.dimension, errors, options, house.galleries.limits
                )
                return house.galleries.write(gallery, batches, errors, served)

            return await place.run(work)


@router.get("/galleries/{gallery}/items", response_model=ItemPage, responses=responses(404))
def list_items(
    house: InHouse,
    gallery: Name,
    limit: Limit = 100,
    cursor: Cursor = None,
    subject: Annotated[str | None, Query(max_length=512, description="only this subject's")] = None,
    vectors: Annotated[bool, Query(description="with their vectors")] = False,
) -> ItemPage:
    """Items by id."""
    return house.galleries.items(gallery, limit, cursor, subject=subject, vectors=vectors)


@router.get("/galleries/{gallery}/items/{id:path}", response_model=ItemOut, responses=responses(404))
def get_item(house: InHouse, gallery: Name, id: ItemId) -> ItemOut:
    """An item with its vector."""
    return house.galleries.item(gallery, id)


@router.delete("/galleries/{gallery}/items/{id:path}", response_model=Receipt, responses=responses(404))
async def delete_item(house: InHouse, gallery: Name, id: ItemId) -> Receipt:
    """Erase an item from rows, index and files; the receipt says what was removed and what will complete it."""
    catalogue = await house.runtime.catalogue.refreshed()
    return await house.runtime.in_thread(lambda: house.galleries.erase(gallery, catalogue, id=id))


@router.delete(
    "/galleries/{gallery}/subjects/{subject:path}", response_model=Receipt, responses=responses(404)
)
async def delete_subject(house: InHouse, gallery: Name, subject: Subject) -> Receipt:
    """Erase everything of a subject; a subject without items gives a receipt of none."""
    catalogue = await house.runtime.catalogue.refreshed()
    return await house.runtime.in_thread(lambda: house.galleries.erase(gallery, catalogue, subject=subject))


Background = Annotated[
    bool,
    Query(description="queue a job instead, with progress and cancelling; its probes come from a dataset"),
]
_AS_A_JOB: dict[int | str, dict[str, Any]] = {
    202: {
        "model": JobOut,
        "description": "queued, with `background`: a job whose `result` names what it made",
    }
}


async def _measured(
    house: House,
    response: Response,
    gallery: str,
    what: Literal["calibration", "evaluation"],
    request: ProbesRequest,
    background: bool,
    measure: Callable[[str, Served, Any], Made],
) -> Made | Response:
    """Calibrate or evaluate a gallery, now or as a job."""
    if background:
        job = await house.runtime.in_thread(
            lambda: house.identification.submit(gallery, _TASKS[what], request)
        )
        headers = {"Location": f"/jobs/{job.id}"}
        return JSONResponse(job.model_dump(mode="json"), status_code=202, headers=headers)
    state = await house.runtime.in_thread(lambda: house.galleries.state(gallery))
    served = await version_of(house, state)
    async with house.runtime.batch_place() as place:
        made = await place.run(lambda: measure(gallery, served, request))
    response.headers["Location"] = f"/galleries/{gallery}/{what}s/{made.id}"
    return made


@router.post(
    "/galleries/{gallery}/calibrations",
    status_code=201,
    response_model=GalleryCalibrationOut,
    responses={**_AS_A_JOB, **responses(404, 409, 429)},
)
async def calibrate_gallery(
    house: InHouse, response: Response, gallery: Name, request: ProbesRequest, background: Background = False
) -> GalleryCalibrationOut | Response:
    """Learn from people who are not enrolled, one probe each, what strangers score: what `fpir` is answered from.

    Probes come as a dataset whose labels are subjects, or as vectors and subjects. Subjects who are enrolled say how
    often the right person is missed (FNIR).
    """
    measure = house.identification.calibrate
    return await _measured(house, response, gallery, "calibration", request, background, measure)


@router.get(
    "/galleries/{gallery}/calibrations/{calibration}",
    response_model=GalleryCalibrationOut,
    responses=responses(404),
)
def get_gallery_calibration(
    house: InHouse, gallery: Name, calibration: MeasurementId
) -> GalleryCalibrationOut:
    """A calibration, and whether the gallery has changed too much since."""
    return house.identification.calibration(gallery, calibration)


@router.post(
    "/galleries/{gallery}/evaluations",
    status_code=201,
    response_model=GalleryEvaluationOut,
    responses={**_AS_A_JOB, **responses(404, 409, 429)},
)
async def evaluate_gallery(
    house: InHouse,
    response: Response,
    gallery: Name,
    request: GalleryEvaluationRequest,
    background: Background = False,
) -> GalleryEvaluationOut | Response:
    """Measure with probes who is found: CMC, FNIR at each FPIR, and what the gallery's own threshold does."""
    measure = house.identification.evaluate
    return await _measured(house, response, gallery, "evaluation", request, background, measure)


@router.get(
    "/galleries/{gallery}/evaluations/{evaluation}",
    response_model=GalleryEvaluationOut,
    responses=responses(404),
)
def get_evaluation(house: InHouse, gallery: Name, evaluation: MeasurementId) -> GalleryEvaluationOut:
    """An evaluation as it was made."""
    return house.identification.evaluation(gallery, evaluation)


@router.get(
    "/galleries/{gallery}/evaluations/{evaluation}/cmc.{format}",
    response_class=Response,
    responses={
        200: {
            "description": "the picture",
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}} for kind in MEDIA_TYPES.values()
            },
        },
        **responses(404),
    },
)
def get_cmc(
    house: InHouse,
    gallery: Name,
    evaluation: MeasurementId,
    format: Annotated[str, Path(pattern="^(svg|png)$", description="svg or png")],
) -> Response:
    """The cumulative match characteristic as a picture: how often the right person is among the first so many."""
    found = house.identification.evaluation(gallery, evaluation)
    if found.cmc is None:
        raise InvalidInput(
            "no probe's subject was enrolled, so there is no curve to draw", field="evaluation"
        )
    return Response(cmc_picture(found.cmc, gallery, format), media_type=MEDIA_TYPES[format])
