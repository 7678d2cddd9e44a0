"""What Prometheus scrapes. With several serving processes, set ``PROMETHEUS_MULTIPROC_DIR`` to an empty folder
before they start (`pairmark serve --workers` does): each scrape then adds them up."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

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
from prometheus_client.multiprocess import MultiProcessCollector

from pairmark.service.runtime.live import Watch
from pairmark.service.runtime.unrelated import UnrelatedPairs

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
POINTS = Counter("pairmark_points_answered", "Points ranked, classified or embedded.", ["route"])
SEARCHED = Counter(
    "pairmark_gallery_answers", "Items that gallery searches returned, and verifications.", ["route"]
)
LIVE_SCORES = Counter(
    "pairmark_live_scores",
    "Scores held against calibration (at most 4,096 of a request, evenly picked).",
    ["model", "version"],
)
LIVE_DECIDED = Counter(
    "pairmark_live_decided", "Pairs decided at a false positive rate.", ["model", "version", "fpr"]
)
LIVE_MATCHED = Counter("pairmark_live_matched", "Pairs that matched at it.", ["model", "version", "fpr"])
LIVE_WINDOWS = Counter(
    "pairmark_live_windows", "Windows held against calibration.", ["model", "version", "outcome"]
)
_LIVE = ["model", "version"]
LIVE_ALARM = Gauge(
    "pairmark_live_alarm",
    "1 when the newest whole window of scores does not look like calibration's: see docs/live-check.md.",
    _LIVE,
    multiprocess_mode="livemax",
)
LIVE_DISTANCE = Gauge(
    "pairmark_live_distance", "Of the newest window.", _LIVE, multiprocess_mode="livemostrecent"
)
LIVE_LIMIT = Gauge(
    "pairmark_live_limit", "The distance that raises the alarm.", _LIVE, multiprocess_mode="livemostrecent"
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class RequestMeter:
    """Counts requests; the labelled children are kept, since looking them up costs more than counting."""

    def __init__(self) -> None:
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._timers: dict[str, Histogram] = {}

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        counter = self._counters.get(key)
        if counter is None:
            # Any word can be sent as a method: unknown ones share a label, so that the series stay bounded.
            label = method if method in _METHODS else "OTHER"
            counter = REQUESTS.labels(label, route, str(status))
            if label == method:
                self._counters[key] = counter
        counter.inc()
        timer = self._timers.get(route)
        if timer is None:
            timer = self._timers[route] = SECONDS.labels(route)
        timer.observe(seconds)


LIVE_UNRELATED = Counter(
    "pairmark_live_unrelated",
    "Pairs of vectors from unrelated requests, scored to watch the false positive rate.",
    ["model", "version", "fpr"],
)
LIVE_UNRELATED_ABOVE = Counter(
    "pairmark_live_unrelated_above",
    "Of those, pairs above the threshold of the rate.",
    ["model", "version", "fpr"],
)
LIVE_RATE_ALARMS = Counter(
    "pairmark_live_rate_alarms",
    "Alarms that the false positive rate in use is above the promised one.",
    ["model", "version", "fpr"],
)


def publish_live(watches: Iterable[Watch], unrelated: Iterable[UnrelatedPairs] = ()) -> None:
    """Move what was counted since the last call into the metrics."""
    for pairs in unrelated:
        _publish_unrelated(pairs)
    for watch in watches:
        names = (watch.model, str(watch.version))
        if watch.n_unpublished:
            LIVE_SCORES.labels(*names).inc(watch.n_unpublished)
            watch.n_unpublished = 0
        for rate, (n, matched) in watch.decided.items():
            if n:
                LIVE_DECIDED.labels(*names, rate).inc(n)
                LIVE_MATCHED.labels(*names, rate).inc(matched)
                watch.decided[rate] = [0, 0]
        for verdict in watch.verdicts:
            LIVE_WINDOWS.labels(*names, "alarm" if verdict.alarm else "calm").inc()
            LIVE_ALARM.labels(*names).set(int(verdict.alarm))
            LIVE_DISTANCE.labels(*names).set(verdict.distance)
            LIVE_LIMIT.labels(*names).set(verdict.limit)
        watch.verdicts.clear()


def _publish_unrelated(pairs: UnrelatedPairs) -> None:
    counters = (LIVE_UNRELATED, LIVE_UNRELATED_ABOVE, LIVE_RATE_ALARMS)
    for rate, now in pairs.counts().items():
        before = pairs.published.get(rate, (0, 0, 0))
        for counter, new, old in zip(counters, now, before, strict=True):
            counter.labels(pairs.model, str(pairs.version), rate).inc(new - old)
        pairs.published[rate] = now


def live(model: str, version: int) -> dict[str, Any] | None:
    """What all processes counted of a version's live scores; None before the first.

    Returns
    -------
    ``scores`` counted, ``decided`` by rate with ``n`` and ``matched``, ``windows`` and ``alarms``; once a window was
    whole, ``alarm``, ``distance`` and ``limit``; ``unrelated`` by rate with ``pairs``, ``above`` and ``alarms``.
    """
    totals: dict[str, Any] = {"scores": 0, "decided": {}, "windows": 0, "alarms": 0, "alarm": None}
    totals["unrelated"] = {}
    for family in _registry().collect():
        if not family.name.startswith("pairmark_live_"):
            continue
        what = family.name.removeprefix("pairmark_live_")
        for sample in family.samples:
            labels = sample.labels
            if (labels.get("model"), labels.get("version")) != (model, str(version)):
                continue
            if what == "scores":
                totals["scores"] += int(sample.value)
            elif what in ("decided", "matched"):
                rate = totals["decided"].setdefault(labels["fpr"], {"n": 0, "matched": 0})
                rate["n" if what == "decided" else "matched"] += int(sample.value)
            elif what == "windows":
                totals["windows"] += int(sample.value)
                totals["alarms"] += int(sample.value) if labels["outcome"] == "alarm" else 0
            elif what == "alarm":
                totals["alarm"] = bool(sample.value)
            elif what in _UNRELATED:
                entry = totals["unrelated"].setdefault(labels["fpr"], {"pairs": 0, "above": 0, "alarms": 0})
                entry[_UNRELATED[what]] += int(sample.value)
            elif what in ("distance", "limit"):
                totals[what] = sample.value
    return totals if totals["scores"] else None


_UNRELATED = {"unrelated": "pairs", "unrelated_above": "above", "rate_alarms": "alarms"}


def _registry() -> CollectorRegistry:
    if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return registry


def exposition() -> tuple[bytes, str]:
    """The metrics that processes count, and their media type."""
    return generate_latest(_registry()), CONTENT_TYPE_LATEST
