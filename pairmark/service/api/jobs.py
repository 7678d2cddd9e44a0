"""Training jobs: submit, watch, cancel."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from pairmark.schemas.base import KEY_TEXT, Page
from pairmark.schemas.jobs import JobOut, JobRequest, JobState
from pairmark.service.api.access import LONG
from pairmark.service.api.routing import GuardedRoute, PageQuery, content, needs
from pairmark.service.api.services import InServices, Services, check_may, may, names_of
from pairmark.service.errors import Forbidden, UnknownDataset, UnknownJob
from pairmark.service.jobs.queue import EVENTS_A_READ, unknown_job
from pairmark.service.names import name_of

router = APIRouter(tags=["jobs"], route_class=GuardedRoute)


JobId = Annotated[str, Path(max_length=64, description="the job's id")]


class JobsQuery(PageQuery):
    """One page of jobs."""

    state: JobState | None = Field(None, description="only jobs in this state")


EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "one server-sent event; `data` is JSON",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data", "retry")},
}
LOOK_S = 1.0
LOOKS_A_HEARTBEAT = 10


async def _stream_seat(services: InServices) -> AsyncIterator[None]:
    """A seat of one stream, until its answer has ended, begun or not."""
    with services.streams.slot():
        yield


def _visible_job(request: Request, services: Services, job_id: str) -> JobOut:
    """The job, if who asks may see it."""
    if not may(request, "train"):
        raise Forbidden("the key lacks the scope this needs: 'train'", scope="train")
    job = services.queue.get(job_id)
    if not may(request, "train", job.model):
        raise unknown_job(job_id)
    return job


@router.post("/jobs", status_code=202)
@needs(
    "train",
)
def submit_job(
    http: Request,
    services: InServices,
    response: Response,
    request: JobRequest,
    idempotency_key: Annotated[
        str | None,
        Header(
            min_length=1,
            max_length=200,
            pattern=KEY_TEXT,
            description="a repeated request with the same key and body returns the same job",
        ),
    ] = None,
) -> JobOut:
    """Queue a training job; a worker fits, calibrates, evaluates, registers and (with `promote`) promotes."""
    check_may(http, "train", name_of(request.model))
    for ref in (request.dataset, request.unlabelled, request.evaluation.strangers):
        if ref is not None:
            check_may(http, "train", name_of(ref), unknown=UnknownDataset)
    # `TrainingQueue` in training/validation.py checks the request and queues it in one transaction.
    job = services.queue.submit(request, idempotency_key, names_of(http).resources("train"))
    response.headers["Location"] = f"/jobs/{job.id}"
    return job


@router.get("/jobs")
@needs("any")
def list_jobs(request: Request, services: InServices, query: Annotated[JobsQuery, Query()]) -> Page[JobOut]:
    """Jobs that the key may submit, newest first."""
    return services.queue.page(
        limit=query.limit,
        cursor=query.cursor,
        state=query.state,
        models=names_of(request).resources("train"),
    )


@router.get("/jobs/{job_id}")
@needs("any")
def get_job(request: Request, services: InServices, job_id: JobId) -> JobOut:
    """A job with its state, progress and attempts."""
    job = _visible_job(request, services, job_id)
    if job.state == "succeeded":
        # Whoever reads this may ask for the new version next.
        services.runtime.catalogue.expire()
    return job


@router.post("/jobs/{job_id}/cancel", status_code=202)
@needs("any")
def cancel_job(request: Request, services: InServices, job_id: JobId) -> JobOut:
    """Cancel a job. A waiting job ends at once; a running one is stopped and registers nothing.

    Needs the scope that submitting needs: `train`.
    """
    _visible_job(request, services, job_id)
    return services.queue.cancel(job_id)


@router.get(
    "/jobs/{job_id}/events",
    summary="Follow job events",
    response_class=Response,
    responses=content("text/event-stream", schema=EVENT),
    dependencies=[Depends(_stream_seat)],
)
@needs("any", limits=LONG)
async def job_events(
    request: Request,
    services: InServices,
    job_id: JobId,
    last_event_id: Annotated[str | None, Header(description="resume after this event")] = None,
) -> StreamingResponse:
    """Follow a job as server-sent events; the stream ends after `done`.

    Every event has an id. A client that reconnects with `Last-Event-ID` misses no event.
    """
    after = int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
    # Unknown jobs are refused before the stream starts; afterwards there is no status left to send.
    job = await asyncio.to_thread(_visible_job, request, services, job_id)
    return StreamingResponse(
        _follow(request.app.state.closing, services, job, min(after, 2**62)),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _follow(
    closing: asyncio.Event, services: Services, job: JobOut, after: int
) -> AsyncIterator[bytes]:
    yield b"retry: 1000\n\n"
    for look in count(1):
        try:
            events = await asyncio.to_thread(services.queue.events, job.id, after)
        except UnknownJob:
            return
        if events:
            is_over = events[-1].event == "done"
            if is_over:
                services.runtime.catalogue.expire()
            # In one piece: each costs the event loop as much as a score.
            yield "".join(
                f"id: {event.id}\nevent: {event.event}\ndata: {json.dumps(event.data)}\n\n"
                for event in events
            ).encode()
            after = events[-1].id
            if is_over:
                return
        if closing.is_set():
            return
        if len(events) < EVENTS_A_READ:
            if job.finished_at is not None:
                # Who asks has seen its last event.
                return
            if look % LOOKS_A_HEARTBEAT == 0:
                yield b": still here\n\n"
            with suppress(TimeoutError):
                await asyncio.wait_for(closing.wait(), LOOK_S)
