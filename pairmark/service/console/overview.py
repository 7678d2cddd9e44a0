"""The first page: production versions with their guarantees, running jobs, and warnings."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import may
from pairmark.service.console.ask import Api
from pairmark.service.console.frame import page
from pairmark.service.console.promises import promise

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


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
        (model, alias) for model in models for alias in model["aliases"] if alias["alias"] == "production"
    ]
    serving.sort(key=lambda pair: pair[1]["updated_at"], reverse=True)
    versions = [
        answer.data
        for answer in await api.each(
            *(f"/models/{model['name']}/versions/{alias['version']}" for model, alias in serving[:SHOWN])
        )
        if answer.ok
    ]
    promised = await asyncio.gather(*(promise(api, version) for version in versions))
    inputs = await api.each(
        *(f"/models/{entry['model']}/versions/{entry['version']}/inputs" for entry in versions)
    )
    boards = await api.each(
        *(f"/models/{entry['model']}/versions/{entry['version']}/leaderboard" for entry in versions)
    )
    rows = [
        {
            "version": version,
            "promise": promise_of_version,
            "inputs": inputs_answer.body,
            "leaderboard": board.body,
        }
        for version, promise_of_version, inputs_answer, board in zip(
            versions, promised, inputs, boards, strict=True
        )
    ]
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
        name, promise_of_version, inputs = (
            f"{version['model']}:{version['version']}",
            row["promise"],
            row["inputs"],
        )
        href = f"/console/models/{version['model']}/{version['version']}"
        if inputs is not None and inputs["moved"] is not None:
            words = (
                f"{name}: {inputs['moved']}. Nothing is guaranteed until it is calibrated on recent people."
            )
            note("bad", "inputs", words, href)
        elif inputs is not None and inputs["today"]["unlike"] > MANY_UNLIKE * inputs["today"]["all"]:
            counts = inputs["today"]
            words = (
                f"{name}: {counts['unlike']} of {counts['all']} rows today are unlike those who calibrated."
            )
            note("warn", "inputs", words, href)
        board = row["leaderboard"]
        if board is not None and board.get("beaten"):
            note(
                "warn",
                "beaten",
                f"{name}: {board.get('verdict') or 'a baseline does better'}.",
                f"{href}#leaderboard-title",
            )
        if promise_of_version is not None and promise_of_version.point is None:
            note("bad", "no promise", f"{name} is in production and {promise_of_version.refusal}.", href)
        elif (
            promise_of_version is not None
            and promise_of_version.refusal is not None
            and promise_of_version.point is not None
        ):
            rate = f"{100 * promise_of_version.point['fpr']:.3g}\u00a0%"
            target = f"{100 * promise_of_version.target:.3g}\u00a0%"
            words = f"{name} cannot promise {target}: its calibration supports {rate} and above."
            note("warn", "few people", words, href)
    for job in recent:
        if job["state"] == "failed":
            what = job["gallery"] or job["model"]
            detail = (job["error"] or {}).get("detail", "")
            note("bad", "job failed", f"{what}: {detail}", f"/console/jobs/{job['id']}")
    for model in models if trains else []:
        if not model["aliases"] and len(notes) < 20:
            words = f"{model['name']} has {model['latest_version']} version(s) and none in production."
            note("warn", "not serving", words, f"/console/models/{model['name']}")
    return sorted(notes, key=lambda entry: entry["level"] != "bad")[:8]
