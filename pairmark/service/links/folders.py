"""Folders of links: found for who may see them, with all records that were put in, and changed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from pairmark.schemas.links import EntitiesEdit
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, StorageFailed, UnknownLinks
from pairmark.service.links import by_hand
from pairmark.service.links.results import Addition, Results, Stored, open_results, rewrite_results
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
        found = session.execute(query.with_for_update(of=LinkRow) if lock else query).one_or_none()
        if found is None or found[0].name not in names:
            raise UnknownLinks(f"there are no links {link_id[:64]!r}; GET /links lists them")
        return found[0], found[1]

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
            before, addition = results.counts(), by_hand.change(results, edit)
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
                    n_links, refs = by_hand.erase(results, erased)
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
                later = update(LinkAddition).where(of_job)
                session.execute(later.values(number=LinkAddition.number - len(added)))
        delete_unused(self._db, self._blobs, [blob, key])
        return n_links, n_items


def _changed_meanwhile() -> Conflict:
    return Conflict("somebody else changed these links meanwhile; look at them and try again")
