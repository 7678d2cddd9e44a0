"""Create and move galleries, write and erase items, remove what was left behind."""

import json
import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from pairmark.schemas.base import Page, iso
from pairmark.schemas.galleries import GalleryOut, ItemOut, ModelOfGallery, Receipt, UpsertOut
from pairmark.service.audit.log import record, record_recovery
from pairmark.service.db import Database, page_of, start_of
from pairmark.service.errors import (
    Conflict,
    DamagedRow,
    InvalidInput,
    StorageFailed,
    TooLarge,
    UnknownGallery,
    UnknownItem,
    UnknownModel,
)
from pairmark.service.galleries import repository
from pairmark.service.galleries.live_gallery import MEMTABLE_ROWS, SEGMENT_ROWS, OpenGalleries
from pairmark.service.galleries.metadata import new_fields
from pairmark.service.galleries.rows import (
    ItemForm,
    RecordForm,
    RowErrors,
    Rows,
    body_json,
    checked_id,
    form_of,
    same_columns,
    spellings,
    subject_spellings,
)
from pairmark.service.galleries.segments import GalleryDisk
from pairmark.service.names import EVERY_NAME, VisibleNames, checked_name
from pairmark.service.reviews.repository import erase_of_gallery
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.scheduling import Places
from pairmark.service.settings import Settings
from pairmark.service.store.versions import find_model
from pairmark.service.tables import GalleryItem, GalleryRow, ModelVersion

log = logging.getLogger("pairmark.galleries")

T = TypeVar("T")


