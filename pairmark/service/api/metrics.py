"""What Prometheus scrapes, and whether the service is alive and ready. With several serving processes, set
``PROMETHEUS_MULTIPROC_DIR`` to an empty folder before they start (`pairmark serve --workers` does): each scrape then
adds them up.
"""

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector
from pydantic import BaseModel, Field

from pairmark.service.api.routing import GuardedRoute, content, needs
from pairmark.service.api.services import SHOWN, InServices, Readings
from pairmark.service.errors import NotReady
from pairmark.service.jobs.queue import START_ONE
from pairmark.service.runtime.versions import InputWatch

# When a counter began is of no use to anybody here, and would be a line for each.
disable_created_metrics()  # type: ignore[no-untyped-call]

REQUESTS = Counter("pairmark_requests", "Requests answered.", ["method", "route", "status"])
SECONDS = Histogram(
    "pairmark_request_seconds",
    "Time from a request's head to the end of its answer.",
    ["route"],
    buckets=(
        0.0005,
        0.001,
        0.0025,
        0.005,
        0.01,
        0.025,
        0.05,
        0.1,
        0.25,
        0.5,
        1.0,
        2.5,
        5.0,
        10.0,
        30.0,
        60.0,
    ),
)
AUTH_FAILURES = Counter(
    "pairmark_auth_failures",
    "Requests refused for their key: `unauthenticated` (none, or an unknown one) or `forbidden` (it lacks the scope).",
    ["reason"],
)
PAIRS = Counter("pairmark_pairs_scored", "Pairs scored.", ["route"])
POINTS = Counter("pairmark_points_answered", "Points ranked, classified or embedded.", ["route"])
SEARCHED = Counter(
    "pairmark_gallery_answers", "Items that gallery searches returned, and verifications.", ["route"]
)
_OF_VERSION = ["model", "version"]
INPUT_ROWS = Counter("pairmark_inputs_rows", "Rows that were decided on.", _OF_VERSION)
UNLIKE_ROWS = Counter(
    "pairmark_inputs_unlike",
    "Of those, rows unlike those of the calibration: see docs/inputs.md.",
    _OF_VERSION,
)
TODAY = Gauge(
    "pairmark_inputs_today",
    "Rows of the day (UTC), `all` or those `unlike`.",
    [*_OF_VERSION, "rows"],
    multiprocess_mode="livesum",
)
MOVED = Gauge(
    "pairmark_inputs_moved",
    "1 once rows are no longer like those of the calibration: see docs/inputs.md.",
    _OF_VERSION,
    multiprocess_mode="livemax",
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@lru_cache(4096)
def measures(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    """What counts such requests and what times them: looking them up costs more than counting."""
    # Any word can be sent as a method: unknown ones share a label, so that the series stay bounded.
    return REQUESTS.labels(method if method in _METHODS else "OTHER", route, str(status)), SECONDS.labels(
        route
    )


def publish_inputs(watches: Iterable[InputWatch]) -> None:
    """Move what was counted since the last call into the metrics."""
    for watch in watches:
        names = (watch.model, str(watch.version))
        INPUT_ROWS.labels(*names).inc(watch.rows)
        UNLIKE_ROWS.labels(*names).inc(watch.unlike)
        watch.rows = watch.unlike = 0
        watch.count(0, 0)
        for kind, n in zip(("all", "unlike"), watch.today, strict=True):
            TODAY.labels(*names, kind).set(n)
        MOVED.labels(*names).set(int(watch.moved is not None))


def inputs(model: str, version: int) -> dict[str, Any] | None:
    """What all processes counted of the rows that a version decided on; None before the first.

    Returns
    -------
    ``rows`` and how many were ``unlike``, and both of ``today``.
    """
    registry, labels = _registry(), {"model": model, "version": str(version)}

    def total(name: str, **more: str) -> int:
        return int(registry.get_sample_value(f"pairmark_inputs_{name}", labels | more) or 0)

    if not (rows := total("rows_total")):
        return None
    today = {kind: total("today", rows=kind) for kind in ("all", "unlike")}
    return {"rows": rows, "unlike": total("unlike_total"), "today": today}


def _registry() -> CollectorRegistry:
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


class Deployment(Collector):
    """What the database and the disk say at this scrape; ``readings`` is None when the database did not answer."""

    def __init__(self, readings: Readings | None, places: Mapping[str, Path]) -> None:
        self._readings, self._places = readings, places

    def collect(self) -> Iterator[Metric]:
        readings = self._readings
        free = {name: shutil.disk_usage(path).free for name, path in self._places.items() if path.exists()}
        # Name, what it says, the value, or one by each value of a label, and the label.
        gauges: list[tuple[str, str, float | Mapping[str, float], str | None]] = [
            ("database_up", "1 when the database answered this scrape.", int(readings is not None), None),
            ("disk_free_bytes", "Free space where data is kept.", free, "place"),
        ]
        if readings is not None:
            queue, ages = readings.queue, readings.calibration_ages
            gauges += [
                ("jobs", "Jobs by state.", dict(sorted(queue.states.items())), "state"),
                ("workers", "Workers that are alive.", queue.workers, None),
                (
                    "queue_oldest_seconds",
                    "How long the first job has waited; 0 when none waits.",
                    queue.oldest_s,
                    None,
                ),
                ("gallery_items_all", "Items of all galleries.", readings.items, None),
                ("gallery_items", f"Items of the {SHOWN} largest galleries.", readings.galleries, "gallery"),
                (
                    "calibration_age_seconds",
                    "Age of the calibration that production answers by.",
                    ages,
                    "model",
                ),
            ]
            if readings.last_backup is not None:
                text = "When the last backup was made."
                gauges.append(("last_backup_timestamp_seconds", text, readings.last_backup, None))
        for name, text, value, label in gauges:
            gauge = GaugeMetricFamily(f"pairmark_{name}", text, labels=[] if label is None else [label])
            for of, number in value.items() if isinstance(value, Mapping) else [(None, value)]:
                gauge.add_metric([] if of is None else [of], number)
            yield gauge


router = APIRouter(tags=["status"], route_class=GuardedRoute)


log = logging.getLogger(__name__)


class Alive(BaseModel):
    """The process answers."""

    status: Literal["alive"] = Field("alive", description="`alive`")


class Ready(BaseModel):
    """The service is ready."""

    status: Literal["ready"] = Field("ready", description="`ready`")
    workers: int = Field(description="number of workers that are alive and take queued jobs")
    warnings: list[str] = Field(description="problems that need attention, although requests are answered")


@router.get("/healthz", summary="Check liveness")
@needs("open")
async def healthz() -> Alive:
    """The process is alive. Does not check the database."""
    return Alive()


@router.get("/readyz", summary="Check readiness")
@needs("open")
async def readyz(request: Request, services: InServices) -> Ready:
    """Ready: kernels are compiled and the database answers. Answers within two seconds, with the reason if not."""
    if request.app.state.closing.is_set():
        raise NotReady("the service is stopping; it still answers the requests that arrive")
    services.runtime.ready()
    workers = await services.readiness.answer()
    warnings = [] if workers else [f"no worker is alive: {START_ONE}"]
    return Ready(workers=workers, warnings=warnings)


@router.get(
    "/metrics",
    summary="Get metrics",
    response_class=Response,
    responses=content("text/plain", schema={"type": "string"}),
)
@needs("metrics")
async def scrape(services: InServices) -> Response:
    """Metrics in the Prometheus text format. If the database does not answer in time, its metrics are left out."""
    try:
        readings = await services.readings.answer()
    except NotReady:
        readings = None
    publish_inputs(services.runtime.inputs.watches())
    places = {"home": services.settings.home}
    if "://" not in services.settings.resolved_artefacts:
        places["artefacts"] = Path(services.settings.resolved_artefacts)
    body = generate_latest(_registry()) + generate_latest(Deployment(readings, places))
    return Response(body, media_type=CONTENT_TYPE_LATEST)
