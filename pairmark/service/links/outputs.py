"""What the link command writes: links, the table with entities, one row of each entity, and its state for next time.

Every file is written under another name beside its own and then takes its place: a run that ends early leaves what was
there.
"""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pairmark.models.records.schema import key_of
from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput
from pairmark.service.links import duck
from pairmark.service.links.results import record_links_sql

RULES = {
    "longest": "(length({cell}), -row)",
    "newest": "(row, 0)",
    "most-frequent": "(count({cell}) OVER (PARTITION BY entity, {cell}), length({cell}), -row)",
    "first": "(-row, 0)",
}
"""Which cell of an entity is kept, by a column's rule: the one with the greatest key. Later rows are newer."""
_STATE = ".pairmark"
_WHO_SQL = (
    "CREATE TEMP TABLE who AS SELECT row, s.side, s.id, coalesce(n.entity, CASE WHEN count(*) OVER (PARTITION BY s.id) "
    "> 1 OR s.id IN (SELECT entity FROM entity_members) THEN s.id || '~' || (s.side + 1) ELSE s.id END) AS entity "
    "FROM sides s LEFT JOIN entity_members n ON n.side = s.side AND n.record = s.id"
)


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Files to write, CSV or Parquet.

    Attributes
    ----------
    links : pairs; ``cells``: with all cells of both records; ``above``: with candidates that score more than this.
    entities : the tables' rows, each with its entity. merged : one row of each entity, by the rules of ``keep``, from
        column to one of `RULES` (default: most-frequent); beside it, which record each cell comes from.
    """

    links: Path
    cells: bool = False
    above: float | None = None
    entities: Path | None = None
    merged: Path | None = None
    keep: Mapping[str, str] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all columns of the tables are needed."""
        return self.cells or self.entities is not None or self.merged is not None


ELSEWHERE = ("s3://", "duckdb://", "postgresql://")
"""How addresses begin that are no file of this machine."""


def deliver(written: Sequence[tuple[str, Path]]) -> None:
    """Bring files to their addresses: objects of S3 one by one, the tables of one database at once."""
    tables: dict[str, list[tuple[str, Path]]] = {}
    for address, path in written:
        if address.startswith("s3://"):
            from pairmark.service.blobs import upload

            upload(path, address)
        else:
            place, _, table = address.partition("#")
            tables.setdefault(place, []).append((table, path))
    for place, of in tables.items():
        put_tables(place, of)


def sources_path(merged: Path) -> Path:
    """Where it is written which record each cell of merged rows comes from."""
    return merged.with_name(f"{merged.stem}.sources{merged.suffix}")


def sources_of(merged: str) -> str:
    """The address of what `sources_path` has, where merged rows are elsewhere."""
    head, dot, form = merged.rpartition(".")
    return f"{head}.sources{dot}{form}" if merged.startswith("s3://") else f"{merged}_sources"


@contextmanager
def taking_place(path: Path) -> Iterator[Path]:
    """A path to write to, whose file takes the place of ``path`` when the block ends well."""
    part = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def state_of(links: Path) -> Path | None:
    """The folder of what the last run knew that wrote these links."""
    runs = [run for run in links.with_name(links.name + _STATE).glob("*") if run.name.isdigit()]
    return max(runs, key=lambda run: int(run.name), default=None)


def keep_state(folder: Path, links: Path) -> Path:
    """Put a folder of `write_folder` beside links; returns where it is."""
    before = state_of(links)
    state = links.with_name(links.name + _STATE)
    state.mkdir(exist_ok=True)
    part = state / f"part-{os.getpid()}"
    shutil.copytree(folder, part)
    part.rename(state / str(1 if before is None else int(before.name) + 1))
    if before is not None:
        shutil.rmtree(before)
    return state


