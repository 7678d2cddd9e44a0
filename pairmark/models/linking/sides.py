"""Tables whose rows are linked: which pairs of rows may be links."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from pairmark.models.core.arrays import Int64


@dataclass(frozen=True)
class Sides:
    """One table or several, their rows one after the other.

    Attributes
    ----------
    sizes : rows of each. within : numbers of the tables whose own rows are compared with each other, too.
    """

    sizes: Sequence[int]
    within: Collection[int]

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)

    @property
    def apart(self) -> list[int]:
        """Tables whose own rows are not compared."""
        return [at for at in range(len(self.sizes)) if at not in self.within]

    @property
    def _starts(self) -> list[int]:
        return list(accumulate(self.sizes))[:-1]

    @property
    def n_pairs(self) -> float:
        """Pairs that may be links."""
        n = self.n_rows
        return n * (n - 1) / 2 - sum(self.sizes[at] * (self.sizes[at] - 1) / 2 for at in self.apart)

    def side(self, row: str) -> str:
        """SQL of the number of a row's table."""
        return " + ".join(f"CAST({row} >= {start} AS INTEGER)" for start in self._starts) or "0"

    def side_of(self, rows: Int64) -> Int64:
        """The numbers of the tables of rows."""
        return np.searchsorted(self._starts, rows, side="right")

    def may_link(self, a: str, b: str) -> str:
        """SQL of whether two rows, the first one before, are compared."""
        if not self.apart:
            return f"{a} < {b}"
        if len(self.sizes) == 2 and not self.within:
            return f"{a} < {self.sizes[0]} AND {b} >= {self.sizes[0]}"
        inside = ", ".join(map(str, sorted(self.within))) or "-1"
        return f"{a} < {b} AND ({self.side(a)} <> {self.side(b)} OR {self.side(a)} IN ({inside}))"

    def pairs(self, row: str = "row") -> str:
        """SQL of how many pairs of a group of rows may be links."""
        pairs_inside = (
            f"(count(*) FILTER ({self.side(row)} = {at})) * (count(*) FILTER ({self.side(row)} = {at}) - 1) // 2"
            for at in self.apart
        )
        return " - ".join(["count(*) * (count(*) - 1) // 2", *pairs_inside])

    def random_pairs(self, size: int) -> tuple[Int64, Int64]:
        """About ``size`` random pairs of rows that may be links."""
        random = np.random.default_rng(0)
        n = self.n_rows
        most = size * n * (n - 1) / 2 / max(self.n_pairs, 1)
        a, b = np.sort(random.integers(0, n, (2, int(min(most, 20 * size)))), axis=0)
        side = self.side_of(np.stack([a, b]))
        is_pair = (a < b) & ((side[0] != side[1]) | np.isin(side[0], list(self.within)))
        return a[is_pair], b[is_pair]
