"""Models: versions, aliases, ROC, tree, reports, export and import."""

import asyncio
import base64
import hashlib
import re
from functools import cache
from pathlib import Path as FilePath
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, File, Form, Header, Path, Query, Request, Response, UploadFile
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from pydantic import BeforeValidator, Field

from pairmark.models.calibration.guarantees import askable
from pairmark.models.evaluation.pairs import MEDIA_TYPES, draw_roc
from pairmark.schemas.base import Page, QueryModel
from pairmark.schemas.models import (
    AliasChangeOut,
    AliasOut,
    AliasRequest,
    CalibrationOut,
    CalibrationRequest,
    CompareQuery,
    ComparisonOut,
    ErrorsOut,
    EvaluationOut,
    InputsOut,
    LeaderboardOut,
    MeasureRequest,
    ModelOut,
    Policy,
    PrOut,
    ReportOut,
    RocOut,
    VersionOut,
    VersionSummary,
)
from pairmark.schemas.scoring import OperatingPointOut, ThreeWayParameters
from pairmark.service.api import metrics
from pairmark.service.api.access import LONG, UPLOAD
from pairmark.service.api.docs import with_code
from pairmark.service.api.routing import PICTURES, GuardedRoute, PageQuery, Paging, Picture, content, needs
from pairmark.service.api.services import Caller, InServices, Workspace, check_may, may, names_of
from pairmark.service.errors import InvalidInput, UnknownCalibration, UnknownDataset
from pairmark.service.names import MAX_NAME, MAX_VERSION, name_of
from pairmark.service.runtime.operating_points import Rate
from pairmark.service.runtime.versions import tree_data
from pairmark.service.store.reports import ErrorKind
from pairmark.service.store.versions import HARDEST, without_origin
from pairmark.version import code_version

router = APIRouter(tags=["models"], route_class=GuardedRoute)


Name = Annotated[str, Path(max_length=MAX_NAME, description="the model's name")]


def _digits(text: str) -> str:
    # Parsing alone would take " 1" and "1\n" for the version 1.
    if not text.isascii() or not text.isdigit():
        raise ValueError("expected the digits of a version's number")
    return text


Number = Annotated[
    int, Path(ge=1, le=MAX_VERSION, description="the version's number"), BeforeValidator(_digits)
]
AliasName = Annotated[
    str, Path(max_length=64, description="e.g. `production`, which a plain model name means")
]
IfMatch = Annotated[
    str | None,
    Header(max_length=100, description="the alias's last known ETag, or `*` if it only has to exist"),
]


class ModelsQuery(PageQuery):
    """One page of models."""

    contains: str | None = Field(
        None, max_length=100, description="only names that contain this text, in upper or lower case"
    )


class RocQuery(QueryModel):
    """How much of a curve."""

    points: int | None = Field(
        None,
        ge=2,
        le=100_000,
        description="largest number of points, those of a ROC mostly at low rates; default: all that are kept",
    )


class ErrorsQuery(QueryModel):
    """Which errors of a version."""

    kind: ErrorKind = Field(
        "false-match",
        description="`false-match`: negative pairs that match; `false-non-match`: positive pairs that do not",
    )
    fpr: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="only pairs that are wrong at the operating point of this rate; default: the hardest of all pairs",
    )
    limit: int = Field(50, ge=1, le=HARDEST, description="largest number of pairs in the answer")


class TreeQuery(QueryModel):
    """Which tree of a version."""

    tree: int = Field(0, ge=0, le=10_000, description="which tree of a forest, from 0")


@router.get("/models")
@needs("any")
def list_models(
    request: Request, services: InServices, query: Annotated[ModelsQuery, Query()]
) -> Page[ModelOut]:
    """Models that the key may see, by name, with their aliases and newest versions."""
    return services.store.page(
        limit=query.limit, cursor=query.cursor, contains=query.contains, names=names_of(request).models
    )


@router.post("/models", status_code=201)
@needs("import", limits=UPLOAD, renames=True)
async def import_model(
    http: Request,
    services: InServices,
    caller: Caller,
    response: Response,
    file: Annotated[UploadFile, File(description="a file from `GET .../export`")],
    name: Annotated[str | None, Form(description="register under this name instead of the file's")] = None,
    promote: Annotated[str | None, Form(description="alias that moves to the imported version")] = None,
) -> VersionOut:
    """Register an exported version. It is first loaded and tried in a separate process."""

    allowed = names_of(http).resources("import")
    if not allowed.everything:
        # The file may name another model than the key is for.
        if allowed.prefix and not name:
            raise InvalidInput("name: expected the name of a model that this key may import", field="name")
        check_may(http, "import", name or "the name in the file")

    def work() -> VersionOut:
        model, version = services.store.import_file(
            file.file, actor=caller, name=name or None, promote=promote or None
        )
        return services.store.version(model, version)

    imported = await services.runtime.batch_place.run(work)
    response.headers["Location"] = f"/models/{imported.model}/versions/{imported.version}"
    return imported


