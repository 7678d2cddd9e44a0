"""Models, and one version of a model with its operating point."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.routing import GuardedRoute, QueryModel, needs
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import CursorQuery, listing, page
from pairmark.service.console.promises import promise

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


ON_A_PAGE = 25


class FindQuery(CursorQuery):
    """Which models."""

    contains: str | None = Field(None, max_length=100)


class HardestQuery(QueryModel):
    """How the hardest pairs are shown."""

    labels: bool = Field(False, description="with whose rows they are, which the audit log notes")


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
async def model_page(request: Request, name: str, query: Annotated[HardestQuery, Query()]) -> HTMLResponse:
    """The version that serves, else the newest."""
    model = await Api(request).need(f"/models/{name}")
    return await _version_page(request, model, _production(model) or model["latest_version"], query)


@router.get("/console/models/{name:name}/{version}")
@needs("any")
async def version_page(
    request: Request, name: str, version: int, query: Annotated[HardestQuery, Query()]
) -> HTMLResponse:
    return await _version_page(request, await Api(request).need(f"/models/{name}"), version, query)


def _production(model: dict[str, Any]) -> int | None:
    """The version that serves."""
    return next((alias["version"] for alias in model["aliases"] if alias["alias"] == "production"), None)


async def _labels(api: Api, *found: dict[str, Any] | None) -> dict[int, str]:
    """Row -> label of the pairs that were found; empty where the caller may not read rows."""
    numbers = {
        pair[side]
        for kind in found
        for pair in (kind or {"items": []})["items"]
        for side in ("left", "right")
    }
    dataset = next((kind["dataset"] for kind in found if kind and kind["items"]), None)
    if dataset is None:
        return {}
    rows = await api.items(f"/datasets/{dataset}/rows", rows=",".join(map(str, sorted(numbers))))
    return {row["row"]: row["label"] for row in rows if row["label"] is not None}


async def _version_page(
    request: Request, model: dict[str, Any], number: int, query: HardestQuery
) -> HTMLResponse:
    api, name = Api(request), model["name"]
    base = f"/models/{name}/versions/{number}"
    version = await api.need(base)
    promise_of_version = await promise(api, version)
    history, inputs, leaderboard, misses, alarms, roc = await asyncio.gather(
        api.items(f"/models/{name}/aliases/production/history", limit=20),
        api.get(f"{base}/inputs"),
        api.get(f"{base}/leaderboard"),
        api.get(f"{base}/errors", kind="false-non-match", limit=8),
        api.get(f"{base}/errors", kind="false-match", limit=8),
        api.get(f"{base}/roc", points=2),
    )
    production = next((alias for alias in model["aliases"] if alias["alias"] == "production"), None)
    return page(
        request,
        "version.html",
        model=model,
        version=version,
        promise=promise_of_version,
        production=production,
        roll_back_to=history[0]["previous"] if history else None,
        history=history,
        inputs=inputs.body,
        leaderboard=leaderboard.body,
        misses=misses.body,
        alarms=alarms.body,
        labels=await _labels(api, misses.body, alarms.body) if query.labels else None,
        groups=(roc.body or {}).get("groups"),
        metrics=_metrics(version["metrics"]),
        base_url=str(request.base_url).rstrip("/"),
    )


def _metrics(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Measures with an interval, named for people."""
    words = {
        "auc": "AUC",
        "eer": "Equal error rate",
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
                    label = f"Recognised at {100 * float(rate):.3g}\u00a0% FPR"
                    rows.append({"label": label, "share": True, **estimate})
    return rows