def write_outputs(
    connection: Any, outputs: Outputs, names: Sequence[str], ids: Collection[str | None]
) -> None:
    """Write what was found.

    Parameters
    ----------
    connection : has the tables ``candidates``, ``links``, ``record_links``, ``entity_members`` and ``sides``.
    names : of the columns of its table ``whole``, where that is needed (`read_whole`).
    ids : columns that name rows: of an entity, the first one stays.
    """
    if outputs.above is not None:
        connection.execute(
            "INSERT INTO record_links SELECT x.side, x.id, y.side, y.id, c.score, (SELECT count(*) FROM links) + "
            "row_number() OVER (ORDER BY c.a, c.b), c.a, c.b FROM candidates c ANTI JOIN links USING (a, b) "
            "JOIN sides x ON x.row = c.a JOIN sides y ON y.row = c.b WHERE c.score > ?",
            [outputs.above],
        )
    unknown = [name for name in outputs.keep if name not in names]
    if unknown:
        raise InvalidInput(
            f"no column is called {unknown[0]!r}; expected one of {', '.join(names)}", field="keep"
        )
    if outputs.whole:
        connection.execute(_WHO_SQL)
    if outputs.merged is not None:
        _merge(connection, names, dict.fromkeys(filter(None, ids), "first") | dict(outputs.keep))
    n_tables = connection.execute("SELECT max(side) + 1 FROM sides").fetchone()[0]
    columns = [(f"c{place}", duck.quoted_name(name)) for place, name in enumerate(names)]
    listed = ", ".join(f"{cell} AS {name}" for cell, name in columns)
    both = "".join(
        f", l.{cell} AS {duck.quoted_name(f'left {name}')}, r.{cell} AS {duck.quoted_name(f'right {name}')}"
        for (cell, _), name in zip(columns, names, strict=True)
    )
    joins = "JOIN whole l ON l.row = f.a JOIN whole r ON r.row = f.b"
    with_cells = (both, joins) if outputs.cells else ("", "")
    for path, query in (
        (outputs.links, record_links_sql(n_tables, *with_cells)),
        (outputs.entities, f"SELECT entity, {listed} FROM whole JOIN who USING (row) ORDER BY whole.row"),
        (outputs.merged, f"SELECT entity, records, {listed} FROM merged ORDER BY merged.first"),
        (outputs.merged and sources_path(outputs.merged), "FROM kept_from"),
    ):
        if path is not None:
            with taking_place(path) as part:
                duck.copy_to(connection, query, part)


def take_table(source: str, folder: Path) -> Path:
    """A table ``duckdb:///file.db#table`` or ``postgresql://...#table`` as a Parquet file in a folder."""
    address, _, table = source.partition("#")
    path = folder / f"{re.sub('[^A-Za-z0-9_]', '-', table)}.parquet"
    with _database(address, "READ_ONLY") as connection:
        duck.copy_to(connection, f"FROM {_in_database(table)}", path)
    return path


def check_table(target: str, columns: Sequence[str]) -> None:
    """Refuse a table that cannot be written, before anything is linked: one that is there begins with ``columns``."""
    address, _, table = target.partition("#")
    with _database(address, "READ_WRITE") as connection:
        _refuse_other(connection, target, table, columns, len(columns))


def put_tables(address: str, tables: Sequence[tuple[str, Path]]) -> None:
    """Write Parquet files to tables of a database, in one transaction: they are made, or their rows are replaced where
    they have the same columns."""
    with _database(address, "READ_WRITE") as connection:
        connection.execute("BEGIN")
        for table, path in tables:
            place, rows = _in_database(table), f"FROM read_parquet({duck.quoted_text(path)})"
            columns = [row[0] for row in connection.execute(f"DESCRIBE {rows}").fetchall()]
            if _refuse_other(connection, f"{address}#{table}", table, columns):
                connection.execute(f"DELETE FROM {place}")
                connection.execute(f"INSERT INTO {place} {rows}")
            else:
                connection.execute(f"CREATE TABLE {place} AS {rows}")
        connection.execute("COMMIT")


def _refuse_other(
    connection: Any, target: str, table: str, columns: Sequence[str], n: int | None = None
) -> bool:
    """Whether a table is there; `InvalidInput` where it is of other columns, of which the first ``n`` count."""
    schema, _, name = table.rpartition(".")
    there = connection.execute(
        "SELECT column_name FROM duckdb_columns() WHERE database_name = 'given' AND table_name = ? AND schema_name IN "
        "(SELECT unnest(?)) ORDER BY column_index",
        [name, [schema] if schema else ["main", "public"]],
    ).fetchall()
    if there and [row[0] for row in there][:n] != [*columns]:
        raise InvalidInput(
            f"{target} is there, with the columns {', '.join(row[0] for row in there)[:300]}; expected none of that "
            f"name, or one whose rows are replaced, with {', '.join(columns)[:300]}"
        )
    return bool(there)


