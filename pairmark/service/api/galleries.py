"""Galleries: make and move them, enrol, look up, erase, calibrate. Searches are in `search.py`."""

from __future__ import annotations

import asyncio
from contextlib import closing
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from pairmark.schemas.galleries import (
    ErasureRequest,
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryOut,
    GalleryPage,
    GalleryRequest,
    ImportOptions,
    ItemOut,
    ItemPage,
    ItemsBody,
    ReceiptOut,
    UpsertOut,
)
from pairmark.schemas.jobs import JobOut
from pairmark.service.api.calls import JSON, Answer, Call, media_type
from pairmark.service.api.leaving import while_connected
from pairmark.service.api.problems import UnsupportedMediaType
from pairmark.service.api.query import PageQuery, Paging, QueryModel
from pairmark.service.api.routing import ITEMS, LONG_LISTS, GuardedRoute, PlainRoute, needs
from pairmark.service.api.services import InServices, Services, check_may, names_of
from pairmark.service.datasets.confined import Gone
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.errors import UnknownDataset
from pairmark.service.galleries.items.imports import KINDS, confined_batches, json_batches
from pairmark.service.galleries.items.rows import RowErrors, checked_id, form_of
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.pagination import MAX_LIMIT
from pairmark.service.runtime.parsing import list_of, parse_lists, read_probes
from pairmark.service.runtime.versions import LoadedVersion

router = APIRouter(tags=["galleries"], route_class=GuardedRoute)
bulk = APIRouter(tags=["galleries"], route_class=PlainRoute)


Name = Annotated[str, Path(max_length=200, description="the gallery's name")]
ItemId = Annotated[str, Path(max_length=512, description="the item's id; it may contain slashes")]
Subject = Annotated[str, Path(max_length=512, description="the subject; it may contain slashes")]
MeasurementId = Annotated[str, Path(max_length=64)]
CAPABILITY = "search"


_AS_A_JOB: Final[dict[int | str, dict[str, Any]]] = {
    202: {
        "model": JobOut,
        "description": "queued, with `background`: a job whose `result` names what it made",
    }
}
_PROBES = {"vectors": read_probes, "subjects": list_of(str, optional=True)}


class ImportQuery(ImportOptions, QueryModel):
    """How a bulk body becomes items."""


