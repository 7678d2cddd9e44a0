"""What a person changes of links: entities merged and split, a record erased, in the tables of `rewrite_results`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pairmark.service.errors import InvalidInput, UnknownLinks
from pairmark.service.links.duck import quoted
from pairmark.service.links.results import Key, Results, free_name, pick_key, written_key


def merge(results: Results, ids: Sequence[str]) -> None:
    """Make one entity of several, called by the first; a record alone is called by its own id."""
    connection = results.connection
    members: list[Key] = []
    for name in ids:
        members += _members_of(connection, name) or [_alone(results, name)]
    if len({*members}) < 2 or len({*ids}) < 2:
        raise InvalidInput("merge: expected two different entities or more", field="merge")
    names = [name for name in ids if _members_of(connection, name)]
    name = names[0] if names else _free_name(connection, members[:1])
    _name_members(connection, name, members)
    # What was said to be different and is one now.
    _forget(connection, "count(DISTINCT part) > 1", name)
    _say(connection, {0: members})


def split(results: Results, name: str, records: Sequence[str]) -> None:
    """Take records out of an entity, which become one of their own; the others keep its id."""
    connection = results.connection
    members = _members_of(connection, name)
    if not members:
        raise InvalidInput(
            f"split: there is no entity {name[:100]!r}; GET .../entities lists them", field="split"
        )
    parted = {record: pick_key(members, record) for record in records}
    strange = sorted(record for record, key in parted.items() if key is None)
    leaving, staying = (
        [key for key in members if (key in parted.values()) is is_parted] for is_parted in (True, False)
    )
    if strange or not leaving or not staying:
        raise InvalidInput(
            f"records: {strange[0][:100]!r} is not in entity {name[:100]!r}"
            if strange
            else "records: expected some of the entity's records, not all",
            field="records",
        )
    new_name = _free_name(connection, leaving)
    _name_members(connection, new_name, leaving)
    # What was said to be one and is two now.
    _forget(connection, "min(part) = 0 AND count(DISTINCT entity) > 1", name, new_name)
    for side in (leaving, staying):
        _say(connection, {0: side})
    _say(connection, {1: leaving, 2: staying})


def erase(results: Results, record_name: str) -> tuple[int, list[str]]:
    """Leave a record out of everything; returns how many of its links went, and what reviews call it. An entity that is
    called by it is called by another of its records."""
    connection, key = results.connection, results.record(record_name)
    record = key[1]
    # A review names a record by its id alone where no other table has that.
    refs = [written_key(key), *([record] if len(results.keys_of([record])) == 1 else [])]
    n = connection.execute(
        'DELETE FROM found WHERE (left_side = $1 AND "left" = $2) OR (right_side = $1 AND "right" = $2)', key
    ).fetchone()[0]
    for table in ("named", "said"):
        connection.execute(f"DELETE FROM {table} WHERE side = $1 AND record = $2", key)
    connection.execute("ALTER VIEW records RENAME TO every_record")
    connection.execute(
        f"CREATE VIEW records AS FROM every_record WHERE side <> {key[0]} OR id <> {quoted(record)}"
    )
    members = _members_of(connection, record)
    name = record if record in [member[1] for member in members] else ""
    if members and not name:
        name = _free_name(connection, members)
    connection.execute("UPDATE named SET entity = ? WHERE entity = ?", [name, record])
    connection.execute(
        "UPDATE moved SET entity = CASE WHEN entity = $2 THEN $3 ELSE entity END, "
        "records = list_filter(records, lambda r: r.side <> $1 OR r.record <> $2), "
        "entities = list_transform(entities, lambda e: CASE WHEN e = $2 THEN $3 ELSE e END)",
        [*key, name],
    )
    connection.execute("DELETE FROM moved WHERE len(records) = 0")
    return int(n), refs


def _members_of(connection: Any, entity: str) -> list[Key]:
    return [
        (side, record)
        for side, record in connection.execute(
            "SELECT side, record FROM named WHERE entity = ? ORDER BY place", [entity]
        ).fetchall()
    ]


def _free_name(connection: Any, members: Sequence[Key]) -> str:
    taken = {row[0] for row in connection.execute("SELECT DISTINCT entity FROM named").fetchall()}
    return free_name([key[1] for key in members], taken)


def _name_members(connection: Any, entity: str, members: Sequence[Key]) -> None:
    """Put records into an entity, after those that are there."""
    connection.executemany("DELETE FROM named WHERE side = ? AND record = ?", members)
    start = connection.execute("SELECT coalesce(max(place), 0) + 1 FROM named").fetchone()[0]
    rows = [(entity, *key, start + at) for at, key in enumerate(members)]
    connection.executemany("INSERT INTO named VALUES (?, ?, ?, ?)", rows)


def _say(connection: Any, parts: dict[int, Sequence[Key]]) -> None:
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM said").fetchone()[0]
    rows = [(number, part, *key, at) for part, keys in parts.items() for at, key in enumerate(keys)]
    connection.executemany("INSERT INTO said VALUES (?, ?, ?, ?, ?)", rows)


def _forget(connection: Any, having: str, *entities: str) -> None:
    """Take back statements about records of some entities."""
    connection.execute(
        "DELETE FROM said WHERE number IN (SELECT number FROM said s JOIN named n ON n.side = s.side AND "
        f"n.record = s.record WHERE entity IN (SELECT unnest(?)) GROUP BY number HAVING {having})",
        [[*entities]],
    )


def _alone(results: Results, name: str) -> Key:
    """A record that is in no entity."""
    try:
        key = results.record(name)
    except UnknownLinks:
        key = None
    if key is None or results.rows("FROM named WHERE side = ? AND record = ?", *key):
        raise InvalidInput(
            f"merge: {name[:100]!r} is neither an entity nor a record that is in none; GET .../entities lists them",
            field="merge",
        )
    return key
