"""The services that handlers use: one object for each feature folder, made once per process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from pairmark.service import db_metrics
from pairmark.service.api.following import EventWatch
from pairmark.service.api.rates import Rates
from pairmark.service.api.readiness import TimedQuestion
from pairmark.service.api.readings import SHOWN, Readings
from pairmark.service.audit.log import AuditLog
from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.blobs.holds import last_finished
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database, open_database
from pairmark.service.errors import Forbidden
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.identification import Identification
from pairmark.service.galleries.kept import Thresholds
from pairmark.service.galleries.searching import Searches
from pairmark.service.keys.keys import ActiveKey, Keys
from pairmark.service.keys.schemas import Scope
from pairmark.service.keys.sessions import Sessions
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.submission import TrainingQueue


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the endpoints call."""

    settings: Settings
    database: Database
    blobs: Blobs
    datasets: Datasets
    queue: TrainingQueue
    store: ModelStore
    runtime: Runtime
    galleries: Galleries
    identification: Identification
    searches: Searches
    thresholds: Thresholds
    rates: Rates
    readiness: TimedQuestion[int]
    readings: TimedQuestion[Readings]
    events: EventWatch
    audit: AuditLog
    keys: Keys
    sessions: Sessions
    last_use: dict[str, float]
    """When keys were last used, by id, that is not in the database yet."""

    @classmethod
    def build(cls, settings: Settings) -> Services:
        """Build every service; connects to nothing yet."""
        database = open_database(settings)
        blobs = open_blobs(settings)
        store = ModelStore(database, blobs, settings)
        datasets = Datasets(database, blobs, settings)
        galleries = Galleries(database, settings)
        thresholds = Thresholds(galleries)
        queue = TrainingQueue(database, settings)
        runtime = Runtime(store, database, settings)
        db_metrics.watch(database)

        def read() -> Readings:
            largest, items = galleries.sizes(SHOWN)
            return Readings(
                queue=queue.reading(),
                galleries=largest,
                items=items,
                calibration_ages=store.calibration_ages(SHOWN),
                last_backup=last_finished(database),
            )

        return cls(
            settings=settings,
            database=database,
            blobs=blobs,
            datasets=datasets,
            queue=queue,
            store=store,
            runtime=runtime,
            galleries=galleries,
            identification=Identification(galleries, datasets, store, settings, thresholds),
            searches=Searches(galleries, thresholds, settings),
            thresholds=thresholds,
            rates=Rates(settings.home / "rates"),
            readiness=TimedQuestion(lambda: len(queue.workers())),
            readings=TimedQuestion(read),
            events=EventWatch(lambda after: asyncio.to_thread(queue.changed, after)),
            audit=AuditLog(database),
            keys=Keys(database),
            sessions=Sessions(database),
            last_use={},
        )


async def deployment_of(request: Request) -> Services:
    """The services behind this request."""
    services: Services = request.app.state.services
    return services


async def caller_of(request: Request) -> str:
    """Who asks, for histories: a key's id, never the key."""
    caller: str = request.scope.get("pairmark.caller", "unknown")
    return caller


def key_of(request: Request) -> ActiveKey | None:
    """The key of who asks; None: who was admitted without one, and may do everything."""
    key: ActiveKey | None = request.scope.get("pairmark.key")
    return key


def may(request: Request, scope: Scope, resource: str | None = None, *, reading: bool = True) -> bool:
    """Whether who asks has a scope: on this resource, or (None) on any at all."""
    key = key_of(request)
    return key is None or key.allows(scope, resource, reading=reading)


def check_may(request: Request, scope: Scope, resource: str | None = None, *, reading: bool = False) -> None:
    """Refuse who lacks a scope, where that depends on more than the path.

    Raises
    ------
    Forbidden
    """
    if not may(request, scope, resource, reading=reading):
        on = f" on {resource[:100]!r}" if resource else ""
        raise Forbidden(f"the key lacks the scope this needs: {scope!r}{on}", scope=scope)


InServices = Annotated[Services, Depends(deployment_of)]
Caller = Annotated[str, Depends(caller_of)]
