"""What a job writes, and what the next one reads of it: its folder, links, the table with entities, one row of each
entity, and the command's state for next time.

Every file is written under another name beside its own and then takes its place: a run that ends early leaves what was
there.
"""

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.linking.candidates import Sides, give, stored_keys
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.mixture import Mixture
from pairmark.models.records.compare import LinkField
from pairmark.service.errors import InvalidInput
from pairmark.service.links import duck
from pairmark.service.links.results import (
    FITTED,
    FORM,
    Stored,
    create_views,
    free_name,
    read_fitted,
    record_links_sql,
    write_results,
)
from pairmark.service.links.tables import LinkTables

_BEFORE_AND_NOW = (
    "CREATE TEMP TABLE before_and_now AS SELECT n.entity AS now, b.entity AS old, "
    "{'side': coalesce(n.side, b.side), 'record': coalesce(n.record, b.record)} AS record FROM entity_members n "
    "FULL JOIN before_entities b ON b.side = n.side AND b.record = n.record WHERE n.record IS NOT NULL OR EXISTS "
    "(FROM sides s WHERE s.side = b.side AND s.id = b.record)"
)
_IN_ORDER = "list(record ORDER BY record.record, record.side)"
_CHANGES = (
    f"SELECT now AS entity, 'joined' AS change, {_IN_ORDER} AS records, CAST([] AS VARCHAR[]) AS entities "
    f"FROM before_and_now WHERE old IS NULL GROUP BY now UNION ALL "
    f"SELECT now, 'merged', coalesce({_IN_ORDER} FILTER (old <> now), []), list_sort(list(DISTINCT old)) "
    "FROM before_and_now WHERE now IS NOT NULL AND old IS NOT NULL GROUP BY now HAVING count(DISTINCT old) > 1 "
    "UNION ALL "
    f"SELECT old, 'split', coalesce({_IN_ORDER} FILTER (now IS DISTINCT FROM old), []), "
    "coalesce(list_sort(list(DISTINCT now) FILTER (now <> old)), []) FROM before_and_now WHERE old IS NOT NULL "
    "GROUP BY old HAVING count(DISTINCT coalesce('e' || now, 'r' || record.record)) > 1"
)
# Scores are kept rounded: of equal ones, those that joined records do so again.
_BEFORE = (
    "CREATE TABLE known AS SELECT row FROM source s JOIN sides USING (row) JOIN before_records e "
    "ON e.side = sides.side AND e.id = sides.id WHERE e.compared AND {same}; "
    "CREATE TABLE carried AS SELECT least(x.row, y.row) AS a, greatest(x.row, y.row) AS b, "
    "score - CASE WHEN decision = 'match' THEN 0 ELSE 1e-9 END AS score FROM before_links l "
    "JOIN sides x ON x.side = l.left_side AND x.id = l.left "
    "JOIN sides y ON y.side = l.right_side AND y.id = l.right "
    "WHERE x.row IN (FROM known) AND y.row IN (FROM known); "
    "CREATE TEMP TABLE rows_of_statements AS SELECT number, part, row FROM before_statements s JOIN sides "
    "ON sides.side = s.side AND sides.id = s.record; "
    "CREATE TABLE together AS SELECT min(row) OVER (PARTITION BY number) AS a, row AS b FROM rows_of_statements "
    "WHERE part = 0 QUALIFY a < b; "
    "CREATE TABLE apart AS SELECT least(a, b) AS a, greatest(a, b) AS b FROM (SELECT min(row) FILTER (part = 1) "
    "AS a, min(row) FILTER (part = 2) AS b FROM rows_of_statements GROUP BY number) "
    "WHERE a IS NOT NULL AND b IS NOT NULL"
)
"""What an earlier job knows of rows whose columns are the ``same``: they, their links, and what people said of them."""
_NOTHING_BEFORE = (
    "CREATE TABLE before_entities (entity VARCHAR, side INTEGER, record VARCHAR); CREATE TABLE before_statements "
    "(number INTEGER, part INTEGER, side INTEGER, record VARCHAR, place INTEGER)"
)


