"""The database: one engine, the one place that commits, and pages of what queries select."""

import base64
import binascii
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    Update,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
    text,
    true,
    tuple_,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError, DataError, InternalError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import ConnectionPoolEntry

from pairmark import migrations
from pairmark.schemas.base import Page
from pairmark.service.errors import DamagedRow, InvalidInput, NotReady, SchemaMismatch, StorageFailed
from pairmark.service.names import VisibleNames
from pairmark.service.settings import Settings
from pairmark.service.tables import Revision

TIMEOUT_S = 30.0
UNBOUNDED = "pairmark_unbounded"
"""Execution option of transactions that may take long: migrations and backups."""


class Database:
    """Sessions on SQLite (WAL, full sync) or PostgreSQL.

    `read` gives a session that is never committed; `write` commits when its block ends without an exception.
    Nobody else commits.

    Parameters
    ----------
    timeout_s : longest that one statement may take on PostgreSQL, or wait for the lock on SQLite.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S) -> None:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        self.url = parsed
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        options: dict[str, Any] = {}
        if self.is_sqlite:
            if parsed.database and parsed.database != ":memory:":
                Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
            options["connect_args"] = {"timeout": timeout_s}
        else:
            from pairmark.service import postgres

            options.update(
                pool_pre_ping=True, pool_size=8, max_overflow=16, pool_timeout=min(10.0, timeout_s)
            )
            # A server set up without a locale would otherwise answer in bytes.
            options["connect_args"] = {"connect_timeout": postgres.CONNECT_S, "client_encoding": "utf8"}
        self.engine: Engine = create_engine(parsed, **options)
        self._busy_ms = round(1e3 * timeout_s)
        self._closed = False
        event.listen(self.engine, "checkin", self._close_late)
        if self.is_sqlite:
            event.listen(self.engine, "connect", partial(_prepare_sqlite, self._busy_ms))
            event.listen(self.engine, "begin", _begin_sqlite)
        else:
            postgres.bound(self.engine, timeout_s, except_in=UNBOUNDED)

    @contextmanager
    def read(self, *, one_moment: bool = False, unbounded: bool = False) -> Iterator[Session]:
        """A session for reading; anything written in it is lost. `NotReady` when the database does not answer.

        Parameters
        ----------
        one_moment : all that it reads is of one moment; writers go on meanwhile.
        unbounded : it may take as long as it takes.
        """
        options: dict[str, Any] = {UNBOUNDED: True} if unbounded else {}
        if one_moment and not self.is_sqlite:
            options["isolation_level"] = "REPEATABLE READ"
        engine = self.engine.execution_options(**options) if options else self.engine
        with _in_our_words(), Session(engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A session whose work is committed as one when the block ends well, else rolled back.

        Raises
        ------
        NotReady
            When the database does not answer, or is busy for too long.
        StorageFailed
            When its disk is full.
        InvalidInput
            When it cannot hold a value at all, such as a zero byte in text.
        """
        with (
            _in_our_words(),
            Session(self.engine.execution_options(pairmark_write=True), expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def now(self, session: Session) -> float:
        """Seconds since the epoch on the database's clock, which leases are measured by."""
        if self.is_sqlite:
            # SQLite runs inside this machine, so its clock is ours, and finer than its own functions tell.
            return time.time()
        return float(session.scalar(select(func.extract("epoch", func.clock_timestamp()))) or 0.0)

    def truncate_log(self, seconds: float = 5.0) -> bool:
        """Empty SQLite's write-ahead log, so that nothing that was deleted is left in it; says whether that was done.

        Deleted cells in the database's own file are overwritten as they go (`secure_delete`). True elsewhere: other
        databases see to their logs themselves.
        """
        if not self.is_sqlite:
            return True
        deadline = time.monotonic() + seconds
        try:
            # Not within a transaction, which the engine's own connections begin.
            with closing(self.engine.raw_connection()) as connection:
                while True:
                    cursor = connection.cursor()
                    cursor.execute("PRAGMA busy_timeout=1000")
                    busy = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                    cursor.execute(f"PRAGMA busy_timeout={self._busy_ms}")
                    cursor.close()
                    if not busy or time.monotonic() > deadline:
                        return not busy
                    time.sleep(0.02)
        except (OperationalError, sqlite3.Error):
            # A full or failing disk: what was deleted is deleted, but stays in the log until there is space.
            return False

    def upgrade(self, target: str = migrations.HEAD) -> None:
        """Bring the schema to a revision, by default the newest. Safe to call from several processes at once."""
        revision = self.revision()
        if revision == target:
            return
        if revision is not None:
            self._check_known(revision)
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(Path(migrations.__file__).parent))
        with _in_our_words(), self.schema_change() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(7261947)"))
            config.attributes["connection"] = connection
            command.upgrade(config, target)

    @contextmanager
    def schema_change(self) -> Iterator[Connection]:
        """A transaction that may rebuild tables.

        SQLite rebuilds a table by dropping it, which deletes the rows that refer to it unless foreign keys are off;
        within a transaction they cannot be switched.
        """
        options = {"pairmark_write": True, UNBOUNDED: True}
        with self.engine.execution_options(**options).connect() as connection:
            driver: Any = connection.connection.driver_connection
            if self.is_sqlite:
                driver.execute("PRAGMA foreign_keys=OFF")
            try:
                with connection.begin():
                    yield connection
            finally:
                if self.is_sqlite:
                    driver.execute("PRAGMA foreign_keys=ON")

    def revision(self) -> str | None:
        """The migration that the schema is at; None for a database without tables."""
        try:
            with _file_errors(), self.engine.connect() as connection:
                number: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
                return number
        except ProgrammingError:
            return None
        except OperationalError as error:
            if "no such table" in str(error.orig):
                return None
            url = self.url.render_as_string(hide_password=True)
            raise NotReady(
                f"the database at {url} does not answer just now: try again in a moment"
            ) from error

    def check_schema(self) -> None:
        """Raise `SchemaMismatch` unless the schema is the one that this version works with."""
        revision = self.revision()
        if revision == migrations.HEAD:
            return
        if revision is None:
            raise SchemaMismatch("the database has no Pairmark tables yet: run `pairmark db upgrade`")
        self._check_known(revision)
        raise SchemaMismatch(
            f"the database is at revision {revision}, and this version needs {migrations.HEAD}: take a backup, then "
            "run `pairmark db upgrade`"
        )

    def _check_known(self, revision: str) -> None:
        if revision not in migrations.revisions():
            raise SchemaMismatch(
                f"the database is at revision {revision}, which this version of Pairmark (newest revision "
                f"{migrations.HEAD}) does not know: a newer version upgraded it. Run that version, or restore a backup "
                "made before the upgrade"
            )

    def copy_to(self, target: Path) -> None:
        """Write a consistent copy of an embedded database, while it is in use.

        Another process may migrate it meanwhile: then the copy is of no use, and is not kept.
        """
        part = target.with_name(f".{target.name}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        revision = self.revision()
        try:
            with closing(self.engine.raw_connection()) as source, closing(sqlite3.connect(part)) as copy:
                source.driver_connection.backup(copy)  # type: ignore[union-attr]
                row = copy.execute("SELECT version_num FROM alembic_version").fetchone()
            if row == (revision,):
                part.replace(target)
        except (OSError, sqlite3.Error) as error:
            raise StorageFailed(f"the database could not be copied to {target}: {error}") from error
        finally:
            part.unlink(missing_ok=True)

    def wait(self, seconds: float, *, for_tables: bool = False) -> None:
        """Wait, for at most ``seconds``, until the database answers and, with ``for_tables``, has its tables, which
        another process may still be making."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                (self.check_schema if for_tables else self.revision)()
                return
            except NotReady:
                if time.monotonic() >= deadline:
                    raise
            time.sleep(0.5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dispose()

    def dispose(self) -> None:
        """Close every connection; one that a thread still uses is closed when it is done."""
        self._closed = True
        self.engine.dispose()

    def _close_late(self, _driver: Any, record: ConnectionPoolEntry) -> None:
        # The pool that would keep it is gone, and with it whoever would close it.
        if self._closed:
            record.close()


def execute_change(session: Session, statement: Insert | Update | Delete) -> int:
    """Run a statement; returns how many rows it added, changed or deleted."""
    # Of an insertion it is not kept unasked.
    options = {"preserve_rowcount": True}
    return int(session.execute(statement, execution_options=options).rowcount)  # type: ignore[attr-defined]


def insert_into(session: Session, table: Any) -> Any:
    """An insertion that may say what happens on a conflict, which is no part of SQL that every database shares."""
    return (sqlite if session.get_bind().dialect.name == "sqlite" else postgresql).insert(table)


def name_filter(names: VisibleNames, column: Any) -> ColumnElement[bool]:
    """Whether a column of names holds one of these, as `VisibleNames` says it."""
    # Not LIKE: on SQLite it takes upper for lower case.
    below = func.substr(column, 1, len(names.prefix)) == names.prefix if names.prefix else true()
    return below if names.members is None else below & column.in_(names.members)


def bump_revision(session: Session) -> None:
    """Count a change that other workers must see (aliases, versions, calibrations, keys)."""
    if not execute_change(session, update(Revision).where(Revision.id == 1).values(value=Revision.value + 1)):
        session.execute(insert(Revision).values(id=1, value=1))


def open_database(settings: Settings) -> Database:
    return Database(settings.resolved_database_url, settings.database_timeout_s)


@contextmanager
def _file_errors() -> Iterator[None]:
    """Errors of a damaged SQLite file as `DamagedRow`."""
    try:
        yield
    except DatabaseError as error:
        if not any(words in str(error.orig) for words in ("malformed", "not a database")):
            raise
        raise DamagedRow(
            "the database file is damaged: stop the service, keep the file, and restore a backup into another "
            "PAIRMARK_HOME"
        ) from error


_NO_WRITES = (
    "is full",
    "disk i/o",
    "no space",
    "could not extend",
    "could not write",
    "readonly",
    "read-only transaction",
)
"""What databases say of a disk that takes no more, or of a server that only reads, a standby say."""


@contextmanager
def _in_our_words() -> Iterator[None]:
    try:
        with _file_errors():
            yield
    except (OperationalError, InternalError, PoolTimeout) as error:
        message = str(getattr(error, "orig", error)).lower()
        if any(words in message for words in _NO_WRITES):
            raise StorageFailed(
                "the database's disk is full, failing or read-only: free some space, or mend it, and try again"
            ) from error
        if isinstance(error, InternalError):
            raise
        raise NotReady("the database does not answer just now: try again in a moment") from error
    except DataError as error:
        raise InvalidInput("a value is outside what the database can hold (a zero byte in text?)") from error


def _prepare_sqlite(busy_ms: int, connection: Any, _record: Any) -> None:
    # The driver's own transaction handling is switched off; `_begin_sqlite` says BEGIN.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        # Waiting comes first: several processes may be the first to open a new file.
        f"busy_timeout={busy_ms}",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    # A transaction that will write takes the lock at once: upgrading a read lock later can fail as busy.
    writes = connection.get_execution_options().get("pairmark_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


MAX_LIMIT = 500
R = TypeVar("R")
P = TypeVar("P", bound=Page[Any])


def page_of(
    kind: type[P],
    rows: Sequence[R],
    limit: int,
    mark: Callable[[R], tuple[Any, ...]],
    make: Callable[[R], Any],
) -> P:
    """The first ``limit`` rows, of which one more was read if there is one; ``mark``: what tells a row's place."""
    next_cursor = encode_cursor(*mark(rows[limit - 1])) if len(rows) > limit else None
    return kind(items=[make(row) for row in rows[:limit]], next_cursor=next_cursor)


def read_rows(
    session: Session,
    query: Select[*tuple[Any, ...]],
    order: Sequence[Any],
    limit: int,
    cursor: str | None,
    *,
    newest_first: bool = False,
) -> tuple[list[Any], str | None]:
    """A page of what a query selects, and the cursor of the next one, None after the last.

    Parameters
    ----------
    order : columns that are never NULL and that together tell each row from the others; ``newest_first``: descending.

    Returns
    -------
    rows : of a query of one thing its values, of others tuples.
    """
    mark = start_of(limit, cursor, *(column.type.python_type for column in order))
    if mark is not None:
        place, start = tuple_(*order), mark if len(order) > 1 else (mark,)
        query = query.where(place < start if newest_first else place > start)
    directed = [column.desc() if newest_first else column for column in order]
    # One more than is shown says whether there is a next page; the order's own columns come last.
    marked_rows = session.execute(query.add_columns(*order).order_by(*directed).limit(limit + 1)).all()
    following = encode_cursor(*marked_rows[limit - 1][-len(order) :]) if len(marked_rows) > limit else None
    rows = [row[: -len(order)] for row in marked_rows[:limit]]
    return [row[0] if len(row) == 1 else row for row in rows], following


def read_page(
    session: Session,
    kind: type[P],
    make: Callable[[Any], Any],
    query: Select[*tuple[Any, ...]],
    order: Sequence[Any],
    limit: int,
    cursor: str | None,
    *,
    newest_first: bool = False,
) -> P:
    """A page, as by `read_rows`, of what ``make`` makes of each row."""
    rows, following = read_rows(session, query, order, limit, cursor, newest_first=newest_first)
    return kind(items=[make(row) for row in rows], next_cursor=following)


def encode_cursor(*mark: str | int | float) -> str:
    """The mark after which the next page starts, as an opaque word."""
    return base64.urlsafe_b64encode(json.dumps(mark, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """What `encode_cursor` was given, checked to be of these kinds, or `InvalidInput`."""
    try:
        mark = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        fits = (
            isinstance(mark, list)
            and len(mark) == len(kinds)
            and all(type(value) is kind for value, kind in zip(mark, kinds, strict=True))
            and all(
                abs(value) < 2**63 and math.isfinite(value) for value in mark if not isinstance(value, str)
            )
            and all(value.isascii() and value.isprintable() for value in mark if isinstance(value, str))
        )
    except (ValueError, binascii.Error, RecursionError):
        fits = False
    if not fits:
        raise InvalidInput("cursor: expected the next_cursor of an earlier page, unchanged", field="cursor")
    return tuple(mark)


def start_of(limit: int, cursor: str | None, *kinds: type) -> Any:
    """Where a page starts: the mark of the cursor (its value, where it is one), None for the first page."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit is {limit}; expected 1 to {MAX_LIMIT}", field="limit")
    mark = None if cursor is None else decode_cursor(cursor, *kinds)
    return mark[0] if mark is not None and len(kinds) == 1 else mark
