"""The items that a search still looks at, and their upper bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.similarity.kernels import search as kernels

_TOTALS = 65_536
"""How many values a total, of 16 bits, can have."""


class ItemPlaces:
    """Items by their places in columns of byte codes: all of the gallery's, or those that were laid side by side.

    An item waits until it is scored or given up. Blocks in which nothing waits are not looked at any more.

    Attributes
    ----------
    totals : (n_places,) upper bounds of items' sums, in a cut's units.
    """

    def __init__(self, codes: NDArray[np.uint8], n: int, allowed: NDArray[np.bool_] | None) -> None:
        self._codes = self._columns = codes
        # The gallery's row at each place; None: they are the same.
        self._rows: NDArray[np.int64] | None = None
        n_places = codes.shape[0] * kernels.BLOCK
        self.totals = np.zeros(n_places, dtype=np.uint16)
        # The last block may be longer than the gallery: nothing waits there.
        self._waiting = np.zeros(n_places, dtype=np.bool_)
        self._waiting[:n] = True if allowed is None else allowed
        self._blocks = np.arange(codes.shape[0], dtype=np.int64)
        if allowed is not None:
            self._blocks = self._blocks[np.logical_or.reduceat(allowed, self._blocks * kernels.BLOCK)]

    def rows(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows of the gallery."""
        return places if self._rows is None else self._rows[places]

    def bound(self, steps: NDArray[np.int16], ends: NDArray[np.int64]) -> None:
        """Bound every item by the programs of a cut."""
        kernels.evaluate(steps, ends, self._columns, self._blocks, self.totals)

    def reaching(self, least_total: int) -> NDArray[np.int64]:
        """Places of items that wait and whose bound is no less."""
        places: NDArray[np.int64] = kernels.reaching(self.totals, self._waiting, self._blocks, least_total)
        return places

    def promising(self, n_wanted: int, n_most: int) -> NDArray[np.int64]:
        """About ``n_wanted`` places of the best bounds that wait, at most ``n_most``."""
        counts = np.zeros(_TOTALS, dtype=np.int64)
        kernels.histogram(self.totals, self._waiting, self._blocks, counts)
        # Items by totals of at least 65,535, 65,534 and so on: the first that as many reach as wanted is the least.
        from_above = np.cumsum(counts[::-1])
        if not from_above[-1]:
            return np.empty(0, dtype=np.int64)
        least = _TOTALS - 1 - int(np.searchsorted(from_above, min(n_wanted, from_above[-1])))
        places = self.reaching(least)
        # Many may tie at the least total.
        best_first = np.argsort(-self.totals[places].astype(np.int32), kind="stable")
        return np.sort(places[best_first[:n_most]])

    def settle(self, places: NDArray[np.int64]) -> None:
        """These are scored: they wait no longer."""
        self._waiting[places] = False

    def lay_apart(self, places: NDArray[np.int64], features: NDArray[np.int64]) -> None:
        """Give up all items but these, which wait, and lay their columns of some features side by side."""
        rows = self.rows(places)
        n_blocks = -(-rows.size // kernels.BLOCK)
        self._columns = np.zeros((n_blocks, self._codes.shape[1], kernels.BLOCK), dtype=np.uint8)
        kernels.gather(self._codes, rows, features, self._columns)
        self._rows = rows
        self._blocks = np.arange(n_blocks, dtype=np.int64)
        self.totals = np.zeros(n_blocks * kernels.BLOCK, dtype=np.uint16)
        self._waiting = np.zeros(self.totals.size, dtype=np.bool_)
        self._waiting[: rows.size] = True
