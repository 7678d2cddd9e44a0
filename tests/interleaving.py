"""Two actors on one database, the second running whole while the first stands still before one of its steps.

A step is a statement or a commit. `every_preemption` tries each step in turn, so that a race that one step's gap allows
is met by one of the runs, each time. Nothing sleeps: the second actor is let run until it ends or until the database
makes it wait for the first, which PostgreSQL says and on SQLite follows from who holds the only write lock.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, text

from pairmark.service.db import Database

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
