"""Links of stored tables: submitted as jobs, listed, read and deleted."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session

from pairmark.schemas.jobs import JobOut
from pairmark.schemas.links import (
    EntityOut,
    EntityPage,
    LinkOut,
    LinkPage,
    LinksOut,
    LinksPage,
    LinksRequest,
)
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused
from pairmark.service.datasets.repository import dataset_of
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput, UnknownLinks
from pairmark.service.jobs.queue import JobQueue, NewJob
from pairmark.service.links import repository
from pairmark.service.links.linking import read_links
from pairmark.service.names import VisibleNames, tenant_of
from pairmark.service.pagination import page_of, start_of
from pairmark.service.tables import DatasetRow, LinkRow

FILE = "links.parquet"
"""Within a blob: what `pairmark.service.links.linking.link_files` wrote."""
_LEARNER = "fellegi-sunter"
_ENTITIES = (
    'SELECT entity, list_sort(list_distinct(flatten(list(["left", "right"])))) FROM links WHERE entity IS NOT NULL '
    "GROUP BY entity ORDER BY entity LIMIT ? OFFSET ?"
)


class Links:
    """All blocking: they read the database, and files of links."""

    def __init__(self, db: Database, blobs: Blobs, queue: JobQueue) -> None:
        self._db, self._blobs, self._queue = db, blobs, queue

    def submit(self, request: LinksRequest) -> JobOut:
        """Queue a link job; `InvalidInput` where a dataset holds no records."""

        def prepare(session: Session) -> NewJob:
            left, right = (
                None if ref is None else _table(dataset_of(session, ref, hold=True), field)
                for ref, field in ((request.left, "left"), (request.right, "right"))
            )
            assert left is not None
            return NewJob(
                task="link",
                learner=_LEARNER,
                dataset_id=left.id,
                dataset=f"{left.name}:{left.version}",
                unlabelled_id=None if right is None else right.id,
                unlabelled=None if right is None else f"{right.name}:{right.version}",
                model=left.name,
                params=request.model_dump(mode="json")
                | {
                    side: f"{row.name}:{row.version}"
                    for side, row in (("left", left), ("right", right))
                    if row is not None
                },
            )

        job = self._queue.enqueue(prepare)
        with self._db.write() as session:
            repository.keep(session, job.id, job.model, job.params, self._db.now(session))
        return job

    def get(self, link_id: str, names: VisibleNames) -> LinksOut:
        """A link job, or `UnknownLinks`."""
        with self._db.read() as session:
            return _out(self._found(session, link_id, names))

    def page(self, limit: int, cursor: str | None, names: VisibleNames) -> LinksPage:
        """Link jobs, newest first."""
        after = start_of(limit, cursor, float, str)
        with self._db.read() as session:
            rows = repository.page(session, limit + 1, after, names)
        return page_of(LinksPage, rows, limit, lambda row: (row[0].created_at, row[0].id), _out)

    def links(self, link_id: str, limit: int, cursor: str | None, names: VisibleNames) -> LinkPage:
        """Links, in the order of the left table's rows."""
        start = start_of(limit, cursor, int) or 0
        rows = read_links(self.file(link_id, names), "SELECT * FROM links LIMIT ? OFFSET ?", limit + 1, start)
        return page_of(
            LinkPage,
            rows,
            limit,
            lambda row: (start + limit,),
            lambda row: LinkOut(**dict(zip(LinkOut.model_fields, row, strict=True))),
        )

    def entities(self, link_id: str, limit: int, cursor: str | None, names: VisibleNames) -> EntityPage:
        """Entities, in the order of their ids."""
        start = start_of(limit, cursor, int) or 0
        rows = read_links(self.file(link_id, names), _ENTITIES, limit + 1, start)
        return page_of(
            EntityPage,
            rows,
            limit,
            lambda row: (start + limit,),
            lambda row: EntityOut(id=row[0], records=row[1]),
        )

    def file(self, link_id: str, names: VisibleNames) -> Path:
        """The links as a Parquet file; `Conflict` until there is one."""
        with self._db.read() as session:
            row, state = self._found(session, link_id, names)
            if row.blob is None:
                raise Conflict(
                    f"the link job is {state}; its links are there when it has succeeded", state=state
                )
            return self._blobs.folder(row.blob) / FILE

    def delete(self, link_id: str, names: VisibleNames) -> None:
        """Delete links; `Conflict` while their job waits or runs."""
        with self._db.write() as session:
            row, state = self._found(session, link_id, names)
            if state in ("queued", "running"):
                raise Conflict(f"the link job is {state}: cancel it first (POST /jobs/{link_id}/cancel)")
            record(
                session, self._db.now(session), "links.delete", f"links:{row.id}", tenant=tenant_of(row.name)
            )
            repository.remove(session, link_id)
            blob = row.blob
        if blob is not None:
            delete_unused(self._db, self._blobs, [blob])

    @staticmethod
    def _found(session: Session, link_id: str, names: VisibleNames) -> tuple[LinkRow, str]:
        found = repository.find(session, link_id)
        if found is None or found[0].name not in names:
            raise UnknownLinks(f"there are no links {link_id[:64]!r}; GET /links lists them")
        return found


def _table(row: DatasetRow, field: str) -> DatasetRow:
    if row.summary.get("columns") is None:
        raise InvalidInput(
            f"dataset {row.name!r} holds vectors; expected a table of records: upload it with columns or with text",
            field=field,
        )
    return row


def _out(found: tuple[LinkRow, str]) -> LinksOut:
    row, state = found
    asked = {side: row.request.get(side) for side in ("left", "right")}
    facts = {"id": row.id, "state": state, "created_at": row.created_at}
    return LinksOut.model_validate(asked | facts | (row.summary or {}))
