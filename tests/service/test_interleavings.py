"""Races for jobs, versions and galleries, met at every step of whoever was first.

Two actors on one database, the second running whole while the first stands still before one of its steps.

A step is a statement or a commit. `every_preemption` tries each step in turn, so that a race that one step's gap allows
is met by one of the runs, each time. Nothing sleeps: the second actor is let run until it ends or until the database
makes it wait for the first, which PostgreSQL says and on SQLite follows from who holds the only write lock.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event, func, select, text

from pairmark.models import MetricSimilarity
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, UnknownGallery, UnknownModel
from pairmark.service.galleries.galleries import Galleries
from pairmark.service.galleries.rows import RowErrors
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import AliasRow, ModelRow, ModelVersion
from tests.service.conftest import Deployment
from tests.service.galleries.conftest import WIDTH, add_model, rows, served

pytestmark = pytest.mark.each_database


PATIENCE_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """What an actor's call returned or raised."""

    value: Any = None
    error: Exception | None = None


class Actor:
    """One call in a thread of its own, on an engine of its own, which stops before step ``at`` (None: nowhere)."""

    def __init__(self, database: Database, call: Callable[[], Any], at: int | None) -> None:
        self.database = database
        self.outcome = Outcome()
        self.steps = 0
        self.writing = False
        self.asking_to_write = False
        self.backend: int | None = None
        self.ended = threading.Event()
        self.stopped = threading.Event()
        self.go_on = threading.Event()
        self._at = at
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        for name, seen in (
            ("before_cursor_execute", self._before),
            ("after_cursor_execute", self._after),
            ("commit", self._ending),
            ("rollback", self._over),
        ):
            event.listen(database.engine, name, seen)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def finish(self) -> Outcome:
        """Let it go on, and wait for its end."""
        self.go_on.set()
        assert self.ended.wait(PATIENCE_S), "an actor never ended"
        self._thread.join()
        return self.outcome

    def _run(self) -> None:
        try:
            self.outcome = Outcome(value=self._call())
        except Exception as error:
            self.outcome = Outcome(error=error)
        finally:
            self.stopped.set()
            self.ended.set()

    def _step(self) -> None:
        if self.steps == self._at:
            self.stopped.set()
            assert self.go_on.wait(PATIENCE_S), "an actor was never let go on"
        self.steps += 1

    def _mine(self) -> bool:
        return threading.current_thread() is self._thread

    def _before(self, connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._mine():
            if not self.database.is_sqlite:
                self.backend = connection.connection.dbapi_connection.info.backend_pid
            self._step()
            self.asking_to_write = statement == "BEGIN IMMEDIATE"

    def _after(self, _connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if self._mine():
            self.asking_to_write = False
            self.writing |= statement == "BEGIN IMMEDIATE"

    def _ending(self, _connection: Any) -> None:
        if self._mine():
            self._step()
            self._over(_connection)

    def _over(self, _connection: Any) -> None:
        if self._mine():
            self.writing = False


def preempted(first: Actor, second: Actor, observer: Database) -> tuple[Outcome, Outcome] | None:
    """Run the first up to its stop, the second as far as it gets, then both to their ends; None where none stopped."""
    first.start()
    assert first.stopped.wait(PATIENCE_S)
    if first.ended.is_set():
        return None
    second.start()
    deadline = time.monotonic() + PATIENCE_S
    while not second.ended.wait(0.002) and not _waits(second, first, observer):
        assert time.monotonic() < deadline, "the second actor neither ended nor waits for the first"
    return first.finish(), second.finish()


def _waits(actor: Actor, holder: Actor, observer: Database) -> bool:
    if observer.is_sqlite:
        return actor.asking_to_write and holder.writing
    if actor.backend is None:
        return False
    asked = text("SELECT wait_event_type FROM pg_stat_activity WHERE pid = :pid")
    with observer.read() as session:
        return session.scalar(asked, {"pid": actor.backend}) == "Lock"


def every_preemption(
    url: str,
    prepared: Callable[[], tuple[Callable[[Database], Any], Callable[[Database], Any]]],
) -> Iterator[tuple[int, Outcome, Outcome]]:
    """Outcomes with the first stopped before its step 0, 1, ... until it has no more steps.

    Parameters
    ----------
    prepared : makes a fresh situation and returns both calls, each given a database of its own.
    """
    observer = Database(url)
    at = 0
    try:
        while True:
            mine, other = Database(url), Database(url)
            try:
                first_call, second_call = prepared()
                first = Actor(mine, lambda call=first_call, db=mine: call(db), at)
                second = Actor(other, lambda call=second_call, db=other: call(db), None)
                outcomes = preempted(first, second, observer)
            finally:
                mine.dispose()
                other.dispose()
            if outcomes is None:
                assert at > 0, "the first actor asked nothing of the database"
                return
            yield at, *outcomes
            at += 1
    finally:
        observer.dispose()


def url_of(deployment: Deployment) -> str:
    return deployment.settings.resolved_database_url


def versions(deployment: Deployment) -> None:
    """A model with versions 1 (in production) and 2, no matter what was there."""
    with deployment.db.write() as session:
        for table in (AliasRow, ModelVersion):
            for row in session.scalars(select(table)):
                session.delete(row)
        session.flush()
    with deployment.db.read() as session:
        known = session.scalar(select(func.count()).select_from(ModelRow))
    if not known:
        add_model(deployment.db, 1, 2)
    else:
        with deployment.db.write() as session:
            for number in (1, 2):
                session.add(version_row(number))
    deployment.store.promote("people", "production", 1, actor="test")


def version_row(number: int) -> ModelVersion:
    empty: dict[str, Any] = {key: {} for key in ("params", "metrics", "lineage", "facts")}
    return ModelVersion(
        model_id="m" * 32, version=number, kind="metric", capabilities=["search"], artefact_sha256="", artefact="",
        report=None, calibration_id=None, job_id=None, created_at=0.0, **empty,
    )  # fmt: skip


@pytest.mark.parametrize("promotes_first", [True, False])
def test_an_alias_never_points_at_a_version_that_is_deleted_meanwhile(
    deployment: Deployment, promotes_first: bool
) -> None:
    def store(db: Database) -> ModelStore:
        return ModelStore(db, deployment.blobs, deployment.settings)

    def prepared() -> Any:
        versions(deployment)
        calls = (
            lambda db: store(db).promote("people", "production", 2, actor="test"),
            lambda db: store(db).delete("people", 2),
        )
        return calls if promotes_first else calls[::-1]

    for at, *both in every_preemption(url_of(deployment), prepared):
        promoted, deleted = both if promotes_first else both[::-1]
        with deployment.db.read() as session:
            there = set(session.scalars(select(ModelVersion.version)))
            pointed = session.scalars(select(AliasRow.version)).one()
        assert pointed in there, at
        if promoted.error is None:
            assert isinstance(deleted.error, Conflict), at
            assert (there, pointed) == ({1, 2}, 2), at
        else:
            assert isinstance(promoted.error, UnknownModel), at
            assert deleted.error is None, at
            assert (there, pointed) == ({1}, 1), at


class Writers:
    """A gallery, and writers of it in the manner of two servers."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        rng = np.random.default_rng(0)
        self.estimator = MetricSimilarity().fit(rng.normal(size=(40, WIDTH)), np.repeat(np.arange(8), 5))
        add_model(deployment.db, 1)

    def galleries(self, db: Database) -> Galleries:
        return Galleries(db, self.deployment.settings)

    def fresh(self) -> None:
        made = self.galleries(self.deployment.db)
        with contextlib.suppress(UnknownGallery):
            made.delete("people")
        made.put("people", served(self.estimator))
        made.close()

    def write(self, db: Database, mine: str, value: float) -> Any:
        made = self.galleries(db)
        items = {name: (np.full(WIDTH, value), "s", None) for name in (mine, "shared")}
        try:
            return made.write("people", [rows(items)], RowErrors(), None)
        finally:
            made.close()

    def delete(self, db: Database) -> None:
        made = self.galleries(db)
        try:
            made.delete("people")
        finally:
            made.close()

    def items(self) -> dict[str, list[float]]:
        made = self.galleries(self.deployment.db)
        try:
            return {
                one.id: list(one.vector)
                for one in made.items("people", 10, None, subject=None, vectors=True).items
            }
        finally:
            made.close()


def test_two_writers_of_a_gallery_lose_nothing(deployment: Deployment) -> None:
    writers = Writers(deployment)

    def prepared() -> Any:
        writers.fresh()
        return lambda db: writers.write(db, "a", 1.0), lambda db: writers.write(db, "b", 2.0)

    for at, first, second in every_preemption(url_of(deployment), prepared):
        assert (first.error, second.error) == (None, None), at
        found = writers.items()
        assert set(found) == {"a", "b", "shared"}, at
        assert found["a"] == [1.0] * WIDTH, at
        assert found["b"] == [2.0] * WIDTH, at
        # What both wrote is as one of them wrote it, whole.
        assert found["shared"] in ([1.0] * WIDTH, [2.0] * WIDTH), at
