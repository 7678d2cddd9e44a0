"""The console's pages, rendered on the server over the public API.

Nothing comes from elsewhere, nothing is inline, and every value is escaped by the template engine."""

import asyncio
from functools import cache
from typing import Annotated, Any, Final, get_args
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import Field

from pairmark.schemas.base import QueryModel
from pairmark.schemas.jobs import JobState
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices, may
from pairmark.service.console.frame import (
    HEADERS,
    HERE,
    Api,
    CursorQuery,
    listing,
    page,
    percent,
    promise,
    sign_in,
)
from pairmark.service.names import PRODUCTION, split_ref

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)

ON_A_PAGE = 25
SHOWN = 8
LOOKED_AT = 50
MANY_UNLIKE = 0.05
"""A larger share of a day's rows that are unlike the calibration's is worth a look."""


@router.get("/")
@needs("any")
async def overview(request: Request) -> HTMLResponse:
    """The console's first page."""
    api = Api(request)
    model_list, running, queued, recent, galleries, ready = await asyncio.gather(
        api.get("/models", limit=LOOKED_AT),
        api.items("/jobs", state="running", limit=100),
        api.items("/jobs", state="queued", limit=100),
        api.items("/jobs", limit=SHOWN),
        api.items("/galleries", limit=100),
        api.get("/readyz"),
    )
    models = (model_list.body or {"items": []})["items"]
    serving = [
        (model, alias) for model in models for alias in model["aliases"] if alias["alias"] == PRODUCTION
    ]
    serving.sort(key=lambda pair: pair[1]["updated_at"], reverse=True)
    versions = await asyncio.gather(
        *(_serving_version(api, model, alias) for model, alias in serving[:SHOWN])
    )
    rows = [row for row in versions if row is not None]
    return page(
        request,
        "overview.html",
        rows=rows,
        n_serving=len(serving),
        more_models=bool(model_list.body and model_list.data.get("next_cursor")),
        n_models=len(models),
        jobs={"running": running, "queued": queued},
        recent=recent,
        galleries=galleries,
        workers=(ready.body or {}).get("workers"),
        attention=_attention(rows, models, recent, ready.data, trains=may(request, "train")),
    )


async def _serving_version(api: Api, model: dict[str, Any], alias: dict[str, Any]) -> dict[str, Any] | None:
    """What the first page shows of a version in production; None where it cannot be read."""
    base = f"/models/{model['name']}/versions/{alias['version']}"
    version = (await api.get(base)).body
    if version is None:
        return None
    promise_of_version, inputs, board = await asyncio.gather(
        promise(api, version), api.get(f"{base}/inputs"), api.get(f"{base}/leaderboard")
    )
    return {
        "version": version,
        "promise": promise_of_version,
        "inputs": inputs.body,
        "leaderboard": board.body,
    }


def _attention(
    rows: list[dict[str, Any]],
    models: list[dict[str, Any]],
    recent: list[dict[str, Any]],
    ready: dict[str, Any] | None,
    *,
    trains: bool,
) -> list[dict[str, str]]:
    """What somebody should look at, worst first: each with a level, words and an address."""
    notes: list[dict[str, str]] = []

    def note(level: str, tag: str, words: str, href: str) -> None:
        notes.append({"level": level, "tag": tag, "words": words, "href": href})

    for words in (ready or {}).get("warnings", ()):
        note("bad", "service", f"{words[:1].upper()}{words[1:]}", "/console/jobs")
    for row in rows:
        version: dict[str, Any] = row["version"]
        name = f"{version['model']}:{version['version']}"
        promise_of_version, inputs = row["promise"], row["inputs"]
        href = f"/console/models/{version['model']}/{version['version']}"
        if inputs is not None and inputs["moved"] is not None:
            note(
                "bad",
                "inputs",
                f"{name}: {inputs['moved']}. Nothing is guaranteed until it is calibrated on recent people.",
                href,
            )
        elif inputs is not None and inputs["today"]["unlike"] > MANY_UNLIKE * inputs["today"]["all"]:
            words = "{unlike} of {all} rows today are unlike those who calibrated.".format_map(
                inputs["today"]
            )
            note("warn", "inputs", f"{name}: {words}", href)
        board = row["leaderboard"]
        if board is not None and board.get("beaten"):
            note(
                "warn",
                "beaten",
                f"{name}: {board.get('verdict') or 'a baseline does better'}.",
                f"{href}#leaderboard-title",
            )
        if promise_of_version is None or promise_of_version["refusal"] is None:
            continue
        point = promise_of_version["point"]
        if point is None:
            note("bad", "no guarantee", f"{name} is in production and {promise_of_version['refusal']}.", href)
        elif point["guarantee"] == "none":
            note("warn", "no guarantee", f"{name}: {point['meaning']}", href)
        else:
            words = (
                f"{name} cannot guarantee {percent(promise_of_version['fpr'])}: its calibration supports "
                f"{percent(point['fpr'])} and above."
            )
            note("warn", "few people", words, href)
    for job in recent:
        if job["state"] == "failed":
            detail = (job["error"] or {}).get("detail", "")
            note("bad", "job failed", f"{job['model']}: {detail}", f"/console/jobs/{job['id']}")
    for model in models if trains else []:
        if not model["aliases"] and len(notes) < 20:
            words = f"{model['name']} has no version in production."
            note("warn", "not serving", words, f"/console/models/{model['name']}")
    return sorted(notes, key=lambda entry: entry["level"] != "bad")[:8]


