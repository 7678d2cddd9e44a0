"""What Prometheus scrapes. With several serving processes, set ``PROMETHEUS_MULTIPROC_DIR`` to an empty folder
before they start (`pairmark serve --workers` does): each scrape then adds them up."""

from __future__ import annotations

import os
from collections.abc import Mapping

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

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
PAIRS = Counter("pairmark_pairs_scored", "Pairs scored.", ["route"])
POINTS = Counter("pairmark_points_answered", "Points whose labels were ranked.", ["route"])
LOADS = Counter("pairmark_model_loads", "Versions loaded into memory.", ["outcome"])
LOADED = Gauge("pairmark_loaded_models", "Versions in memory.", multiprocess_mode="livesum")
BATCHES = Gauge("pairmark_batches", "Long batches under way or waiting.", multiprocess_mode="livesum")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMeter:
    """Counts requests; the labelled children are kept, since looking them up costs more than counting."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._timers: dict[str, Histogram] = {}

    def seen(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        key = (method, route, status)
        counter = self._counters.get(key)
        if counter is None:
            # Any word can be sent as a method: unknown ones share a label, so that the series stay bounded.
            named = method if method in _METHODS else "OTHER"
            counter = REQUESTS.labels(named, route, str(status))
            if named == method:
                self._counters[key] = counter
        counter.inc()
        timer = self._timers.get(route)
        if timer is None:
            timer = self._timers[route] = SECONDS.labels(route)
        timer.observe(seconds)


def exposition(jobs: Mapping[str, int]) -> tuple[bytes, str]:
    """The metrics' text and its media type; ``jobs`` is how many are in each state."""
    registry: CollectorRegistry = REGISTRY
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    lines = ["# HELP pairmark_jobs Training jobs by state.", "# TYPE pairmark_jobs gauge"]
    lines += [f'pairmark_jobs{{state="{state}"}} {count}' for state, count in sorted(jobs.items())]
    return generate_latest(registry) + ("\n".join(lines) + "\n").encode(), CONTENT_TYPE_LATEST
