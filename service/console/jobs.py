"""Jobs, and one job while it runs and after."""

from __future__ import annotations

from typing import Annotated

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused
from pairmark.service.jobs.schemas import JobState

AT = "/console/jobs"
ON_A_PAGE = 25
STATES = ("queued", "running", "succeeded", "failed", "cancelled")


class StateQuery(Query):
    """Which jobs."""

    state: JobState | None = None
    cursor: str | None = Field(None, max_length=1000)


async def jobs_page(request: Request, query: Annotated[StateQuery, FROM_QUERY]) -> HTMLResponse:
    """Jobs, newest first."""
    answer = await Api(request).get("/jobs", limit=ON_A_PAGE, state=query.state, cursor=query.cursor)
    if not answer.ok:
        return refused(request, answer, AT)
    return page(
        request,
        "jobs.html",
        at=AT,
        jobs=answer.data["items"],
        next_cursor=answer.data["next_cursor"],
        first=query.cursor is None,
        state=query.state or "",
        states=STATES,
    )


async def show_job(request: Request, job_id: str) -> HTMLResponse:
    """One job: its progress, its attempts, and what it made or why it failed."""
    answer = await Api(request).get(f"/jobs/{job_id}")
    if not answer.ok:
        return refused(request, answer, AT)
    job = answer.data
    cancels = may(request, "train") if job["gallery"] is None else may(request, "gallery")
    return page(request, "job.html", at=AT, job=job, may_cancel=cancels)


ROUTES = (
    Route("GET", AT, jobs_page, access="any", query=StateQuery, gives="text/html"),
    Route("GET", "/console/jobs/{job_id}", show_job, access="any", gives="text/html"),
)