@router.get("/models/{name:name}")
@needs("model")
def get_model(services: InServices, name: Name) -> ModelOut:
    """A model with its aliases and newest versions."""
    return services.store.model(name)


@router.put("/models/{name:name}/policy")
@needs("train", renames=True)
def set_policy(services: InServices, name: Name, request: Policy) -> Policy:
    """Set whether `/match` may answer by the bootstrap when the finite-sample method refuses."""
    return services.store.set_policy(name, request)


@router.get("/models/{name:name}/versions")
@needs("model")
def list_versions(services: InServices, name: Name, query: Paging) -> Page[VersionSummary]:
    """A model's versions, newest first."""
    return services.store.versions(name, limit=query.limit, cursor=query.cursor)


@router.get("/models/{name:name}/versions/{version}")
@needs("model")
def get_version(http: Request, services: InServices, name: Name, version: Number) -> VersionOut:
    """A version: parameters, capabilities, metrics with intervals, lineage and calibrations.

    Keys without the scope `train` on the model do not see its dataset and job.
    """
    out = _visible(http, services.store.version(name, version))
    return out.model_copy(update={"reviews": services.reviews.statements_of_version(name, version)})


def _visible(http: Request, version: VersionOut) -> VersionOut:
    """A version as the key may see it."""
    origin = version.lineage.dataset
    origin_visible = origin is None or name_of(origin) in names_of(http).visible
    return version if origin_visible and may(http, "train", version.model) else without_origin(version)


@router.delete("/models/{name:name}/versions/{version}", status_code=204)
@needs("admin", renames=True)
def delete_version(services: InServices, name: Name, version: Number) -> None:
    """Delete a version with its calibrations; refused while an alias points to it."""
    services.store.delete(name, version)


@router.get("/models/{name:name}/versions/{version}/roc", summary="Get ROC curve")
@needs("scores")
def get_roc(services: InServices, name: Name, version: Number, query: Annotated[RocQuery, Query()]) -> RocOut:
    """The ROC on held-out pairs."""
    return services.store.reports.roc(name, version, query.points)


@router.get("/models/{name:name}/versions/{version}/pr", summary="Get precision and recall")
@needs("scores")
def get_pr(services: InServices, name: Name, version: Number, query: Annotated[RocQuery, Query()]) -> PrOut:
    """Precision and recall on held-out pairs, of a version trained on records."""
    return services.store.reports.pr(name, version, query.points)


@router.get("/models/{name:name}/compare", summary="Compare two versions")
@needs("train")
async def compare(
    http: Request, services: InServices, name: Name, query: Annotated[CompareQuery, Query()]
) -> ComparisonOut:
    """Paired differences of two versions on people whom neither has seen, with intervals by people."""
    if query.dataset is not None:
        check_may(http, "train", name_of(query.dataset), unknown=UnknownDataset)
    first, second = (int(number) for number in query.versions.split(","))
    return await services.runtime.batch_place.run(
        lambda: services.store.reports.compare(name, first, second, fpr=query.fpr, dataset=query.dataset)
    )


@router.get("/models/{name:name}/versions/{version}/leaderboard")
@needs("model")
def get_leaderboard(services: InServices, name: Name, version: Number) -> LeaderboardOut:
    """The version, simple baselines and the candidates of cross-validation, all measured on the same held-out data."""
    return services.store.reports.leaderboard(name, version)


@router.get("/models/{name:name}/versions/{version}/errors", summary="List hardest pairs")
@needs("train")
def get_errors(
    services: InServices, name: Name, version: Number, query: Annotated[ErrorsQuery, Query()]
) -> ErrorsOut:
    """The hardest held-out pairs, as rows of the dataset. With `fpr`, only those that are wrong at that rate."""
    return services.store.reports.errors(name, version, kind=query.kind, fpr=query.fpr, limit=query.limit)


