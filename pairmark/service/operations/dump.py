"""The database's rows as lines of JSON: the same for SQLite and PostgreSQL, exact to the bit."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Connection, LargeBinary, MetaData, Table, func, insert, select, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from pairmark.service.errors import CorruptArtefact
from pairmark.service.operations.manifest import DumpedTable
from pairmark.service.tables import Base

NOT_KEPT = frozenset({"workers", "backups", "version_loads", "sessions"})
"""Tables of what is going on just now. Backups of earlier versions hold sessions; they are not restored."""
_ROWS_AT_A_TIME = 500


def dumped_tables() -> list[Table]:
    """Every table that a backup holds, parents first."""
    return [table for table in Base.metadata.sorted_tables if table.name not in NOT_KEPT]


def write_table(session: Session, table: Table, path: Path) -> dict[str, Any]:
    """Write a table's rows, one JSON array a line; returns how many, and the file's sha256."""
    digest, rows = hashlib.sha256(), 0
    binary = [isinstance(column.type, LargeBinary) for column in table.columns]
    statement = select(table).order_by(*table.primary_key.columns)
    with path.open("wb") as stream:
        for row in session.execute(statement.execution_options(yield_per=_ROWS_AT_A_TIME)):
            values = [
                base64.b64encode(value).decode() if is_bytes and value is not None else value
                for value, is_bytes in zip(row, binary, strict=True)
            ]
            line = json.dumps(values, separators=(",", ":"), ensure_ascii=True).encode() + b"\n"
            digest.update(line)
            stream.write(line)
            rows += 1
    columns = [column.name for column in table.columns]
    return {"rows": rows, "columns": columns, "sha256": digest.hexdigest()}


def read_table(connection: Connection, table: Table, facts: DumpedTable, lines: IO[bytes]) -> None:
    """Insert a table's rows, or `CorruptArtefact` when the lines are not those that were written."""
    try:
        _insert_rows(connection, table, facts, lines)
    except OperationalError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, SQLAlchemyError) as error:
        raise CorruptArtefact(
            f"the backup's table {table.name} holds rows that do not fit it: {type(error).__name__}"
        ) from error


def _insert_rows(connection: Connection, table: Table, facts: DumpedTable, lines: IO[bytes]) -> None:
    digest = hashlib.sha256()
    columns = [table.columns[name] for name in facts.columns]
    binary = [isinstance(column.type, LargeBinary) for column in columns]
    count = 0
    for batch in _in_batches(lines, digest):
        rows = [
            {
                column.name: base64.b64decode(value) if is_bytes and value is not None else value
                for column, is_bytes, value in zip(columns, binary, json.loads(line), strict=True)
            }
            for line in batch
        ]
        connection.execute(insert(table), rows)
        count += len(rows)
    if digest.hexdigest() != facts.sha256 or count != facts.rows:
        raise CorruptArtefact(
            f"the backup's table {table.name} was changed after it was written (sha256 differs)"
        )


def tables_at(connection: Connection, *, newest: bool) -> dict[str, Table]:
    """Tables by name: those of the code at the newest revision, else as the database has them."""
    if newest:
        return dict(Base.metadata.tables)
    metadata = MetaData()
    metadata.reflect(connection)
    return dict(metadata.tables)


def sequences(session: Session) -> dict[str, int]:
    """The last number that each counting column gave out, by table: numbers are never given out twice."""
    last = {}
    for table in _counting():
        if session.get_bind().dialect.name == "sqlite":
            number = session.scalar(
                text("SELECT seq FROM sqlite_sequence WHERE name = :name"), {"name": table.name}
            )
        else:
            number = session.scalar(text(f"SELECT last_value FROM {_sequence(table)}"))
        if number:
            last[table.name] = int(number)
    return last


def continue_sequences(connection: Connection, last: dict[str, int]) -> None:
    """Go on after these numbers."""
    for table in _counting():
        number = max(last.get(table.name, 0), connection.scalar(select(func.max(table.c.id))) or 0)
        if not number:
            continue
        values = {"name": table.name, "seq": number}
        if connection.dialect.name != "sqlite":
            connection.execute(text(f"SELECT setval('{_sequence(table)}', :seq)"), {"seq": number})
        elif table.dialect_options["sqlite"]["autoincrement"]:
            connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
            connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :seq)"), values)


def _counting() -> Iterator[Table]:
    for table in dumped_tables():
        column = table.columns.get("id")
        if column is not None and column.autoincrement is True and column.primary_key:
            yield table


def _sequence(table: Table) -> str:
    return f"{table.name}_id_seq"


def _in_batches(lines: Iterable[bytes], digest: Any) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for line in lines:
        digest.update(line)
        batch.append(line)
        if len(batch) == _ROWS_AT_A_TIME:
            yield batch
            batch = []
    if batch:
        yield batch
