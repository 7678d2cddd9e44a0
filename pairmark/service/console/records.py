"""What the API lists: jobs, datasets, keys, audit entries and settings."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY
from pairmark.service.api.routing import Route
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import CursorQuery, listing, page
from pairmark.wire.jobs import JobState

ON_A_PAGE = 25


class StateQuery(CursorQuery):
    """Which jobs."""

    state: JobState | None = None


class AuditPageQuery(CursorQuery):
    """Which entries."""

    actor: str | None = Field(None, max_length=200)
    action: str | None = Field(None, max_length=64)
    resource: str | None = Field(None, max_length=400)


async def jobs_page(request: Request, query: Annotated[StateQuery, FROM_QUERY]) -> HTMLResponse:
    """Jobs, newest first."""
    jobs = await Api(request).need("/jobs", limit=ON_A_PAGE, **query.model_dump())
    return page(
        request, "jobs.html", **listing(jobs, query), state=query.state or "", states=get_args(JobState)
    )


async def show_job(request: Request, job_id: str) -> HTMLResponse:
    """One job: its progress, its attempts, and what it made or why it failed."""
    job = await Api(request).need(f"/jobs/{job_id}")
    cancels = may(request, "train" if job["gallery"] is None else "gallery")
    return page(request, "job.html", job=job, may_cancel=cancels)


async def datasets_page(request: Request, query: Annotated[CursorQuery, FROM_QUERY]) -> HTMLResponse:
    """Every stored version, newest first."""
    datasets = await Api(request).need("/datasets", limit=ON_A_PAGE, cursor=query.cursor)
    return page(request, "datasets.html", **listing(datasets, query))


async def show_dataset(request: Request, ref: str) -> HTMLResponse:
    """One version of a dataset."""
    return page(request, "dataset.html", dataset=await Api(request).need(f"/datasets/{ref}"))


async def label_pairs(request: Request, ref: str) -> HTMLResponse:
    """The queue of a table's pairs to label."""
    return page(request, "labelling.html", dataset=await Api(request).need(f"/datasets/{ref}"))


async def audit_page(request: Request, query: Annotated[AuditPageQuery, FROM_QUERY]) -> HTMLResponse:
    """Every change: who did what to what, newest first."""
    entries = await Api(request).need("/audit", limit=50, **query.model_dump())
    return page(request, "audit.html", **listing(entries, query), asked=query)


async def keys_page(request: Request) -> HTMLResponse:
    """API keys: what each may do, since when and until when."""
    keys = (await Api(request).need("/keys", limit=200))["items"]
    tenants = any(key.get("tenant") for key in keys)
    return page(request, "keys.html", keys=keys, tenants=tenants)


async def settings_page(request: Request) -> HTMLResponse:
    """The settings in force, those that were changed first."""
    return page(request, "settings.html", settings=(await Api(request).need("/settings"))["items"])


ROUTES = (
    Route("GET", "/console/jobs", jobs_page, access="any", query=StateQuery, gives="text/html"),
    Route("GET", "/console/jobs/{job_id}", show_job, access="any", gives="text/html"),
    Route("GET", "/console/datasets", datasets_page, access="any", query=CursorQuery, gives="text/html"),
    # Names may hold a slash, so what is more than a name comes first.
    Route("GET", "/console/datasets/{ref}/labelling", label_pairs, access="any", gives="text/html"),
    Route("GET", "/console/datasets/{ref}", show_dataset, access="any", gives="text/html"),
    Route("GET", "/console/audit", audit_page, access="any", query=AuditPageQuery, gives="text/html"),
    Route("GET", "/console/keys", keys_page, access="any", gives="text/html"),
    Route("GET", "/console/settings", settings_page, access="any", gives="text/html"),
)
