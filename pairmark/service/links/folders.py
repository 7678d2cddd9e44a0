"""Folders of links: found for who may see them, with all records that were put in, and changed as one.

What a person changes: entities merged and split are added to a folder, and a record is erased in the tables of
`rewrite_results`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from pairmark.schemas.links import EntitiesEdit
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, InvalidInput, StorageFailed, UnknownLinks
from pairmark.service.links.duck import quoted_text
from pairmark.service.links.results import (
    Addition,
    Key,
    Results,
    Stored,
    open_results,
    pick_key,
    rewrite_results,
    written_key,
)
from pairmark.service.names import VisibleNames, tenant_of
from pairmark.service.reviews import repository as reviews
from pairmark.service.tables import JobRow, LinkAddition, LinkRow

REVIEWS = ("review", "missed_review", "recall_review")
WITH_STATE = select(LinkRow, JobRow.state).join(JobRow, JobRow.id == LinkRow.id)

T = TypeVar("T")
_MOST_ADDED = 1_000
"""Records and edits that are not in the files yet."""


class LinkFolders:
    """All blocking: they read the database, and files of links."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db, self._blobs = db, blobs

    @staticmethod
    def find(
        session: Session, link_id: str, names: VisibleNames, *, lock: bool = False
    ) -> tuple[LinkRow, str]:
        """A job's row and state, or `UnknownLinks`; with ``lock``, nobody else changes it until the transaction
        ends."""
        query = WITH_STATE.where(LinkRow.id == link_id)
        row_and_state = session.execute(query.with_for_update(of=LinkRow) if lock else query).one_or_none()
        if row_and_state is None or row_and_state[0].name not in names:
            raise UnknownLinks(f"there are no links {link_id[:64]!r}; GET /links lists them")
        return row_and_state[0], row_and_state[1]

    def blob(self, session: Session, link_id: str, names: VisibleNames) -> str:
        """What names the folder of a job; `Conflict` until there is one."""
        row, state = self.find(session, link_id, names)
        if row.blob is None:
            raise Conflict(f"the link job is {state}; its links are there when it has succeeded", state=state)
        return row.blob

    @staticmethod
    def additions(session: Session, link_id: str, start: int = 0) -> list[dict[str, Any]]:
        """What was put in or edited and is not in the blob, from a number on."""
        since = LinkAddition.link_id == link_id, LinkAddition.number >= start
        return list(session.scalars(select(LinkAddition.record).where(*since).order_by(LinkAddition.number)))

    def stored(self, link_id: str, names: VisibleNames) -> Stored:
        """What was found, and put in since."""
        blob, added = self._moment(link_id, names)
        return Stored(self._blobs.folder(blob), added)

    def _moment(self, link_id: str, names: VisibleNames) -> tuple[str, Sequence[Addition]]:
        with self._db.read(one_moment=True) as session:
            return self.blob(session, link_id, names), self.additions(session, link_id)

    def read(self, link_id: str, names: VisibleNames, look: Callable[[Results], T]) -> T:
        """What ``look`` finds in all that is known; anew where somebody else, perhaps another process, put another
        folder in the place of the one that was read."""
        while True:
            blob, added = self._moment(link_id, names)
            try:
                with open_results(Stored(self._blobs.folder(blob), added)) as results:
                    return look(results)
            except (OSError, CorruptArtefact, StorageFailed):
                if self._moment(link_id, names)[0] == blob:
                    raise

    def edit(self, link_id: str, names: VisibleNames, edit: EntitiesEdit) -> None:
        """Add what a person changes; `Conflict` where somebody else was faster."""
        blob, added = self._moment(link_id, names)
        folder = self._blobs.folder(blob)
        with open_results(Stored(folder, added)) as results:
            addition = (
                merge(results, edit.merge)
                if edit.merge is not None
                else split(results, edit.split or "", edit.records or ())
            )
            before = results.counts()
        with open_results(Stored(folder, [*added, addition])) as results:
            after = results.counts()
        counts = {name: n - before[name] for name, n in after.items()}
        # A link that a person made was not among those that were drawn from.
        addition = {**addition, "counts": counts | {"by_hand": max(0, counts["links"])}}
        facts = edit.model_dump(exclude_none=True) | after
        if not self.add(link_id, names, blob, len(added), addition, "links.edit", facts):
            raise _changed_meanwhile()

    @staticmethod
    def _is_as_seen(session: Session, row: LinkRow, blob: str, n_added: int) -> bool:
        """Whether nobody has changed links since they were looked at."""
        of_links = select(func.count()).select_from(LinkAddition).where(LinkAddition.link_id == row.id)
        return row.blob == blob and session.scalar(of_links) == n_added

    def add(
        self,
        link_id: str,
        names: VisibleNames,
        blob: str,
        number: int,
        addition: Addition,
        action: str,
        facts: dict[str, Any],
    ) -> bool:
        """Store an addition to ``number`` others; False where somebody else changed the links since they were looked
        at."""
        with self._db.write() as session:
            row, _ = self.find(session, link_id, names, lock=True)
            if not self._is_as_seen(session, row, blob, number):
                return False
            session.add(LinkAddition(link_id=link_id, number=number, record=dict(addition)))
            before = row.summary or {}
            row.summary = before | {name: before.get(name, 0) + n for name, n in addition["counts"].items()}
            now, tenant = self._db.now(session), tenant_of(row.name)
            record(session, now, action, f"links:{row.id}", after=facts, tenant=tenant)
        if number + 1 >= _MOST_ADDED:
            self.rewrite(link_id, names)
        return True

    def rewrite(self, link_id: str, names: VisibleNames, erased: str | None = None) -> tuple[int, int]:
        """Put a folder that has what was added, and lacks the record that is ``erased``, in the place of a job's.

        Returns
        -------
        How many links, and how many items of reviews, went with the record. Where none is erased, somebody else may be
        faster; else that is a `Conflict`.
        """
        blob, added = self._moment(link_id, names)
        n_links, n_items, refs = 0, 0, list[str]()
        with self._blobs.workspace() as out:
            with rewrite_results(Stored(self._blobs.folder(blob), added), out) as results:
                if erased is not None:
                    n_links, refs = erase(results, erased)
            with open_results(Stored(out)) as results:
                counts = results.counts()
            key = self._blobs.put_folder(out)
        with self._db.write() as session:
            row, _ = self.find(session, link_id, names, lock=True)
            if erased is not None:
                if not self._is_as_seen(session, row, blob, len(added)):
                    raise _changed_meanwhile()
                row.summary = {**(row.summary or {}), **counts}
                now, tenant = self._db.now(session), tenant_of(row.name)
                record(session, now, "links.erase", f"links:{row.id}", after=counts, tenant=tenant)
                of_links = filter(None, (row.summary.get(which) for which in REVIEWS))
                n_items = sum(reviews.erase_of_review(session, review, refs) for review in of_links)
            if row.blob == blob:
                hold(session, self._blobs, key)
                row.blob = key
                # What is in the folder now is no addition any more; others are numbered from 0 again.
                of_job = LinkAddition.link_id == link_id
                session.execute(delete(LinkAddition).where(of_job, LinkAddition.number < len(added)))
                number = LinkAddition.number - len(added)
                session.execute(update(LinkAddition).where(of_job).values(number=number))
        delete_unused(self._db, self._blobs, [blob, key])
        return n_links, n_items


def _changed_meanwhile() -> Conflict:
    return Conflict("somebody else changed these links meanwhile; look at them and try again")


# ---------------------------------------------------------------- by hand


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
    # Of what is no entity any more, changes keep no name.
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
        *map(list, zip(*members, strict=True)),
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
