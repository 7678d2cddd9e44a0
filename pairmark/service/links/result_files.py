"""What a link job keeps: links, entities, records and the model, as files of one folder.

Pages read them. What a person says of entities, and an erasure, make a folder anew: the old one is never changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.linking.candidates import stored_keys
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.mixture import Mixture
from pairmark.models.records.compare import LinkField, register
from pairmark.service.errors import Conflict, InvalidInput, StorageFailed, UnknownLinks
from pairmark.service.links.tables import LinkTables
from pairmark.service.settings import Settings

LINKS, ENTITIES, RECORDS, CHANGES, KEYS = (
    f"{name}.parquet" for name in ("links", "entities", "records", "changes", "keys")
)
FITTED, HAND = "fitted.json", "hand.json"
_FORM = 4
"""Of what was fitted; earlier ones are read no more."""
_LEVELS = ("missing", "different", "weak", "close", "equal")
_ENTITIES_SQL = "SELECT entity, side, record FROM named ORDER BY min(place) OVER (PARTITION BY entity), place"
_MOVED = (
    "CREATE TEMP TABLE moved AS SELECT n.entity AS now, b.entity AS old, coalesce(n.record, b.record) AS record FROM "
    "named n FULL JOIN before b ON b.side = n.side AND b.record = n.record WHERE n.record IS NOT NULL OR EXISTS "
    "(FROM sides s WHERE s.side = b.side AND s.id = b.record)"
)
_CHANGES_SQL = (
    "SELECT now AS entity, 'joined' AS change, list(record ORDER BY record) AS records, "
    "CAST([] AS VARCHAR[]) AS entities FROM moved WHERE old IS NULL GROUP BY now UNION ALL "
    "SELECT now, 'merged', coalesce(list(record ORDER BY record) FILTER (old <> now), []), "
    "list_sort(list(DISTINCT old)) FROM moved "
    "WHERE now IS NOT NULL AND old IS NOT NULL GROUP BY now HAVING count(DISTINCT old) > 1 UNION ALL "
    "SELECT old, 'split', coalesce(list(record ORDER BY record) FILTER (now IS DISTINCT FROM old), []), "
    "coalesce(list_sort(list(DISTINCT now) FILTER (now <> old)), []) FROM moved WHERE old IS NOT NULL GROUP BY old "
    "HAVING count(DISTINCT coalesce('e' || now, 'r' || record)) > 1 ORDER BY 1, 2"
)
_IDS_SQL = "SELECT id FROM kept WHERE side = ? AND id IN (SELECT unnest(?))"

Key = tuple[int, str]
"""Of a record: the number of its table, from 0, and its id."""


@contextmanager
def connected(**config: Any) -> Iterator[Any]:
    """DuckDB without its own progress bar, which would go to standard output, where answers go."""
    import duckdb

    try:
        with closing(duckdb.connect(config=config)) as connection:
            connection.execute("SET enable_progress_bar = false")
            yield connection
    except duckdb.OutOfMemoryException as error:
        raise InvalidInput(
            "linking takes more memory than PAIRMARK_LINK_MEMORY_BYTES allows: allow more, or give fewer candidates"
        ) from error
    except duckdb.IOException as error:
        full = "No space left" in str(error)
        raise StorageFailed(
            "no space left while writing: free some space and try again"
            if full
            else f"a file could not be read or written: {str(error).splitlines()[0][:300]}"
        ) from error


def bounds(settings: Settings, scratch: Path, threads: int | None) -> dict[str, Any]:
    """DuckDB's own settings: memory as the settings have it, and what does not fit in ``scratch``."""
    config = {
        "memory_limit": f"{settings.link_memory_bytes}B",
        "temp_directory": str(scratch / "spill"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    return config if threads is None else config | {"threads": str(threads)}


def quoted(text: Path | str) -> str:
    """A path or a text in SQL."""
    return f"'{str(text).replace(chr(39), 2 * chr(39))}'"


def named(name: str) -> str:
    """A name in SQL."""
    return f'"{name.replace(chr(34), 2 * chr(34))}"'


def copy_to(connection: Any, sql: str, path: Path) -> None:
    """Write what a query gives as CSV, or as Parquet where the path says so."""
    form = "PARQUET" if path.suffix == ".parquet" else "CSV"
    connection.execute(f"COPY ({sql}) TO {quoted(path)} (FORMAT {form})")


def read_rows(path: Path, sql: str = "FROM kept", *params: Any) -> list[tuple[Any, ...]]:
    """Rows of ``kept``, which is what stands in a file, with ids as text and ``place``, the number of the row."""
    source = (
        "SELECT * EXCLUDE file_row_number, file_row_number AS place FROM read_parquet(?, file_row_number=true)"
        if path.suffix == ".parquet"
        else "FROM read_csv(?, all_varchar=true)"
    )
    with connected(threads="1") as connection:
        rows: list[tuple[Any, ...]] = connection.execute(
            f"WITH kept AS ({source}) {sql}", [str(path), *params]
        ).fetchall()
        return rows


def read_table(path: Path) -> tuple[list[str], list[tuple[str | None, ...]]]:
    """Columns and rows of a CSV or Parquet file, as text."""
    import duckdb

    source = f"read_parquet({quoted(path)})"
    if path.suffix != ".parquet":
        source = f"read_csv({quoted(path)}, all_varchar=true, header=true)"
    with connected(threads="1") as connection:
        try:
            found = connection.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {source}")
            return [column[0] for column in found.description], found.fetchall()
        except duckdb.Error as error:
            raise InvalidInput(f"{path.name} is no table: {str(error).splitlines()[0][:300]}") from error


def write_csv(path: Path, out: Path) -> Path:
    """A Parquet file as CSV, in which no text is a formula of a spreadsheet."""
    with connected(threads="1") as connection:
        connection.execute("CREATE TABLE kept AS FROM read_parquet(?)", [str(path)])
        cells = (
            f"CASE WHEN regexp_matches({cell}, '^[-=+@\t\r]') THEN chr(39) || {cell} ELSE {cell} END AS {cell}"
            if kind == "VARCHAR"
            else cell
            for cell, kind in (
                (named(row[0]), row[1]) for row in connection.execute("DESCRIBE kept").fetchall()
            )
        )
        copy_to(connection, f"SELECT {', '.join(cells)} FROM kept", out)
    return out


# ---------------------------------------------------------------- a job's own


def bring(connection: Any, previous: Path, tables: LinkTables) -> tuple[list[LinkField], Mixture | None]:
    """What an earlier job knows of rows that are as they were: see `Linking`.

    Raises
    ------
    InvalidInput
        Where its tables had other columns.
    """
    fitted = read_fitted(previous)
    names = [field.name for field in tables.fields]
    if {*names} != {*fitted["columns"]} or len(tables.sizes) != fitted["tables"]:
        raise InvalidInput(
            f"previous compared the columns {', '.join(fitted['columns'])}, and now there are {', '.join(names)}; "
            "expected the same, in any order: link without previous",
            field="previous",
        )
    hand = read_hand(previous)
    _append_added(connection, previous, tables, fitted["columns"], hand["added"])
    _add_sides(connection, tables)
    one, other = _sides_sql(fitted["tables"] - 1, "l.")
    same = " AND ".join(
        f"s.c{at} IS NOT DISTINCT FROM e.c{fitted['columns'].index(name)}" for at, name in enumerate(names)
    )
    connection.execute(
        f"CREATE TABLE known AS SELECT row FROM source s JOIN sides USING (row) JOIN read_parquet(?) e "
        f"ON e.side = sides.side AND e.id = sides.id WHERE e.compared AND {same}",
        [str(previous / RECORDS)],
    )
    # Scores are kept rounded: of equal ones, those that joined records do so again.
    connection.execute(
        "CREATE TABLE carried AS SELECT least(x.row, y.row) AS a, greatest(x.row, y.row) AS b, "
        "score - CASE WHEN decision = 'match' THEN 0 ELSE 1e-9 END AS score "
        f"FROM read_parquet(?) l JOIN sides x ON x.side = {one} AND x.id = l.left "
        f"JOIN sides y ON y.side = {other} AND y.id = l.right "
        "WHERE x.row IN (FROM known) AND y.row IN (FROM known)",
        [str(previous / LINKS)],
    )
    connection.execute("CREATE TABLE before AS FROM read_parquet(?)", [str(previous / ENTITIES)])
    rows_of = [[_rows(connection, keys) for keys in each] for each in hand["apart"]]
    apart = [(one[0], other[0]) for one, other in rows_of if one and other]
    joined = [_rows(connection, keys) for keys in hand["together"]]
    together = [(rows[0], row) for rows in joined for row in rows[1:]]
    for table, pairs in (("together", together), ("apart", apart)):
        connection.execute(f"CREATE TABLE {table} (a INTEGER, b INTEGER)")
        if pairs:
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?)", [sorted(pair) for pair in pairs])
    fields = [LinkField(**field) for field in fitted["fields"]]
    return fields, None if fitted["model"] is None else Mixture.from_json(fitted["model"])


def _append_added(
    connection: Any, previous: Path, tables: LinkTables, columns: Sequence[str], added: Sequence[Key]
) -> None:
    """Put the records that people added to an earlier job's, and the tables lack, into the last table; the table
    ``added(side, id)`` has them."""
    connection.execute("CREATE TABLE added (side INTEGER, id VARCHAR)")
    if added:
        connection.executemany("INSERT INTO added VALUES (?, ?)", added)
    first = tables.n_rows - tables.sizes[-1]
    connection.execute("DELETE FROM added WHERE id IN (SELECT id FROM ids WHERE row >= ?)", [first])
    cells = ", ".join(f"c{columns.index(field.name)}" for field in tables.fields)
    connection.execute(
        f"CREATE TEMP TABLE appended AS SELECT {tables.n_rows - 1} + row_number() OVER (ORDER BY file_row_number) "
        f"AS row, id, {cells} FROM read_parquet(?, file_row_number=true) SEMI JOIN added USING (side, id)",
        [str(previous / RECORDS)],
    )
    connection.execute("INSERT INTO source SELECT * EXCLUDE id FROM appended")
    connection.execute("INSERT INTO ids SELECT row, id FROM appended")
    n = connection.execute("SELECT count(*) FROM appended").fetchone()[0]
    tables.n_rows += n
    tables.sizes[-1] += n
    if n:
        tables.notes.append(f"records that were added to previous and are not in the tables are kept: {n}")


def _sides_sql(last: int, of: str = "") -> tuple[str, str]:
    """SQL of the numbers of the tables that the records of a link are of."""
    return (f"{of}left_table - 1", f"{of}right_table - 1") if last > 1 else ("0", str(last))


def read_fitted(folder: Path) -> dict[str, Any]:
    """What was fitted; `Conflict` where it is of an earlier version."""
    fitted: dict[str, Any] = json.loads((folder / FITTED).read_text())
    if fitted.get("form") != _FORM:
        raise Conflict("these links are of an earlier version: delete them and link again (POST /links)")
    return fitted


def name_entities(connection: Any, tables: LinkTables, *, again: bool) -> None:
    """Tables ``found`` of links and ``named`` of entities' records, by ids. Entities are called by the ids of their
    first records; ``again``: as they were called before."""
    if not again:
        _add_sides(connection, tables)
    if again or len(tables.sizes) > 2:
        # Several tables may have the same ids.
        connection.execute("CREATE TABLE IF NOT EXISTS before (entity VARCHAR, side INTEGER, record VARCHAR)")
        connection.execute("CREATE TABLE names (first INTEGER, entity VARCHAR)")
        if names := _names_again(connection):
            firsts, given = zip(*names.items(), strict=True)
            connection.register("given", {"first": np.array(firsts), "entity": np.array(given, dtype=object)})
            connection.execute("INSERT INTO names SELECT first, entity FROM given")
            connection.unregister("given")
    else:
        connection.execute(
            "CREATE TABLE names AS SELECT DISTINCT first, id AS entity FROM members JOIN ids ON ids.row = first"
        )
    connection.execute(
        "CREATE TABLE named AS SELECT entity, side, id AS record, row AS place FROM members JOIN names USING (first) "
        "JOIN sides USING (row)"
    )
    connection.execute(
        "CREATE TABLE found AS SELECT x.id AS left, y.id AS right, x.side AS left_side, y.side AS side, score, "
        "row_number() OVER (ORDER BY a, b) AS place, a, b FROM links JOIN sides x ON x.row = a "
        "JOIN sides y ON y.row = b"
    )


def keep(connection: Any, folder: Path, linking: Linking, previous: Path | None) -> None:
    """Write a folder of what was found."""
    compared = ", ".join(f"c{at}" for at in range(len(linking.source_fields)))
    copy_to(
        connection,
        f"SELECT side, id, row IN (SELECT row FROM hashes) AS compared, {compared} FROM source "
        "JOIN sides USING (row) ORDER BY row",
        folder / RECORDS,
    )
    fitted = {
        "form": _FORM,
        "columns": [field.name for field in linking.source_fields],
        "fields": [vars(field) for field in linking.fields],
        "tables": len(linking.sides.sizes),
        "rules": linking.rules,
        "cut": linking.cut,
        "most": linking.most,
        "never": [
            field.name
            for at, field in enumerate(linking.source_fields)
            if f"c{at}" in linking.constraints.never
        ],
        "model": None if linking.model is None else linking.model.to_json(),
    }
    (folder / FITTED).write_text(json.dumps(fitted))
    if linking.model is not None:
        keys = ", ".join(
            stored_keys(at, field, f"c{place}")
            for at, (field, place) in enumerate(zip(linking.fields, linking.places, strict=True))
        )
        copy_to(
            connection,
            f"SELECT DISTINCT key, row FROM (SELECT unnest(flatten([{keys}])) AS key, row FROM cells) "
            "WHERE key IS NOT NULL ORDER BY key, row",
            folder / KEYS,
        )
    hand: dict[str, Any] = {"together": [], "apart": [], "added": []}
    if previous is None:
        connection.execute("CREATE TABLE IF NOT EXISTS before (entity VARCHAR, side INTEGER, record VARCHAR)")
    else:
        hand = read_hand(previous) | {"added": connection.execute("FROM added ORDER BY id").fetchall()}
    connection.execute(_MOVED)
    copy_to(connection, _CHANGES_SQL if previous is not None else f"{_CHANGES_SQL} LIMIT 0", folder / CHANGES)
    write_found(connection, folder, hand, len(linking.sides.sizes))


def counts(folder: Path) -> dict[str, int]:
    """How many links and entities a folder has."""
    links, cut = read_rows(
        folder / LINKS,
        "SELECT count(*) FILTER (decision = 'match'), count(*) FILTER (decision <> 'match') FROM kept",
    )[0]
    entities = read_rows(folder / ENTITIES, "SELECT count(DISTINCT entity) FROM kept")[0][0]
    records = read_rows(folder / RECORDS, "SELECT count(*) FROM kept")[0][0]
    return {"records": records, "links": links, "cut": cut, "entities": entities}


def write_found(connection: Any, folder: Path, hand: Mapping[str, Any], n_tables: int) -> None:
    copy_to(connection, links_sql(n_tables), folder / LINKS)
    copy_to(connection, _ENTITIES_SQL, folder / ENTITIES)
    (folder / HAND).write_text(json.dumps(hand))


def links_sql(n_tables: int, cells: str = "", joins: str = "") -> str:
    """SQL of links in their order, of several tables with their numbers, with further cells from joined tables."""
    tables = ", f.left_side + 1 AS left_table, f.side + 1 AS right_table" if n_tables > 2 else ""
    return (
        "SELECT f.left, f.right, round(score, 6) AS score, CASE WHEN x.entity = y.entity THEN 'match' ELSE 'different' "
        f"END AS decision, CASE WHEN x.entity = y.entity THEN x.entity END AS entity{tables}{cells} FROM found f "
        "LEFT JOIN named x ON x.side = f.left_side AND x.record = f.left "
        f"LEFT JOIN named y ON y.side = f.side AND y.record = f.right {joins} ORDER BY f.place"
    )


def _add_sides(connection: Any, tables: LinkTables) -> None:
    starts = accumulate(tables.sizes[:-1])
    side = " + ".join(f"CAST(row >= {start} AS INTEGER)" for start in starts) or "0"
    connection.execute(f"CREATE TABLE sides AS SELECT row, id, {side} AS side FROM ids")


def _rows(connection: Any, keys: Sequence[Key]) -> list[int]:
    found = (
        connection.execute("SELECT row FROM sides WHERE side = ? AND id = ?", list(key)).fetchone()
        for key in keys
    )
    return [row[0] for row in found if row is not None]


def _names_again(connection: Any) -> dict[int, str]:
    """The name of each entity by its first row: that of the earlier one that it has most records of, else the id of a
    record of its own that was no entity's name."""
    shared = connection.execute(
        "SELECT first, entity FROM members JOIN sides USING (row) JOIN before b ON b.side = sides.side AND "
        "b.record = sides.id GROUP BY first, entity ORDER BY count(*) DESC, entity, first"
    ).fetchall()
    names: dict[int, str] = {}
    taken: set[str] = set()
    for first, entity in shared:
        if first not in names and entity not in taken:
            names[first] = entity
            taken.add(entity)
    taken |= {row[0] for row in connection.execute("SELECT DISTINCT entity FROM before").fetchall()}
    new: dict[int, list[str]] = {}
    for first, record in connection.execute(
        "SELECT first, id FROM members JOIN ids USING (row) ORDER BY first, row"
    ).fetchall():
        if first not in names:
            new.setdefault(first, []).append(record)
    for first, records in new.items():
        names[first] = free_name(records, taken)
        taken.add(names[first])
    return names


def read_hand(folder: Path) -> dict[str, Any]:
    """What people said: ``together`` lists records of one entity, ``apart`` two lists of different ones each, ``added``
    records that no table had."""
    hand: dict[str, Any] = json.loads((folder / HAND).read_text())
    return hand


def free_name(records: Sequence[str], taken: set[str]) -> str:
    """The id of the first record that names no other entity."""
    numbered = (f"{records[0]}~{number}" for number in count(2))
    return next(name for name in chain(records, numbered) if name not in taken)


# ---------------------------------------------------------------- one pair


def split_ids(folder: Path, text: str) -> tuple[str, str]:
    """The ids of a left and a right record, joined by a slash: ids may hold slashes themselves."""
    pairs = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == "/"]
    side = right_side(folder)
    lefts, rights = (
        {row[0] for row in read_rows(folder / RECORDS, _IDS_SQL, of, [pair[at] for pair in pairs])}
        for at, of in enumerate((0, side))
    )
    return next((pair for pair in pairs if pair[0] in lefts and pair[1] in rights), pairs[0])


