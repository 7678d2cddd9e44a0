"""Links over HTTP: submit, watch, read, delete."""

from __future__ import annotations

from pathlib import Path as File
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.responses import FileResponse

from pairmark.schemas.jobs import JobOut
from pairmark.schemas.links import EntityPage, LinkPage, LinksOut, LinksPage, LinksRequest
from pairmark.service.api.routing import GuardedRoute, Paging, needs
from pairmark.service.api.services import InServices, Workspace, check_may, names_of
from pairmark.service.errors import UnknownDataset
from pairmark.service.links.linking import write_csv
from pairmark.service.names import name_of

router = APIRouter(tags=["links"], route_class=GuardedRoute)

LinksId = Annotated[str, Path(max_length=32, pattern="^[0-9a-f]+$", description="the link job's id")]
Accept = Annotated[
    str, Header(description="`text/csv` or `application/vnd.apache.parquet`: all of them as a file")
]
_PARQUET = "application/vnd.apache.parquet"
_FILES: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}} for kind in ("text/csv", _PARQUET)
        }
    }
}


@router.post("/links", status_code=202)
@needs(
    "train",
)
def submit_links(http: Request, services: InServices, response: Response, request: LinksRequest) -> JobOut:
    """Queue a job that finds a table's duplicates, or links two tables, without labels.

    Where matches cannot be told from strangers, the job fails and says which judgements would help.
    """
    for ref in (request.left, request.right):
        if ref is not None:
            check_may(http, "train", name_of(ref), unknown=UnknownDataset)
    job = services.links.submit(request)
    response.headers["Location"] = f"/links/{job.id}"
    return job


@router.get("/links")
@needs("train")
def list_links(http: Request, services: InServices, query: Paging) -> LinksPage:
    """Link jobs, newest first."""
    return services.links.page(query.limit, query.cursor, names_of(http).resources("train"))


@router.get("/links/{link_id}")
@needs("train")
def get_links(http: Request, services: InServices, link_id: LinksId) -> LinksOut:
    """A link job and what it found."""
    return services.links.get(link_id, names_of(http).resources("train"))


@router.get("/links/{link_id}/links", responses=_FILES, response_model=LinkPage)
@needs("train")
def list_links_found(
    http: Request,
    services: InServices,
    workspace: Workspace,
    link_id: LinksId,
    query: Paging,
    accept: Accept = "",
) -> LinkPage | Response:
    """Pairs of records that are linked, in the order of the left table's rows."""
    names = names_of(http).resources("train")
    if _PARQUET in accept:
        return FileResponse(services.links.file(link_id, names), media_type=_PARQUET)
    if "text/csv" in accept:
        return _csv(services.links.file(link_id, names), workspace)
    return services.links.links(link_id, query.limit, query.cursor, names)


@router.get("/links/{link_id}/entities")
@needs("train")
def list_entities(http: Request, services: InServices, link_id: LinksId, query: Paging) -> EntityPage:
    """Entities of two records or more, in the order of their ids."""
    return services.links.entities(link_id, query.limit, query.cursor, names_of(http).resources("train"))


@router.delete("/links/{link_id}", status_code=204)
@needs("train")
def delete_links(http: Request, services: InServices, link_id: LinksId) -> None:
    """Delete links; the tables and the job's history stay."""
    services.links.delete(link_id, names_of(http).resources("train"))


def _csv(file: File, workspace: File) -> Response:
    return FileResponse(write_csv(file, workspace / "links.csv"), media_type="text/csv")
