"""What the first page shows, gathered from the rooms' front doors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pairmark.service.api import metrics
from pairmark.service.api.house import House
from pairmark.service.datasets.schemas import DatasetOut
from pairmark.service.errors import InsufficientCalibration, PairmarkError
from pairmark.service.galleries.schemas import GalleryOut
from pairmark.service.jobs.schemas import JobOut
from pairmark.service.store.schemas import ModelOut, VersionOut, VersionSummary

SHOWN = 20
PROMISED_FPR = 0.01
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What a version answers at a false positive rate of 1 %: an operating point, or why there is none."""

    fpr: float
    point: dict[str, Any] | None
    refusal: str | None
    smallest_fpr: float | None


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """A model as the page shows it: the version that serves (else the newest), and the others."""

    model: ModelOut
    version: VersionOut
    serves: bool
    promise: Promise | None
    live: dict[str, Any] | None
    others: list[VersionSummary]


@dataclass(frozen=True, kw_only=True)
class JobLine:
    """A job as the page shows it."""

    job: JobOut
    live: bool


async def overview(house: House, *, galleries: bool) -> dict[str, Any]:
    """Everything on the first page. ``galleries``: whether who asks may see those."""
    models, datasets, jobs, shown = await house.runtime.in_thread(lambda: _read(house, galleries))
    metrics.publish_live(house.runtime.live.watches())
    cards = []
    for model, version, serves in models:
        promise = await _promise(house, version)
        others = [entry for entry in model.versions if entry.version != version.version]
        live = metrics.live(model.name, version.version)
        cards.append(
            ModelCard(model=model, version=version, serves=serves, promise=promise, live=live, others=others)
        )
    return {"cards": cards, "datasets": datasets, "jobs": jobs, "galleries": shown, "shown": SHOWN}


def _read(
    house: House, galleries: bool
) -> tuple[list[tuple[ModelOut, VersionOut, bool]], list[DatasetOut], list[JobLine], list[GalleryOut]]:
    models = []
    for model in house.store.page(limit=SHOWN).items:
        production = next((alias.version for alias in model.aliases if alias.alias == "production"), None)
        number = (
            production if production is not None else (model.versions[0].version if model.versions else None)
        )
        if number is not None:
            models.append((model, house.store.version(model.name, number), production is not None))
    jobs = [
        JobLine(job=job, live=job.state in ("queued", "running"))
        for job in house.queue.page(limit=SHOWN, galleries=galleries).items
    ]
    shown = house.galleries.page(SHOWN, None).items if galleries else []
    return models, house.datasets.page(limit=SHOWN).items, jobs, shown


async def _promise(house: House, version: VersionOut) -> Promise | None:
    if "match" not in version.capabilities:
        return None
    point, refusal, smallest = None, None, None
    if version.calibration_id is None:
        refusal = "it has no calibration, so it cannot decide"
    else:
        try:
            decision = await house.runtime.decide(
                None, PROMISED_FPR, CONFIDENCE, "auto", version.calibration_id
            )
            point = decision.public
        except InsufficientCalibration as error:
            refusal = error.detail
            rates = error.facts.get("smallest_fpr")
            known = (
                [rate for rate in rates.values() if rate]
                if isinstance(rates, dict)
                else [rates]
                if rates
                else []
            )
            smallest = min(known) if known else None
        except PairmarkError as error:
            refusal = error.detail
    return Promise(fpr=PROMISED_FPR, point=point, refusal=refusal, smallest_fpr=smallest)