@router.get(
    "/models/{name:name}/versions/{version}/report",
    response_model=ReportOut,
    responses={200: {"content": {"text/html": {"schema": {"type": "string"}}}}},
)
@needs("scores")
async def get_report(
    request: Request, services: InServices, name: Name, version: Number
) -> ReportOut | Response:
    """A version's report: guarantee, error rates, and limits.

    The answer is JSON or, with `Accept: text/html`, one self-contained page.
    """

    def work() -> Response:
        report = services.store.reports.report(_visible(request, services.store.version(name, version)))
        if "text/html" not in request.headers.get("accept", "").lower():
            # Written here: the framework would do it between other requests.
            return Response(report.model_dump_json(by_alias=True), media_type="application/json")
        page, policy = report_page(report)
        return HTMLResponse(page, headers={"content-security-policy": policy, "vary": "accept"})

    return await services.in_report_turn(work)


@router.get(
    "/models/{name:name}/versions/{version}/roc.{format}",
    summary="Draw ROC curve",
    response_class=Response,
    responses=PICTURES,
)
@needs("scores")
async def draw(services: InServices, name: Name, version: Number, format: Picture) -> Response:
    """The ROC on held-out pairs as a picture."""

    def work() -> bytes:
        curve = services.store.reports.roc(name, version).model_dump()
        return draw_roc(curve, format, f"{name}, version {version}")

    headers = {"cache-control": "private, max-age=3600"}
    return Response(await services.in_report_turn(work), media_type=MEDIA_TYPES[format], headers=headers)


@router.get("/models/{name:name}/versions/{version}/tree", response_model=dict[str, Any])
@needs("scores")
async def get_tree(
    services: InServices, name: Name, version: Number, query: Annotated[TreeQuery, Query()]
) -> Any:
    """A tree of the model, if it has trees: its cells with counts and rates, and their splits."""
    loaded_version = await services.runtime.version_for(f"{name}:{version}", None)
    return await asyncio.to_thread(tree_data, loaded_version, query.tree)


@router.get(
    "/models/{name:name}/versions/{version}/export",
    response_class=Response,
    responses=content("application/zip"),
)
@needs("train", limits=LONG)
def export_version(services: InServices, folder: Workspace, name: Name, version: Number) -> FileResponse:
    """A version as one file, with report and calibration, for `POST /models` of another service."""
    path = services.store.export(name, version, folder)
    services.audit.note("version.export", f"model:{name}:{version}", {"bytes": path.stat().st_size})
    filename = f"{name.replace('/', '-')}-{version}.zip"
    return FileResponse(path, media_type="application/zip", filename=filename)


@router.post(
    "/models/{name:name}/versions/{version}/calibrations", status_code=201, summary="Calibrate version"
)
@needs("train", renames=True)
async def calibrate(
    http: Request,
    services: InServices,
    response: Response,
    name: Name,
    version: Number,
    request: CalibrationRequest,
) -> CalibrationOut:
    """Calibrate a version on another dataset, without its training rows (open-set: its training identities)."""
    for ref in (request.dataset, request.strangers):
        if ref is not None:
            check_may(http, "train", name_of(ref), unknown=UnknownDataset)
    calibration = await services.runtime.batch_place.run(
        lambda: services.store.calibrations.calibrate(name, version, **request.model_dump())
    )
    response.headers["Location"] = f"/calibrations/{calibration.id}"
    return calibration


@router.post("/models/{name:name}/versions/{version}/evaluations", summary="Evaluate version")
@needs("train")
async def evaluate(
    http: Request, services: InServices, name: Name, version: Number, request: MeasureRequest
) -> EvaluationOut:
    """Measure a version on another dataset: its ROC, and the error rates at its thresholds. Nothing is stored."""
    check_may(http, "train", name_of(request.dataset), unknown=UnknownDataset)
    return await services.runtime.batch_place.run(
        lambda: services.store.reports.evaluate(name, version, **request.model_dump())
    )


@router.get("/models/{name:name}/aliases/{alias}")
@needs("model")
def get_alias(services: InServices, response: Response, name: Name, alias: AliasName) -> AliasOut:
    """The version that an alias points to. Send its ETag as `If-Match` when you move it."""
    row = services.store.alias(name, alias)
    response.headers["ETag"] = f'"{row.revision}"'
    return row


