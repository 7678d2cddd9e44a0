"""What a person changes of links: entities merged and split, a record erased; a folder is made anew each time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairmark.service.errors import InvalidInput, UnknownLinks
from pairmark.service.links.result_files import (
    CHANGES,
    ENTITIES,
    FITTED,
    KEYS,
    LINKS,
    RECORDS,
    Key,
    connected,
    copy_to,
    free_name,
    quoted,
    read_hand,
    read_rows,
    right_side,
    write_found,
)


@contextmanager
def making_anew(folder: Path, out: Path) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Tables ``found`` and ``named``, and what was said by hand: written to a new folder when the block ends."""
    hand = read_hand(folder)
    for name in (RECORDS, CHANGES, KEYS, FITTED):
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
            own = members_of(connection, name) or [
                (side, name)
                for side in range(right_side(folder) + 1)
                if _is_alone(connection, folder, side, name)
            ]
            if not own:
                raise InvalidInput(
                    f"merge: {name[:100]!r} is neither an entity nor a record that is in none; "
                    "GET .../entities lists them",
                    field="merge",
                )
            members += own
        if len({*members}) < 2 or len({*ids}) < 2:
            raise InvalidInput("merge: expected two different entities or more", field="merge")
        named = next((name for name in ids if members_of(connection, name)), ids[0])
        connection.executemany("DELETE FROM named WHERE side = ? AND record = ?", members)
        insert_members(connection, named, members)
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
        parted = [key for key in members if key[1] in records]
        rest = [key for key in members if key[1] not in records]
        strange = {*records} - {key[1] for key in members}
        if strange or not parted or not rest:
            raise InvalidInput(
                f"records: {sorted(strange)[0][:100]!r} is not in entity {name[:100]!r}"
                if strange
                else "records: expected some of the entity's records, not all",
                field="records",
            )
        taken = {row[0] for row in connection.execute("SELECT DISTINCT entity FROM named").fetchall()}
        connection.executemany("DELETE FROM named WHERE side = ? AND record = ?", parted)
        insert_members(connection, free_name([key[1] for key in parted], taken), parted)
        both = ({*parted}, {*rest})
        hand["together"] = [
            keys for keys in hand["together"] if not all(side & {(s, r) for s, r in keys} for side in both)
        ]
        hand["together"] += [side for side in (parted, rest) if len(side) > 1]
        hand["apart"].append([parted, rest])


def erase(folder: Path, out: Path, record: str) -> int:
    """Leave a record out of everything; returns how many of its links went. An entity that is called by it is called by
    another of its records. `UnknownLinks` where there is none."""
    sides = [
        side
        for side in range(right_side(folder) + 1)
        if read_rows(folder / RECORDS, "FROM kept WHERE side = ? AND id = ? LIMIT 1", side, record)
    ]
    if not sides:
        raise UnknownLinks(f"there is no record {record[:100]!r} in the tables of these links")
    with making_anew(folder, out) as (connection, hand):
        params = [record, record]
        n = int(
            connection.execute(
                'SELECT count(*) FROM found WHERE "left" = ? OR "right" = ?', params
            ).fetchone()[0]
        )
        connection.execute('DELETE FROM found WHERE "left" = ? OR "right" = ?', params)
        connection.execute("DELETE FROM named WHERE record = ?", [record])
        called = [
            row[0]
            for row in connection.execute(
                "SELECT record FROM named WHERE entity = ? ORDER BY place", [record]
            ).fetchall()
        ]
        taken = {row[0] for row in connection.execute("SELECT DISTINCT entity FROM named").fetchall()}
        name = free_name(called, taken) if called else ""
        connection.execute("UPDATE named SET entity = ? WHERE entity = ?", [name, record])
        hand["together"] = [_without(record, keys) for keys in hand["together"]]
        hand["apart"] = [[_without(record, keys) for keys in pair] for pair in hand["apart"]]
        hand["apart"] = [pair for pair in hand["apart"] if all(pair)]
        hand["added"] = _without(record, hand["added"])
        _erase_keys(connection, folder, out, record)
        for file, sql in (
            (RECORDS, "FROM kept WHERE id <> ?"),
            (
                CHANGES,
                "SELECT CASE WHEN entity = $1 THEN $2 ELSE entity END AS entity, change, "
                "list_filter(records, lambda r: r <> $1) AS records, "
                "list_transform(entities, lambda e: CASE WHEN e = $1 THEN $2 ELSE e END) AS entities FROM kept",
            ),
        ):
            connection.execute("CREATE OR REPLACE TABLE kept AS FROM read_parquet(?)", [str(folder / file)])
            connection.execute(
                f"CREATE OR REPLACE TABLE cleared AS {sql}", [record] if file == RECORDS else [record, name]
            )
            copy_to(connection, "FROM cleared", out / file)
    return n


def _erase_keys(connection: Any, folder: Path, out: Path, record: str) -> None:
    """Leave the rows of a record out of the keys, and number the others anew."""
    if not (folder / KEYS).exists():
        return
    rows = [row[0] for row in read_rows(folder / RECORDS, "SELECT place FROM kept WHERE id = ?", record)]
    before = " - ".join(["row", *(f"CAST(row > {row} AS INTEGER)" for row in rows)])
    copy_to(
        connection,
        f"SELECT key, {before} AS row FROM read_parquet({quoted(folder / KEYS)}) "
        f"WHERE row NOT IN ({', '.join(map(str, rows))}) ORDER BY key, row",
        out / KEYS,
    )


def members_of(connection: Any, entity: str) -> list[Key]:
    found = connection.execute(
        "SELECT side, record FROM named WHERE entity = ? ORDER BY place", [entity]
    ).fetchall()
    return [(side, record) for side, record in found]


def _is_alone(connection: Any, folder: Path, side: int, record: str) -> bool:
    used = connection.execute("FROM named WHERE side = ? AND record = ?", [side, record]).fetchone()
    return used is None and bool(
        read_rows(folder / RECORDS, "SELECT 1 FROM kept WHERE side = ? AND id = ?", side, record)
    )


def insert_members(connection: Any, entity: str, members: Sequence[Key]) -> None:
    start = connection.execute("SELECT coalesce(max(place), 0) + 1 FROM named").fetchone()[0]
    rows = [(entity, *key, start + at) for at, key in enumerate(members)]
    connection.executemany("INSERT INTO named VALUES (?, ?, ?, ?)", rows)


def _without(record: str, keys: Sequence[Key]) -> list[Key]:
    return [key for key in keys if key[1] != record]
