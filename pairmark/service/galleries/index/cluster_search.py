"""Searches a gallery's blocks on a Dask cluster, and merges the workers' answers.

Every block is one task whose result, the block, stays with a worker; a search is one task a worker's thread, beside
the blocks that are there. Dask sees to the rest: blocks of a worker that is lost are made again by another one, and
blocks that several processes ask for are the same task.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.service.cluster import connected
from pairmark.service.errors import InvalidInput, SearchTooLong
from pairmark.service.galleries.index import worker_blocks
from pairmark.service.galleries.index.gallery_view import ItemHit, MaskedParts, OtherSearch, Part
from pairmark.service.galleries.index.worker_blocks import BlockQuery, Recipe
from pairmark.service.galleries.items.metadata import Filter
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.settings import Settings

log = logging.getLogger(__name__)

LEAST_ROWS = 262_144
"""Galleries of fewer rows are searched here: asking costs some milliseconds."""
PAUSE_S = 30.0
"""After a cluster failed, how long searches are made here before it is asked again."""
CONNECT_S = 3
"""Seconds that a search waits for the scheduler to answer at all."""
PATIENCE_S = 3600.0


Group = tuple[str | None, list[str]]
"""A worker, and blocks that it holds for one of its threads."""


class ClusterSearch:
    """The cluster, as searches of one process ask it. Where ``dask_scheduler`` names none, nothing is spread."""

    def __init__(self, settings: Settings) -> None:
        self._address = settings.dask_scheduler
        self._lock = threading.Lock()
        self._client: Any = None
        self._tasks: dict[str, Any] = {}
        self._not_before = 0.0

    def searching(self, state: GalleryState, conditions: Filter, seq: int) -> OtherSearch | None:
        """Searches of one view there; None: here.

        Parameters
        ----------
        conditions : the search's filter. seq : of the view; rows that were written or removed later do not count.
        """
        # Candidates for records are drawn from all blocks together.
        if self._address is None or state.columns is not None:
            return None

        def best(
            parts_to_search: MaskedParts,
            queries: Float32,
            k: int,
            above: np.float32 | None,
            deadline: float | None,
        ) -> tuple[list[list[ItemHit]], MaskedParts]:
            on_cluster = [part for part, _ in parts_to_search if part.block.high > 0]
            if (
                time.monotonic() < self._not_before
                or sum(len(part.block) for part in on_cluster) < LEAST_ROWS
            ):
                return [], parts_to_search
            block_query = BlockQuery(queries=queries, k=k, conditions=conditions, above=above)
            try:
                return self._ask_workers(state, on_cluster, parts_to_search, block_query, seq, deadline)
            except (SearchTooLong, InvalidInput):
                raise
            except Exception as error:
                # Whatever is wrong over there, the blocks are here too.
                log.warning("the Dask cluster cannot search; searches go on here", exc_info=error)
                self._not_before = time.monotonic() + PAUSE_S
                self.close()
                return [], parts_to_search

        return best

    def _ask_workers(
        self,
        state: GalleryState,
        on_cluster: list[Part],
        parts_to_search: MaskedParts,
        block_query: BlockQuery,
        seq: int,
        deadline: float | None,
    ) -> tuple[list[list[ItemHit]], MaskedParts]:
        from distributed import wait

        client = self._connected()
        parts_of = {recipe_of(state, part).key: part for part in on_cluster}
        blocks = self._blocks(client, state, on_cluster)
        _waited(wait, list(blocks.values()), deadline)
        groups = self._groups(client, blocks)
        searches = [
            client.submit(
                worker_blocks.search,
                [blocks[key] for key in keys],
                [_dead_seqs(parts_of[key]) for key in keys],
                block_query,
                workers=None if worker is None else [worker],
                # A worker that is lost meanwhile must not hold up the answer.
                allow_other_workers=worker is not None,
                pure=False,
            )
            for worker, keys in groups
        ]
        try:
            _waited(wait, searches, deadline)
            answers = client.gather(searches)
        except BaseException:
            client.cancel(searches)
            raise
        hits: list[list[ItemHit]] = [[] for _ in block_query.queries]
        searched: set[int] = set()
        for (_, keys), (block_hits, as_of) in zip(groups, answers, strict=True):
            # A block made from newer rows than the view's lacks what was replaced since: it is searched here.
            if as_of > seq:
                continue
            searched.update(id(parts_of[key]) for key in keys)
            for hits_of_query, worker_hits in zip(hits, block_hits, strict=True):
                hits_of_query.extend(worker_hits)
        return hits, [(part, mask) for part, mask in parts_to_search if id(part) not in searched]

    def _blocks(self, client: Any, state: GalleryState, parts: list[Part]) -> dict[str, Any]:
        recipes = [recipe_of(state, part) for part in parts]
        with self._lock:
            for recipe in recipes:
                task = self._tasks.get(recipe.key)
                if task is None or task.status in ("error", "cancelled", "lost"):
                    self._tasks[recipe.key] = client.submit(
                        worker_blocks.open_or_make, recipe, key=recipe.key
                    )
            return {recipe.key: self._tasks[recipe.key] for recipe in recipes}

    def _groups(self, client: Any, blocks: dict[str, Any]) -> list[Group]:
        where: dict[str, list[str]] = client.who_has(list(blocks.values()))
        threads: dict[str, int] = client.nthreads()
        of: dict[str | None, list[str]] = {}
        for key in blocks:
            workers = sorted(where.get(key, ()))
            of.setdefault(workers[0] if workers else None, []).append(key)
        groups: list[Group] = []
        for worker, keys in of.items():
            n = min(len(keys), max(1, threads.get(worker or "", 1)))
            groups += [(worker, keys[at::n]) for at in range(n)]
        return groups

    def settle(self, prefix: str, current: Collection[str] = ()) -> None:
        """Have workers drop the blocks with this prefix, but for the current ones: what was erased leaves their memory
        too."""
        with self._lock:
            for key in [key for key in self._tasks if key.startswith(prefix) and key not in current]:
                del self._tasks[key]

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                assert self._address is not None
                self._client = connected(self._address, CONNECT_S)
            return self._client

    def close(self) -> None:
        with self._lock:
            client, self._client, self._tasks = self._client, None, {}
        if client is not None:
            client.close(timeout=2)


def recipe_of(state: GalleryState, part: Part) -> Recipe:
    """What a worker makes a part's block from."""
    block = part.block
    return Recipe(
        gallery_id=state.id,
        gallery=state.key,
        model_id=state.model_id,
        model=state.model,
        version=state.version,
        low=block.low,
        high=block.high,
        as_of=block.as_of,
        folder=None if block.folder is None else block.folder.name,
    )


def _dead_seqs(part: Part) -> NDArray[np.int64]:
    """Sequence numbers of a part's rows that were replaced or removed."""
    if part.alive is None:
        return np.empty(0, dtype=np.int64)
    return np.ascontiguousarray(part.block.seqs[~part.alive[part.block.order]])


def _waited(wait: Any, futures: list[Any], deadline: float | None) -> None:
    remaining = PATIENCE_S if deadline is None else deadline - time.monotonic()
    try:
        if remaining <= 0:
            raise TimeoutError
        wait(futures, timeout=remaining)
    except TimeoutError:
        raise SearchTooLong(
            "the search took longer than a request may; send fewer queries at a time"
        ) from None
