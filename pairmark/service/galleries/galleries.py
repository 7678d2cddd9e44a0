"""The interface of galleries: create and move them, write and erase items."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pairmark.service.audit.log import record
from pairmark.service.db import Database
from pairmark.service.errors import (
    Conflict,
    InvalidInput,
    StorageFailed,
    TooLarge,
    UnknownGallery,
    UnknownItem,
    UnknownModel,
)
from pairmark.service.galleries import item_repository, probe_repository, repository
from pairmark.service.galleries.live import BLOCK_ROWS, TAIL_ROWS, LiveGallery
from pairmark.service.galleries.opened import OpenGalleries
from pairmark.service.galleries.receipts import keeping_rows, left_to_do
from pairmark.service.galleries.records import erase_probes
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import RowErrors, Rows, checked_id, spellings, within_fields
from pairmark.service.galleries.schemas import GalleryOut, GalleryPage, ItemOut, ItemPage, Receipt, UpsertOut
from pairmark.service.galleries.sweeping import remove_rows, sweep, workspace
from pairmark.service.names import checked_name
from pairmark.service.pagination import start_of
from pairmark.service.runtime.catalogue import View as Catalogue
from pairmark.service.runtime.places import Places
from pairmark.service.runtime.scoring import Served
from pairmark.service.settings import Settings
from pairmark.service.store import repository as store_repository
from pairmark.service.tables import GalleryRow
from pairmark.service.times import iso

log = logging.getLogger("pairmark.galleries")


class Galleries:
    """Named sets of enrolled vectors, each searched with one model version.

    Rows in the database are the truth; each process keeps views made from them.

    Attributes
    ----------
    database : where the rows are.
    views : the galleries that this process has open.
    search_place, write_place, import_place : where searches, writes and bulk imports run.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self.database = self._db = db
        self._settings = settings
        self._home = settings.home / "galleries"
        self.views = OpenGalleries(db, settings)
        # Unlike a batch, one search is short: many may wait for the cores.
        waiting = settings.max_waiting_searches
        self.search_place = Places("gallery", os.cpu_count() or 1, waiting)
        # Writers wait for the disk, and searches must not wait for them.
        self.write_place = Places("gallery-write", 4, waiting, beside=self.search_place)
        imports = settings.max_concurrent_uploads
        self.import_place = Places("gallery-import", imports, imports)
        self.on_move: Callable[[], None] = lambda: None
        """Called when a gallery began to move to another version."""
        self.on_import: Callable[[State, Served], None] = lambda state, served: None
        """Called in the background after many items were written."""

    def close(self) -> None:
        """Let threads end."""
        for places in (self.search_place, self.write_place, self.import_place):
            places.close()
        self.views.close()

    # ------------------------------------------------------------ galleries

    def put(self, name: str, served: Served) -> tuple[GalleryOut, bool]:
        """Make a gallery for a version, or move it to that one; says whether it was made.

        An empty gallery moves at once; one with items is indexed anew in the background while the version it has
        serves on.
        """
        checked_name(name, "gallery")
        for attempt in range(3):
            try:
                return self._put(name, served)
            except IntegrityError:
                # Two requests made it at once.
                if attempt == 2:
                    raise
        raise AssertionError

    def _put(self, name: str, served: Served) -> tuple[GalleryOut, bool]:
        entry = served.entry
        with self._db.write() as session:
            # Held, so that nobody deletes the version meanwhile.
            model = store_repository.model_for_update(session, entry.name)
            if model is None or store_repository.find_version(session, model.id, entry.version) is None:
                raise UnknownModel(f"{entry.name}:{entry.version} was deleted", field="model")
            now = self._db.now(session)
            state = repository.locked(session, name)
            if state is None:
                made = GalleryRow(
                    key=secrets.token_hex(16),
                    name=name,
                    model_id=entry.model_id,
                    version=entry.version,
                    dimension=served.n_features,
                    created_at=now,
                    updated_at=now,
                )
                repository.add(session, made)
                aim = f"{entry.name}:{entry.version}"
                record(session, now, "gallery.create", f"gallery:{name}", after={"model": aim})
            else:
                self._aim(session, state, served, now)
            found = repository.state_of(session, name)
            assert found is not None
            if state is not None and found.next_version is not None:
                record(
                    session,
                    now,
                    "gallery.move",
                    f"gallery:{name}",
                    before={"model": f"{found.model}:{found.version}"},
                    after={"model": f"{found.next_model}:{found.next_version}"},
                )
        if found.next_version is not None:
            self.on_move()
        return GalleryOut.of(found), state is None

    def _aim(self, session: Any, state: State, served: Served, now: float) -> None:
        wanted = (served.entry.model_id, served.entry.version)
        if wanted == (state.model_id, state.version):
            if state.next_version is not None:
                repository.change(session, state.id, next_model_id=None, next_version=None, updated_at=now)
        elif not state.items:
            repository.change(
                session,
                state.id,
                model_id=wanted[0],
                version=wanted[1],
                next_model_id=None,
                next_version=None,
                dimension=served.n_features,
                updated_at=now,
            )
        elif served.n_features != state.dimension:
            raise Conflict(
                f"gallery {state.name!r} holds vectors of {state.dimension} numbers, and {served.entry.name}:"
                f"{served.entry.version} takes {served.n_features}: make another gallery for it"
            )
        elif wanted != (state.next_model_id, state.next_version):
            repository.change(
                session, state.id, next_model_id=wanted[0], next_version=wanted[1], updated_at=now
            )

    def state(self, name: str) -> State:
        """The gallery's row, or `UnknownGallery`."""
        with self._db.read() as session:
            return _there(name, partial(repository.state_of, session))

    def get(self, name: str) -> GalleryOut:
        """A gallery."""
        state = self.state(name)
        with self._db.read() as session:
            found = GalleryOut.of(state, item_repository.count_subjects(session, state.id))
            calibration = probe_repository.newest_head(session, state)
            found.calibration = None if calibration is None else calibration.id
            found.evaluation = repository.newest_evaluation(session, state.id)
            return found

    def page(self, limit: int, cursor: str | None, *, names: frozenset[str] | None = None) -> GalleryPage:
        """Galleries by name; of some names if given."""
        after = start_of(limit, cursor, str)
        with self._db.read() as session:
            rows = repository.page(session, limit=limit + 1, after=after, names=names)
        return GalleryPage.of(rows, limit, lambda row: (row.name,), GalleryOut.of)

    def sizes(self, limit: int) -> tuple[dict[str, int], int]:
        """Items of the ``limit`` largest galleries by name, and of all together."""
        with self._db.read() as session:
            return repository.sizes(session, limit)

    def delete(self, name: str) -> None:
        """Delete a gallery with everything in it."""
        with self._db.write() as session:
            state = _there(name, partial(repository.locked, session))
            repository.remove_gallery(session, state.id)
            held = {"model": f"{state.model}:{state.version}", "items": state.items}
            record(session, self._db.now(session), "gallery.delete", f"gallery:{name}", before=held)
        self.views.forget(state.key)
        try:
            self.views.disk(state).drop()
            remove_rows(self._db, state.id)
        except (OSError, StorageFailed) as error:
            # The gallery is gone, whatever becomes of what it held: `sweep` removes the rest when there is space.
            log.warning("a deleted gallery's data is removed later", extra={"reason": str(error)})
        self._db.truncate_log()

    # ------------------------------------------------------------ items

    def write(
        self, name: str, batches: Iterable[Rows], errors: RowErrors, served: Served | None
    ) -> UpsertOut:
        """Store batches of rows, one transaction each: each is whole or not there, and seen by the next search.
        `InvalidInput` when no row could be stored, or the body cannot be read; batches before that stay.

        Parameters
        ----------
        served : the gallery's version, to index while more rows come; None: the next search will.
        """
        stored = 0
        for rows in batches:
            if len(rows):
                kept, state = self._write(name, rows, errors)
                stored += kept
                if served is not None:
                    self._index_meanwhile(state, served)
        if served is not None and stored > TAIL_ROWS:
            self._index_meanwhile(self.state(name), served, at_once=True)
        if not stored and errors.count:
            first = errors.listed[0]
            raise InvalidInput(
                f"no row could be stored; row {first['row']}: {first['detail']}",
                field=f"items[{first['row']}]",
                errors=errors.listed,
                n_errors=errors.count,
            )
        return UpsertOut.model_validate(
            {"upserted": stored, "errors": errors.listed, "n_errors": errors.count}
        )

    def _write(self, name: str, rows: Rows, errors: RowErrors) -> tuple[int, State]:
        with self._db.write() as session:
            state = _there(name, partial(repository.locked, session))
            if rows.vectors.shape[1] != state.dimension:
                raise Conflict(f"gallery {name!r} was moved to a version of another width meanwhile")
            if state.items + len(rows) > self._settings.max_gallery_items:
                raise TooLarge(
                    f"gallery {name!r} has {state.items} items; at most {self._settings.max_gallery_items} are kept",
                    limit=self._settings.max_gallery_items,
                )
            rows, new_fields = within_fields(rows, state.fields, errors)
            if len(rows):
                now = self._db.now(session)
                state = _respelled(session, state, rows, now)
                item_repository.upsert(session, state, rows, now, new_fields)
                record(session, now, "gallery.upsert", f"gallery:{name}", after={"items": len(rows)})
                item_repository.prune_removals(session, state)
            found = repository.state_by_id(session, state.id)
            assert found is not None
        return len(rows), found

    def _index_meanwhile(self, state: State, served: Served, *, at_once: bool = False) -> None:
        if (served.entry.model_id, served.entry.version) != (state.model_id, state.version):
            return
        live = self.views.live(state, served.estimator)
        # Few rows are the next search's own affair.
        if at_once and live.pending(state.seq) > TAIL_ROWS:
            self.views.in_background(live, lambda: self._follow(live, state, served))
        elif live.pending(state.seq) >= BLOCK_ROWS:
            # Not tidied either: a request that waits for the last rows would wait for that too.
            self.views.in_background(live, live.fill, tidy=False)

    def _follow(self, live: LiveGallery, state: State, served: Served) -> None:
        live.view(state.seq)
        self.on_import(state, served)

    def item(self, name: str, id: str) -> ItemOut:
        """One item with its vector, or `UnknownItem`."""
        state = self.state(name)
        with self._db.read() as session:
            row = item_repository.find_item(session, state.id, checked_id(id))
        if row is None:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        return ItemOut.of(row, vector=True)

    def items(
        self, name: str, limit: int, cursor: str | None, *, subject: str | None, vectors: bool
    ) -> ItemPage:
        """A gallery's items, ordered by id."""
        try:
            after = bytes.fromhex(start_of(limit, cursor, str) or "").decode() or None
        except ValueError as error:
            raise InvalidInput(
                "cursor: expected the next_cursor of an earlier page, unchanged", field="cursor"
            ) from error
        state = self.state(name)
        with self._db.read() as session:
            rows = item_repository.page_items(
                session,
                state.id,
                limit=limit + 1,
                after=after,
                subject=subject,
            )
        return ItemPage.of(
            rows, limit, lambda row: (row.id.encode().hex(),), lambda row: ItemOut.of(row, vector=vectors)
        )

    # ------------------------------------------------------------ erasing

    def erase(
        self, name: str, catalogue: Catalogue, *, id: str | None = None, subject: str | None = None
    ) -> Receipt:
        """Remove an item, or all of a subject's, from rows, index and files; returns what was removed. A subject
        without items gives a receipt of none: what is asked for holds. Ids and subjects that are refused today may be
        stored since before, so any text is looked for."""
        with self._db.write() as session:
            state = _there(name, partial(repository.locked, session))
            probes = 0
            if id is not None:
                ids = list(item_repository.seqs_of(session, state.id, spellings(id)))
            else:
                assert subject is not None
                ids = item_repository.subject_ids(session, state.id, subject)
                probes = sum(erase_probes(session, state.id, one) for one in spellings(subject))
            now = self._db.now(session)
            item_repository.erase(session, state, ids, now)
            before = {"items": len(ids), **({"probes": probes} if probes else {})}
            record(session, now, "gallery.erase", f"gallery:{name}", before=before)
        # An erasure that was cut short before this point is completed by asking again, or by the next search.
        unfinished = None
        try:
            blocks = self.views.disk(state).drop_holders(ids or ([] if id is None else spellings(id)))
        except OSError as error:
            # The rows are gone for good, which the receipt has to say.
            blocks, unfinished = 0, error.strerror or type(error).__name__
        log_empty = self._db.truncate_log()
        for live in self.views.of(state.key):
            self.views.in_background(live, partial(live.view, state.seq + 1))
        if id is not None and not ids:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        complete, pending = left_to_do(
            len(ids) + probes,
            unfinished=unfinished,
            log_empty=log_empty,
            sqlite=self._db.is_sqlite,
            spread=self._settings.dask_scheduler is not None,
        )
        return Receipt(
            gallery=name,
            id=id,
            subject=subject,
            items=len(ids),
            probes=probes,
            index_blocks=blocks,
            database="sqlite" if self._db.is_sqlite else "postgresql",
            database_complete=complete,
            pending=pending,
            models_with_training_rows=keeping_rows(catalogue),
            erased_at=iso(now),
        )

    # ------------------------------------------------------------ upkeep

    def moving(self) -> list[State]:
        """Galleries on their way to another version."""
        with self._db.read() as session:
            return repository.moving(session)

    def move(self, state: State, served: Served) -> None:
        """Index a gallery for the version it moves to, then let that one serve (blocking)."""
        assert state.next_model_id is not None
        assert state.next_version is not None
        assert state.next_kind is not None
        aimed = replace(state, model_id=state.next_model_id, version=state.next_version, kind=state.next_kind)
        live = self.views.live(aimed, served.estimator)
        try:
            live.view(state.seq)
        except UnknownGallery:
            return
        with self._db.write() as session:
            now = repository.locked(session, state.name)
            if now is None or now.key != state.key:
                return
            if (now.next_model_id, now.next_version) != (state.next_model_id, state.next_version):
                return
            repository.change(
                session,
                now.id,
                model_id=now.next_model_id,
                version=now.next_version,
                next_model_id=None,
                next_version=None,
                updated_at=self._db.now(session),
            )

    def sweep(self) -> None:
        """Remove what deleted galleries, earlier versions and killed imports left behind (blocking)."""
        sweep(self._db, self._home)

    def workspace(self) -> AbstractContextManager[Path]:
        """A folder for one import; `sweep` removes those of killed processes."""
        return workspace(self._home)


def _respelled(session: Session, state: State, rows: Rows, now: float) -> State:
    """The gallery without the items that these rows replace under another spelling of their id."""
    others = [one for id in rows.ids if not id.isascii() for one in spellings(id)[1:]]
    if not others:
        return state
    item_repository.erase(session, state, others, now)
    changed = repository.state_by_id(session, state.id)
    assert changed is not None
    return changed


def _there(name: str, find: Callable[[str], State | None]) -> State:
    """The gallery of that name, or `UnknownGallery`; names that none can have are not asked for."""
    found = find(name) if name.isascii() and name.isprintable() and len(name) <= 200 else None
    if found is None:
        raise UnknownGallery(f"there is no gallery {name[:100]!r}", field="gallery")
    return found
