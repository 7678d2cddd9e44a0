"""Grows trees of given seeds: in this thread, in threads, or with joblib's active backend."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from pairmark.models.similarity.binning import Grid
from pairmark.models.similarity.cart import grow_tree, learned_codes
from pairmark.models.similarity.kernels.layout import LearnedValues
from pairmark.models.similarity.training_pairs import PairSource
from pairmark.models.similarity.trees import GrowthSettings, Tree


@dataclass(frozen=True, kw_only=True)
class Grower:
    """Everything that a tree depends on but its seed. Plain data, so that another process can hold it too.

    Attributes
    ----------
    grid : codes of the points. source : where pairs are drawn from.
    """

    grid: Grid
    source: PairSource
    settings: GrowthSettings

    def __sizeof__(self) -> int:
        # Dask sends what it takes for large to each of its workers once, instead of along with every task.
        parts = [getattr(self, field.name) for field in fields(self)] + list(vars(self.source).values())
        return object.__sizeof__(self) + sum(
            part.nbytes if isinstance(part, np.ndarray) else sys.getsizeof(part) for part in parts
        )

    def grow(self, seed: int) -> Tree:
        pairs = self.source.draw(seed)
        learned = None if pairs.learned is None else self._learned
        return grow_tree(self.grid, pairs, self.settings, seed, learned=learned)

    @cached_property
    def _learned(self) -> LearnedValues | None:
        """Bins of learned features of given pairs, which all trees share."""
        pairs = self.source.listed_pairs
        return None if pairs is None or pairs.learned is None else learned_codes(pairs.learned)


def grow_each(grower: Grower, seeds: list[int], n_jobs: int | None) -> Generator[Tree, None, None]:
    """The trees of the seeds, in order, as they are done. Closing the iterator abandons the rest."""
    if len(seeds) <= 1 or effective_n_jobs(n_jobs) == 1:
        yield from map(grower.grow, seeds)
        return
    # Threads, or other processes of this machine or of a cluster where a backend of joblib's is active.
    growing = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(_grow)(grower, seed) for seed in seeds
    )
    try:
        yield from _not_closed(growing)
    finally:
        with warnings.catch_warnings():
            # That trees were made for nothing is what abandoning a fit means. What has not begun is taken back.
            warnings.simplefilter("ignore", UserWarning)
            growing.close()


def _not_closed(growing: Iterator[Tree]) -> Iterator[Tree]:
    """The same trees; when it is abandoned, ``growing`` itself is left to us to end."""
    # Not `yield from`, which would close it.
    for tree in growing:  # noqa: UP028
        yield tree


def _grow(grower: Grower, seed: int) -> Tree:
    # The grower as an argument, not bound: so joblib's Dask backend sees that it is large, and sends it once.
    return grower.grow(seed)
