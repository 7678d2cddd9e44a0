"""A gallery's blocks on the workers of a Dask cluster, where they are made, kept and searched.

This is the workers' side; `cluster_search` asks. A worker has the service's own settings in its environment
(``PAIRMARK_DATABASE_URL``, ``PAIRMARK_ARTEFACTS``, ``PAIRMARK_HOME``), so that nothing secret and no vectors of the
gallery travel with a task. It maps a block's files where it sees them and else makes the block anew from the rows.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float32
from pairmark.models.core.artefact import ArtefactError
from pairmark.service.blobs import open_blobs
from pairmark.service.db import Database, open_database
from pairmark.service.errors import UnknownGallery
from pairmark.service.galleries import repository
from pairmark.service.galleries.index.blocks import GalleryDisk, IndexBlock, make_block, open_block
from pairmark.service.galleries.index.gallery_view import ItemHit, best_of_blocks
from pairmark.service.galleries.items import item_repository
from pairmark.service.galleries.items.metadata import Filter, choose
from pairmark.service.galleries.items.rows import form_of
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore

ESTIMATORS = 4
"""Versions that one worker process keeps loaded."""
_loading = threading.Lock()
"""Each is loaded once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a block is made from: the rows of a gallery written in (low, high], as they were at ``as_of`` or later.

    Attributes
    ----------
    folder : name of the block's folder, where somebody keeps it; None: in nobody's.
    """

    gallery_id: int
    gallery: str
    model_id: str
    model: str
    version: int
    low: int
    high: int
    as_of: int
    folder: str | None

    @property
    def key(self) -> str:
        """What Dask calls it: the same block for every process that asks."""
        return f"{prefix_of(self.gallery, self.model_id, self.version)}{self.low}-{self.high}-{self.as_of}"


def prefix_of(gallery: str, model_id: str, version: int) -> str:
    """What the names of all blocks of one gallery and version begin with."""
    return f"pairmark-{gallery}-{model_id}-{version}-"


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockQuery:
    """One search, as every block is asked it."""

    queries: Float32 = field(repr=False)
    k: int
    conditions: Filter
    above: np.float32 | None


class WorkerBlock:
    """A block in a worker's memory. Where Dask wants it elsewhere, it is made there: its vectors do not travel."""

    __slots__ = ("block", "estimator", "recipe")

    def __init__(self, recipe: Recipe, block: IndexBlock, estimator: Any) -> None:
        self.recipe, self.block, self.estimator = recipe, block, estimator

    def __sizeof__(self) -> int:
        return 0 if self.block.index is None else int(self.block.index.nbytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return open_or_make, (self.recipe,)


@cache
def _connections() -> tuple[Settings, Database, ModelStore]:
    """What one worker process keeps open."""
    settings = Settings()
    database = open_database(settings)
    return settings, database, ModelStore(database, open_blobs(settings), settings)


@lru_cache(maxsize=ESTIMATORS)
def _estimator(model_id: str, model: str, version: int) -> Any:
    return _connections()[2].load(model, version)


def open_or_make(recipe: Recipe) -> WorkerBlock:
    """Open a block where its files are seen, else make it from the rows."""
    settings, database, _ = _connections()
    with _loading:
        estimator = _estimator(recipe.model_id, recipe.model, recipe.version)
    if recipe.folder is not None:
        disk = GalleryDisk(settings.home / "galleries" / recipe.gallery)
        folder = disk.blocks(recipe.model_id, recipe.version).path / recipe.folder
        try:
            return WorkerBlock(recipe, open_block(folder, estimator), estimator)
        except (ArtefactError, OSError, ValueError, KeyError):
            pass
    with database.read(one_moment=True) as session:
        state = repository.state_by_id(session, recipe.gallery_id)
        # Another database may have a gallery of that number.
        if state is None or state.key != recipe.gallery:
            raise UnknownGallery("the gallery is not in this worker's database")
        form = form_of(estimator, state.dimension)
        parts = list(item_repository.read_range(session, state, form, recipe.low, recipe.high))
    block = make_block(estimator, parts, state.dimension, low=recipe.low, high=recipe.high, as_of=state.seq)
    return WorkerBlock(recipe, block, estimator)


def search(
    blocks: list[WorkerBlock], dead_seqs: list[NDArray[np.int64]], query: BlockQuery
) -> tuple[list[list[ItemHit]], int]:
    """The best rows of some blocks together, of each query, and the newest sequence number whose rows a block holds.

    Parameters
    ----------
    dead_seqs : for each block, the sequence numbers of rows that have been replaced or removed.
    """
    masked_blocks = []
    for worker_block, seqs in zip(blocks, dead_seqs, strict=True):
        block = worker_block.block
        mask = choose(block.columns, len(block), query.conditions)
        rows = block.rows_of(seqs)
        if rows.size:
            mask = np.ones(len(block), dtype=np.bool_) if mask is None else mask
            mask[rows] = False
        if len(block) and (mask is None or mask.any()):
            masked_blocks.append((block, mask))
    if not masked_blocks:
        hits: list[list[ItemHit]] = [[] for _ in query.queries]
    else:
        hits = best_of_blocks(blocks[0].estimator, query.queries, query.k, masked_blocks, query.above, None)
    return hits, max(worker_block.block.as_of for worker_block in blocks)
