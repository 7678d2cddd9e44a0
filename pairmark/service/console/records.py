"""What the API lists: jobs, datasets, keys, and audit entries."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.schemas.jobs import JobState
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import CursorQuery, listing, page

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


ON_A_PAGE = 25


class StateQuery(CursorQuery):
    """Which jobs."""

    state: JobState | None = None


class AuditPageQuery(CursorQuery):
    """Which entries."""

    actor: str | None = Field(None, max_length=200)
    action: str | None = Field(None, max_length=64)
    resource: str | None = Field(None, max_length=400)


@router.get("/console/jobs")
@needs("any")
async def jobs_page(request: Request, query: Annotated[StateQuery, Query()]) -> HTMLResponse:
    """Jobs, newest first."""
    jobs = await Api(request).need("/jobs", limit=ON_A_PAGE, **query.model_dump())
    return page(
        request, "jobs.html", **listing(jobs, query), state=query.state or "", states=get_args(JobState)
    )


@router.get("/console/jobs/{job_id}")
@needs("any")
async def show_job(request: Request, job_id: str) -> HTMLResponse:
    """One job: its progress, its attempts, and what it made or why it failed."""
    job = await Api(request).need(f"/jobs/{job_id}")
    cancels = may(request, "train" if job["gallery"] is None else "gallery")
    return page(request, "job.html", job=job, may_cancel=cancels)


@router.get("/console/datasets")
@needs("any")
async def datasets_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
    """Every stored version, newest first."""
    datasets = await Api(request).need("/datasets", limit=ON_A_PAGE, cursor=query.cursor)
    return page(request, "datasets.html", **listing(datasets, query))


@router.get("/console/datasets/{ref:name}")
@needs("any")
async def show_dataset(request: Request, ref: str) -> HTMLResponse:
    """One version of a dataset."""
    return page(request, "dataset.html", dataset=await Api(request).need(f"/datasets/{ref}"))


@router.get("/console/audit")
@needs("any")
async def audit_page(request: Request, query: Annotated[AuditPageQuery, Query()]) -> HTMLResponse:
    """Every change: who did what to what, newest first."""
    entries = await Api(request).need("/audit", limit=50, **query.model_dump())
    return page(request, "audit.html", **listing(entries, query), asked=query)


@router.get("/console/keys")
@needs("any")
async def keys_page(request: Request) -> HTMLResponse:
    """API keys: what each may do, since when and until when."""
    keys = (await Api(request).need("/keys", limit=200))["items"]
    tenants = any(key.get("tenant") for key in keys)
    return page(request, "keys.html", keys=keys, tenants=tenants)
