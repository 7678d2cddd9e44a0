"""Metrics of the whole deployment, read from the database and the disk at each scrape."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import generate_latest
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


@dataclass(frozen=True)
class _Families(Collector):
    readings: Readings | None
    places: Mapping[str, Path]

    def collect(self) -> Iterator[Metric]:
        is_up = int(self.readings is not None)
        yield _gauge("database_up", "1 when the database answered this scrape.", is_up)
        free = {name: shutil.disk_usage(path).free for name, path in self.places.items() if path.exists()}
        yield _gauges("disk_free_bytes", "Free space where data is kept.", "place", free)
        if self.readings is not None:
            yield from _of_database(self.readings)


def deployment_text(readings: Readings | None, places: Mapping[str, Path]) -> bytes:
    """The readings in the Prometheus text format; ``readings`` is None when the database did not answer in time."""
    return generate_latest(_Families(readings, places))


def _of_database(readings: Readings) -> Iterator[Metric]:
    queue = readings.queue
    yield _gauges("jobs", "Jobs by state.", "state", dict(sorted(queue.states.items())))
    yield _gauge("workers", "Workers that are alive.", queue.workers)
    text = "How long the first job has waited; 0 when none waits."
    yield _gauge("queue_oldest_seconds", text, queue.oldest_s)
    text = "Time from a job's first start to its end."
    seconds = SummaryMetricFamily("pairmark_job_seconds", text, labels=["task", "state"])
    for (task, state), (count, total) in sorted(queue.durations.items()):
        seconds.add_metric([task, state], count_value=count, sum_value=total)
    yield seconds
    yield _gauge("gallery_items_all", "Items of all galleries.", readings.items)
    yield _gauges("gallery_items", f"Items of the {SHOWN} largest galleries.", "gallery", readings.galleries)
    text = "Age of the calibration that production answers by."
    yield _gauges("calibration_age_seconds", text, "model", readings.calibration_ages)
    if readings.last_backup is not None:
        yield _gauge("last_backup_timestamp_seconds", "When the last backup was made.", readings.last_backup)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"pairmark_{name}", text, value=value)


def _gauges(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    gauges = GaugeMetricFamily(f"pairmark_{name}", text, labels=[label])
    for value_of, value in values.items():
        gauges.add_metric([value_of], value)
    return gauges