def texts_of(folder: Path, keys: Sequence[Key]) -> list[dict[str, Any]]:
    """Cells of records by column, in the order of their keys; `UnknownLinks` where there is none."""
    names = json.loads((folder / FITTED).read_text())["columns"]
    rows = read_rows(
        folder / RECORDS,
        "SELECT * EXCLUDE (compared, place) FROM kept WHERE (side, id) IN (SELECT unnest(?), unnest(?))",
        [key[0] for key in keys],
        [key[1] for key in keys],
    )
    by_key = {(row[0], row[1]): dict(zip(names, row[2:], strict=True)) for row in rows}
    for key in keys:
        if key not in by_key:
            raise UnknownLinks(f"there is no record {key[1][:100]!r} in table {key[0] + 1} of these links")
    return [by_key[key] for key in keys]


def found(folder: Path, search: str | None, by_doubt: bool, limit: int, start: int) -> list[tuple[Any, ...]]:
    """Links in their order or the most doubtful first; of ``search``, those with the text in an id or a cell."""
    where, params = "", []
    if search is not None:
        one, other = _sides_sql(right_side(folder), "kept.")
        where = (
            f"WHERE EXISTS (FROM read_parquet(?) r WHERE ((r.side = {one} AND r.id = kept.left) OR (r.side = {other} "
            "AND r.id = kept.right)) AND contains(lower(concat_ws(chr(10), r.id, CAST(r AS VARCHAR))), lower(?)))"
        )
        params = [str(folder / RECORDS), search]
    order = "decision <> 'different', score, place" if by_doubt else "place"
    return read_rows(
        folder / LINKS,
        f"SELECT * EXCLUDE place FROM kept {where} ORDER BY {order} LIMIT ? OFFSET ?",
        *params,
        limit,
        start,
    )


