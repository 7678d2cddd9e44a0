"""`/galleries/{gallery}/search` and `.../subjects/{subject}/verify`: plain routes, as `scoring.py`."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path

from pairmark.models.calibration.inputs import RowRanges
from pairmark.schemas.galleries import SearchBody, SearchOut, VerifyBody, VerifyOut, VerifyParameters
from pairmark.service.api.calls import JSON, Answer, Call, only_json
from pairmark.service.api.metrics import SEARCHED
from pairmark.service.api.query import QueryModel
from pairmark.service.api.rates import limit_of
from pairmark.service.api.routing import VECTORS, PlainRoute, needs
from pairmark.service.api.scoring import BYTES_A_SECOND, CONFIDENCE
from pairmark.service.errors import TooLarge, UnknownModel, UnsupportedRate
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.galleries.searches import SeenDecision, model_rows, parse_probe, parse_search
from pairmark.service.reviews.repository import Deciding
from pairmark.service.runtime.points import ServedPoint
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.store.calibrations import SubjectClass

router = APIRouter(tags=["galleries"], route_class=PlainRoute)


Gallery = Annotated[str, Path(description="the gallery's name")]
Subject = Annotated[str, Path(description="the subject; it may contain slashes")]
CAPABILITY = "search"


class VerifyQuery(QueryModel, VerifyParameters):
    """The operating point of a verification, and how a subject of several items is compared."""


_FOUND, _VERIFIED = SEARCHED.labels("search"), SEARCHED.labels("verify")


@router.post(
    "/galleries/{gallery:name}/search",
    operation_id="search_gallery",
    summary="Search a gallery",
    response_model=SearchOut,
)
@needs("gallery", limits=VECTORS, reading=True, decides=True, body=SearchBody)
async def search(call: Call, gallery: Gallery) -> Answer:
    """Find the most similar items of each query, by exact search.

    Scores are those of `/similarity`, best first; ties are ordered by id. With `fpir` or `fpr`, only matches are
    returned, and an empty list means "unknown". `fpir` is the rate of the whole search, by the gallery's calibration.
    `fpr` is the rate of each comparison: in a large gallery many people match, and the answer contains a warning. With
    `fpr` and `fnr`, items for review are returned too, and each item has a `decision`. A search sees every write and
    deletion that was acknowledged before it.
    """
    only_json(call)
    services, name = call.services, gallery
    text = await call.read_body()
    with services.runtime.request_work() as request_work:
        seconds = len(text) / BYTES_A_SECOND[JSON]
        request = await request_work.run(seconds, lambda: parse_search(text, services.settings))
    _draw_probes(call, name, len(request.queries))
    body = request.body
    decisions: list[SeenDecision] = []
    looked_at: list[Any] = []
    async with services.galleries.search_place() as place:
        version = await _last_version(call, name)
        while True:
            point = None
            if version is not None and not call.shows_scores(version):
                call.check_listed(
                    version, body.fpr, body.fpir, body.fnr, confidence=body.confidence == CONFIDENCE
                )
            if version is not None and body.fpr is not None:
                point = await services.runtime.operating_point(
                    version, body.fpr, body.confidence, "auto", None, fnr=body.fnr
                )
            ranges = await services.runtime.row_ranges(version, None)

            def work(
                version: LoadedVersion | None = version,
                point: ServedPoint | None = point,
                ranges: RowRanges | None = ranges,
            ) -> GalleryState | tuple[bytes, int]:
                # Read and searched in one go: a turn of the event loop between them would cost as much as both.
                state = services.galleries.state(name)
                at = state.model_id, state.version
                if version is None or (version.entry.model_id, version.entry.version) != at:
                    return state
                return services.searches.search(
                    state,
                    version,
                    request,
                    point,
                    scores=call.shows_scores(version),
                    decisions=decisions,
                    ranges=ranges,
                    moved=services.runtime.moved(version.calibration_id),
                    looked_at=looked_at,
                )

            result = await place.run(work)
            if isinstance(result, tuple):
                break
            version = await _version_of(call, result)
    answer, n = result
    _FOUND.inc(n)
    if version is not None:
        for queries, unlike in looked_at:
            services.runtime.inputs.looked_at(version, ranges, queries, unlike, call.asker)
    if decisions and version is not None:
        _keep(call, version, decisions, body.refs)
    return answer, JSON, ()


@router.post(
    "/galleries/{gallery:name}/subjects/{subject:path}/verify",
    operation_id="verify_subject",
    summary="Verify one subject",
    response_model=VerifyOut,
)
@needs("gallery", limits=VECTORS, reading=True, decides=True, query=VerifyQuery, body=VerifyBody)
async def verify(call: Call, gallery: Gallery, subject: Subject) -> Answer:
    """Decide whether a vector, or several samples, belong to a subject.

    If the calibration supports it, a subject with several items is compared as a whole, and the guarantee is for the
    whole verification. If it does not, and no `aggregation` is given, the best item decides. The bound is then that of
    one comparison times the number of items.
    """
    only_json(call)
    services = call.services
    name = gallery
    text, most = await call.read_body(), services.settings.max_subject_samples
    with services.runtime.request_work() as request_work:
        seconds = len(text) / BYTES_A_SECOND[JSON]
        probe, refs = await request_work.run(seconds, lambda: parse_probe(text, most))
    decisions: list[SeenDecision] = []
    if call.key is not None:
        await services.runtime.check_calibration(call.query.calibration, call.key.grants.models)
    what = f"verifications of the subject {subject[:100]!r} by this key"
    _draw(call, "verifications", services.settings.verify_limit, f"{name}/{subject}", what)
    _draw_probes(call, name, 1)
    async with services.galleries.search_place() as place:
        while True:
            state = await place.run(lambda: services.galleries.state(name))
            version = await _version_of(call, state)
            if version is not None:
                break
        if not call.shows_scores(version):
            call.check_listed(
                version,
                call.query.fpr,
                call.query.fnr,
                method=call.query.method == "auto",
                confidence=call.query.confidence == CONFIDENCE,
                calibration=call.query.calibration is None,
            )
        rows = model_rows(probe, "probe", version)
        items = await place.run(lambda: services.searches.enrolled(state, version, subject))
        point, how = await _whole_or_best(call, version, len(items), len(rows))
        answer = await place.run(
            lambda: services.searches.verify(
                version,
                subject,
                rows,
                items,
                point,
                how,
                scores=call.shows_scores(version),
                decisions=decisions,
            )
        )
    _keep(call, version, decisions, refs)
    _VERIFIED.inc()
    return answer, JSON, ()


def _keep(
    call: Call, version: LoadedVersion, seen_decisions: list[SeenDecision], refs: list[str] | None
) -> None:
    """Count decisions, and keep some for reviews, where the model's policy says so."""
    policy = call.services.runtime.review_policy(version.entry.name)
    if policy is None:
        return
    decisions = [item.decision for item in seen_decisions]
    call.services.recorder.record(
        Deciding(version.entry.model_id, version.entry.version, call.path_params["gallery"]),
        policy,
        [decisions.count(code) for code in range(3)],
        lambda: decisions,
        [item.score for item in seen_decisions],
        seen_decisions[0].threshold,
        refs=[(None if refs is None else refs[item.query], item.id) for item in seen_decisions],
        subjects=[item.subject for item in seen_decisions],
    )


