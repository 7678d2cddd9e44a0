"""Searches a gallery's segments on a Dask cluster, and merges the workers' answers.

Every segment is one task whose result stays with a worker; a search is one task a worker, over the segments that are
there. Dask sees to the rest: segments of a worker that is lost are made again by another one, and segments that several
processes ask for are the same task.

A worker has the service's own settings in its environment (``PAIRMARK_DATABASE_URL``, ``PAIRMARK_ARTEFACTS``,
``PAIRMARK_HOME``), so that nothing secret and no vectors of the gallery travel with a task: it makes the segment from
the rows in the database.
"""

import logging
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.artefact import ArtefactError
from pairmark.service.blobs import open_blobs
from pairmark.service.db import Database, open_database
from pairmark.service.errors import InvalidInput, SearchTooLong, UnknownGallery
from pairmark.service.galleries import repository
from pairmark.service.galleries.metadata import Filter, choose
from pairmark.service.galleries.rows import StoredRows, form_of
from pairmark.service.galleries.segments import GalleryDisk, Segment, make_segment, open_segment, remove
from pairmark.service.galleries.view import ItemHit, MaskedParts, OtherSearch, Part, best_of_segments
from pairmark.service.processes import dask_client
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.tables import GalleryRow

log = logging.getLogger(__name__)

LEAST_ROWS = 262_144
"""Galleries of fewer rows are searched here: asking costs some milliseconds."""
PAUSE_S = 30.0
"""After a cluster failed, how long searches are made here before it is asked again."""
CONNECT_S = 3
"""Seconds that a search waits for the scheduler to answer at all."""
# Seconds that a search without a deadline waits for workers.
PATIENCE_S = 3600.0
ESTIMATORS = 4
"""Versions that one worker process keeps loaded."""
_loading = threading.Lock()
"""Each is loaded once."""


def prefix_of(gallery: str, model_id: str, version: int) -> str:
    """What the names of all segments of one gallery and version begin with."""
    return f"pairmark-{gallery}-{model_id}-{version}-"


def task_of(version_key: tuple[str, str, int], segment: Segment) -> str:
    """What Dask calls the making of a segment: the same for every process that asks for it."""
    return f"{prefix_of(*version_key)}{segment.low}-{segment.high}-{segment.as_of}"


# ---------------------------------------------------------------- on a worker


@dataclass(frozen=True, slots=True)
class WorkerSegment:
    """A segment that a worker has open. Where Dask wants it elsewhere, it is made there: its vectors do not travel."""

    state: GalleryRow
    segment: Segment
    estimator: Any

    def __reduce__(self) -> tuple[Any, ...]:
        return worker_segment, (self.state, self.segment.low, self.segment.high, self.segment.as_of)


@cache
def _connections() -> tuple[Database, ModelStore]:
    """What one worker process keeps open."""
    settings = Settings()
    database = open_database(settings)
    return database, ModelStore(database, open_blobs(settings), settings)


@lru_cache(maxsize=ESTIMATORS)
def _estimator(model_id: str, model: str, version: int) -> Any:
    return _connections()[1].load(model, version)


def worker_segment(wanted: GalleryRow, low: int, high: int, as_of: int) -> WorkerSegment:
    """The segment of the rows of a gallery that were written in (low, high], as they were at ``as_of`` or later.

    Mapped from files, of which only what is scanned stays in memory: those of this machine, or made from the database.
    """
    database, _ = _connections()
    home = Settings().home
    with _loading:
        estimator = _estimator(wanted.model_id, wanted.model, wanted.version)
    folder = home / "galleries" / wanted.key / f"{wanted.model_id}-{wanted.version}"
    for path in folder.glob(f"{low}-{high}-*"):
        # One that is removed meanwhile, or damaged, is made.
        with suppress(ArtefactError, OSError, ValueError, KeyError, TypeError):
            segment = open_segment(path, estimator)
            # An older one holds rows that the asking process no longer knows, and does not mask.
            if segment.as_of >= as_of:
                return WorkerSegment(wanted, segment, estimator)
    with database.read(one_moment=True) as session:
        state = repository.gallery(session, wanted.id)
        # Another database may have a gallery of that number.
        if state is None or state.key != wanted.key:
            raise UnknownGallery("the gallery is not in this worker's database")
        form = form_of(estimator, state.dimension)
        parts = list(repository.read_range(session, state, form, low, high))
    rows = StoredRows.sorted(parts, state.dimension)
    segment = make_segment(estimator, rows, low=low, high=high, as_of=state.seq)
    if len(segment):
        disk = GalleryDisk(home / "segments")
        with disk.lock():
            # What a process left that was killed in here holds rows that may have been erased since.
            for path in disk.path.iterdir():
                if path.is_dir():
                    remove(path)
            segment = disk.write(segment, estimator)
            # Without a name once it is mapped: what is let go of, by an erasure or the process's end, is gone.
            segment.remove()
    return WorkerSegment(state, segment, estimator)


