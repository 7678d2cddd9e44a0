"""Links over HTTP: submit, watch, read, delete."""

from pathlib import Path as File
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field

from pairmark.models.evaluation.pairs import MEDIA_TYPES
from pairmark.models.linking.evaluation import draw_cuts
from pairmark.schemas.base import Page, QueryModel
from pairmark.schemas.jobs import JobOut
from pairmark.schemas.links import (
    EntitiesEdit,
    EntityChange,
    EntityOut,
    LinkErasure,
    LinkEvaluation,
    LinkExplained,
    LinkOut,
    LinksErased,
    LinksOut,
    LinksRequest,
    LinksResolved,
    ResolveRequest,
)
from pairmark.service.api.routing import PICTURES, GuardedRoute, PageQuery, Paging, Picture, content, needs
from pairmark.service.api.services import InServices, Services, Workspace, check_may, names_of
from pairmark.service.errors import UnknownDataset
from pairmark.service.names import VisibleNames, name_of

router = APIRouter(tags=["links"], route_class=GuardedRoute)

LinksId = Annotated[str, Path(max_length=32, description="the link job's id")]
RecordId = Annotated[str, Path(max_length=512, description="a record's id")]
Accept = Annotated[
    str,
    Header(
        description="`text/csv` or `application/vnd.apache.parquet`: all of them as a file; in CSV, an id that a "
        "spreadsheet would take for a formula (it begins with =, +, - or @) begins with an apostrophe"
    ),
]


class LinksQuery(PageQuery):
    """Which links, and in which order."""

    sort: Literal["row", "doubt"] = Field(
        "row", description="`row`: in the order of the left table; `doubt`: those nearest to the cut first"
    )
    search: str | None = Field(
        None, min_length=1, max_length=200, description="a text in an id or a cell of either record"
    )
    cells: bool = Field(False, description="with the cells of both records")


class PairQuery(QueryModel):
    """Two records."""

    left: str = Field(max_length=512, description="id of the left record")
    right: str = Field(max_length=512, description="id of the right record")


_PARQUET = "application/vnd.apache.parquet"
_FILES = content("text/csv", _PARQUET)


@router.post("/links", status_code=202)
@needs(
    "train",
)
def submit_links(http: Request, services: InServices, response: Response, request: LinksRequest) -> JobOut:
    """Queue a job that finds a table's duplicates, or links several tables, without labels or by a trained model.

    The finished job opens a review of its links, whose judgements bound the share of them that is false. Where matches
    cannot be told from strangers, the job fails and says which review to judge.
    """
    for ref in (*request.datasets, *(request.frequencies or {}).values()):
        check_may(http, "train", name_of(ref), unknown=UnknownDataset)
    if request.model is not None:
        check_may(http, "train", name_of(request.model))
    job = services.links.submit(request, names_of(http).resources("train"))
    response.headers["Location"] = f"/links/{job.id}"
    return job


@router.get("/links")
@needs("train")
def list_links(http: Request, services: InServices, query: Paging) -> Page[LinksOut]:
    """Link jobs, newest first."""
    return services.links.page(query.limit, query.cursor, names_of(http).resources("train"))


@router.get("/links/{link_id}")
@needs("train")
def get_links(http: Request, services: InServices, link_id: LinksId) -> LinksOut:
    """A link job and what it found."""
    return services.links.get(link_id, names_of(http).resources("train"))


@router.get("/links/{link_id}/links", responses=_FILES, response_model=Page[LinkOut])
@needs("train")
def list_links_found(
    http: Request,
    services: InServices,
    workspace: Workspace,
    link_id: LinksId,
    query: Annotated[LinksQuery, Query()],
    accept: Accept = "",
) -> Page[LinkOut] | Response:
    """Pairs of records that are linked."""
    names = names_of(http).resources("train")
    file = _file(services, accept, link_id, names, "links", workspace)
    return file or services.links.list_links(link_id, names, **query.model_dump())


@router.get("/links/{link_id}/links/{left}/{right:path}")
@needs("train")
def explain_link(
    http: Request, services: InServices, link_id: LinksId, left: RecordId, right: RecordId
) -> LinkExplained:
    """Two records side by side: how far each column agrees, what that adds, and what was decided."""
    return services.links.explain(link_id, left, right, names_of(http).resources("train"))