async def _whole_or_best(
    call: Call, version: LoadedVersion, k: int, p: int
) -> tuple[ServedPoint, str | None]:
    """The operating point of a verification, and how the subject is compared as a whole (None: item by item)."""
    query = call.query
    operating_point = partial(
        call.services.runtime.operating_point,
        version,
        query.fpr,
        query.confidence,
        query.method,
        query.calibration,
        fnr=query.fnr,
    )
    samples = max(k, p), min(k, p)
    how = version.aggregation(query.aggregation or "auto", samples)
    if k == p == 1:
        return await operating_point(), None
    try:
        if query.aggregation is not None or p > 1 or k <= call.services.settings.max_subject_samples:
            return await operating_point(subjects=SubjectClass(*samples, how)), how
    except (UnsupportedRate, TooLarge):
        if query.aggregation is not None or p > 1:
            raise
    return await operating_point(), None


def _draw_probes(call: Call, name: str, count: int) -> None:
    """Count probes of a gallery, in whichever way they are sent."""
    what = f"probes of the gallery {name[:100]!r} by this key"
    _draw(call, "probes", call.services.settings.probe_limit, name, what, count)


def _draw(call: Call, limit: str, a_minute: float, of: str, what: str, count: int = 1) -> None:
    """Take from a budget of the key, which has a minute's worth at once; without keys clients are not distinguished."""
    key = call.key
    if key is not None and a_minute:
        bucket = f"{key.id} {limit} {of}"
        call.services.rates.draw(call.scope, bucket, limit_of(limit, a_minute / 60, 60), what, count)


async def _last_version(call: Call, name: str) -> LoadedVersion | None:
    """The version that served the gallery last time, if it is still there."""
    reference = call.services.searches.served_by.get(name)
    if reference is None:
        return None
    try:
        return await call.services.runtime.version_for(reference, CAPABILITY)
    except UnknownModel:
        return None


async def _version_of(call: Call, state: GalleryState) -> LoadedVersion | None:
    """The gallery's version; None when the gallery has just moved on and the earlier one was deleted."""
    services = call.services
    reference = f"{state.model}:{state.version}"
    try:
        version = await services.runtime.version_for(reference, CAPABILITY)
    except UnknownModel:
        now = await asyncio.to_thread(services.galleries.state, state.name)
        if (now.model_id, now.version) == (state.model_id, state.version):
            raise
        return None
    served_by = services.searches.served_by
    if len(served_by) >= 4096:
        served_by.clear()
    served_by[state.name] = reference
    return version