@router.put("/models/{name:name}/aliases/{alias}")
@needs("train", renames=True)
def move_alias(
    services: InServices,
    caller: Caller,
    response: Response,
    name: Name,
    alias: AliasName,
    request: AliasRequest,
    if_match: IfMatch = None,
) -> AliasOut:
    """Point an alias to a version, to promote or roll back. With `If-Match`, only if it has not moved since."""
    target = services.store.promote(
        name,
        alias,
        request.version,
        actor=caller,
        if_match=_revisions(if_match),
        reason=(request.reason or "").strip() or None,
    )
    response.headers["ETag"] = f'"{target.revision}"'
    return target


@router.get("/models/{name:name}/aliases/{alias}/history", summary="List alias history")
@needs("model")
def alias_history(services: InServices, name: Name, alias: AliasName, query: Paging) -> Page[AliasChangeOut]:
    """Every move of an alias, newest first."""
    return services.store.history(name, alias, limit=query.limit, cursor=query.cursor)


def _revisions(if_match: str | None) -> frozenset[int] | Literal["*"] | None:
    """The revisions that ETags name; one of something else names none, so that nothing is at it."""
    if if_match is None:
        return None
    if if_match.strip() == "*":
        return "*"
    tags = [re.fullmatch(r'"?([0-9]{1,9})"?', tag.strip()) for tag in if_match.split(",")]
    return frozenset(int(tag[1]) for tag in tags if tag is not None)


@router.get("/models/{name:name}/versions/{version}/operating-point", response_model=OperatingPointOut)
@needs("scores")
async def get_operating_point(
    services: InServices, name: Name, version: Number, query: Annotated[ThreeWayParameters, Query()]
) -> JSONResponse:
    """The operating point that `/match` uses at a false positive rate, without scoring a pair."""
    out = await asyncio.to_thread(services.store.version, name, version)
    calibration_id = query.calibration or out.calibration_id
    if calibration_id is None or calibration_id not in {calibration.id for calibration in out.calibrations}:
        what = (
            "has no calibration" if calibration_id is None else f"has no calibration {calibration_id[:64]!r}"
        )
        raise UnknownCalibration(f"{name}:{version} {what}", field="calibration")
    rate = Rate(query.fpr, query.method, query.confidence, query.simultaneous, calibration_id, query.fnr)
    point = await services.runtime.operating_point(None, rate, shows_scores=True)
    # As it is: of single vectors a point says nothing of samples.
    return JSONResponse(point.public)


@router.get(
    "/models/{name:name}/versions/{version}/inputs", summary="Get inputs", response_model=InputsOut | None
)
@needs("scores")
def get_inputs(services: InServices, name: Name, version: Number) -> dict[str, Any] | None:
    """Rows compared with those of the calibration, over all serving processes; null before the first decision."""
    calibration = services.store.version(name, version).calibration_id
    metrics.publish_inputs(services.runtime.inputs.watches())
    totals, moved = metrics.inputs(name, version), services.runtime.moved(calibration)
    if totals is None and moved is None:
        return None
    counts = totals or {"rows": 0, "unlike": 0, "today": {"all": 0, "unlike": 0}}
    return counts | {"moved": None if moved is None else moved["detail"]}


_FOLDER: Final = FilePath(__file__).parent / "templates"


def report_page(report: ReportOut) -> tuple[str, str]:
    """The page, which is a whole file of its own, and its content security policy."""
    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; img-src data:; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    roc = None if report.roc is None else base64.b64encode(draw_roc(report.roc.model_dump(), "svg")).decode()
    metrics = report.version.metrics
    page = _template().render(
        report=report,
        version=report.version,
        metrics=metrics,
        roc=roc,
        contents=_contents(report),
        style=style,
        policy=policy,
        made_by=code_version(),
    )
    return page, policy


def _contents(report: ReportOut) -> list[tuple[str, str]]:
    sections = [
        ("version", "What this version is", True),
        ("data", "The data behind it", True),
        ("promise", "The guarantee", bool(report.promises)),
        ("errors", "Error rates", report.roc is not None),
        ("leaderboard", "Against simple alternatives", bool(report.leaderboard and report.leaderboard.items)),
        ("columns", "Records that lack columns", bool(report.columns)),
        ("limits", "Limits", True),
    ]
    return [(at, words) for at, words, there in sections if there]


@cache
def _style() -> str:
    return (_FOLDER / "report.css").read_text()


@cache
def _template() -> Any:
    # Imported here: most processes never make a page.
    import jinja2
    from markupsafe import Markup

    # The style stands in the page as it is: escaped, it would not have the digest that the policy names.
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True)
    environment.filters["raw"] = Markup
    environment.filters["askable"] = askable
    environment.filters["code"] = with_code
    return environment.get_template("report.html")
