"""Galleries: make and move them, enrol, look up, erase, calibrate, evaluate. Searches are in `search.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from pairmark.service.api.leaving import while_connected
from pairmark.service.api.problems import UnsupportedMediaType
from pairmark.service.api.query import FROM_QUERY, PageQuery, Paging, Query
from pairmark.service.api.services import InServices, Services, check_may, names_of
from pairmark.service.datasets.confined import Gone
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.errors import UnknownDataset
from pairmark.service.galleries.items.batches import confined_batches
from pairmark.service.galleries.items.imports import KINDS, json_batches
from pairmark.service.galleries.items.item_forms import form_of
from pairmark.service.galleries.items.rows import RowErrors, checked_id
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.galleries.schemas import (
    ErasureRequest,
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryEvaluationOut,
    GalleryEvaluationRequest,
    GalleryOut,
    GalleryPage,
    GalleryRequest,
    ImportOptions,
    ItemOut,
    ItemPage,
    ProbesRequest,
    ReceiptOut,
    UpsertOut,
)
from pairmark.service.pagination import MAX_LIMIT
from pairmark.service.runtime.parsing import list_of, parse_lists, read_probes
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.wire.jobs import Task

Name = Annotated[str, Path(max_length=200, description="the gallery's name")]
ItemId = Annotated[str, Path(max_length=512, description="the item's id; it may contain slashes")]
Subject = Annotated[str, Path(max_length=512, description="the subject; it may contain slashes")]
MeasurementId = Annotated[str, Path(max_length=64)]
CAPABILITY = "search"
Made = TypeVar("Made", GalleryCalibrationOut, GalleryEvaluationOut)
_TASKS: Final[dict[str, Task]] = {"calibration": "gallery-calibration", "evaluation": "gallery-evaluation"}


class ImportQuery(ImportOptions, Query):
    """How a bulk body becomes items."""


class ItemsQuery(PageQuery):
    """One page of a gallery's items."""

    limit: int = Field(100, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    subject: str | None = Field(None, max_length=512, description="only items of this subject")
    vectors: bool = Field(False, description="include the vectors or records")


class MeasureQuery(Query):
    """How a gallery is measured."""

    background: bool = Field(
        False,
        description="queue a job, which reports progress and can be cancelled; probes must come from a dataset",
    )


async def version_of(services: Services, state: GalleryState) -> LoadedVersion:
    """The version that serves a gallery, loaded."""
    return await services.runtime.version_for(f"{state.model}:{state.version}", CAPABILITY)


def list_galleries(request: Request, services: InServices, query: Paging) -> GalleryPage:
    """Galleries that the key may see, by name."""
    return services.galleries.page(query.limit, query.cursor, names=names_of(request).resources("gallery"))


async def put_gallery(
    http: Request, services: InServices, response: Response, gallery: Name, request: GalleryRequest
) -> GalleryOut:
    """Create a gallery for a version of a model, or move an existing one to another version.

    If the gallery has items, they are indexed again in the background (`moving_to`); the old version answers
    until this is done. Calibrations belong to one version, so calibrate again after a move. The key also needs the
    right to use the model (`score`, `decide` or `train`).
    """
    version = await services.runtime.version_for(request.model, CAPABILITY, names_of(http).models)
    info, new = await asyncio.to_thread(services.galleries.put, gallery, version)
    if new:
        response.status_code = 201
        response.headers["Location"] = f"/galleries/{info.name}"
    return info


def get_gallery(services: InServices, gallery: Name) -> GalleryOut:
    """A gallery: its version, items and metadata fields."""
    return services.galleries.get(gallery)


def delete_gallery(services: InServices, gallery: Name) -> None:
    """Delete a gallery with its items, index files, calibrations and evaluations."""
    services.galleries.delete(gallery)


async def upsert_items(
    services: InServices, request: Request, gallery: Name, query: Annotated[ImportQuery, FROM_QUERY]
) -> UpsertOut:
    """Enrol items, or replace items with the same id.

    Valid rows are stored, batch by batch. The others are listed in `errors` with their 0-based index. If no row is
    valid, the answer is 422 with the same list. If an id occurs twice in one request, only the first item counts.

    Bulk bodies: `application/x-npz` with the arrays `ids`, `vectors` and optionally `subjects` and `metadata` (JSON
    texts); `application/octet-stream` with float32 rows, whose ids are `prefix` and a number; CSV and Parquet with a
    column of ids, optionally a column of subjects, and one column per number (Parquet: or one list column). A gallery
    of records takes JSON, CSV and Parquet with the columns of its model.
    """
    kind = KINDS.get(
        request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    )
    if kind is None:
        raise UnsupportedMediaType(f"items come as {', '.join(KINDS)}")
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    form = form_of(version.estimator, state.dimension)
    errors = RowErrors()
    if kind == "json":
        body = await request.body()
        return await services.galleries.write_place.run(
            lambda: services.galleries.write(gallery, json_batches(body, form, errors), errors, version)
        )
    async with services.galleries.import_place() as place:
        with services.galleries.workspace() as folder:
            upload, scratch = folder / "upload", folder / "scratch"
            scratch.mkdir()
            with upload.open("wb") as stream:
                async for piece in request.stream():
                    stream.write(piece)

            size = upload.stat().st_size
            width = state.dimension if state.columns is None else len(state.columns)
            limits = FileLimits.of(services.settings, size, rows="max_gallery_items", features=width)

            def work(has_left: Gone) -> UpsertOut:
                with closing(
                    confined_batches(kind, upload, scratch, form, errors, query, limits, has_left)
                ) as batches:
                    return services.galleries.write(gallery, batches, errors, version)

            return await while_connected(request, lambda has_left: place.run(lambda: work(has_left)))


def list_items(services: InServices, gallery: Name, query: Annotated[ItemsQuery, FROM_QUERY]) -> ItemPage:
    """A gallery's items, ordered by id."""
    return services.galleries.items(
        gallery, query.limit, query.cursor, subject=query.subject, vectors=query.vectors
    )


def get_item(services: InServices, gallery: Name, id: ItemId) -> ItemOut:
    """An item with its vector."""
    return services.galleries.item(gallery, id)


async def delete_item(services: InServices, gallery: Name, id: ItemId) -> ReceiptOut:
    """Erase an item from the database, the index and all files. The receipt lists what is left to do."""
    catalogue = await services.runtime.catalogue.refreshed()
    return await asyncio.to_thread(services.galleries.erase, gallery, catalogue, id=checked_id(id))


async def delete_subject(services: InServices, gallery: Name, subject: Subject) -> ReceiptOut:
    """Erase all items of a subject, and its probes in calibrations. If it has no items, the receipt states 0."""
    catalogue = await services.runtime.catalogue.refreshed()
    whose = checked_id(subject, "subject")
    return await asyncio.to_thread(services.galleries.erase, gallery, catalogue, subject=whose)


async def erase(services: InServices, gallery: Name, request: ErasureRequest) -> ReceiptOut:
    """Erase an item, or all items of a subject and its probes, named in the body.

    The body may name ids and subjects that are refused today and were stored by an earlier version. The receipt is that
    of the `DELETE` routes.
    """
    catalogue = await services.runtime.catalogue.refreshed()
    return await asyncio.to_thread(
        services.galleries.erase, gallery, catalogue, id=request.id, subject=request.subject
    )


_PROBES = {"vectors": read_probes, "subjects": list_of(str, optional=True)}


async def _measure(
    http: Request,
    services: Services,
    response: Response,
    gallery: str,
    what: Literal["calibration", "evaluation"],
    form: type[ProbesRequest],
    background: bool,
    measure: Callable[[str, LoadedVersion, Any], Made],
) -> Made | Response:
    """Calibrate or evaluate a gallery, now or as a job."""
    body = await http.body()
    request = await services.runtime.batch_place.run(lambda: parse_lists(form, body, _PROBES))
    if request.dataset is not None:
        check_may(http, "train", request.dataset.partition(":")[0], unknown=UnknownDataset)
    if background:
        job = await asyncio.to_thread(services.identification.submit, gallery, _TASKS[what], request)
        headers = {"Location": f"/jobs/{job.id}"}
        return JSONResponse(job.model_dump(mode="json"), status_code=202, headers=headers)
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    result = await services.runtime.batch_place.run(lambda: measure(gallery, version, request))
    response.headers["Location"] = f"/galleries/{gallery}/{what}s/{result.id}"
    return result


async def calibrate_gallery(
    http: Request,
    services: InServices,
    response: Response,
    gallery: Name,
    query: Annotated[MeasureQuery, FROM_QUERY],
) -> GalleryCalibrationOut | Response:
    """Calibrate searches by `fpir`, with one probe for each person who is not enrolled.

    Probes are a dataset whose labels are subjects, or vectors with their subjects. Probes of enrolled subjects measure
    how often the right person is missed (FNIR).

    Probes are kept (`keep_probes`) but never shown. Their best scores follow every write and erasure, so thresholds
    fit the current gallery. A probe whose subject is enrolled later no longer counts as a stranger. Erasing a subject
    erases its probes.
    """
    measure = services.identification.calibrate
    return await _measure(
        http, services, response, gallery, "calibration", GalleryCalibrationRequest, query.background, measure
    )


def get_gallery_calibration(
    services: InServices, gallery: Name, calibration: MeasurementId
) -> GalleryCalibrationOut:
    """A calibration, and whether its thresholds follow the gallery."""
    return services.identification.calibration(gallery, calibration)


async def evaluate_gallery(
    http: Request,
    services: InServices,
    response: Response,
    gallery: Name,
    query: Annotated[MeasureQuery, FROM_QUERY],
) -> GalleryEvaluationOut | Response:
    """Measure searches with probes: the CMC, the FNIR at each FPIR, and both rates at the gallery's own threshold."""
    measure = services.identification.evaluate
    return await _measure(
        http, services, response, gallery, "evaluation", GalleryEvaluationRequest, query.background, measure
    )


def get_evaluation(services: InServices, gallery: Name, evaluation: MeasurementId) -> GalleryEvaluationOut:
    """An evaluation of a gallery."""
    return services.identification.evaluation(gallery, evaluation)
