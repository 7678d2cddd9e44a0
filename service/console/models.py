"""Models, and one version of a model with its operating point."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.routing import Route
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page, refused
from pairmark.service.console.promises import promise

AT = "/console/models"
ON_A_PAGE = 25


class FindQuery(Query):
    """Which models."""

    contains: str | None = Field(None, max_length=100)
    cursor: str | None = Field(None, max_length=1000)


async def models_page(request: Request, query: Annotated[FindQuery, FROM_QUERY]) -> HTMLResponse:
    """Models by name, found by a part of it."""
    answer = await Api(request).get("/models", limit=ON_A_PAGE, contains=query.contains, cursor=query.cursor)
    if not answer.ok:
        return refused(request, answer, AT)
    models = answer.data["items"]
    for model in models:
        production = next((one["version"] for one in model["aliases"] if one["alias"] == "production"), None)
        number = production or model["latest_version"]
        model["production"] = production
        model["shown"] = next(
            (one for one in model["versions"] if one["version"] == number), model["versions"][0]
        )
    return page(
        request,
        "models.html",
        at=AT,
        models=models,
        contains=query.contains or "",
        next_cursor=answer.data["next_cursor"],
        first=query.cursor is None,
    )


async def model_page(request: Request, name: str) -> HTMLResponse:
    """The version that serves, else the newest."""
    answer = await Api(request).get(f"/models/{name}")
    if not answer.ok:
        return refused(request, answer, AT)
    model = answer.data
    production = next((one["version"] for one in model["aliases"] if one["alias"] == "production"), None)
    return await _version_page(request, model, production or model["latest_version"])


async def version_page(request: Request, name: str, version: int) -> HTMLResponse:
    """One version."""
    answer = await Api(request).get(f"/models/{name}")
    if not answer.ok:
        return refused(request, answer, AT)
    return await _version_page(request, answer.data, version)


async def _version_page(request: Request, model: dict[str, Any], number: int) -> HTMLResponse:
    api, name = Api(request), model["name"]
    base = f"/models/{name}/versions/{number}"
    answer = await api.get(base)
    if not answer.ok:
        return refused(request, answer, AT)
    version = answer.data
    stated = await promise(api, version)
    history, live, leaderboard, misses, alarms, roc = await asyncio.gather(
        api.get(f"/models/{name}/aliases/production/history", limit=20),
        api.get(f"{base}/live"),
        api.get(f"{base}/leaderboard"),
        api.get(f"{base}/errors", kind="false-non-match", limit=8),
        api.get(f"{base}/errors", kind="false-match", limit=8),
        api.get(f"{base}/roc", points=2),
    )
    production = next((one for one in model["aliases"] if one["alias"] == "production"), None)
    previous = (history.found or {"items": []})["items"]
    return page(
        request,
        "version.html",
        at=AT,
        model=model,
        version=version,
        promise=stated,
        production=production,
        roll_back_to=previous[0]["previous"] if previous else None,
        history=previous,
        live=live.found,
        leaderboard=leaderboard.found,
        misses=misses.found,
        alarms=alarms.found,
        groups=(roc.found or {}).get("groups"),
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
    found = []
    for name, value in metrics.items():
        if isinstance(value, dict) and isinstance(value.get("value"), int | float):
            label = words.get(name, name.replace("_", " ").capitalize())
            found.append({"label": label, "share": "tau" not in name, **value})
        elif name == "tpr_at_fpr" and isinstance(value, dict):
            for rate, seen in value.items():
                if isinstance(seen, dict) and isinstance(seen.get("value"), int | float):
                    label = f"Recognised at {100 * float(rate):.3g}\u00a0% FPR"
                    found.append({"label": label, "share": True, **seen})
    return found


ROUTES = (
    Route("GET", AT, models_page, access="any", query=FindQuery, gives="text/html"),
    Route("GET", "/console/models/{name}", model_page, access="any", gives="text/html"),
    Route("GET", "/console/models/{name}/{version}", version_page, access="any", gives="text/html"),
)
