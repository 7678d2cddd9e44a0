"""The interface of galleries: create and move them, write and erase items, open views to search."""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy.exc import IntegrityError

from pairmark.models.core.registry import spec_of
from pairmark.service.audit.log import record
from pairmark.service.audit.recovery import recovered
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
from pairmark.service.galleries import repository
from pairmark.service.galleries.disk import GalleryDisk
from pairmark.service.galleries.held import prefix_of
from pairmark.service.galleries.imports import ImportLimits
from pairmark.service.galleries.live import BLOCK_ROWS, TAIL_ROWS, LiveGallery
from pairmark.service.galleries.metadata import MAX_FIELDS, Filter, fields_of
from pairmark.service.galleries.records import erase_probes
from pairmark.service.galleries.repository import State
from pairmark.service.galleries.rows import RowErrors, Rows, text_of
from pairmark.service.galleries.schemas import (
    GalleryOut,
    GalleryPage,
    ItemOut,
    ItemPage,
    ModelOfGallery,
    Receipt,
    UpsertOut,
)
from pairmark.service.galleries.spread import Spread
from pairmark.service.galleries.view import Elsewhere
from pairmark.service.names import checked_name
from pairmark.service.pagination import checked_limit, decode_cursor, encode_cursor
from pairmark.service.runtime.catalogue import View as Catalogue
from pairmark.service.runtime.runtime import BatchPlace
from pairmark.service.runtime.scoring import Served
from pairmark.service.settings import Settings
from pairmark.service.store import repository as store_repository
from pairmark.service.tables import GalleryItem
from pairmark.service.times import iso

log = logging.getLogger("pairmark.galleries")
OPEN_GALLERIES = 64
"""Galleries (by version) whose views one process keeps."""
ERASED_AT_A_TIME = 20_000