@contextmanager
def _database(address: str, mode: str) -> Iterator[Any]:
    """A connection that has a database of DuckDB or PostgreSQL as ``given``."""
    import duckdb

    kind = "duckdb" if address.startswith("duckdb:///") else "postgres"
    place = duck.quoted_text(address.removeprefix("duckdb:///"))
    with duck.duckdb_session() as connection:
        try:
            if kind == "postgres":
                connection.execute("LOAD postgres")
            connection.execute(f"ATTACH {place} AS given (TYPE {kind}, {mode})")
            yield connection
        except duckdb.Error as error:
            hint = " (it takes DuckDB's extension, once: INSTALL postgres)" if kind == "postgres" else ""
            raise InvalidInput(f"{address}: {str(error).splitlines()[0][:300]}{hint}") from error


def _in_database(table: str) -> str:
    return ".".join(duck.quoted_name(part) for part in f"given.{table}".split("."))


def read_whole(connection: Any, files: Sequence[Path], scratch: Path, limits: FileLimits) -> list[str]:
    """Table ``whole(row, c0, ...)`` of all columns of all tables as text; returns their names, each once."""
    names: dict[str, str] = {}
    for number, path in enumerate(files):
        file = TableFile(
            path, scratch / f"whole{number}", format_of(None, path.name), limits, connection=connection
        )
        expressions: dict[str, str] = {}
        for name, cell in zip(file.names, file.cells, strict=True):
            key = key_of(name) or name
            # Of one table, both are kept.
            key = f"{key} {len(expressions)}" if key in expressions else key
            names.setdefault(key, name)
            expressions[key] = f"CAST({cell} AS VARCHAR) AS c{[*names].index(key)}"
        file.query(
            f"CREATE TEMP TABLE whole{number} AS SELECT {', '.join(expressions.values())} FROM {file.source}"
        )
    tables = " UNION ALL BY NAME ".join(f"FROM whole{number}" for number in range(len(files)))
    connection.execute(
        f"CREATE TEMP TABLE whole AS SELECT row_number() OVER () - 1 AS row, * FROM ({tables})"
    )
    taken = ["entity", "records"]
    for name in names.values():
        while name.casefold() in map(str.casefold, taken):
            name += "_"
        taken.append(name)
    return taken[2:]


def _merge(connection: Any, names: Sequence[str], keep: Mapping[str, str]) -> None:
    """Tables ``merged`` of one row an entity, and ``kept_from`` of the record of each cell."""
    rules = [
        RULES[keep.get(name, "most-frequent")].format(cell=f"c{place}") for place, name in enumerate(names)
    ]
    there = ", ".join(f"nullif(trim(c{place}), '') AS c{place}" for place in range(len(names)))
    keys = ", ".join(f"{rule} AS k{place}" for place, rule in enumerate(rules))
    best = ", ".join(
        f"arg_max(c{place}, k{place}) FILTER (c{place} IS NOT NULL) AS c{place}, "
        f"arg_max(row, k{place}) FILTER (c{place} IS NOT NULL) AS r{place}"
        for place in range(len(names))
    )
    connection.execute(
        f"CREATE TEMP TABLE merged AS SELECT entity, count(*) AS records, min(row) AS first, {best} FROM (SELECT *, "
        f"{keys} FROM (SELECT entity, row, {there} FROM whole JOIN who USING (row))) GROUP BY entity"
    )
    cells = " UNION ALL ".join(
        f'SELECT first, {place} AS place, entity, {duck.quoted_text(name)} AS "column", c{place} AS value, '
        f"r{place} AS row FROM merged WHERE r{place} IS NOT NULL"
        for place, name in enumerate(names)
    )
    connection.execute(
        'CREATE TEMP TABLE kept_from AS SELECT m.entity, "column", value, side + 1 AS "table", id AS record '
        f"FROM ({cells}) m JOIN who USING (row) ORDER BY first, place"
    )
