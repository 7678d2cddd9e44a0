"""What a link job keeps: links, entities, records and the model, as files of one folder.

Pages read them. What a person says of entities, and an erasure, make a folder anew: the old one is never changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, count
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.linking.candidates import stored_keys
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.mixture import Mixture
from pairmark.models.records.compare import LinkField
from pairmark.service.errors import Conflict, InvalidInput, UnknownLinks
from pairmark.service.links.comparing import comparer, form_of
from pairmark.service.links.duck import copy_to, read_rows
from pairmark.service.links.index import write_entities, write_records
from pairmark.service.links.tables import LinkTables

LINKS, ENTITIES, RECORDS, CHANGES = (
    f"{name}.parquet" for name in ("links", "entities", "records", "changes")
)
FITTED, HAND = "fitted.json", "hand.json"
_FORM = 6
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

Key = tuple[int, str]
"""Of a record: the number of its table, from 0, and its id."""


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
    add_sides(connection, tables)
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
    said = {
        int(column[1:]) for rule in (*linking.constraints.must, linking.constraints.never) for column in rule
    }
    # Columns that no model compares, of which somebody said what they must or never have in common.
    beside = sorted(said - {*linking.places})

    def named(columns: Sequence[str]) -> list[str]:
        return [linking.source_fields[int(column[1:])].name for column in columns]

    fitted = {
        "form": _FORM,
        "columns": [field.name for field in linking.source_fields],
        "fields": [vars(field) for field in linking.fields],
        "beside": [vars(linking.source_fields[at]) for at in beside],
        "tables": len(linking.sides.sizes),
        "rules": linking.rules,
        "cut": linking.cut,
        "most": linking.most,
        "unique": sorted(linking.unique),
        "must": [named(rule) for rule in linking.constraints.must],
        "never": named(linking.constraints.never),
        "model": None if linking.model is None else linking.model.to_json(),
    }
    (folder / FITTED).write_text(json.dumps(fitted))
    if linking.model is not None:
        forms = [f"c{place}" for place in (*linking.places, *beside)]
        compared_fields = [*linking.fields, *(linking.source_fields[at] for at in beside)]
        keys = [
            stored_keys(at, field, form)
            for at, (field, form) in enumerate(zip(compared_fields, forms, strict=True))
        ]
        write_records(connection, folder, forms, keys)
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
    if read_fitted(folder)["model"] is not None:
        write_entities(connection, folder, folder / RECORDS)
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


def add_sides(connection: Any, tables: LinkTables) -> None:
    """Table ``sides(row, id, side)`` of all rows, and view ``refs(row, ref)`` of what names each."""
    starts = accumulate(tables.sizes[:-1])
    side = " + ".join(f"CAST(row >= {start} AS INTEGER)" for start in starts) or "0"
    connection.execute(f"CREATE TABLE sides AS SELECT row, id, {side} AS side FROM ids")
    connection.execute(
        "CREATE VIEW refs AS SELECT row, CASE WHEN count(*) OVER (PARTITION BY id) > 1 THEN (side + 1) || ':' || id "
        "ELSE id END AS ref FROM sides"
    )


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


def pick_key(keys: Sequence[Key], name: str) -> Key | None:
    """The record that a person means, by its id or by `TABLE:ID` (tables are numbered from 1); None where it is none.

    Raises
    ------
    InvalidInput
        Where several tables have the id: what to write instead.
    """
    exact = [key for key in keys if key[1] == name]
    written = next((key for key in keys if written_key(key) == name), None)
    if written is not None and sum(key[1] == written[1] for key in keys) > 1:
        # Nothing else names it.
        return written
    if len(exact) > 1:
        instead = " or ".join(repr(written_key(key)[:100]) for key in sorted(exact))
        raise InvalidInput(
            f"several tables have a record {name[:100]!r}; expected {instead}: the table's number, and the id",
            field="record",
        )
    return next(iter(exact), written)


def written_key(key: Key) -> str:
    """What names a record where several tables have its id."""
    return f"{key[0] + 1}:{key[1]}"


def pick_pair(keys: Sequence[Key], n_tables: int, left: str, right: str) -> list[Key]:
    """The records of a pair, among those that have any of `ids_of` both: of two tables in the left and the right one,
    where there is one. `UnknownLinks` where there is none, and see `pick_key`."""
    pair = []
    for side, name in enumerate((left, right)):
        in_place = [key for key in keys if n_tables == 2 and key == (side, name)]
        pair.append(_there(pick_key(in_place or keys, name), name))
    return pair


def record_key(folder: Path, name: str) -> Key:
    return _there(pick_key(called(folder, ids_of(name)), name), name)


def keys_of(folder: Path, left: str, right: str) -> list[Key]:
    """The records of a pair. Addresses join both by a slash, and ids may hold slashes themselves: where there are no
    such two, every slash is tried."""
    text, error = f"{left}/{right}", None
    pairs = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == "/"]
    keys = called(folder, ids_of(left, right, *chain(*pairs)))
    for one, other in [(left, right), *pairs]:
        try:
            return pick_pair(keys, 1 + right_side(folder), one, other)
        except UnknownLinks as unknown:
            error = error or unknown
    assert error is not None
    raise error


def ids_of(*names: str) -> list[str]:
    """What may be the id of a record that is named so."""
    return [each for name in names for each in (name, name.partition(":")[2])]


def called(folder: Path, ids: Sequence[str]) -> list[Key]:
    """Records that have some ids."""
    rows = read_rows(folder / RECORDS, "SELECT side, id FROM kept WHERE id IN (SELECT unnest(?))", [*ids])
    return [(side, record) for side, record in rows]


def _there(key: Key | None, name: str) -> Key:
    if key is None:
        raise UnknownLinks(f"there is no record {name[:100]!r} in the tables of these links")
    return key


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
    forms = [[form_of(field.kind, side[field.name]) for field in fields] for side in (left, right)]
    levels = [comparer().levels(field.kind, a, [b])[0] for field, a, b in zip(fields, *forms, strict=True)]
    weights = [0.0] * len(fields)
    if fitted["model"] is not None:
        model = Mixture.from_json(fitted["model"])
        weights = model.contributions(model.symbols(np.array(levels), *forms))
    return [
        {
            "field": field.title,
            "left": left[field.name],
            "right": right[field.name],
            "level": _LEVELS[level],
            "weight": round(weight, 4),
        }
        for field, level, weight in zip(fields, levels, weights, strict=True)
    ]