class Galleries:
    """Named sets of enrolled vectors, each searched with one model version.

    Rows in the database are the truth; each process keeps views made from them, and files of them under
    ``PAIRMARK_HOME/galleries``.
    """

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db = db
        self._settings = settings
        self._home = settings.home / "galleries"
        self._live: OrderedDict[tuple[str, str, int], LiveGallery] = OrderedDict()
        self._lock = threading.Lock()
        # Unlike a batch, one search is short: many may wait for the cores.
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="gallery")
        self._places = threading.Semaphore(settings.max_waiting_searches)
        # Writers wait for the disk, and searches must not wait for them.
        self._writers = ThreadPoolExecutor(4, thread_name_prefix="gallery-write")
        self._importers = ThreadPoolExecutor(
            settings.max_concurrent_uploads, thread_name_prefix="gallery-import"
        )
        self._imports = threading.Semaphore(settings.max_concurrent_uploads)
        self._upkeep = ThreadPoolExecutor(1, thread_name_prefix="gallery-upkeep")
        self._scheduled: set[int] = set()
        self._spread = Spread(settings)
        self.on_move: Callable[[], None] = lambda: None
        """Called when a gallery began to move to another version."""
        self.on_import: Callable[[State, Served], None] = lambda state, served: None
        """Called in the background after many items were written."""

    @property
    def database(self) -> Database:
        """Where the rows are."""
        return self._db

    @property
    def limits(self) -> ImportLimits:
        """Bounds of one bulk body."""
        return ImportLimits(
            rows=self._settings.max_gallery_items, unpacked_bytes=self._settings.max_dataset_bytes
        )

    def place(self) -> BatchPlace:
        """A place for a search: ``async with galleries.place() as place: await place.run(work)``.

        Raises
        ------
        RateLimited
            When too many are waiting.
        """
        return BatchPlace(self._threads, self._places, self._settings.max_waiting_searches)

    def write_place(self) -> BatchPlace:
        """As `place`, for writing a few items."""
        return BatchPlace(self._writers, self._places, self._settings.max_waiting_searches)

    def import_place(self) -> BatchPlace:
        """As `place`, for one of the few bulk imports at a time."""
        return BatchPlace(self._importers, self._imports, self._settings.max_concurrent_uploads)

    def close(self) -> None:
        """Let threads end."""
        for threads in (self._threads, self._writers, self._importers, self._upkeep):
            threads.shutdown(wait=False, cancel_futures=True)
        self._spread.close()

    # ------------------------------------------------------------ galleries

    def put(self, name: str, served: Served) -> tuple[GalleryOut, bool]:
        """Make a gallery for a version, or move it to that one; says whether it was made.

        An empty gallery moves at once; one with items is indexed anew in the background while the version it has
        serves on.

        Raises
        ------
        Conflict
            When its items are of another width than the version takes.
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
            number = repository.lock(session, name)
            if number is None:
                repository.add_gallery(
                    session,
                    key=secrets.token_hex(16),
                    name=name,
                    model_id=entry.model_id,
                    version=entry.version,
                    dimension=served.n_features,
                    now=now,
                )
                aim = f"{entry.name}:{entry.version}"
                record(session, now, "gallery.create", f"gallery:{name}", after={"model": aim})
            else:
                state = repository.state_by_id(session, number)
                assert state is not None
                self._aim(session, state, served, now)
            found = repository.state_of(session, name)
            assert found is not None
            if number is not None and found.next_version is not None:
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
        return gallery_out(found), number is None

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
        askable = name.isascii() and name.isprintable() and len(name) <= 200
        with self._db.read() as session:
            found = repository.state_of(session, name) if askable else None
        if found is None:
            raise UnknownGallery(f"there is no gallery {name[:100]!r}", field="gallery")
        return found

    def get(self, name: str) -> GalleryOut:
        """A gallery."""
        state = self.state(name)
        with self._db.read() as session:
            found = gallery_out(state, repository.count_subjects(session, state.id))
            calibration = repository.newest_calibration(session, state)
            found.calibration = None if calibration is None else calibration.id
            found.evaluation = repository.newest_evaluation(session, state.id)
            return found

    def page(self, limit: int, cursor: str | None, *, names: frozenset[str] | None = None) -> GalleryPage:
        """Galleries by name; of some names if given."""
        checked_limit(limit)
        after = None if cursor is None else decode_cursor(cursor, str)[0]
        with self._db.read() as session:
            rows = repository.page(session, limit=limit + 1, after=after, names=names)
        more = encode_cursor(rows[limit - 1].name) if len(rows) > limit else None
        return GalleryPage(items=[gallery_out(row) for row in rows[:limit]], next_cursor=more)

    def sizes(self, limit: int) -> tuple[dict[str, int], int]:
        """Items of the ``limit`` largest galleries by name, and of all together."""
        with self._db.read() as session:
            return repository.sizes(session, limit)

    def delete(self, name: str) -> None:
        """Delete a gallery with everything in it."""
        with self._db.write() as session:
            number = repository.lock(session, name) if name.isascii() and name.isprintable() else None
            state = None if number is None else repository.state_by_id(session, number)
            if state is None:
                raise UnknownGallery(f"there is no gallery {name[:100]!r}", field="gallery")
            repository.remove_gallery(session, state.id)
            held = {"model": f"{state.model}:{state.version}", "items": state.items}
            record(session, self._db.now(session), "gallery.delete", f"gallery:{name}", before=held)
        with self._lock:
            for key in [key for key in self._live if key[0] == state.key]:
                del self._live[key]
        self._spread.settle(f"pairmark-{state.key}-")
        try:
            self.disk(state).drop()
            self._remove_rows(state.id)
        except (OSError, StorageFailed) as error:
            # The gallery is gone, whatever becomes of what it held: `sweep` removes the rest when there is space.
            log.warning("a deleted gallery's data is removed later", extra={"reason": str(error)})
        self._db.truncate_log()

    def _remove_rows(self, gallery_id: int) -> None:
        # Piece by piece, so that other writers are let in between.
        while True:
            with self._db.write() as session:
                if not repository.remove_orphans(session, gallery_id, ERASED_AT_A_TIME):
                    return

    # ------------------------------------------------------------ items

    def write(
        self, name: str, batches: Iterable[Rows], errors: RowErrors, served: Served | None
    ) -> UpsertOut:
        """Store batches of rows, one transaction each: each is whole or not there, and seen by the next search.

        Parameters
        ----------
        served : the gallery's version, to index while more rows come; None: the next search will.

        Raises
        ------
        InvalidInput
            When no row could be stored, or the body as a whole cannot be read; batches before that stay.
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
            state = self._locked(session, name)
            if rows.vectors.shape[1] != state.dimension:
                raise Conflict(f"gallery {name!r} was moved to a version of another width meanwhile")
            if state.items + len(rows) > self._settings.max_gallery_items:
                raise TooLarge(
                    f"gallery {name!r} has {state.items} items; at most {self._settings.max_gallery_items} are kept",
                    limit=self._settings.max_gallery_items,
                )
            rows, new_fields = _within_fields(rows, state, errors)
            if len(rows):
                now = self._db.now(session)
                repository.upsert(session, state, rows, now, new_fields)
                record(session, now, "gallery.upsert", f"gallery:{name}", after={"items": len(rows)})
                repository.prune_removals(session, state)
            found = repository.state_by_id(session, state.id)
            assert found is not None
        return len(rows), found

    def _locked(self, session: Any, name: str) -> State:
        askable = name.isascii() and name.isprintable() and len(name) <= 200
        number = repository.lock(session, name) if askable else None
        state = None if number is None else repository.state_by_id(session, number)
        if state is None:
            raise UnknownGallery(f"there is no gallery {name[:100]!r}", field="gallery")
        return state

    def _index_meanwhile(self, state: State, served: Served, *, at_once: bool = False) -> None:
        if (served.entry.model_id, served.entry.version) != (state.model_id, state.version):
            return
        live = self.live(state, served.estimator)
        # Few rows are the next search's own affair.
        if at_once and live.pending(state.seq) > TAIL_ROWS:
            self._in_background(live, lambda: self._follow(live, state, served))
        elif live.pending(state.seq) >= BLOCK_ROWS:
            # Not tidied either: whoever waits for the last rows would wait for that too.
            self._in_background(live, live.fill, tidy=False)

    def _follow(self, live: LiveGallery, state: State, served: Served) -> None:
        live.view(state.seq)
        self.on_import(state, served)

    def item(self, name: str, id: str) -> ItemOut:
        """One item with its vector, or `UnknownItem`."""
        state = self.state(name)
        with self._db.read() as session:
            row = repository.find_item(session, state.id, checked_id(id))
        if row is None:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        return _item_out(row, vector=True)

    def items(
        self, name: str, limit: int, cursor: str | None, *, subject: str | None, vectors: bool
    ) -> ItemPage:
        """Items by id."""
        checked_limit(limit)
        after = None
        if cursor is not None:
            try:
                after = bytes.fromhex(decode_cursor(cursor, str)[0]).decode()
            except ValueError as error:
                raise InvalidInput(
                    "cursor: expected the next_cursor of an earlier page, unchanged", field="cursor"
                ) from error
        state = self.state(name)
        with self._db.read() as session:
            rows = repository.page_items(
                session,
                state.id,
                limit=limit + 1,
                after=after,
                subject=None if subject is None else checked_id(subject, "subject"),
            )
        more = encode_cursor(rows[limit - 1].id.encode().hex()) if len(rows) > limit else None
        return ItemPage(items=[_item_out(row, vector=vectors) for row in rows[:limit]], next_cursor=more)

    # ------------------------------------------------------------ erasing

    def erase(
        self, name: str, catalogue: Catalogue, *, id: str | None = None, subject: str | None = None
    ) -> Receipt:
        """Remove an item, or all of a subject's, from rows, index and files; returns what was removed.

        Raises
        ------
        UnknownItem
            When there is no such item. (A subject without items gives a receipt of none: what is asked for holds.)
        """
        with self._db.write() as session:
            state = self._locked(session, name)
            if id is not None:
                there = repository.find_item(session, state.id, checked_id(id))
                ids = [] if there is None else [id]
            else:
                assert subject is not None
                ids = repository.subject_ids(session, state.id, checked_id(subject, "subject"))
            probes = 0 if subject is None else erase_probes(session, state.id, subject)
            now = self._db.now(session)
            repository.erase(session, state, ids, now)
            before = {"items": len(ids), **({"probes": probes} if probes else {})}
            record(session, now, "gallery.erase", f"gallery:{name}", before=before)
        # An erasure that was cut short before this point is completed by asking again, or by the next search.
        unfinished = None
        try:
            blocks = self.disk(state).drop_holders(ids or ([id] if id is not None else []))
        except OSError as error:
            # The rows are gone for good, which the receipt has to say.
            blocks, unfinished = 0, error.strerror or type(error).__name__
        complete = self._db.truncate_log() and unfinished is None
        for live in self._open(state.key):
            self._in_background(live, lambda live=live: live.view(state.seq + 1))  # type: ignore[misc]
        if id is not None and not ids:
            raise UnknownItem(f"gallery {name!r} has no item {id[:100]!r}", field="id")
        pending = [
            "other API processes mask it at their next search, and let go of mapped files within 15 seconds"
        ]
        if unfinished is not None:
            pending.append(
                f"files of the index hold it still ({unfinished}): free some space and ask again; searches "
                "do not find it there"
            )
        if self._settings.dask_scheduler is not None:
            pending.append(
                "Dask workers mask it at their next search, and let go of its block within 15 seconds"
            )
        if not self._db.is_sqlite:
            complete = not ids and not probes
            pending.append(
                "PostgreSQL keeps dead rows until vacuum: VACUUM gallery_items, gallery_probes, or wait for autovacuum"
            )
        elif not complete and unfinished is None:
            pending.append(
                "the database's log is in use by a long reader, or its disk is full; it is emptied by the next erasure"
            )
        keeping = [
            ModelOfGallery(name=entry.name, version=entry.version, kind=entry.kind)
            for model in catalogue.models.values()
            for entry in model.versions.values()
            if keeps_rows(entry.kind)
        ]
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
            models_with_training_rows=keeping,
            erased_at=iso(now),
        )

    # ------------------------------------------------------------ views

    def disk(self, state: State) -> GalleryDisk:
        """The gallery's files on this machine."""
        return GalleryDisk(self._home / state.key)

    def live(self, state: State, estimator: Any) -> LiveGallery:
        """The gallery as this process searches it."""
        key = (state.key, state.model_id, state.version)
        with self._lock:
            found = self._live.get(key)
            if found is None:
                found = self._live[key] = LiveGallery(self._db, self.disk(state), state, estimator)
                while len(self._live) > OPEN_GALLERIES:
                    self._live.popitem(last=False)
            self._live.move_to_end(key)
        return found

    def elsewhere(self, state: State, wanted: Filter, seq: int) -> Elsewhere | None:
        """Who searches blocks of a view for this process, if anybody does: see `Spread.searching`."""
        return self._spread.searching(state, wanted, seq)

    def tidy_later(self, live: LiveGallery) -> None:
        """Have blocks merged and kept in the background, if that is needed."""
        if id(live) not in self._scheduled and live.untidy():
            self._in_background(live, lambda: None)

    def _open(self, key: str) -> list[LiveGallery]:
        with self._lock:
            return [live for (one, *_), live in self._live.items() if one == key]

    def _in_background(self, live: LiveGallery, work: Callable[[], Any], *, tidy: bool = True) -> None:
        with self._lock:
            if id(live) in self._scheduled:
                return
            self._scheduled.add(id(live))

        def do() -> None:
            try:
                with self._lock:
                    # From here on, what is asked for needs another turn.
                    self._scheduled.discard(id(live))
                work()
                while tidy and live.tidy():
                    pass
                self._spread.settle(prefix_of(*live.key), live.block_names())
            except UnknownGallery:
                pass

        try:
            self._upkeep.submit(do).add_done_callback(_log_failure)
        except RuntimeError:
            # The process is ending.
            self._scheduled.discard(id(live))

    # ------------------------------------------------------------ upkeep

    def keep_up(self) -> None:
        """See what other processes wrote and erased in the galleries this one has open (blocking)."""
        with self._lock:
            known = list(self._live.items())
        for key, live in known:
            with self._db.read() as session:
                state = repository.state_by_id(session, live.id)
            if state is None or key[1:] not in versions_of(state):
                with self._lock:
                    self._live.pop(key, None)
                self._spread.settle(prefix_of(*key))
            elif live.at_hand(0) is not None:
                self._in_background(live, lambda live=live, seq=state.seq: live.view(seq))  # type: ignore[misc]

    def moving(self) -> list[State]:
        """Galleries on their way to another version."""
        with self._db.read() as session:
            return repository.moving(session)

    def move(self, state: State, served: Served) -> None:
        """Index a gallery for the version it moves to, then let that one serve (blocking)."""
        assert state.next_model_id is not None
        assert state.next_version is not None
        aimed = State(
            **{
                **{name: getattr(state, name) for name in State.__slots__},
                "model_id": state.next_model_id,
                "version": state.next_version,
                "kind": state.next_kind,
            }
        )
        live = self.live(aimed, served.estimator)
        try:
            live.view(state.seq)
        except UnknownGallery:
            return
        with self._db.write() as session:
            number = repository.lock(session, state.name)
            now = None if number is None else repository.state_by_id(session, number)
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
        # Before the rows: a gallery has a row before it has a folder, so a folder without a row is nobody's.
        folders = list(self._home.iterdir()) if self._home.exists() else []
        with self._db.read() as session:
            gone = repository.orphans(session)
            states = {state.key: state for state in self._all_states(session)}
        for number in gone:
            self._remove_rows(number)
        if gone:
            self._db.truncate_log()
        removed = 0
        for folder in folders:
            if folder.name.startswith("import-"):
                if not _alive(folder.name.split("-")[1]):
                    shutil.rmtree(folder, ignore_errors=True)
                    removed += 1
            elif folder.name in states:
                removed += GalleryDisk(folder).keep_only(versions_of(states[folder.name]))
            else:
                GalleryDisk(folder).drop()
                removed += 1
        if gone or removed:
            with self._db.write() as session:
                facts = {"galleries": len(gone), "folders": removed}
                recovered(session, self._db.now(session), "galleries", "gallery", **facts)

    def _all_states(self, session: Any) -> Iterator[State]:
        after = None
        while True:
            some = repository.page(session, limit=500, after=after)
            yield from some
            if len(some) < 500:
                return
            after = some[-1].name

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A folder for one import; `sweep` removes those of killed processes."""
        folder = self._home / f"import-{os.getpid()}-{secrets.token_hex(8)}"
        folder.mkdir(parents=True, mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def versions_of(state: State) -> set[tuple[str, int]]:
    """The version that serves a gallery, and the one it moves to."""
    found = {(state.model_id, state.version)}
    if state.next_model_id is not None and state.next_version is not None:
        found.add((state.next_model_id, state.next_version))
    return found


def keeps_rows(kind: str) -> bool:
    """Whether artefacts of that kind hold rows of their training data."""
    try:
        return spec_of(kind).keeps_rows
    except KeyError:
        return False


def checked_id(value: str, field: str = "id") -> str:
    """An id or subject as it may be stored; others are not there."""
    try:
        return text_of(value, field)
    except InvalidInput as error:
        raise UnknownItem(f"there is none: {error.detail}", field=field) from error


def gallery_out(state: State, subjects: int | None = None) -> GalleryOut:
    """A gallery as JSON shows it."""
    moving = None
    if state.next_version is not None and state.next_model is not None:
        moving = ModelOfGallery(name=state.next_model, version=state.next_version, kind=state.next_kind)
    return GalleryOut(
        name=state.name,
        model=ModelOfGallery(name=state.model, version=state.version, kind=state.kind),
        moving_to=moving,
        dimension=state.dimension,
        items=state.items,
        subjects=subjects,
        sequence=state.seq,
        fields=sorted(state.fields),
        created_at=iso(state.created_at),
        updated_at=iso(state.updated_at),
    )


def _item_out(row: GalleryItem, *, vector: bool) -> ItemOut:
    return ItemOut(
        id=row.id,
        subject=row.subject,
        metadata=None if row.facts is None else json.loads(row.facts),
        vector=np.frombuffer(row.vector, dtype="<f4").tolist() if vector else None,
    )


def _within_fields(rows: Rows, state: State, errors: RowErrors) -> tuple[Rows, list[str]]:
    """The rows without those whose metadata would exceed the fields that a gallery may have, and the new fields."""
    if not any(rows.metadata):
        return rows, []
    known = set(state.fields)
    new = fields_of(rows.metadata) - known
    if len(known) + len(new) <= MAX_FIELDS:
        return rows, sorted(new)
    added: list[str] = []
    kept = []
    for at, text in enumerate(rows.metadata):
        own = sorted(fields_of([text]) - known)
        if len(known) + len(own) > MAX_FIELDS:
            errors.add(
                rows.places[at],
                rows.ids[at],
                f"metadata would bring field {own[0]!r}, and the gallery has {len(known)} fields already; at most "
                f"{MAX_FIELDS} are kept",
            )
            continue
        known.update(own)
        added += own
        kept.append(at)
    chosen = Rows(
        ids=[rows.ids[at] for at in kept],
        subjects=[rows.subjects[at] for at in kept],
        vectors=np.ascontiguousarray(rows.vectors[kept]),
        metadata=[rows.metadata[at] for at in kept],
        places=[rows.places[at] for at in kept],
    )
    return chosen, added


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def _log_failure(future: Future[None]) -> None:
    if future.cancelled() or future.exception() is None:
        return
    import logging

    logging.getLogger(__name__).error("a gallery's upkeep failed", exc_info=future.exception())
