"""The services that handlers use: one object for each feature folder, made once per process; and their upkeep."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, Request

from pairmark.schemas.admin import Level, Scope
from pairmark.service.audit.log import AuditLog
from pairmark.service.blobs import last_finished, open_blobs, sweep_unfinished
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import open_database
from pairmark.service.errors import Forbidden, NotReady, PairmarkError, UnknownModel
from pairmark.service.galleries.calibration import Identification, Thresholds
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.searches import Searches
from pairmark.service.jobs.queue import QueueReading
from pairmark.service.keys import EVERYTHING, ActiveKey, Grants, Keys, Sessions
from pairmark.service.links.links import Links
from pairmark.service.names import check_prefix
from pairmark.service.reviews.decisions import DecisionRecorder
from pairmark.service.reviews.reviews import JudgedPairs, Reviews
from pairmark.service.runtime.runtime import Runtime
from pairmark.service.scheduling import OwnerTurns, Places, Rates, Slots, Turns
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.validation import TrainingQueue
from pairmark.service.webhooks.webhooks import Webhooks

LIMIT_S = 1.5
T = TypeVar("T")


class TimedQuestion(Generic[T]):
    """Asks in a thread of its own: one question at a time, however many wait for its answer.

    A frozen database blocks the thread that asks it for as long as it is frozen, and no other.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._question: Future[T] | None = None

    async def answer(self) -> T:
        """The answer; `NotReady` when the database fails, or does not answer within `LIMIT_S`."""
        if self._question is None or self._question.done():
            self._question = Future()
            threading.Thread(target=self._run, args=(self._question,), name="question", daemon=True).start()
        question = self._question
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(question)), LIMIT_S)
        except TimeoutError as error:
            raise NotReady(f"the database has not answered within {LIMIT_S:g} s") from error

    def _run(self, question: Future[T]) -> None:
        try:
            question.set_result(self._ask())
        except NotReady as error:
            question.set_exception(error)
        except Exception as error:
            question.set_exception(
                NotReady(f"the database does not answer as it should: {type(error).__name__}")
            )


HANDLED_AT_ONCE = 8
"""Requests of one owner that handlers of the framework answer at once."""
WAITING = 4
"""Times as many uploads may wait as are read at once."""
MAX_STREAMS = 50
"""Event streams of one owner in one process."""


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


class Services:
    """What the endpoints call; connects to nothing yet."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.database = open_database(settings)
        self.blobs = open_blobs(settings)
        self.datasets = Datasets(self.database, self.blobs, settings)
        threads = settings.max_concurrent_uploads
        self.upload_places = Places("upload", threads, WAITING * threads, max_threads=2 * threads)
        self.queue = TrainingQueue(self.database, settings)
        self.store = ModelStore(self.database, self.blobs, settings)
        self.runtime = Runtime(self.store, self.database, settings)
        self.galleries = Galleries(self.database, settings)
        self.thresholds = Thresholds(self.galleries)
        self.identification = Identification(self.galleries, self.datasets, self.store)
        self.searches = Searches(self.galleries, self.thresholds, settings)
        self.reviews = Reviews(self.database)
        self.links = Links(self.database, self.blobs, self.queue, settings, self.runtime.points)
        self.webhooks = Webhooks(self.database, settings)
        self.judged_pairs = JudgedPairs(self.database, self.datasets)
        self.recorder = DecisionRecorder(self.database)
        self.rates = Rates(settings.home / "rates")
        self.readiness = TimedQuestion(lambda: len(self.queue.leases.workers()))
        self.readings = TimedQuestion(self._read)
        self.audit = AuditLog(self.database)
        self.keys = Keys(self.database)
        self.sessions = Sessions(self.database)
        self.reading = OwnerTurns(1)
        """Of work that holds the interpreter: the loop waits for one thread, not for all that an owner asks for."""
        self.handled = OwnerTurns(HANDLED_AT_ONCE)
        """Held by each request of an owner while a handler of the framework answers it."""
        self.turns = Turns()
        self._report_turns = asyncio.Semaphore(2)
        """Of reports and pictures: more threads of Python at a time make none faster, and scores wait longer."""
        self.streams = Slots(
            "event-streams", MAX_STREAMS, "event streams are open already; ask GET /jobs/ID instead"
        )
        self.last_use: dict[str, float] = {}
        """When keys were last used, by id, that is not in the database yet."""

    async def in_report_turn(self, work: Callable[[], T]) -> T:
        """The outcome of making a report or a picture, in a thread, once it is its turn."""
        async with self._report_turns:
            return await asyncio.to_thread(work)

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


def names_of(request: Request) -> Grants:
    """What who asks may see and do; who was admitted without a key, everything."""
    key: ActiveKey | None = request.scope.get("pairmark.key")
    return EVERYTHING if key is None else key.grants


def may(request: Request, scope: Scope, resource: str | None = None, *, level: Level = "read") -> bool:
    """Whether who asks has a scope: on this resource, or (None) on any at all."""
    return names_of(request).allows(scope, resource, level=level)


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


log = logging.getLogger(__name__)

EVERY_S = 10.0
"""How often a process looks at the galleries it has open."""


async def keep_galleries(services: Services) -> None:
    """Remove what killed processes left behind, then look after galleries until cancelled."""
    galleries, swept = services.galleries, False
    while True:
        try:
            if not swept:
                await asyncio.to_thread(galleries.sweep)
                await asyncio.to_thread(sweep_unfinished, services.database, services.blobs)
                swept = True
            await asyncio.to_thread(galleries.views.keep_up)
            await asyncio.to_thread(services.thresholds.keep_up)
        except NotReady:
            log.info("the database is away; galleries are looked after later")
        except PairmarkError as error:
            log.warning("a gallery could not be looked after: %s", error.detail)
        except Exception:
            log.exception("looking after galleries failed; it is tried again")
        await asyncio.sleep(EVERY_S)
