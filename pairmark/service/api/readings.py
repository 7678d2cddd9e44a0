"""Metrics of the whole deployment, read from the database and the disk at each scrape."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from pairmark.service.jobs.queue import QueueReading

SHOWN = 100
"""Most galleries, and most models, that have a series of their own."""


@dataclass(frozen=True, kw_only=True)
class Readings:
    """One look at the database.

    Attributes
    ----------
    galleries : items by name, of the `SHOWN` largest. items : of all together.
    calibration_ages : seconds, by model, of what production answers by.
    last_backup : seconds since the epoch, or None.
    """

    queue: QueueReading
    galleries: dict[str, int] = field(default_factory=dict)
    items: int = 0
    calibration_ages: dict[str, float] = field(default_factory=dict)
    last_backup: float | None = None


class _Families(Collector):
    def __init__(self, readings: Readings | None, places: dict[str, Path]) -> None:
        self._readings = readings
        self._places = places

    def collect(self) -> Iterator[Metric]:
        yield _gauge(
            "database_up", "1 when the database answered this scrape.", int(self._readings is not None)
        )
        free = _labelled("disk_free_bytes", "Free space where data is kept.", "place")
        for place, path in self._places.items():
            if path.exists():
                free.add_metric([place], shutil.disk_usage(path).free)
        yield free
        if self._readings is not None:
            yield from _of_database(self._readings)


def deployment_text(readings: Readings | None, places: dict[str, Path]) -> bytes:
    """The readings in the Prometheus text format; ``readings`` is None when the database did not answer in time."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(readings, places))
    return generate_latest(registry)


def _of_database(readings: Readings) -> Iterator[Metric]:
    queue = readings.queue
    jobs = _labelled("jobs", "Jobs by state.", "state")
    for state, count in sorted(queue.states.items()):
        jobs.add_metric([state], count)
    yield jobs
    yield _gauge("workers", "Workers that are alive.", queue.workers)
    yield _gauge(
        "queue_oldest_seconds", "How long the first job has waited; 0 when none waits.", queue.oldest_s
    )
    seconds = SummaryMetricFamily(
        "pairmark_job_seconds", "Time from a job's first start to its end.", labels=["task", "state"]
    )
    for (task, state), (count, total) in sorted(queue.durations.items()):
        seconds.add_metric([task, state], count_value=count, sum_value=total)
    yield seconds
    yield _gauge("gallery_items_all", "Items of all galleries.", readings.items)
    items = _labelled("gallery_items", f"Items of the {SHOWN} largest galleries.", "gallery")
    for name, count in readings.galleries.items():
        items.add_metric([name], count)
    yield items
    ages = _labelled("calibration_age_seconds", "Age of the calibration that production answers by.", "model")
    for name, age in readings.calibration_ages.items():
        ages.add_metric([name], age)
    yield ages
    if readings.last_backup is not None:
        yield _gauge("last_backup_timestamp_seconds", "When the last backup was made.", readings.last_backup)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pairmark_{name}", text, value=value)


def _labelled(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pairmark_{name}", text, labels=[label])
