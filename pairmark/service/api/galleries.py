"""Galleries: make and move them, enrol, search, verify, look up, erase, calibrate."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from pairmark.schemas.base import Page
from pairmark.schemas.galleries import (
    ErasureRequest,
    GalleryCalibrationOut,
    GalleryCalibrationRequest,
    GalleryOut,
    GalleryRequest,
    ImportOptions,
    ItemOut,
    ItemsBody,
    Receipt,
    SearchBody,
    SearchOut,
    UpsertOut,
    VerifyBody,
    VerifyOut,
    VerifyParameters,
)
from pairmark.service.api.access import ITEMS, VECTORS
from pairmark.service.api.metrics import SEARCHED
from pairmark.service.api.routing import Call, GuardedRoute, JsonAnswer, PageQuery, Paging, PlainRoute, needs
from pairmark.service.api.services import InServices, Services, check_may, names_of
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.db import MAX_LIMIT
from pairmark.service.errors import TooLarge, UnknownDataset, UnsupportedRate
from pairmark.service.galleries.imports import KINDS, confined_batches, json_batches
from pairmark.service.galleries.rows import RowErrors, checked_id, form_of
from pairmark.service.galleries.searches import (
    SeenDecision,
    complete,
    model_vectors,
    parse_probe,
    parse_search,
)
from pairmark.service.reviews.repository import Deciding
from pairmark.service.runtime.operating_points import Rate, ServedPoint
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scoring.score import shows_scores
from pairmark.service.store.subjects import SubjectClass
from pairmark.service.tables import GalleryRow

router = APIRouter(tags=["galleries"], route_class=GuardedRoute)
bulk = APIRouter(tags=["galleries"], route_class=PlainRoute)


Name = Annotated[str, Path(max_length=200, description="the gallery's name")]
ItemId = Annotated[str, Path(max_length=512, description="the item's id; it may contain slashes")]
Subject = Annotated[str, Path(max_length=512, description="the subject; it may contain slashes")]
CalibrationId = Annotated[str, Path(max_length=64, description="the calibration's id")]
CAPABILITY = "search"


class ItemsQuery(PageQuery):
    """One page of a gallery's items."""

    limit: int = Field(100, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    subject: str | None = Field(None, max_length=512, description="only items of this subject")
    vectors: bool = Field(False, description="include the vectors or records")


async def version_of(services: Services, state: GalleryRow) -> LoadedVersion:
    """The version that serves a gallery, loaded."""
    return await services.runtime.version_for(f"{state.model}:{state.version}", CAPABILITY)


@router.get("/galleries")
@needs("gallery")
def list_galleries(request: Request, services: InServices, query: Paging) -> Page[GalleryOut]:
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
    query=ImportOptions,
    bodies=tuple(kind for kind in KINDS if "json" not in kind),
)
async def upsert_items(call: Call, gallery: Name) -> Response:
    """Enrol items, or replace items with the same id.

    Valid rows are stored, batch by batch. The others are listed in `errors` with their 0-based index. If no row is
    valid, the answer is 422 with the same list. If an id occurs twice in one request, only the first item counts.

    Bulk bodies: `application/x-npz` with the arrays `ids`, `vectors` and optionally `subjects` and `metadata` (JSON
    texts); CSV and Parquet with a column of ids, optionally a column of subjects, and one column per number (Parquet:
    or one list column). A gallery of records takes JSON, CSV and Parquet with the columns of its model.
    """
    services, query = call.services, call.query
    kind = KINDS[call.kind]
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    form = form_of(version.estimator, state.dimension)
    errors = RowErrors(await services.runtime.row_ranges(version))
    if kind == "json":
        body = await call.read_body()
        out = await services.galleries.write_place.run(
            lambda: services.galleries.write(gallery, json_batches(body, form, errors), errors, version)
        )
        return JsonAnswer(out.model_dump_json().encode())
    with services.galleries.import_place() as place, services.blobs.workspace() as folder:
        upload, scratch = folder / "upload", folder / "scratch"
        scratch.mkdir()
        with upload.open("wb") as stream:
            async for piece in call.stream():
                stream.write(piece)

        size = upload.stat().st_size
        width = state.dimension if state.columns is None else len(state.columns)
        limits = FileLimits.of(services.settings, size, rows="max_gallery_items", features=width)

        def work() -> UpsertOut:
            with closing(confined_batches(kind, upload, scratch, form, errors, query, limits)) as batches:
                return services.galleries.write(gallery, batches, errors, version)

        out = await place.run(math.inf, work)
        return JsonAnswer(out.model_dump_json().encode())


