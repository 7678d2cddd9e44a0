"""What a person changes of links: entities merged and split, which is added to a folder, and a record erased, in the
tables of `rewrite_results`."""

from __future__ import annotations

from collections.abc import Sequence

from pairmark.schemas.links import EntitiesEdit
from pairmark.service.errors import InvalidInput, UnknownLinks
from pairmark.service.links.duck import quoted_text
from pairmark.service.links.results import Addition, Key, Results, pick_key, written_key


def change(results: Results, edit: EntitiesEdit) -> Addition:
    """What is added to a folder by what a person says of entities."""
    if edit.merge is not None:
        return merge(results, edit.merge)
    return split(results, edit.split or "", edit.records or ())


def merge(results: Results, ids: Sequence[str]) -> Addition:
    """Make one entity of several, called by the first; a record alone is called by its own id."""
    members_of = {name: results.members(name) for name in ids}
    members = [*dict.fromkeys(key for name in ids for key in members_of[name] or [_alone(results, name)])]
    if len(members) < 2 or len(members_of) < 2:
        raise InvalidInput("merge: expected two different entities or more", field="merge")
    name = next((name for name in ids if members_of[name]), None) or results.free_name(members[:1])
    return {
        "entities": [(name, *key) for key in members],
        # What was said to be different and is one now.
        "forgotten": _statements(results, members, "count(DISTINCT part) > 1"),
        "statements": _statement_rows(results, {0: members}),
    }


def split(results: Results, name: str, records: Sequence[str]) -> Addition:
    """Take records out of an entity, which become one of their own; the others keep its id."""
    members = results.members(name)
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
    sides = ((results.free_name(leaving), leaving), (name, staying))
    within = [{*_statements(results, side, "min(part) = 0")} for _, side in sides]
    return {
        "entities": [(entity if len(side) > 1 else None, *key) for entity, side in sides for key in side],
        # What was said to be one and is two now.
        "forgotten": sorted(within[0] & within[1]),
        "statements": _statement_rows(results, {0: leaving}, {0: staying}, {1: leaving, 2: staying}),
    }


def erase(results: Results, record_name: str) -> tuple[int, list[str]]:
    """Leave a record out of everything; returns how many of its links went, and what reviews call it. An entity that is
    called by it is called by another of its records."""
    connection, key = results.connection, results.record(record_name)
    record = key[1]
    # A review names a record by its id alone where no other table has that.
    refs = [written_key(key), *([record] if len(results.keys_of([record])) == 1 else [])]
    n = connection.execute(
        'DELETE FROM record_links WHERE (left_side = $1 AND "left" = $2) OR (right_side = $1 AND "right" = $2)',
        key,
    ).fetchone()[0]
    for table in ("entity_members", "person_statements"):
        connection.execute(f"DELETE FROM {table} WHERE side = $1 AND record = $2", key)
    connection.execute("ALTER VIEW records RENAME TO every_record")
    connection.execute(
        f"CREATE VIEW records AS FROM every_record WHERE side <> {key[0]} OR id <> {quoted_text(record)}"
    )
    members = [member for member in results.members(record) if member != key]
    name = record if record in [member[1] for member in members] else ""
    if members and not name:
        name = results.free_name(members)
    connection.execute("UPDATE entity_members SET entity = ? WHERE entity = ?", [name, record])
    connection.execute(
        "UPDATE entity_changes SET entity = CASE WHEN entity = $2 THEN $3 ELSE entity END, "
        "records = list_filter(records, lambda r: r.side <> $1 OR r.record <> $2), "
        "entities = list_transform(entities, lambda e: CASE WHEN e = $2 THEN $3 ELSE e END)",
        [*key, name],
    )
    connection.execute("DELETE FROM entity_changes WHERE len(records) = 0")
    return int(n), refs


def _statements(results: Results, members: Sequence[Key], having: str) -> list[int]:
    """Numbers of what was said of some records."""
    rows = results.rows(
        "SELECT number FROM statements WHERE (side, record) IN (SELECT unnest(?), unnest(?)) GROUP BY number "
        f"HAVING {having} ORDER BY number",
        [side for side, _ in members],
        [record for _, record in members],
    )
    return [number for (number,) in rows]


def _statement_rows(results: Results, *parts_of: dict[int, Sequence[Key]]) -> list[tuple[int, int, int, str]]:
    """Rows of new statements."""
    first = results.rows("SELECT coalesce(max(number), 0) + 1 FROM statements")[0][0]
    return [
        (number, part, *key)
        for number, parts in enumerate(parts_of, first)
        for part, keys in parts.items()
        for key in keys
    ]


def _alone(results: Results, name: str) -> Key:
    """A record that is in no entity."""
    try:
        key = results.record(name)
    except UnknownLinks:
        key = None
    if key is None or results.rows("FROM entities WHERE side = ? AND record = ?", *key):
        raise InvalidInput(
            f"merge: {name[:100]!r} is neither an entity nor a record that is in none; GET .../entities lists them",
            field="merge",
        )
    return key