class ItemsQuery(PageQuery):
    """One page of a gallery's items."""

    limit: int = Field(100, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    subject: str | None = Field(None, max_length=512, description="only items of this subject")
    vectors: bool = Field(False, description="include the vectors or records")


class MeasureQuery(QueryModel):
    """How a gallery is calibrated."""

    background: bool = Field(
        False,
        description="queue a job, which reports progress and can be cancelled; probes must come from a dataset",
    )


async def version_of(services: Services, state: GalleryState) -> LoadedVersion:
    """The version that serves a gallery, loaded."""
    return await services.runtime.version_for(f"{state.model}:{state.version}", CAPABILITY)


@router.get("/galleries")
@needs("gallery")
def list_galleries(request: Request, services: InServices, query: Paging) -> GalleryPage:
    """Galleries that the key may see, by name."""
    return services.galleries.page(query.limit, query.cursor, names=names_of(request).resources("gallery"))


@router.put(
    "/galleries/{gallery:name}",
    summary="Create or move gallery",
    responses={201: {"model": GalleryOut, "description": "made"}},
)
@needs(
    "gallery",
)
async def put_gallery(
    http: Request, services: InServices, response: Response, gallery: Name, request: GalleryRequest
) -> GalleryOut:
    """Create a gallery for a version of a model, or move an existing one to another version.

    If the gallery has items, they are indexed for the other version before the answer; the old version searches until
    then. Calibrations belong to one version, so calibrate again after a move. The key also needs the
    right to use the model (`score`, `decide` or `train`).
    """
    version = await services.runtime.version_for(request.model, CAPABILITY, names_of(http).models)
    info, new = await asyncio.to_thread(services.galleries.put, gallery, version)
    if new:
        response.status_code = 201
        response.headers["Location"] = f"/galleries/{info.name}"
    return info


@router.get("/galleries/{gallery:name}")
@needs("gallery")
def get_gallery(services: InServices, gallery: Name) -> GalleryOut:
    """A gallery: its version, items and metadata fields."""
    return services.galleries.get(gallery)


@router.delete("/galleries/{gallery:name}", status_code=204)
@needs("gallery")
def delete_gallery(services: InServices, gallery: Name) -> None:
    """Delete a gallery with its items, index files and calibrations."""
    services.galleries.delete(gallery)


@bulk.put("/galleries/{gallery:name}/items", response_model=UpsertOut)
@needs(
    "gallery",
    limits=ITEMS,
    of_items=True,
    body=ItemsBody,
    query=ImportQuery,
    bodies=tuple(kind for kind in KINDS if "json" not in kind),
)
async def upsert_items(call: Call, gallery: Name) -> Answer:
    """Enrol items, or replace items with the same id.

    Valid rows are stored, batch by batch. The others are listed in `errors` with their 0-based index. If no row is
    valid, the answer is 422 with the same list. If an id occurs twice in one request, only the first item counts.

    Bulk bodies: `application/x-npz` with the arrays `ids`, `vectors` and optionally `subjects` and `metadata` (JSON
    texts); CSV and Parquet with a column of ids, optionally a column of subjects, and one column per number (Parquet:
    or one list column). A gallery of records takes JSON, CSV and Parquet with the columns of its model.
    """
    services, query = call.services, call.query
    kind = KINDS.get(media_type(call.fields).decode("latin-1"))
    if kind is None:
        raise UnsupportedMediaType(f"items come as {', '.join(KINDS)}")
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    form = form_of(version.estimator, state.dimension)
    errors = RowErrors(await services.runtime.row_ranges(version, None))
    if kind == "json":
        body = bytes(await call.read_body())
        out = await services.galleries.write_place.run(
            lambda: services.galleries.write(gallery, json_batches(body, form, errors), errors, version)
        )
        return out.model_dump_json().encode(), JSON, ()
    async with services.galleries.import_place() as place:
        with services.galleries.workspace() as folder:
            upload, scratch = folder / "upload", folder / "scratch"
            scratch.mkdir()
            with upload.open("wb") as stream:
                async for piece in call.stream():
                    stream.write(piece)

            size = upload.stat().st_size
            width = state.dimension if state.columns is None else len(state.columns)
            limits = FileLimits.of(services.settings, size, rows="max_gallery_items", features=width)

            def work(has_left: Gone) -> UpsertOut:
                with closing(
                    confined_batches(kind, upload, scratch, form, errors, query, limits, has_left)
                ) as batches:
                    return services.galleries.write(gallery, batches, errors, version)

            out = await while_connected(call, lambda has_left: place.run(lambda: work(has_left)))
            return out.model_dump_json().encode(), JSON, ()


@router.get("/galleries/{gallery:name}/items")
@needs("gallery")
def list_items(services: InServices, gallery: Name, query: Annotated[ItemsQuery, Query()]) -> ItemPage:
    """A gallery's items, ordered by id."""
    return services.galleries.items(
        gallery, query.limit, query.cursor, subject=query.subject, vectors=query.vectors
    )


@router.get("/galleries/{gallery:name}/items/{id:path}")
@needs("gallery")
def get_item(services: InServices, gallery: Name, id: ItemId) -> ItemOut:
    """An item with its vector."""
    return services.galleries.item(gallery, id)


@router.delete("/galleries/{gallery:name}/items/{id:path}")
@needs("gallery", of_items=True)
async def delete_item(services: InServices, gallery: Name, id: ItemId) -> ReceiptOut:
    """Erase an item from the database, the index and all files. The receipt lists what is left to do."""
    catalogue = await services.runtime.catalogue.refreshed()
    return await asyncio.to_thread(services.galleries.erase, gallery, catalogue, id=checked_id(id))


@router.delete("/galleries/{gallery:name}/subjects/{subject:path}")
@needs("gallery", of_items=True)
async def delete_subject(services: InServices, gallery: Name, subject: Subject) -> ReceiptOut:
    """Erase all items of a subject, and its probes in calibrations. If it has no items, the receipt states 0."""
    catalogue = await services.runtime.catalogue.refreshed()
    whose = checked_id(subject, "subject")
    return await asyncio.to_thread(services.galleries.erase, gallery, catalogue, subject=whose)


@router.post(
    "/galleries/{gallery:name}/erase", operation_id="erase_from_gallery", summary="Erase an item or a subject"
)
@needs("gallery", of_items=True)
async def erase(services: InServices, gallery: Name, request: ErasureRequest) -> ReceiptOut:
    """Erase an item, or all items of a subject and its probes, named in the body.

    The body may name ids and subjects that are refused today and were stored by an earlier version. The receipt is that
    of the `DELETE` routes.
    """
    catalogue = await services.runtime.catalogue.refreshed()
    return await asyncio.to_thread(
        services.galleries.erase, gallery, catalogue, id=request.id, subject=request.subject
    )


@router.post(
    "/galleries/{gallery:name}/calibrations",
    status_code=201,
    responses=_AS_A_JOB,
    response_model=GalleryCalibrationOut,
)
@needs(
    "gallery",
    limits=LONG_LISTS,
    decode=partial(parse_lists, GalleryCalibrationRequest, readers=_PROBES),
)
async def calibrate_gallery(
    http: Request,
    services: InServices,
    response: Response,
    gallery: Name,
    request: GalleryCalibrationRequest,
    query: Annotated[MeasureQuery, Query()],
) -> GalleryCalibrationOut | Response:
    """Calibrate searches by `fpir`, with one probe for each person who is not enrolled.

    Probes are a dataset whose labels are subjects, or vectors with their subjects. Probes of enrolled subjects measure
    how often the right person is missed (FNIR).

    Probes are kept (`keep_probes`) but never shown. Their best scores follow every write and erasure, so thresholds
    fit the current gallery. A probe whose subject is enrolled later no longer counts as a stranger. Erasing a subject
    erases its probes.
    """
    if request.dataset is not None:
        check_may(http, "train", request.dataset.partition(":")[0], unknown=UnknownDataset)
    if query.background:
        job = await asyncio.to_thread(services.identification.submit, gallery, request)
        headers = {"Location": f"/jobs/{job.id}"}
        return JSONResponse(job.model_dump(mode="json"), status_code=202, headers=headers)
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    calibrate = services.identification.calibrate
    result = await services.runtime.batch_place.run(lambda: calibrate(gallery, version, request))
    response.headers["Location"] = f"/galleries/{gallery}/calibrations/{result.id}"
    return result


@router.get("/galleries/{gallery:name}/calibrations/{calibration}")
@needs("gallery")
def get_gallery_calibration(
    services: InServices, gallery: Name, calibration: MeasurementId
) -> GalleryCalibrationOut:
    """A calibration, and whether its thresholds follow the gallery."""
    return services.identification.calibration(gallery, calibration)
