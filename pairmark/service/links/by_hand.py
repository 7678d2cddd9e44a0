"""What a person changes of links: entities merged and split, a record erased; a folder is made anew each time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairmark.service.errors import InvalidInput, UnknownLinks
from pairmark.service.links.duck import connected, copy_to, read_rows
from pairmark.service.links.index import OF_RECORDS, change_records
from pairmark.service.links.result_files import (
    CHANGES,
    ENTITIES,
    FITTED,
    LINKS,
    RECORDS,
    Key,
    free_name,
    pick_key,
    read_hand,
    record_key,
    right_side,
    write_found,
)


@contextmanager
def making_anew(folder: Path, out: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Tables ``found`` and ``named``, and what was said by hand: written to a new folder when the block ends."""
    hand = read_hand(folder)
    for name in (RECORDS, CHANGES, FITTED, *OF_RECORDS):
        if (folder / name).exists():
            shutil.copyfile(folder / name, out / name)
    last = right_side(folder)
    sides = f"0 AS left_side, {last} AS side"
    if last > 1:
        sides = "left_table - 1 AS left_side, right_table - 1 AS side"
    with connected() as connection:
        connection.execute(
            f'CREATE TABLE found AS SELECT "left", "right", {sides}, score, '
            "file_row_number AS place FROM read_parquet(?, file_row_number=true)",
            [str(folder / LINKS)],
        )
        connection.execute(
            "CREATE TABLE named AS SELECT * EXCLUDE file_row_number, file_row_number AS place "
            "FROM read_parquet(?, file_row_number=true)",
            [str(folder / ENTITIES)],
        )
        yield connection, hand
        connection.execute(
            "DELETE FROM named WHERE entity IN (SELECT entity FROM named GROUP BY entity HAVING count(*) < 2)"
        )
        write_found(connection, out, hand, 1 + right_side(folder))


def merge(folder: Path, out: Path, ids: Sequence[str]) -> None:
    """Make one entity of several, called by the first; a record alone is called by its own id."""
    with making_anew(folder, out) as (connection, hand):
        members: list[Key] = []
        for name in ids:
            members += members_of(connection, name) or [_alone(connection, folder, name)]
        if len({*members}) < 2 or len({*ids}) < 2:
            raise InvalidInput("merge: expected two different entities or more", field="merge")
        called = next((name for name in ids if members_of(connection, name)), None)
        called = called or free_name([members[0][1]], entity_names(connection))
        connection.executemany("DELETE FROM named WHERE side = ? AND record = ?", members)
        insert_members(connection, called, members)
        inside = {*members}
        hand["apart"] = [
            sides for sides in hand["apart"] if not all(inside & {(s, r) for s, r in side} for side in sides)
        ]
        hand["together"].append(members)


def split(folder: Path, out: Path, name: str, records: Sequence[str]) -> None:
    """Take records out of an entity, which become one of their own; the others keep its id."""
    with making_anew(folder, out) as (connection, hand):
        members = members_of(connection, name)
        if not members:
            raise InvalidInput(
                f"split: there is no entity {name[:100]!r}; GET .../entities lists them", field="split"
            )
        parted = {record: pick_key(members, record) for record in records}
        strange = sorted(record for record, key in parted.items() if key is None)
        sides = [
            [key for key in members if (key in parted.values()) is is_parted] for is_parted in (True, False)
        ]
        if strange or not all(sides):
            raise InvalidInput(
                f"records: {strange[0][:100]!r} is not in entity {name[:100]!r}"
                if strange
                else "records: expected some of the entity's records, not all",
                field="records",
            )
        connection.executemany("DELETE FROM named WHERE side = ? AND record = ?", sides[0])
        insert_members(
            connection, free_name([key[1] for key in sides[0]], entity_names(connection)), sides[0]
        )
        hand["together"] = [
            keys for keys in hand["together"] if not all({*map(tuple, keys)} & {*side} for side in sides)
        ]
        hand["together"] += [side for side in sides if len(side) > 1]
        hand["apart"].append(sides)


def erase(folder: Path, out: Path, key: Key) -> int:
    """Leave a record out of everything; returns how many of its links went. An entity that is called by it is called by
    another of its records."""
    record = key[1]
    with making_anew(folder, out) as (connection, hand):
        is_of = '(("left" = $2 AND left_side = $1) OR ("right" = $2 AND side = $1))'
        n = int(connection.execute(f"SELECT count(*) FROM found WHERE {is_of}", key).fetchone()[0])
        connection.execute(f"DELETE FROM found WHERE {is_of}", key)
        connection.execute("DELETE FROM named WHERE side = $1 AND record = $2", key)
        called = [each[1] for each in members_of(connection, record)]
        name = record if record in called else ""
        if called and not name:
            name = free_name(called, entity_names(connection))
        connection.execute("UPDATE named SET entity = ? WHERE entity = ?", [name, record])
        hand["together"] = [_without(key, keys) for keys in hand["together"]]
        hand["apart"] = [[_without(key, keys) for keys in pair] for pair in hand["apart"]]
        hand["apart"] = [pair for pair in hand["apart"] if all(pair)]
        hand["added"] = _without(key, hand["added"])
        if (folder / OF_RECORDS[0]).exists():
            rows = read_rows(folder / RECORDS, "SELECT place FROM kept WHERE side = ? AND id = ?", *key)
            change_records(folder, out, removed=[row[0] for row in rows])
        for file, params, sql in (
            (RECORDS, key, "FROM kept WHERE NOT (side = $1 AND id = $2)"),
            (
                CHANGES,
                (record, name),
                "SELECT CASE WHEN entity = $1 THEN $2 ELSE entity END AS entity, change, "
                "list_filter(records, lambda r: r <> $1) AS records, "
                "list_transform(entities, lambda e: CASE WHEN e = $1 THEN $2 ELSE e END) AS entities FROM kept "
                "WHERE list_has_any(records, list_filter(records, lambda r: r <> $1))",
            ),
        ):
            connection.execute("CREATE OR REPLACE TABLE kept AS FROM read_parquet(?)", [str(folder / file)])
            connection.execute(f"CREATE OR REPLACE TABLE cleared AS {sql}", list(params))
            copy_to(connection, "FROM cleared", out / file)
    return n


def members_of(connection: Any, entity: str) -> list[Key]:
    found = connection.execute(
        "SELECT side, record FROM named WHERE entity = ? ORDER BY place", [entity]
    ).fetchall()
    return [(side, record) for side, record in found]


def entity_names(connection: Any) -> set[str]:
    return {row[0] for row in connection.execute("SELECT DISTINCT entity FROM named").fetchall()}


def insert_members(connection: Any, entity: str, members: Sequence[Key]) -> None:
    start = connection.execute("SELECT coalesce(max(place), 0) + 1 FROM named").fetchone()[0]
    rows = [(entity, *key, start + at) for at, key in enumerate(members)]
    connection.executemany("INSERT INTO named VALUES (?, ?, ?, ?)", rows)


def _alone(connection: Any, folder: Path, name: str) -> Key:
    """A record that is in no entity."""
    try:
        key = record_key(folder, name)
    except UnknownLinks:
        key = None
    used = key and connection.execute("FROM named WHERE side = ? AND record = ?", list(key)).fetchone()
    if key is None or used:
        raise InvalidInput(
            f"merge: {name[:100]!r} is neither an entity nor a record that is in none; GET .../entities lists them",
            field="merge",
        )
    return key


def _without(key: Key, keys: Sequence[Key]) -> list[Key]:
    return [each for each in keys if tuple(each) != key]