@router.get("/galleries/{gallery:name}/items")
@needs("gallery")
def list_items(services: InServices, gallery: Name, query: Annotated[ItemsQuery, Query()]) -> Page[ItemOut]:
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
async def delete_item(services: InServices, gallery: Name, id: ItemId) -> Receipt:
    """Erase an item from the database, the index and all files. The receipt lists what is left to do."""
    return await asyncio.to_thread(services.galleries.erase, gallery, id=checked_id(id))


@router.delete("/galleries/{gallery:name}/subjects/{subject:path}")
@needs("gallery", of_items=True)
async def delete_subject(services: InServices, gallery: Name, subject: Subject) -> Receipt:
    """Erase all items of a subject, and its probes in calibrations. If it has no items, the receipt states 0."""
    whose = checked_id(subject, "subject")
    return await asyncio.to_thread(services.galleries.erase, gallery, subject=whose)


@router.post(
    "/galleries/{gallery:name}/erase", operation_id="erase_from_gallery", summary="Erase an item or a subject"
)
@needs("gallery", of_items=True)
async def erase(services: InServices, gallery: Name, request: ErasureRequest) -> Receipt:
    """Erase an item, or all items of a subject and its probes, named in the body.

    The body may name ids and subjects that are refused today and were stored by an earlier version. The receipt is that
    of the `DELETE` routes.
    """
    return await asyncio.to_thread(services.galleries.erase, gallery, id=request.id, subject=request.subject)


@router.post("/galleries/{gallery:name}/calibrations", status_code=201)
@needs("gallery")
async def calibrate_gallery(
    http: Request, services: InServices, response: Response, gallery: Name, request: GalleryCalibrationRequest
) -> GalleryCalibrationOut:
    """Calibrate searches by `fpir`, with one probe for each person who is not enrolled.

    Probes are a dataset whose labels are subjects; in one without labels, each row's id is its subject. Probes of
    enrolled subjects measure how often the right person is missed (FNIR).

    Probes are kept but never shown. Their best scores follow every write and erasure, so thresholds fit the current
    gallery. A probe whose subject is enrolled later no longer counts as a stranger. Erasing a subject erases its
    probes.
    """
    check_may(http, "train", request.dataset.partition(":")[0], unknown=UnknownDataset)
    state = await asyncio.to_thread(services.galleries.state, gallery)
    version = await version_of(services, state)
    calibrate = services.identification.calibrate
    result = await services.runtime.batch_place.run(lambda: calibrate(gallery, version, request))
    response.headers["Location"] = f"/galleries/{gallery}/calibrations/{result.id}"
    return result


@router.get("/galleries/{gallery:name}/calibrations/{calibration}")
@needs("gallery")
def get_gallery_calibration(
    services: InServices, gallery: Name, calibration: CalibrationId
) -> GalleryCalibrationOut:
    """A calibration, and whether its thresholds follow the gallery."""
    return services.identification.calibration(gallery, calibration)


_FOUND, _VERIFIED = SEARCHED.labels("search"), SEARCHED.labels("verify")


@bulk.post(
    "/galleries/{gallery:name}/search",
    operation_id="search_gallery",
    summary="Search a gallery",
    response_model=SearchOut,
)
@needs("gallery", limits=VECTORS, reading=True, body=SearchBody)
async def search(call: Call, gallery: Name) -> Response:
    """Find the most similar items of each query, by exact search.

    Scores are those of `/similarity`, best first; ties are ordered by id. With `fpir` or `fpr`, only matches are
    returned, and an empty list means "unknown". `fpir` is the rate of the whole search, by the gallery's calibration.
    `fpr` is the rate of each comparison: in a large gallery many people match, and the answer contains a warning. A
    search sees every write and deletion that was acknowledged before it.
    """
    services, name = call.services, gallery
    request = await call.parsed(lambda body: parse_search(body, services.settings))
    _draw_probes(call, name, len(request.queries))
    body = request.body
    with services.galleries.search_place() as place:
        state = await place.run(math.inf, lambda: services.galleries.state(name))
        version = await version_of(services, state)
        fpr = body.fpir if body.fpr is None else body.fpr
        rate = None if fpr is None else Rate(fpr, confidence=body.confidence)
        shown = shows_scores(services.runtime, version, rate, call.grants)
        point = None
        if body.fpr is not None and rate is not None:
            point = await services.runtime.operating_point(version, rate, shows_scores=shown)
        ranges = await services.runtime.row_ranges(version)
        found = await place.run(
            math.inf,
            lambda: services.searches.search(
                state,
                version,
                request,
                point,
                shows_scores=shown,
                ranges=ranges,
                moved=services.runtime.moved(version.calibration_id),
                patterns=partial(services.runtime.find_compared, version),
            ),
        )
    _FOUND.inc(found.n)
    if found.queries is not None:
        seen = found.queries, found.unlike, call.asker
        services.runtime.inputs.note(version, ranges, *seen, n_rows=len(found.queries))
    _keep(call, version, found.decisions, body.refs)
    return JsonAnswer(found.answer)


