"""From a folder of results to the tables of the link job that goes on from it, and from a job's tables to a folder."""

import json
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.linking.candidates import stored_keys
from pairmark.models.linking.engine import Linking
from pairmark.models.linking.mixture import Mixture
from pairmark.models.records.compare import LinkField
from pairmark.service.errors import InvalidInput
from pairmark.service.links.results import (
    FITTED,
    FORM,
    Stored,
    create_views,
    free_name,
    read_fitted,
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
_NOTHING_BEFORE = (
    "CREATE TABLE before_entities (entity VARCHAR, side INTEGER, record VARCHAR); CREATE TABLE before_statements "
    "(number INTEGER, part INTEGER, side INTEGER, record VARCHAR, place INTEGER)"
)


def load_previous(
    connection: Any, previous: Stored, tables: LinkTables
) -> tuple[list[LinkField], Mixture | None]:
    """What an earlier job knows of rows that are as they were: see `Linking`.

    Raises
    ------
    InvalidInput
        Where its tables had other columns.
    """
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
    add_sides(connection, tables)
    same = " AND ".join(f"s.c{at} IS NOT DISTINCT FROM e.c{place}" for at, place in enumerate(places))
    connection.execute(
        "CREATE TABLE known AS SELECT row FROM source s JOIN sides USING (row) JOIN before_records e "
        f"ON e.side = sides.side AND e.id = sides.id WHERE e.compared AND {same}"
    )
    # Scores are kept rounded: of equal ones, those that joined records do so again.
    connection.execute(
        "CREATE TABLE carried AS SELECT least(x.row, y.row) AS a, greatest(x.row, y.row) AS b, "
        "score - CASE WHEN decision = 'match' THEN 0 ELSE 1e-9 END AS score FROM before_links l "
        "JOIN sides x ON x.side = l.left_side AND x.id = l.left "
        "JOIN sides y ON y.side = l.right_side AND y.id = l.right "
        "WHERE x.row IN (FROM known) AND y.row IN (FROM known)"
    )
    connection.execute(
        "CREATE TEMP TABLE rows_of_statements AS SELECT number, part, row FROM before_statements s JOIN sides "
        "ON sides.side = s.side AND sides.id = s.record"
    )
    connection.execute(
        "CREATE TABLE together AS SELECT min(row) OVER (PARTITION BY number) AS a, row AS b FROM rows_of_statements "
        "WHERE part = 0 QUALIFY a < b"
    )
    connection.execute(
        "CREATE TABLE apart AS SELECT least(a, b) AS a, greatest(a, b) AS b FROM (SELECT min(row) FILTER (part = 1) "
        "AS a, min(row) FILTER (part = 2) AS b FROM rows_of_statements GROUP BY number) "
        "WHERE a IS NOT NULL AND b IS NOT NULL"
    )
    fields = [LinkField(**field) for field in fitted["fields"]]
    return fields, None if fitted["model"] is None else Mixture.from_json(fitted["model"])


def _append_added(connection: Any, tables: LinkTables, cells: str) -> None:
    """Put the records that people added to an earlier job's, and the tables lack, into the last table."""
    first = tables.n_rows - tables.sizes[-1]
    connection.execute(
        f"CREATE TEMP TABLE appended AS SELECT {tables.n_rows - 1} + row_number() OVER (ORDER BY place) AS row, id, "
        f"{cells} FROM before_records WHERE added AND id NOT IN (SELECT id FROM ids WHERE row >= {first})"
    )
    connection.execute("INSERT INTO source SELECT * EXCLUDE id FROM appended")
    connection.execute("INSERT INTO ids SELECT row, id FROM appended")
    tables.n_added = connection.execute("SELECT count(*) FROM appended").fetchone()[0]
    tables.sizes[-1] += tables.n_added
    if tables.n_added:
        tables.notes.append(
            f"records that were added to previous and are not in the tables are kept: {tables.n_added}"
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


def name_entities(connection: Any, tables: LinkTables, *, again: bool) -> None:
    """Tables ``record_links`` and ``entity_members``, by ids. Entities are called by the ids of their
    first records; ``again``: as they were called before."""
    if not again:
        connection.execute(_NOTHING_BEFORE)
    if again or len(tables.sizes) > 2:
        # Several tables may have the same ids.
        connection.execute("CREATE TABLE names (first INTEGER, entity VARCHAR)")
        if names := _names_again(connection):
            firsts, entities = zip(*names.items(), strict=True)
            connection.register(
                "chosen", {"first": np.array(firsts), "entity": np.array(entities, dtype=object)}
            )
            connection.execute("INSERT INTO names SELECT first, entity FROM chosen")
            connection.unregister("chosen")
    else:
        connection.execute(
            "CREATE TABLE names AS SELECT DISTINCT first, id AS entity FROM members JOIN ids ON ids.row = first"
        )
    connection.execute(
        "CREATE TABLE entity_members AS SELECT entity, side, id AS record, row AS place FROM members "
        "JOIN names USING (first) JOIN sides USING (row)"
    )
    connection.execute(
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
    names: dict[int, str] = {}
    taken: set[str] = set()
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
        of_cells = (
            stored_keys(number, field, cell)
            for number, (field, cell) in enumerate(zip(fields, cells, strict=True))
        )
        keys = f"list_sort(list_distinct(flatten([{', '.join(of_cells)}])))"
    texts = ", ".join(f"s.c{number}" for number in range(len(linking.cells.source_fields)))
    connection.execute(
        "CREATE VIEW records AS SELECT side, id, row IN (SELECT row FROM hashes) AS compared, "
        f"row >= {tables.n_rows - tables.n_added} AS added, {forms} AS forms, {keys} AS keys, {texts}, row AS place "
        f"FROM source s JOIN sides USING (row) {joined}"
    )
    connection.execute(_BEFORE_AND_NOW)
    connection.execute(
        "CREATE TABLE entity_changes AS SELECT *, row_number() OVER (ORDER BY entity, change) AS place "
        f"FROM ({_CHANGES})" + ("" if again else " LIMIT 0")
    )
    connection.execute("CREATE TABLE person_statements AS FROM before_statements")
    write_results(connection, folder, with_index=resolves and linking.model is not None)
    (folder / FITTED).write_text(json.dumps(fitted))
