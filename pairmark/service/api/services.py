"""The services that handlers use: one object for each feature folder, made once per process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request

from pairmark.schemas.keys import Level, Scope
from pairmark.service import db_metrics
from pairmark.service.api.admission import Admission
from pairmark.service.api.rates import Rates
from pairmark.service.api.readiness import TimedQuestion
from pairmark.service.api.readings import SHOWN, Readings
from pairmark.service.audit.log import AuditLog
from pairmark.service.blobs import open_blobs
from pairmark.service.blobs.collect import last_finished
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import open_database
from pairmark.service.errors import Forbidden, PairmarkError, UnknownModel
from pairmark.service.galleries.calibration.identification import Identification
from pairmark.service.galleries.calibration.thresholds import Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.searches import Searches
from pairmark.service.keys.keys import EVERYTHING, ActiveKey, Grants, Keys, Sessions
from pairmark.service.links.links import Links
from pairmark.service.names import check_prefix
from pairmark.service.reviews.recorder import DecisionRecorder
from pairmark.service.reviews.reviews import JudgedPairs, Reviews
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.settings import Settings
from pairmark.service.shares import Seats
from pairmark.service.store.store import ModelStore
from pairmark.service.training.validation import TrainingQueue
from pairmark.service.webhooks.webhooks import Webhooks

if TYPE_CHECKING:
    from pairmark.service.keys.openid import Provider


HANDLED_AT_ONCE = 8
"""Requests of one owner that handlers of the framework answer at once."""
MAX_STREAMS = 50
"""Event streams of one owner in one process."""


class Services:
    """What the endpoints call; connects to nothing yet."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = open_database(settings)
        self.blobs = open_blobs(settings)
        self.datasets = Datasets(self.database, self.blobs, settings)
        self.queue = TrainingQueue(self.database, settings)
        self.store = ModelStore(self.database, self.blobs, settings)
        self.runtime = Runtime(self.store, self.database, settings)
        self.galleries = Galleries(self.database, settings)
        self.thresholds = Thresholds(self.galleries)
        self.identification = Identification(self.galleries, self.datasets, self.store, settings)
        self.searches = Searches(self.galleries, self.thresholds, settings)
        self.reviews = Reviews(self.database)
        self.links = Links(self.database, self.blobs, self.queue)
        self.webhooks = Webhooks(self.database, settings)
        self.judged_pairs = JudgedPairs(self.database, self.datasets)
        self.recorder = DecisionRecorder(self.database)
        self.rates = Rates(settings.home / "rates")
        self.readiness = TimedQuestion(self._n_workers)
        self.readings = TimedQuestion(self._read)
        self.audit = AuditLog(self.database)
        self.keys = Keys(self.database)
        self.sessions = Sessions(self.database)
        self.admission = Admission(self)
        self._slots: dict[str, asyncio.Semaphore] = {}
        self.report_turns = asyncio.Semaphore(2)
        """Of reports and pictures: more threads of Python at a time make none faster, and scores wait longer."""
        self.streams = Seats(
            "event-streams", MAX_STREAMS, "event streams are open already; ask GET /jobs/ID instead"
        )
        self.last_use: dict[str, float] = {}
        """When keys were last used, by id, that is not in the database yet."""
        db_metrics.watch(self.database)

    def slot(self, owner: str) -> asyncio.Semaphore:
        """Held by each request of an owner while a handler of the framework answers it."""
        return self._slots.setdefault(owner, asyncio.Semaphore(HANDLED_AT_ONCE))

    @cached_property
    def provider(self) -> Provider | None:
        """The OpenID provider that signs people in; None: they sign in with an API key."""
        if self.settings.oidc_issuer is None:
            return None
        from pairmark.service.keys.openid import Provider

        return Provider(self.settings)

    def _n_workers(self) -> int:
        return len(self.queue.workers())

    def _read(self) -> Readings:
        largest, items = self.galleries.sizes(SHOWN)
        return Readings(
            queue=self.queue.reading(),
            galleries=largest,
            items=items,
            calibration_ages=self.store.calibration_ages(SHOWN),
            last_backup=last_finished(self.database),
        )


async def deployment_of(request: Request) -> Services:
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


def names_of(request: Request) -> Grants:
    """What who asks may see and do."""
    key = key_of(request)
    return EVERYTHING if key is None else key.grants


def may(request: Request, scope: Scope, resource: str | None = None, *, level: Level = "read") -> bool:
    """Whether who asks has a scope: on this resource, or (None) on any at all."""
    key = key_of(request)
    return key is None or key.allows(scope, resource, level=level)


def check_may(
    request: Request, scope: Scope, resource: str, *, unknown: type[PairmarkError] = UnknownModel
) -> None:
    """Refuse (`Forbidden`) who lacks a scope, where that depends on more than the path; with ``unknown`` who may not
    see the name at all."""
    check_prefix(resource, names_of(request).visible, unknown)
    if not may(request, scope, resource, level="all"):
        on = f" on {resource[:100]!r}" if resource else ""
        raise Forbidden(f"the key lacks the scope this needs: {scope!r}{on}", scope=scope)


InServices = Annotated[Services, Depends(deployment_of)]


def workspace_of(services: InServices) -> Iterator[Path]:
    """A temporary folder of one request, which goes when its answer has ended, begun or not."""
    with services.blobs.workspace() as folder:
        yield folder


Workspace = Annotated[Path, Depends(workspace_of)]
Caller = Annotated[str, Depends(caller_of)]