@bulk.post(
    "/galleries/{gallery:name}/subjects/{subject:path}/verify",
    operation_id="verify_subject",
    summary="Verify one subject",
    response_model=VerifyOut,
)
@needs("gallery", limits=VECTORS, reading=True, query=VerifyParameters, body=VerifyBody)
async def verify(call: Call, gallery: Name, subject: Subject) -> Response:
    """Decide whether a vector, or several samples, belong to a subject.

    If the calibration supports it, a subject with several items is compared as a whole, and the guarantee is for the
    whole verification. If it does not, and no `aggregation` is given, the best item decides. The bound is then that of
    one comparison times the number of items.
    """
    services, query, name = call.services, call.query, gallery
    most = services.settings.max_subject_samples
    probe, refs = await call.parsed(lambda body: parse_probe(body, most))
    if query.calibration is not None:
        await services.runtime.check_calibration(query.calibration, call.grants.models)
    what, limit = f"verifications of the subject {subject[:100]!r}", services.settings.verify_limit
    services.rates.draw_minute(call.scope, "verifications", limit, what, part=f"{name}/{subject}")
    _draw_probes(call, name, 1)
    with services.galleries.search_place() as place:
        state = await place.run(math.inf, lambda: services.galleries.state(name))
        version = await version_of(services, state)
        rate = Rate(query.fpr, query.method, query.confidence, False, query.calibration, query.fnr)
        shown = shows_scores(services.runtime, version, rate, call.grants)
        rows = model_vectors(probe, "probe", version)
        items = await place.run(math.inf, lambda: services.searches.enrolled(state, version, subject))
        has_all = complete(rows, items.vectors)
        point_of = partial(services.runtime.operating_point, version, rate, shows_scores=shown)
        point, how = await _whole_or_best(call, version, point_of, len(items), len(rows), has_all)
        found = await place.run(
            math.inf,
            lambda: services.searches.verify(
                version,
                subject,
                rows,
                items,
                point,
                how,
                patterns=partial(services.runtime.find_compared, version),
                shows_scores=shown,
            ),
        )
    _keep(call, version, found.decisions, refs)
    _VERIFIED.inc()
    return JsonAnswer(found.answer)


def _keep(
    call: Call, version: LoadedVersion, seen_decisions: list[SeenDecision], refs: list[str] | None
) -> None:
    """Count decisions, and keep some for reviews, where the model's policy says so."""
    policy = call.services.runtime.review_policy(version.entry.name)
    if policy is None or not seen_decisions:
        return
    decisions = [item.decision for item in seen_decisions]
    call.services.recorder.record(
        Deciding(*version.key, call.path_params["gallery"]),
        policy,
        [decisions.count(code) for code in range(3)],
        lambda: decisions,
        [item.score for item in seen_decisions],
        seen_decisions[0].threshold,
        refs=[(None if refs is None else refs[item.query], item.id) for item in seen_decisions],
        subjects=[item.subject for item in seen_decisions],
    )


async def _whole_or_best(
    call: Call,
    version: LoadedVersion,
    point_of: Callable[..., Awaitable[ServedPoint]],
    k: int,
    p: int,
    has_all: bool,
) -> tuple[ServedPoint, str | None]:
    """The operating point of a verification, and how the subject is compared as a whole (None: item by item)."""
    aggregation = call.query.aggregation
    how = version.aggregation(aggregation or "auto")
    if k == p == 1 or (p == 1 and aggregation is None and not has_all):
        # Single comparisons are calibrated for records that lack columns too.
        return await point_of(), None
    try:
        if aggregation is not None or p > 1 or k <= call.services.settings.max_subject_samples:
            return await point_of(SubjectClass(max(k, p), min(k, p), how)), how
    except (UnsupportedRate, TooLarge):
        if aggregation is not None or p > 1:
            raise
    return await point_of(), None


def _draw_probes(call: Call, name: str, count: int) -> None:
    """Count probes of a gallery, in whichever way they are sent."""
    rates, limit = call.services.rates, call.services.settings.probe_limit
    rates.draw_minute(
        call.scope, "probes", limit, f"probes of the gallery {name[:100]!r}", part=name, count=count
    )