def keys_of(folder: Path, left: str, right: str) -> list[Key]:
    """Where two records are: of several tables where they are linked; else the left one in the first table that has its
    id, the right one in the last."""
    last = right_side(folder)
    if last > 1:
        one, other = _sides_sql(last)
        linked = read_rows(
            folder / LINKS,
            f'SELECT {one}, "left", {other}, "right" FROM kept WHERE ("left" = $2 AND "right" = $3) OR ("left" = $3 '
            'AND "right" = $2) ORDER BY "left" <> $2, place LIMIT 1',
            left,
            right,
        )
        if linked:
            keys = [linked[0][:2], linked[0][2:]]
            return keys if keys[0][1] == left else keys[::-1]
    sides = (
        read_rows(folder / RECORDS, f"SELECT {pick}(side) FROM kept WHERE id = ?", name)[0][0]
        for pick, name in (("min", left), ("max", right))
    )
    first, second = sides
    return [(0 if first is None else first, left), (last if second is None else second, right)]


def right_side(folder: Path) -> int:
    """The number of the last table, from 0."""
    return int(read_fitted(folder)["tables"]) - 1


def link_of(folder: Path, one: Key, other: Key) -> tuple[Any, ...] | None:
    """(score, decision, entity) of the link of two records, in either order."""
    left, right = _sides_sql(right_side(folder))
    either = f'({left} = ? AND "left" = ? AND {right} = ? AND "right" = ?)'
    found = read_rows(
        folder / LINKS,
        f"SELECT score, decision, entity FROM kept WHERE {either} OR {either}",
        *one,
        *other,
        *other,
        *one,
    )
    return found[0] if found else None


