"""Folders of links: found for who may see them, with all records that were put in, and changed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, StorageFailed, UnknownLinks
from pairmark.service.links import repository
from pairmark.service.links.results import Addition, Results, Stored, open_results, rewrite_results
from pairmark.service.names import VisibleNames, tenant_of
from pairmark.service.reviews import repository as reviews
from pairmark.service.tables import LinkRow

REVIEWS = ("review", "missed_review", "recall_review")

T = TypeVar("T")
Edit = Callable[[Results], Addition]
Erasure = Callable[[Results], Sequence[str]]
"""Changes the tables of `rewrite_results`; returns what reviews call the records that it erased."""
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
        """A job's row and state, or `UnknownLinks`."""
        row_and_state = repository.find(session, link_id, lock=lock)
        if row_and_state is None or row_and_state[0].name not in names:
            raise UnknownLinks(f"there are no links {link_id[:64]!r}; GET /links lists them")
        return row_and_state

    def blob(self, session: Session, link_id: str, names: VisibleNames) -> str:
        """What names the folder of a job; `Conflict` until there is one."""
        row, state = self.find(session, link_id, names)
        if row.blob is None:
            raise Conflict(f"the link job is {state}; its links are there when it has succeeded", state=state)
        return row.blob

    def stored(self, link_id: str, names: VisibleNames) -> Stored:
        """What was found, and put in since."""
        blob, added = self._moment(link_id, names)
        return Stored(self._blobs.folder(blob), added)

    def _moment(self, link_id: str, names: VisibleNames) -> tuple[str, Sequence[Addition]]:
        with self._db.read(one_moment=True) as session:
            return self.blob(session, link_id, names), repository.additions(session, link_id)

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

    def edit(self, link_id: str, names: VisibleNames, edit: Edit, facts: dict[str, Any]) -> None:
        """Add what a person changes; `Conflict` where somebody else was faster."""
        with self._db.read(one_moment=True) as session:
            blob, added = self.blob(session, link_id, names), repository.additions(session, link_id)
            before = self.find(session, link_id, names)[0].summary or {}
        with open_results(Stored(self._blobs.folder(blob), added)) as results:
            addition = edit(results)
        with open_results(Stored(self._blobs.folder(blob), [*added, addition])) as results:
            after = results.counts()
        counts = {name: n - before.get(name, 0) for name, n in after.items()}
        # A link that a person made was not among those that were drawn from.
        counts["by_hand"] = max(0, counts["links"])
        addition = {**addition, "counts": counts}
        if not self.add(link_id, names, blob, len(added), addition, "links.edit", facts | after):
            raise Conflict("somebody else changed these links meanwhile; look at them and try again")

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
            if row.blob != blob or repository.count_additions(session, link_id) != number:
                return False
            repository.put_in(session, link_id, number, dict(addition))
            before = row.summary or {}
            row.summary = before | {name: before.get(name, 0) + n for name, n in addition["counts"].items()}
            now, tenant = self._db.now(session), tenant_of(row.name)
            record(session, now, action, f"links:{row.id}", after=facts, tenant=tenant)
        if number + 1 >= _MOST_ADDED:
            self.rewrite(link_id, names)
        return True

    def rewrite(self, link_id: str, names: VisibleNames, erasure: Erasure = lambda _: ()) -> int:
        """Put a folder that has what was added, and lacks what is erased, in the place of a job's; returns how many
        items of its reviews were erased. Where nothing is, somebody else may be faster; else that is a `Conflict`."""
        blob, added = self._moment(link_id, names)
        with self._blobs.workspace() as out:
            with rewrite_results(Stored(self._blobs.folder(blob), added), out) as results:
                refs = erasure(results)
            with open_results(Stored(out)) as results:
                counts = results.counts()
            key, n = self._blobs.put_folder(out), 0
        with self._db.write() as session:
            row, _ = self.find(session, link_id, names, lock=True)
            if refs:
                if row.blob != blob or repository.count_additions(session, link_id) != len(added):
                    raise Conflict("somebody else changed these links meanwhile; look at them and try again")
                row.summary = {**(row.summary or {}), **counts}
                now, tenant = self._db.now(session), tenant_of(row.name)
                record(session, now, "links.erase", f"links:{row.id}", after=counts, tenant=tenant)
                of_links = filter(None, (row.summary.get(which) for which in REVIEWS))
                n = sum(reviews.erase_of_review(session, review, refs) for review in of_links)
            if row.blob == blob:
                hold(session, self._blobs, key)
                row.blob = key
                repository.drop_additions(session, row.id, len(added))
        delete_unused(self._db, self._blobs, [blob, key])
        return n