class Galleries:
    """Named sets of enrolled vectors or records, each searched with one model version.

    Rows in the database are the truth; each process keeps views made from them.

    Attributes
    ----------
    database : where the rows are.
    views : the galleries that this process has open.
    search_place, write_place, import_place : where searches, writes and bulk imports run.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        self.database = database
        self._settings = settings
        self.views = OpenGalleries(database, settings)
        # Unlike a batch, one search is short: many may wait for the cores.
        waiting = settings.max_waiting_searches
        self.search_place = Places("gallery", os.cpu_count() or 1, waiting)
        # Writers wait for the disk, and searches must not wait for them.
        self.write_place = Places("gallery-write", 4, waiting, shares_with=self.search_place)
        imports = settings.max_concurrent_uploads
        self.import_place = Places("gallery-import", imports, imports)

    def close(self) -> None:
        for places in (self.search_place, self.write_place, self.import_place):
            places.close()
        self.views.close()

    # ------------------------------------------------------------ galleries

    def put(self, name: str, version: LoadedVersion) -> tuple[GalleryOut, bool]:
        """Make a gallery for a version, or move it to that one; says whether it was made (blocking).

        A gallery with items is indexed for the version first, while the one it has serves on.
        """
        checked_name(name, "gallery")
        with self.database.read() as session:
            state = repository.gallery_named(session, name)
        target = (version.entry.model_id, version.entry.version)
        if state is not None and state.items and target != (state.model_id, state.version):
            _check_move(state, version)
            moved = GalleryRow(
                id=state.id, key=state.key, model_id=target[0], version=target[1], dimension=state.dimension
            )
            self.views.live(moved, version.estimator).view(state.seq)
        try:
            return self._put(name, version)
        except IntegrityError:
            # Two requests made it at once.
            return self._put(name, version)

    def _put(self, name: str, version: LoadedVersion) -> tuple[GalleryOut, bool]:
        entry = version.entry
        reference = f"{entry.name}:{entry.version}"
        with self.database.write() as session:
            # Held, so that nobody deletes the version meanwhile.
            model = find_model(session, entry.name, lock=True)
            if model is None or session.get(ModelVersion, (model.id, entry.version)) is None:
                raise UnknownModel(f"{reference} was deleted", field="model")
            now = self.database.now(session)
            state = repository.gallery_named(session, name, lock=True)
            is_new = state is None
            served = {
                "model_id": entry.model_id,
                "version": entry.version,
                "dimension": version.n_features,
                "columns": form_of(version.estimator, version.n_features).columns,
                "updated_at": now,
            }
            if state is None:
                state = GalleryRow(key=secrets.token_hex(16), name=name, created_at=now, **served)
                session.add(state)
                record(session, now, "gallery.create", f"gallery:{name}", after={"model": reference})
            elif (entry.model_id, entry.version) != (state.model_id, state.version):
                _check_move(state, version)
                before = {"model": f"{state.model}:{state.version}"}
                record(
                    session, now, "gallery.move", f"gallery:{name}", before=before, after={"model": reference}
                )
                for column, value in served.items():
                    setattr(state, column, value)
            session.flush()
            session.refresh(state)
        return gallery_out(state), is_new

    def state(self, name: str) -> GalleryRow:
        """The gallery's row, or `UnknownGallery`."""
        with self.database.read() as session:
            return _existing_row(name, partial(repository.gallery_named, session))

    def get(self, name: str) -> GalleryOut:
        state = self.state(name)
        with self.database.read() as session:
            calibration = repository.newest_head(session, state)
            return gallery_out(
                state,
                subjects=repository.count_subjects(session, state.id),
                calibration=None if calibration is None else calibration.id,
            )

    def page(self, limit: int, cursor: str | None, *, names: VisibleNames = EVERY_NAME) -> Page[GalleryOut]:
        """Galleries by name; of some names if given."""
        with self.database.read() as session:
            rows, following = repository.page(session, limit, cursor, names)
        return Page[GalleryOut](items=[gallery_out(row) for row in rows], next_cursor=following)

    def sizes(self, limit: int) -> tuple[dict[str, int], int]:
        """Items of the ``limit`` largest galleries by name, and of all together."""
        with self.database.read() as session:
            return repository.sizes(session, limit)

    def delete(self, name: str) -> None:
        with self.database.write() as session:
            # Also one that is damaged: deleting it is the repair.
            row = _existing_row(name, partial(repository.locked_row, session))
            before = {"items": row.items, "model": f"{row.model}:{row.version}"}
            repository.remove_gallery(session, row.id)
            record(session, self.database.now(session), "gallery.delete", f"gallery:{name}", before=before)
        self.views.evict(row.key)
        try:
            GalleryDisk(self.views.home / row.key).drop()
            remove_rows(self.database, row.id)
        except (OSError, StorageFailed) as error:
            # The gallery is gone, whatever becomes of what it held: `sweep` removes the rest when there is space.
            log.warning("a deleted gallery's data is removed later", extra={"reason": str(error)})
        self.database.truncate_log()

    # ------------------------------------------------------------ items

    def write(
        self, name: str, batches: Iterable[Rows], errors: RowErrors, version: LoadedVersion | None
    ) -> UpsertOut:
        """Store batches of rows, one transaction each: each is whole or not there, and seen by the next search.
        `InvalidInput` when no row could be stored, or the body cannot be read.

        Parameters
        ----------
        version : the gallery's version, to index what is written; None: the next search will.
        """
        n_stored = 0
        for rows in batches:
            if len(rows):
                state = self._write(name, rows)
                n_stored += len(rows)
                errors.warn_of(rows)
                if version is not None:
                    self._index(state, version, SEGMENT_ROWS)
        if version is not None and n_stored > MEMTABLE_ROWS:
            self._index(self.state(name), version, MEMTABLE_ROWS)
        if not n_stored and errors.count:
            first = errors.items[0]
            raise InvalidInput(
                f"no row could be stored; row {first['row']}: {first['detail']}",
                field=f"items[{first['row']}]",
                errors=errors.items,
                n_errors=errors.count,
            )
        return UpsertOut.model_validate(
            {"upserted": n_stored, "errors": errors.items, "n_errors": errors.count}
        )

    def _write(self, name: str, rows: Rows) -> GalleryRow:
        with self.database.write() as session:
            state = _existing_row(name, partial(repository.gallery_named, session, lock=True))
            if not _holds(state, rows.form):
                raise Conflict(f"gallery {name!r} was moved to a version of other columns meanwhile")
            n, most = state.items + len(rows), self._settings.max_gallery_items
            if n > most:
                # Rows that take the place of others add none: these are taken by a full gallery too.
                n -= len(repository.seqs_of(session, state.id, rows.ids))
            if n > max(most, state.items):
                gigabytes = 3e-9 * n * len(rows.form.bodies(rows.vectors[:1])[0])
                raise TooLarge(
                    f"gallery {name!r} would have {n:,} items; at most {most:,} are taken. So many take some "
                    f"{gigabytes:.2g} GB of disk, and up to as much memory, by what the model's searches read: raise "
                    "PAIRMARK_MAX_GALLERY_ITEMS on a machine that has both, or part the items among several galleries",
                    limit=most,
                )
            now = self.database.now(session)
            repository.upsert(session, state, rows, now, new_fields(rows.metadata, state.fields))
            record(session, now, "gallery.upsert", f"gallery:{name}", after={"items": len(rows)})
            repository.prune_removals(session, state)
        return state

    def _index(self, state: GalleryRow, version: LoadedVersion, least_rows: int) -> None:
        """In the background, so many rows; here, few that searches wait for."""
        if (version.entry.model_id, version.entry.version) != (state.model_id, state.version):
            return
        live = self.views.live(state, version.estimator)
        if live.pending(state.seq) >= least_rows:
            self.views.in_background(live, state.seq)
        else:
            self.views.follow(live, state.seq)

    def item(self, name: str, id: str) -> ItemOut:
        """One item with its vector, or `UnknownItem`."""
        state = self.state(name)
        with self.database.read() as session:
            row = repository.find_item(session, state.id, checked_id(id))
        if row is None:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        return item_out(row, state.columns, vector=True)

    def items(
        self, name: str, limit: int, cursor: str | None, *, subject: str | None, vectors: bool
    ) -> Page[ItemOut]:
        try:
            after = bytes.fromhex(start_of(limit, cursor, str) or "").decode() or None
        except ValueError as error:
            raise InvalidInput(
                "cursor: expected the next_cursor of an earlier page, unchanged", field="cursor"
            ) from error
        state = self.state(name)
        with self.database.read() as session:
            rows = repository.page_items(session, state.id, limit=limit + 1, after=after, subject=subject)
        return page_of(
            Page[ItemOut],
            rows,
            limit,
            lambda row: (row.id.encode().hex(),),
            lambda row: item_out(row, state.columns, vector=vectors),
        )

    # ------------------------------------------------------------ erasing

    def erase(self, name: str, *, id: str | None = None, subject: str | None = None) -> Receipt:
        """Remove an item, or all of a subject's, from rows, index and files; returns what was removed. A subject
        without items gives a receipt of none: what is asked for holds. Ids and subjects that are refused today may be
        stored since before, so any text is looked for."""
        with self.database.write() as session:
            state = _existing_row(name, partial(repository.gallery_named, session, lock=True))
            subjects = [] if subject is None else subject_spellings(subject)
            if subject is None:
                ids = list(repository.seqs_of(session, state.id, spellings(id or "")))
            else:
                ids = repository.subject_ids(session, state.id, subject)
            probes = repository.erase_probes(session, state.id, subjects)
            now = self.database.now(session)
            repository.erase(session, state, ids, now)
            erase_of_gallery(session, name, ids, subjects)
            before = {"items": len(ids), **({"probes": probes} if probes else {})}
            record(session, now, "gallery.erase", f"gallery:{name}", before=before)
        # The rows are gone and counted. Next go the files that hold them, then the database's log, then what this
        # process has in memory. An erasure cut short before this point is completed by asking again, or by the next
        # search.
        unfinished = None
        try:
            segments = self.views.disk(state).remove_segments_with(
                ids or ([] if id is None else spellings(id))
            )
        except OSError as error:
            # The rows are gone for good, which the receipt has to say.
            segments, unfinished = 0, error.strerror or type(error).__name__
        log_empty = self.database.truncate_log()
        for live in self.views.of(state.key):
            self.views.in_background(live, state.seq)
        if id is not None and not ids:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        sqlite, removed = self.database.is_sqlite, len(ids) + probes
        # What is still to be done, where the condition holds.
        duties = {
            "other API processes mask it at their next search, and let go of mapped files within 15 seconds": True,
            f"files of the index hold it still ({unfinished}): free some space and ask again; searches do not find it "
            "there": unfinished is not None,
            "Dask workers mask it at their next search, and let go of its segment within 15 seconds": (
                self._settings.dask_scheduler is not None
            ),
            "PostgreSQL keeps dead rows until vacuum: VACUUM gallery_items, gallery_probes, or wait for autovacuum": (
                not sqlite
            ),
            "the database's log is in use by a long reader, or its disk is full; it is emptied by the next erasure": (
                sqlite and not log_empty and unfinished is None
            ),
        }
        return Receipt(
            gallery=name,
            id=id,
            subject=subject,
            items=len(ids),
            probes=probes,
            index_blocks=segments,
            database="sqlite" if sqlite else "postgresql",
            database_complete=log_empty and unfinished is None if sqlite else not removed,
            pending=[duty for duty, applies in duties.items() if applies],
            erased_at=iso(now),
        )

    # ------------------------------------------------------------ upkeep

    def sweep(self) -> None:
        """Remove what deleted galleries and earlier versions left behind (blocking)."""
        # Before the rows: a gallery has a row before it has a folder, so a folder without a row is nobody's.
        home, database = self.views.home, self.database
        folders = list(home.iterdir()) if home.exists() else []
        with database.read() as session:
            orphan_ids = repository.orphans(session)
            states = {state.key: state for state in repository.every_gallery(session)}
        for number in orphan_ids:
            remove_rows(database, number)
        if orphan_ids:
            database.truncate_log()
        removed = 0
        for folder in folders:
            if folder.name in states:
                state = states[folder.name]
                removed += GalleryDisk(folder, f"{state.model_id}-{state.version}").remove_other_versions()
            else:
                GalleryDisk(folder).drop()
                removed += 1
        if orphan_ids or removed:
            with database.write() as session:
                facts = {"galleries": len(orphan_ids), "folders": removed}
                record_recovery(session, database.now(session), "galleries", "gallery", **facts)