def load_previous(
    connection: Any, previous: Stored | None, tables: LinkTables
) -> tuple[list[LinkField], Mixture | None] | None:
    """The tables of `_sides_sql`, and what an earlier job, if there was one, knows of rows that are as they were: see
    `Linking`.

    Raises
    ------
    InvalidInput
        Where its tables had other columns.
    """
    if previous is None:
        connection.execute(_sides_sql(tables))
        return None
    fitted = read_fitted(previous.folder)
    names, columns = [field.name for field in tables.fields], fitted["columns"]
    if {*names} != {*columns} or len(tables.sizes) != fitted["tables"]:
        raise InvalidInput(
            f"previous compared the columns {', '.join(columns)}, and now there are {', '.join(names)}; "
            "expected the same, in any order: link without previous",
            field="previous",
        )
    create_views(connection, previous, "before_")
    places = [columns.index(name) for name in names]
    _append_added(connection, tables, ", ".join(f"c{place}" for place in places))
    same = " AND ".join(f"s.c{at} IS NOT DISTINCT FROM e.c{place}" for at, place in enumerate(places))
    connection.execute(_sides_sql(tables) + _BEFORE.format(same=same))
    fields = [LinkField(**field) for field in fitted["fields"]]
    return fields, None if fitted["model"] is None else Mixture.from_json(fitted["model"])


def _append_added(connection: Any, tables: LinkTables, cells: str) -> None:
    """Put the records that people added to an earlier job's, and the tables lack, into the last table."""
    first = tables.n_rows - tables.sizes[-1]
    connection.execute(
        f"CREATE TEMP TABLE appended AS SELECT {tables.n_rows - 1} + row_number() OVER (ORDER BY place) AS row, id, "
        f"{cells} FROM before_records WHERE added AND id NOT IN (SELECT id FROM ids WHERE row >= {first}); "
        "INSERT INTO source SELECT * EXCLUDE id FROM appended; INSERT INTO ids SELECT row, id FROM appended"
    )
    tables.n_added = connection.execute("SELECT count(*) FROM appended").fetchone()[0]
    tables.sizes[-1] += tables.n_added
    if tables.n_added:
        tables.notes.append(
            f"records that were added to previous and are not in the tables are kept: {tables.n_added}"
        )


def _sides_sql(tables: LinkTables) -> str:
    """SQL of a table ``sides(row, id, side)`` of all rows, and a view ``refs(row, ref)`` of what names each."""
    return (
        f"CREATE TABLE sides AS SELECT row, id, {Sides(tables.sizes, ()).side('row')} AS side FROM ids; "
        "CREATE VIEW refs AS SELECT row, CASE WHEN count(*) OVER (PARTITION BY id) > 1 THEN (side + 1) || ':' || id "
        "ELSE id END AS ref FROM sides;"
    )


def name_entities(connection: Any, tables: LinkTables, *, again: bool) -> None:
    """Tables ``record_links`` and ``entity_members``, by ids. Entities are called by the ids of their
    first records; ``again``: as they were called before."""
    if not again:
        connection.execute(_NOTHING_BEFORE)
    if again or len(tables.sizes) > 2:
        # Several tables may have the same ids.
        connection.execute("CREATE TABLE names (first INTEGER, entity VARCHAR)")
        if names := _names_again(connection):
            entities = np.array([*names.values()], dtype=object)
            give(connection, "names_again", first=np.array([*names]), entity=entities)
            connection.execute("INSERT INTO names FROM names_again")
    else:
        connection.execute(
            "CREATE TABLE names AS SELECT DISTINCT first, id AS entity FROM members JOIN ids ON ids.row = first"
        )
    connection.execute(
        "CREATE TABLE entity_members AS SELECT entity, side, id AS record, row AS place FROM members "
        "JOIN names USING (first) JOIN sides USING (row); "
        'CREATE TABLE record_links AS SELECT x.side AS left_side, x.id AS "left", y.side AS right_side, '
        'y.id AS "right", score, row_number() OVER (ORDER BY a, b) AS place, a, b FROM links '
        "JOIN sides x ON x.row = a JOIN sides y ON y.row = b"
    )


