"""Folders of links: found for who may see them, with all records that were put in, and changed as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, CorruptArtefact, StorageFailed, UnknownLinks
from pairmark.service.links import repository, resolving, result_files
from pairmark.service.names import VisibleNames, tenant_of
from pairmark.service.reviews import repository as reviews
from pairmark.service.tables import LinkRow

REVIEWS = ("review", "missed_review", "recall_review")

T = TypeVar("T")
Change = Callable[[Path, Path], None]
"""Writes a changed folder to another."""


class LinkFolders:
    """All blocking: they read the database, and files of links."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db, self._blobs = db, blobs

    @staticmethod
    def find(
        session: Session, link_id: str, names: VisibleNames, *, lock: bool = False
    ) -> tuple[LinkRow, str]:
        """A job's row and state, or `UnknownLinks`."""
        found = repository.find(session, link_id, lock=lock)
        if found is None or found[0].name not in names:
            raise UnknownLinks(f"there are no links {link_id[:64]!r}; GET /links lists them")
        return found

    def stored(self, link_id: str, names: VisibleNames) -> str:
        """The blob of what was found, without records that were put in since; `Conflict` until there is one."""
        with self._db.read() as session:
            row, state = self.find(session, link_id, names)
            if row.blob is None:
                raise Conflict(
                    f"the link job is {state}; its links are there when it has succeeded", state=state
                )
            return row.blob

    def whole(self, link_id: str, names: VisibleNames) -> Path:
        """The folder of all that is known."""
        with self._db.read() as session:
            n = repository.count_additions(session, link_id)
        if n:
            self.fold(link_id, names)
        return self.local(link_id, names)[1]

    def read(self, link_id: str, names: VisibleNames, look: Callable[[Path], T]) -> T:
        """What ``look`` finds in the folder of all that is known; anew where somebody else, perhaps another process,
        put another folder in its place meanwhile."""
        while True:
            folder = self.whole(link_id, names)
            try:
                return look(folder)
            except (OSError, CorruptArtefact, StorageFailed):
                if self.local(link_id, names)[1] == folder:
                    raise

    def local(self, link_id: str, names: VisibleNames) -> tuple[str, Path]:
        """The blob, and where it is on this machine."""
        blob = self.stored(link_id, names)
        try:
            return blob, self._blobs.folder(blob)
        except CorruptArtefact:
            now = self.stored(link_id, names)
            if now == blob:
                raise
            # Somebody changed the links meanwhile.
            return now, self._blobs.folder(now)

    def fold(self, link_id: str, names: VisibleNames) -> None:
        """Put the records that were put in into the folder; whoever is faster does it."""
        with self._db.read(one_moment=True) as session:
            row, _ = self.find(session, link_id, names)
            old, stored = row.blob, repository.additions(session, link_id)
        if old is None or not stored:
            return
        added = [resolving.stored_addition(each) for each in stored]
        with self._blobs.workspace() as work:
            resolving.fold(self._blobs.folder(old), work, added)
            key = self._blobs.put_folder(work)
        with self._db.write() as session:
            row, _ = self.find(session, link_id, names, lock=True)
            if row.blob != old:
                return
            hold(session, self._blobs, key)
            row.blob = key
            repository.drop_additions(session, link_id, len(added))
        delete_unused(self._db, self._blobs, [old])

    def change(
        self,
        link_id: str,
        names: VisibleNames,
        make: Change,
        action: str,
        facts: dict[str, Any],
        *,
        erased: Sequence[str] = (),
    ) -> int:
        """Put a changed folder in the place of a job's; returns how many items of its reviews were erased."""
        folder = self.whole(link_id, names)
        with self._blobs.workspace() as out:
            make(folder, out)
            counts = result_files.counts(out)
            key = self._blobs.put_folder(out)
        with self._db.write() as session:
            row, _ = self.find(session, link_id, names, lock=True)
            old = row.blob
            if (
                old is None
                or self._blobs.folder(old) != folder
                or repository.count_additions(session, link_id)
            ):
                raise Conflict("somebody else changed these links meanwhile; look at them and try again")
            hold(session, self._blobs, key)
            before = row.summary or {}
            # A link that a person made was not among those that were drawn from.
            added = before.get("by_hand", 0) + max(0, counts["links"] - before["links"])
            row.blob, row.summary = key, {**before, **counts, "by_hand": added}
            now, tenant = self._db.now(session), tenant_of(row.name)
            record(session, now, action, f"links:{row.id}", after=facts | counts, tenant=tenant)
            n = 0
            if erased:
                asked = filter(None, (row.summary.get(which) for which in REVIEWS))
                n = sum(reviews.erase_of_review(session, review, erased) for review in asked)
        if old != key:
            delete_unused(self._db, self._blobs, [old])
        return n