class FindQuery(CursorQuery):
    """Which models."""

    contains: str | None = Field(None, max_length=100)


@router.get("/console/models")
@needs("any")
async def models_page(request: Request, query: Annotated[FindQuery, Query()]) -> HTMLResponse:
    """Models by name, found by a part of it."""
    models = await Api(request).need("/models", limit=ON_A_PAGE, **query.model_dump())
    for model in models["items"]:
        production = _production(model)
        number = production or model["latest_version"]
        model["production"] = production
        model["shown"] = next(
            (version for version in model["versions"] if version["version"] == number), model["versions"][0]
        )
    return page(request, "models.html", **listing(models, query), contains=query.contains or "")


@router.get("/console/models/{name:name}")
@needs("any")
async def model_page(request: Request, name: str) -> HTMLResponse:
    """The version that serves, else the newest."""
    model = await Api(request).need(f"/models/{name}")
    return await _version_page(request, model, _production(model) or model["latest_version"])


@router.get("/console/models/{name:name}/{version}")
@needs("any")
async def version_page(request: Request, name: str, version: int) -> HTMLResponse:
    return await _version_page(request, await Api(request).need(f"/models/{name}"), version)


def _production(model: dict[str, Any]) -> int | None:
    """The version that serves."""
    return next((alias["version"] for alias in model["aliases"] if alias["alias"] == "production"), None)


async def _version_page(request: Request, model: dict[str, Any], number: int) -> HTMLResponse:
    api, name = Api(request), model["name"]
    base = f"/models/{name}/versions/{number}"
    version = await api.need(base)
    promise_of_version = await promise(api, version)
    history, inputs, leaderboard, misses, alarms = await asyncio.gather(
        api.items(f"/models/{name}/aliases/production/history", limit=20),
        api.get(f"{base}/inputs"),
        api.get(f"{base}/leaderboard"),
        api.get(f"{base}/errors", kind="false-non-match", limit=8),
        api.get(f"{base}/errors", kind="false-match", limit=8),
    )
    return page(
        request,
        "version.html",
        model=model,
        version=version,
        promise=promise_of_version,
        production=next((alias for alias in model["aliases"] if alias["alias"] == "production"), None),
        roll_back_to=history[0]["previous"] if history else None,
        history=history,
        inputs=inputs.body,
        leaderboard=leaderboard.body,
        misses=misses.body,
        alarms=alarms.body,
        metrics=_metrics(version["metrics"]),
        base_url=str(request.base_url).rstrip("/"),
    )