def _names_again(connection: Any) -> dict[int, str]:
    """The name of each entity by its first row: that of the earlier one that it has most records of, else the id of a
    record of its own that was no entity's name."""
    shared = connection.execute(
        "SELECT first, entity FROM members JOIN sides USING (row) JOIN before_entities b ON b.side = sides.side AND "
        "b.record = sides.id GROUP BY first, entity ORDER BY count(*) DESC, entity, first"
    ).fetchall()
    names, taken = dict[int, str](), set[str]()
    for first, entity in shared:
        if first not in names and entity not in taken:
            names[first] = entity
            taken.add(entity)
    taken |= {row[0] for row in connection.execute("SELECT DISTINCT entity FROM before_entities").fetchall()}
    rows = connection.execute(
        "SELECT first, id FROM members JOIN ids USING (row) ORDER BY first, row"
    ).fetchall()
    for first, records in groupby(rows, key=itemgetter(0)):
        if first not in names:
            names[first] = free_name([record for _, record in records], taken)
            taken.add(names[first])
    return names


def write_folder(
    connection: Any,
    folder: Path,
    linking: Linking,
    tables: LinkTables,
    *,
    again: bool,
    link_id: str | None = None,
    resolves: bool = True,
) -> None:
    """Write what was found; ``again`` : with what changed since the job before; ``link_id`` : of the job whose folder
    it is, which nobody else's equals; ``resolves`` : whether new records are looked for in it."""
    rules = (*linking.constraints.must, linking.constraints.never)
    # Columns that no model compares, of which somebody said what they must or never have in common.
    beside = sorted({int(column[1:]) for rule in rules for column in rule} - {*linking.places})

    def names_of(columns: Sequence[str]) -> list[str]:
        return [linking.cells.source_fields[int(column[1:])].name for column in columns]

    fitted = {
        "form": FORM,
        "id": link_id,
        "columns": [field.name for field in linking.cells.source_fields],
        "fields": [vars(field) for field in linking.fields],
        "beside": [vars(linking.cells.source_fields[number]) for number in beside],
        "tables": len(tables.sizes),
        "rules": linking.rules,
        "cut": linking.cut,
        "most": linking.most,
        "unique": sorted(linking.unique),
        "must": [names_of(rule) for rule in linking.constraints.must],
        "never": names_of(linking.constraints.never),
        "model": None if linking.model is None else linking.model.to_json(),
    }
    forms, keys, joined = "NULL::VARCHAR[]", "NULL::UBIGINT[]", ""
    if linking.model is not None:
        places, joined = [*linking.places, *beside], "JOIN cells USING (row)"
        fields = [*linking.fields, *(linking.cells.source_fields[number] for number in beside)]
        cells = [f"cells.c{place}" for place in places]
        forms = f"[{', '.join(cells)}]"
        of_cells = map(stored_keys, count(), fields, cells)
        keys = f"list_sort(list_distinct(flatten([{', '.join(of_cells)}])))"
    texts = ", ".join(f"s.c{number}" for number in range(len(linking.cells.source_fields)))
    connection.execute(
        "CREATE VIEW records AS SELECT side, id, row IN (SELECT row FROM hashes) AS compared, "
        f"row >= {tables.n_rows - tables.n_added} AS added, {forms} AS forms, {keys} AS keys, {texts}, row AS place "
        f"FROM source s JOIN sides USING (row) {joined}; {_BEFORE_AND_NOW}; "
        "CREATE TABLE entity_changes AS SELECT *, row_number() OVER (ORDER BY entity, change) AS place "
        f"FROM ({_CHANGES}) {'' if again else 'LIMIT 0'}; CREATE TABLE person_statements AS FROM before_statements"
    )
    write_results(connection, folder, with_index=resolves and linking.model is not None)
    (folder / FITTED).write_text(json.dumps(fitted))


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
    names : of the columns of its table ``whole``, where that is needed (`read_tables`).
    ids : columns that name rows: of an entity, the first one stays.
    """
    if outputs.above is not None:
        connection.execute(
            "INSERT INTO record_links SELECT x.side, x.id, y.side, y.id, c.score, (SELECT count(*) FROM links) + "
            "row_number() OVER (ORDER BY c.a, c.b), c.a, c.b FROM candidates c ANTI JOIN links USING (a, b) "
            "JOIN sides x ON x.row = c.a JOIN sides y ON y.row = c.b WHERE c.score > ?",
            [outputs.above],
        )
    if unknown := [name for name in outputs.keep if name not in names]:
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
    with_cells = (
        (both, "JOIN whole l ON l.row = f.a JOIN whole r ON r.row = f.b") if outputs.cells else ("", "")
    )
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