@router.get("/links/{link_id}/pair", summary="Explain a pair by any ids")
@needs("train")
def explain_pair(
    http: Request, services: InServices, link_id: LinksId, query: Annotated[PairQuery, Query()]
) -> LinkExplained:
    """The same for ids that an address cannot hold, such as those with line breaks."""
    return services.links.explain(link_id, query.left, query.right, names_of(http).resources("train"))


@router.get("/links/{link_id}/entities", responses=_FILES, response_model=Page[EntityOut])
@needs("train")
def list_entities(
    http: Request,
    services: InServices,
    workspace: Workspace,
    link_id: LinksId,
    query: Paging,
    accept: Accept = "",
) -> Page[EntityOut] | Response:
    """Entities of two records or more, in the order of their first records; as a file, a row a record."""
    names = names_of(http).resources("train")
    file = _file(services, accept, link_id, names, "entities", workspace)
    return file or services.links.listed(Page[EntityOut], link_id, query.limit, query.cursor, names)


@router.post("/links/{link_id}/entities", summary="Merge or split entities")
@needs("train")
def edit_entities(http: Request, services: InServices, link_id: LinksId, request: EntitiesEdit) -> LinksOut:
    """Merge entities, or take records out of one. Jobs that go on from this one (`previous`) keep it."""
    return services.links.edit(link_id, request, names_of(http).resources("train"))


@router.post("/links/{link_id}/resolve", summary="Resolve a record")
@needs("train")
def resolve_record(
    http: Request, services: InServices, link_id: LinksId, request: ResolveRequest
) -> LinksResolved:
    """The entities that a new record may belong to, by the job's rules and the model that it fitted; with `add`, the
    record is kept."""
    return services.links.resolve(link_id, request, names_of(http).resources("train"))


@router.get("/links/{link_id}/evaluation", summary="Evaluate links")
@needs("train")
def evaluate_links(http: Request, services: InServices, link_id: LinksId) -> LinkEvaluation:
    """Precision, recall, F1 and B-cubed against the identities of the datasets, by cut, with intervals by entity."""
    return services.links.evaluation(link_id, names_of(http).resources("train"))


@router.get(
    "/links/{link_id}/evaluation.{format}",
    summary="Draw evaluation of links",
    response_class=Response,
    responses=PICTURES,
)
@needs("train")
async def draw_evaluation(http: Request, services: InServices, link_id: LinksId, format: Picture) -> Response:
    """Precision and recall by cut, with their intervals, as a picture."""
    names = names_of(http).resources("train")

    def work() -> bytes:
        evaluation = services.links.evaluation(link_id, names).model_dump()
        return draw_cuts(evaluation, format, f"links against {evaluation['basis']}")

    return Response(await services.in_report_turn(work), media_type=MEDIA_TYPES[format])


@router.get("/links/{link_id}/changes")
@needs("train")
def list_changes(http: Request, services: InServices, link_id: LinksId, query: Paging) -> Page[EntityChange]:
    """What joined, merged and split since the job that this one went on from, by entity."""
    names = names_of(http).resources("train")
    return services.links.listed(Page[EntityChange], link_id, query.limit, query.cursor, names)


@router.post("/links/{link_id}/erase", summary="Erase a record")
@needs("train")
def erase_record(http: Request, services: InServices, link_id: LinksId, request: LinkErasure) -> LinksErased:
    """Erase a record's links and cells, its place in entities, and what the review shows of it."""
    return services.links.erase(link_id, request.record, names_of(http).resources("train"))


@router.delete("/links/{link_id}", status_code=204)
@needs("train")
def delete_links(http: Request, services: InServices, link_id: LinksId) -> None:
    """Delete links with their review; the tables and the job's history stay."""
    services.links.delete(link_id, names_of(http).resources("train"))


def _file(
    services: Services, accept: str, link_id: str, names: VisibleNames, name: str, workspace: File
) -> Response | None:
    """All of a list, where a file was asked for."""
    kind = next((kind for kind in (_PARQUET, "text/csv") if kind in accept), None)
    if kind is None:
        return None
    out = workspace / f"{name}{'.parquet' if kind == _PARQUET else '.csv'}"
    services.links.write_list(link_id, names, name, out)
    return FileResponse(out, media_type=kind, filename=out.name)
