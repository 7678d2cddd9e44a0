"""Connections to PostgreSQL that end a statement in time, whatever the server does.

The server's own ``statement_timeout`` covers a statement that runs for too long or waits for a lock. A server that is
stopped, or behind a network that drops packets, does not look at its clock: so the client bounds the wait too.
"""

import time
from collections.abc import Generator
from typing import Any, Self

import psycopg
from sqlalchemy import Connection, Engine, event

CONNECT_S = 5
GRACE_S = 2.0
"""So much longer than the server's bound is the client's: the server's error says more."""
IDLE_S = 300
"""Longest that a transaction may stay open without a statement: a stopped client would keep its locks for ever."""


class BoundedConnection(psycopg.Connection[Any]):
    """Gives up a statement that the server leaves without an answer, and the connection with it."""

    patience_s: float | None = None
    """Longest wait for the server; None: for ever."""

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """As psycopg's, but not for ever."""
        if self.patience_s is not None:
            gen = _bounded_exchange(gen, self, self.patience_s)
        return super().wait(gen, *args, **kwargs)

    @classmethod
    def connect_bounded(cls, seconds: float, *args: Any, **kwargs: Any) -> Self:
        """Connect; every statement may then take ``seconds``."""
        connection = cls.connect(*args, **kwargs)
        connection.patience_s = seconds + GRACE_S
        connection.autocommit = True
        connection.execute(
            f"SET statement_timeout = {round(1e3 * seconds)}; "
            f"SET idle_in_transaction_session_timeout = '{IDLE_S}s'"
        )
        connection.autocommit = False
        return connection


def _bounded_exchange(
    gen: Any, connection: psycopg.Connection[Any], seconds: float
) -> Generator[Any, Any, Any]:
    """The exchange with the server, ended when nothing is heard for ``seconds``."""
    deadline = time.monotonic() + seconds
    try:
        event_mask = next(gen)
        while True:
            ready = yield event_mask
            # The driver looks up every tenth of a second; what arrives in pieces may go on.
            if ready:
                deadline = time.monotonic() + seconds
            elif time.monotonic() > deadline:
                connection.pgconn.finish()
                raise psycopg.OperationalError(
                    f"the server has not answered for {seconds:g} s: connection given up"
                )
            event_mask = gen.send(ready)
    except StopIteration as end:
        return end.value


def bound(engine: Engine, seconds: float, *, except_in: str) -> None:
    """Bound every statement of an engine's connections, except in transactions with this execution option."""

    @event.listens_for(engine, "do_connect")
    def connect(_dialect: Any, _record: Any, args: Any, kwargs: Any) -> BoundedConnection:
        return BoundedConnection.connect_bounded(seconds, *args, **kwargs)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().get(except_in, False):
            driver: Any = connection.connection.driver_connection
            driver.patience_s = None
            connection.exec_driver_sql(
                "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
            )

    @event.listens_for(engine, "checkin")
    def checkin(driver: Any, _record: Any) -> None:
        if driver is not None:
            driver.patience_s = seconds + GRACE_S