def _holds(state: GalleryRow, form: ItemForm) -> bool:
    """Whether items of a form belong into a gallery."""
    if isinstance(form, RecordForm):
        return state.columns is not None and same_columns(state.columns, form)
    return state.columns is None and state.dimension == form.width


def _check_move(state: GalleryRow, version: LoadedVersion) -> None:
    """Refuse to have a version serve a gallery whose items it cannot take."""
    form = form_of(version.estimator, version.n_features)
    if state.items and not _holds(state, form):
        raise Conflict(
            f"gallery {state.name!r} holds {_content(state.columns, state.dimension)}, and {version.entry.name}:"
            f"{version.entry.version} takes {_content(form.columns, version.n_features)}: make another gallery for it"
        )


def _content(columns: Sequence[Any] | None, dimension: int) -> str:
    if columns is None:
        return f"vectors of {dimension} numbers"
    return "records of " + ", ".join(f"{column['name']} ({column['type']})" for column in columns[:20])


def _existing_row(name: str, find: Callable[[str], T | None]) -> T:
    """The gallery of that name, or `UnknownGallery`; names that none can have are not asked for."""
    row = find(name) if name.isascii() and name.isprintable() and len(name) <= 200 else None
    if row is None:
        raise UnknownGallery(f"there is no gallery {name[:100]!r}", field="gallery")
    return row


