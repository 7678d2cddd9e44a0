"""How long the database takes, and how many connections are in use."""

from __future__ import annotations

import time
from typing import Any

from prometheus_client import Gauge, Histogram
from sqlalchemy import event
from sqlalchemy.pool import QueuePool

from pairmark.service.db import Database

STATEMENT_SECONDS = Histogram(
    "pairmark_database_statement_seconds",
    "Time that one statement takes.",
    buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
CONNECTIONS = Gauge("pairmark_database_connections", "Connections in use.", multiprocess_mode="livesum")


def watch(database: Database) -> None:
    """Time every statement from now on."""
    event.listen(database.engine, "before_cursor_execute", _begin)
    event.listen(database.engine, "after_cursor_execute", _end)


def publish(database: Database) -> None:
    """Tell how many connections are in use just now."""
    pool = database.engine.pool
    if isinstance(pool, QueuePool):
        CONNECTIONS.set(pool.checkedout())


def _begin(connection: Any, _cursor: Any, _text: Any, _values: Any, _context: Any, _executemany: Any) -> None:
    connection.info["pairmark_began"] = time.perf_counter()


def _end(connection: Any, _cursor: Any, _text: Any, _values: Any, _context: Any, _executemany: Any) -> None:
    began = connection.info.pop("pairmark_began", None)
    if began is not None:
        STATEMENT_SECONDS.observe(time.perf_counter() - began)