def _metrics(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures with an interval, named for people."""
    words = {
        "auc": "AUC",
        "eer": "Equal error rate",
        "f1": "F1",
        "kendall_tau": "Kendall tau",
        "constant_kendall_tau": "Kendall tau of one ranking for all",
    }
    rows = []
    for name, value in metrics.items():
        if isinstance(value, dict) and isinstance(value.get("value"), int | float):
            label = words.get(name, name.replace("_", " ").capitalize())
            rows.append({"label": label, "share": "tau" not in name, **value})
        elif name == "tpr_at_fpr" and isinstance(value, dict):
            for rate, estimate in value.items():
                if isinstance(estimate, dict) and isinstance(estimate.get("value"), int | float):
                    label = f"Recognized at {100 * float(rate):.3g}\u00a0% FPR"
                    rows.append({"label": label, "share": True, **estimate})
    return rows


class ItemsPageQuery(CursorQuery):
    """Which items."""

    subject: str | None = Field(None, max_length=512)


@router.get("/console/galleries")
@needs("any")
async def galleries_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
    """Galleries by name."""
    api = Api(request)
    galleries = await api.need("/galleries", limit=ON_A_PAGE, cursor=query.cursor)
    able = [
        model["name"]
        for model in await api.items("/models", limit=ON_A_PAGE)
        if any(
            "search" in version["capabilities"] and "production" in version["aliases"]
            for version in model["versions"]
        )
    ]
    return page(request, "galleries.html", **listing(galleries, query), models=able)


@router.get("/console/galleries/{name:name}")
@needs("any")
async def show_gallery(
    request: Request, name: str, query: Annotated[ItemsPageQuery, Query()]
) -> HTMLResponse:
    """One gallery with its items."""
    api = Api(request)
    gallery, items = await asyncio.gather(
        api.need(f"/galleries/{name}"),
        api.need(f"/galleries/{name}/items", limit=ON_A_PAGE, **query.model_dump()),
    )
    calibration = gallery["calibration"]
    return page(
        request,
        "gallery.html",
        gallery=gallery,
        calibration=calibration and (await api.get(f"/galleries/{name}/calibrations/{calibration}")).body,
        datasets=await api.items("/datasets", limit=100),
        **listing(items, query),
        subject=query.subject or "",
    )


@router.get("/console/reviews")
@needs("any")
async def reviews_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
    """Reviews, newest first."""
    api = Api(request)
    reviews = await api.need("/reviews", limit=ON_A_PAGE, cursor=query.cursor)
    models = await api.items("/models", limit=100)
    reviewable = [model["name"] for model in models if model["policy"]["reviews"] is not None]
    return page(request, "reviews.html", **listing(reviews, query), models=reviewable)


@router.get("/console/reviews/{review_id}")
@needs("any")
async def show_review(request: Request, services: InServices, review_id: str) -> HTMLResponse:
    """One review, with the pairs to judge."""
    images = services.settings.review_images
    review = await Api(request).need(f"/reviews/{review_id}")
    response = page(request, "review.html", review=review, images=images)
    if images:
        host = "{0.scheme}://{0.netloc}".format(urlsplit(images))
        response.headers["content-security-policy"] = HEADERS["content-security-policy"].replace(
            "img-src 'self'", f"img-src 'self' {host}"
        )
    return response


_NOT_ONWARD = ("expected_false_links", "frequencies", "missed_links", "recall")
"""What a link job that goes on from another one does not take."""


class LinksQuery(CursorQuery):
    """Which entities, and which two records side by side."""

    left: str | None = Field(None, max_length=512)
    right: str | None = Field(None, max_length=512)
    search: str | None = Field(None, max_length=200)


@router.get("/console/links")
@needs("any")
async def links_page(request: Request, query: Annotated[CursorQuery, Query()]) -> HTMLResponse:
    """Link jobs, newest first."""
    api = Api(request)
    links = await api.need("/links", limit=ON_A_PAGE, cursor=query.cursor)
    tables = [each["name"] for each in await api.items("/datasets", limit=100) if each["columns"]]
    return page(request, "links.html", **listing(links, query), tables=list(dict.fromkeys(tables)))


@router.get("/console/links/{link_id}")
@needs("any")
async def show_links(request: Request, link_id: str, query: Annotated[LinksQuery, Query()]) -> HTMLResponse:
    """One link job: what it found, its entities, and two records side by side."""
    api, path = Api(request), f"/links/{link_id}"
    links, job = await api.need(path), await api.need(f"/jobs/{link_id}")
    entities: dict[str, Any] = {"items": [], "next_cursor": None}
    found: list[dict[str, Any]] = []
    pair: dict[str, Any] | None = None
    evaluation = None
    asked = links["request"]
    onward = {name: value for name, value in asked.items() if name not in _NOT_ONWARD} | {"previous": link_id}
    for name in ("tables", "unique"):
        onward[name] = [each.partition(":")[0] for each in links[name]] or None
    higher = {name: value for name, value in asked.items() if name not in ("fpr", "expected_false_links")}
    if links["state"] == "succeeded":
        entities = await api.need(f"{path}/entities", limit=ON_A_PAGE, cursor=query.cursor)
        shown = {"sort": "doubt", "cells": "true", "search": query.search or None}
        found = await api.items(f"{path}/links", limit=ON_A_PAGE, **shown)
        evaluation = (await api.get(f"{path}/evaluation")).body
        if query.left is not None and query.right is not None:
            pair = await api.need(f"{path}/pair", left=query.left, right=query.right)
    return page(
        request,
        "link.html",
        linked=links,
        job=job,
        found=found,
        pair=pair,
        search=query.search or "",
        evaluation=evaluation,
        onward=onward,
        higher=higher,
        **listing(entities, query),
    )


SUGGESTED = 25
"""Models offered by name; any other can be typed."""
FIELDS_SHOWN = 40
"""Above this many features a form of one field each helps nobody; the vector is pasted."""


class TrainQuery(QueryModel):
    """What the form starts with."""

    dataset: str | None = Field(None, max_length=200)
    model: str | None = Field(None, max_length=100)
    learner: str | None = Field(None, max_length=100)
    params: str | None = Field(None, max_length=4000, description="JSON of parameters to start with")


class TryQuery(QueryModel):
    """Which model, and perhaps which rows of which dataset."""

    model: str | None = Field(None, max_length=200)
    dataset: str | None = Field(None, max_length=200)
    left: int | None = Field(None, ge=0, lt=2**53)
    right: int | None = Field(None, ge=0, lt=2**53)


@router.get("/console/train")
@needs("any")
async def train_page(request: Request, query: Annotated[TrainQuery, Query()]) -> HTMLResponse:
    """The form that ends in a training job."""
    api = Api(request)
    datasets = (await api.need("/datasets", limit=100))["items"]
    learners = (await api.need("/learners"))["items"]
    return page(
        request,
        "train.html",
        status=200 if may(request, "train") else 403,
        datasets=datasets,
        learners=sorted(learners, key=lambda learner: not learner["kind"].endswith("-auto")),
        chosen=query,
    )


@router.get("/console/try")
@needs("any")
async def try_page(request: Request, query: Annotated[TryQuery, Query()]) -> HTMLResponse:
    """A form for what the chosen model can do: score and explain a pair, rank labels."""
    api = Api(request)
    choices = [
        f"{model['name']}:{alias['version']}"
        for model in (await api.need("/models", limit=SUGGESTED))["items"]
        for alias in model["aliases"]
        if alias["alias"] == PRODUCTION
    ]
    ref = query.model or (choices[0] if choices else None)
    version: dict[str, Any] | None = None
    if ref is not None:
        name, mark, number = split_ref(ref)
        if mark != ":":
            alias = await api.get(f"/models/{name}/aliases/{number or PRODUCTION}")
            number = str(alias.data["version"]) if alias.ok else "1"
        version = await api.need(f"/models/{name}/versions/{number}")
        ref = f"{name}:{number}"
    return page(
        request,
        "try.html",
        choices=choices,
        chosen=ref,
        version=version,
        query=query,
        datasets=await api.items("/datasets", limit=100) if may(request, "train") else [],
        fields=_fields(version),
    )


def _fields(version: dict[str, Any] | None) -> list[str]:
    """The features of a form; none where there are too many."""
    if version is None or version["n_features"] > FIELDS_SHOWN:
        return []
    return version["feature_names"] or [f"x{at}" for at in range(version["n_features"])]


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
    return page(request, "job.html", job=job, may_cancel=may(request, "train"))


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
    return page(request, "audit.html", **listing(entries, query), query=query)


@router.get("/console/keys")
@needs("any")
async def keys_page(request: Request) -> HTMLResponse:
    """API keys: what each may do, since when and until when."""
    keys = (await Api(request).need("/keys", limit=200))["items"]
    return page(request, "keys.html", keys=keys, tenants=any(key.get("tenant") for key in keys))


@router.get("/docs", response_class=HTMLResponse)
@needs("any")
async def reference(request: Request) -> HTMLResponse:
    """Every request of the API with its parameters, bodies and answers, and a form to try it."""
    return page(request, "docs.html")


@router.get("/static/{file:path}", response_class=Response)
@needs("open")
async def static_file(request: Request, file: str) -> Response:
    """A style sheet, script or picture of the pages."""
    return await _static().get_response(file, request.scope)


@cache
def _static() -> StaticFiles:
    return StaticFiles(directory=HERE / "static")


ROUTERS: Final = (router, sign_in)