def explained(folder: Path, left: Mapping[str, Any], right: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Field by field, what both cells are, how far they agree, and what that adds to the log odds of a match."""
    fitted = read_fitted(folder)
    fields = [LinkField(**field) for field in fitted["fields"]]
    with connected(threads="1") as connection:
        register(connection)
        cells = ", ".join(
            f"{field.normal(f'${2 * at + side + 1}')} AS {name}{at}"
            for at, field in enumerate(fields)
            for side, name in enumerate("ab")
        )
        levels = ", ".join(
            f"{field.level(f'a{at}', f'b{at}')}, a{at}, b{at}" for at, field in enumerate(fields)
        )
        found = connection.execute(
            f"SELECT {levels} FROM (SELECT {cells})",
            [side[field.name] for field in fields for side in (left, right)],
        ).fetchone()
    weights = [0.0] * len(fields)
    if fitted["model"] is not None:
        model = Mixture.from_json(fitted["model"])
        weights = model.contributions(model.symbols(np.array(found[::3]), found[1::3], found[2::3]))
    return [
        {
            "field": field.name,
            "left": left[field.name],
            "right": right[field.name],
            "level": _LEVELS[level],
            "weight": round(weight, 4),
            "together_with": [],
        }
        for field, level, weight in zip(fields, found[::3], weights, strict=True)
    ]