def search(
    segments: list[WorkerSegment],
    dead_seqs: list[NDArray[np.int64]],
    queries: Float32,
    k: int,
    conditions: Filter,
    above: np.float32 | None,
) -> tuple[list[list[ItemHit]], int]:
    """The best rows of some segments together, of each query, and the newest sequence number whose rows one holds.

    Parameters
    ----------
    dead_seqs : for each segment, the sequence numbers of rows that have been replaced or removed.
    """
    masked_segments = []
    for segment, seqs in zip([one.segment for one in segments], dead_seqs, strict=True):
        mask = choose(segment.columns, len(segment), conditions)
        mask = np.ones(len(segment), dtype=np.bool_) if mask is None else mask
        mask[segment.rows_of(seqs)] = False
        if mask.any():
            masked_segments.append((segment, mask))
    hits = best_of_segments(segments[0].estimator, queries, k, masked_segments, above, None)
    return hits, max(one.segment.as_of for one in segments)


# ---------------------------------------------------------------- in the service


class ClusterSearch:
    """The cluster, as searches of one process ask it. Where ``dask_scheduler`` names none, nothing is spread."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.dask_scheduler
        self._lock = threading.Lock()
        self._client: Any = None
        self._tasks: dict[str, Any] = {}
        self._not_before = 0.0

    def searching(self, state: GalleryRow, conditions: Filter, seq: int) -> OtherSearch | None:
        """Searches of one view there; None: here.

        Parameters
        ----------
        conditions : the search's filter. seq : of the view; rows that were written or removed later do not count.
        """
        # Candidates for records are drawn from all segments together.
        if self._address is None or state.columns is not None:
            return None

        def best(
            masked_parts: MaskedParts,
            queries: Float32,
            k: int,
            above: np.float32 | None,
            deadline: float | None,
        ) -> tuple[list[list[ItemHit]], MaskedParts]:
            # The memtable is here only, and so is a segment that could not be written.
            parts = [part for part, _ in masked_parts if part.segment.folder is not None]
            if time.monotonic() < self._not_before or sum(len(part.segment) for part in parts) < LEAST_ROWS:
                return [], masked_parts
            try:
                search_args = (queries, k, conditions, above)
                hits, searched = self._ask_workers(state, parts, search_args, seq, deadline)
            except (SearchTooLong, InvalidInput):
                raise
            except Exception as error:
                # Whatever is wrong over there, the segments are here too.
                log.warning("the Dask cluster cannot search; searches go on here", exc_info=error)
                self._not_before = time.monotonic() + PAUSE_S
                self.close()
                return [], masked_parts
            return hits, [(part, mask) for part, mask in masked_parts if part not in searched]

        return best

    def _ask_workers(
        self,
        state: GalleryRow,
        parts: list[Part],
        search_args: tuple[Any, ...],
        seq: int,
        deadline: float | None,
    ) -> tuple[list[list[ItemHit]], list[Part]]:
        """The best rows of each query, and the parts that they are the best of."""
        client = self._connected()
        tasks = self._segments(client, state, parts)
        _wait(tasks, deadline)
        where = client.who_has(tasks)
        groups: dict[str | None, list[int]] = {}
        for place, task in enumerate(tasks):
            # Of several workers that hold a segment one is asked.
            groups.setdefault(min(where.get(task.key) or (), default=None), []).append(place)
        searches = [
            client.submit(
                search,
                [tasks[place] for place in members],
                [parts[place].dead_seqs() for place in members],
                *search_args,
                workers=None if worker is None else [worker],
                # A worker that is lost meanwhile must not hold up the answer.
                allow_other_workers=worker is not None,
                pure=False,
            )
            for worker, members in groups.items()
        ]
        try:
            _wait(searches, deadline)
            answers = client.gather(searches)
        except BaseException:
            client.cancel(searches)
            raise
        hits: list[list[ItemHit]] = [[] for _ in search_args[0]]
        searched: list[Part] = []
        for members, (worker_hits, as_of) in zip(groups.values(), answers, strict=True):
            # A segment made from newer rows than the view's lacks what was replaced since: it is searched here.
            if as_of <= seq:
                searched += [parts[place] for place in members]
                hits = [[*a, *b] for a, b in zip(hits, worker_hits, strict=True)]
        return hits, searched

    def _segments(self, client: Any, state: GalleryRow, parts: list[Part]) -> list[Any]:
        version_key = (state.key, state.model_id, state.version)
        names = [task_of(version_key, part.segment) for part in parts]
        with self._lock:
            for name, part in zip(names, parts, strict=True):
                task = self._tasks.get(name)
                if task is None or task.status in ("error", "cancelled", "lost"):
                    segment = part.segment
                    making = (worker_segment, state, segment.low, segment.high, segment.as_of)
                    self._tasks[name] = client.submit(*making, key=name)
            return [self._tasks[name] for name in names]

    def settle(self, prefix: str, current: Collection[str] = ()) -> None:
        """Have workers drop the segments with this prefix, but for the current ones: what was erased leaves their
        memory too."""
        with self._lock:
            for key in [key for key in self._tasks if key.startswith(prefix) and key not in current]:
                # Workers keep a result for as long as somebody holds its future.
                del self._tasks[key]

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                assert self._address is not None
                self._client = dask_client(self._address, CONNECT_S)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client, self._tasks = self._client, None, {}
        if client is not None:
            client.close(timeout=2)


def _wait(futures: list[Any], deadline: float | None) -> None:
    import distributed

    wait: Any = distributed.wait
    remaining = PATIENCE_S if deadline is None else deadline - time.monotonic()
    try:
        if remaining <= 0:
            raise TimeoutError
        wait(futures, timeout=remaining)
    except TimeoutError:
        raise SearchTooLong(
            "the search took longer than a request may; send fewer queries at a time"
        ) from None