def gallery_out(state: GalleryRow, **facts: Any) -> GalleryOut:
    """A gallery's row as JSON shows it."""
    columns = state.columns
    return GalleryOut(
        name=state.name,
        model=ModelOfGallery(name=state.model, version=state.version, kind=state.kind),
        dimension=state.dimension,
        columns=None if columns is None else {column["name"]: column["type"] for column in columns},
        items=state.items,
        sequence=state.seq,
        fields=sorted(state.fields),
        created_at=iso(state.created_at),
        updated_at=iso(state.updated_at),
        **facts,
    )


def item_out(row: GalleryItem, columns: Sequence[Any] | None, *, vector: bool) -> ItemOut:
    """An item's row as JSON shows it, its vector or record where that is asked for."""
    try:
        vector_json = body_json(row.vector, columns)
        return ItemOut(
            id=row.id,
            subject=row.subject,
            metadata=None if row.facts is None else json.loads(row.facts),
            vector=vector_json if vector else None,
        )
    except ValueError as error:
        raise DamagedRow(
            f"the item {row.id!a} is damaged: its vector or metadata cannot be read; enrol it again or erase it",
            row=row.id,
        ) from error


ERASED_AT_A_TIME = 20_000


def remove_rows(db: Database, gallery_id: int) -> None:
    # Piece by piece, so that other writers are let in between.
    while True:
        with db.write() as session:
            if not repository.remove_orphans(session, gallery_id, ERASED_AT_A_TIME):
                return
