"""Weak rankers as arrays, and the feature map they define."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array
from pairmark.models.rankboost import kernels
from pairmark.models.rankboost.rows import parts

_LOOKUP = 1 << 24
"""Most features for which there is a table of which are looked at; beyond, they are searched for."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Weak rankers in order: ranker t fires on the rows that hold its feature, or both its features, within bounds.

    Attributes
    ----------
    features : (T, 2); -1 where there is no second condition.
    low, high : (T, 2) float32, bounds: low < x <= high. An absent value is within none.
    alpha : (T,) weights in the ranking score, equation 6.
    """

    features: Annotated[Int64, Array(shape=("rankers", 2), low=-1, below="features")]
    low: Annotated[Float32, Array(shape=("rankers", 2), infinite=True)]
    high: Annotated[Float32, Array(shape=("rankers", 2), infinite=True)]
    alpha: Annotated[Float64, Array(shape=("rankers",))]

    def __len__(self) -> int:
        return int(self.alpha.size)

    @classmethod
    def concatenate(cls, sets: Sequence[Rules]) -> Rules:
        """All rankers of some sets of rules, in order."""
        bounds = np.empty((0, 2), np.float32)
        empty = cls(features=np.empty((0, 2), np.int64), low=bounds, high=bounds, alpha=np.empty(0))
        names = [field.name for field in fields(cls)]
        return cls(
            **{name: np.concatenate([getattr(rules, name) for rules in (empty, *sets)]) for name in names}
        )


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Rows in the space of the weak rankers.

    Attributes
    ----------
    starts, at, values : as CSR, coordinates ascending.
    means : (n,) inner products with the map's centre.
    """

    starts: Int64
    at: Int64
    values: Float64
    means: Float64
    width: int

    def __len__(self) -> int:
        return int(self.starts.size - 1)

    def matrix(self) -> csr_array:
        """As a SciPy matrix, (n, width)."""
        # What reads it often takes 32 bits only.
        kind = np.int32 if self.at.size < 2**31 else np.int64
        parts = self.values, self.at.astype(kind), self.starts.astype(kind)
        return csr_array(parts, shape=(len(self), self.width))

    def repeated(self, n: int) -> Coordinates:
        """A single row, n times."""
        size = self.at.size
        return Coordinates(
            starts=np.arange(n + 1, dtype=np.int64) * size,
            at=np.tile(self.at, n),
            values=np.tile(self.values, n),
            means=np.repeat(self.means, n),
            width=self.width,
        )


class FeatureMap:
    """Phi of equation 9: rows -> `Coordinates`, one a ranker.

    Parameters
    ----------
    rules : the rankers. value : (T,) what each is when it fires.

    Attributes
    ----------
    width : coordinates.
    """

    def __init__(self, rules: Rules, value: Float64, n_features: int) -> None:
        second = rules.features[:, 1] >= 0
        self.n_conditions = (1 + second).astype(np.int32)
        self.value = np.ascontiguousarray(value, dtype=np.float64)
        rule_of = np.concatenate([np.arange(len(rules)), np.flatnonzero(second)])
        feature = np.concatenate([rules.features[:, 0], rules.features[second, 1]])
        low = np.concatenate([rules.low[:, 0], rules.low[second, 1]])
        high = np.concatenate([rules.high[:, 0], rules.high[second, 1]])
        order = np.lexsort((rule_of, feature))
        self.features, begins = np.unique(feature[order], return_index=True)
        self._begins = np.append(begins, feature.size).astype(np.int64)
        self._rankers = rule_of[order].astype(np.int64)
        self._low, self._high = low[order].astype(np.float32), high[order].astype(np.float32)
        self._lookup = np.empty(0, dtype=np.int32)
        if n_features <= _LOOKUP:
            self._lookup = np.full(n_features, -1, dtype=np.int32)
            self._lookup[self.features] = np.arange(self.features.size, dtype=np.int32)
        self.width = len(rules)
        self.centred(np.zeros(self.width))

    def centred(self, centre: Float64) -> None:
        """Take inner products of differences from this point, (width,), from now on."""
        self.centre = np.ascontiguousarray(centre, dtype=np.float64)
        self.centre_square = float(np.sum(self.centre**2))

    def __call__(self, rows: csr_array) -> Coordinates:
        starts, columns, values = parts(rows)
        n = starts.size - 1
        n_done, pieces = 0, []
        # Space for what most rows need, and one row more; a block that fills up is continued in a larger one.
        capacity = self.width + 64 * n
        while True:
            out_starts = np.zeros(n - n_done + 1, dtype=np.int64)
            out_at, out_value = np.empty(capacity, np.int64), np.empty(capacity)
            wrote = kernels.apply_rules(
                starts[n_done:], columns, values, self._lookup, self.features, self._begins, self._rankers,
                self._low, self._high, self.n_conditions, self.value, out_starts, out_at, out_value,
            )  # fmt: skip
            n_mapped = -wrote if wrote < 0 else n - n_done
            size = int(out_starts[n_mapped])
            # What is beyond their ends is given back without a copy.
            out_at.resize(size, refcheck=False)
            out_value.resize(size, refcheck=False)
            pieces.append((np.diff(out_starts[: n_mapped + 1]), out_at, out_value))
            n_done += n_mapped
            if n_done == n:
                break
            capacity *= 2
        counts, made_at, made_values = (
            part[0] if len(part) == 1 else np.concatenate(part) for part in zip(*pieces, strict=True)
        )
        made_starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        means = np.empty(n)
        kernels.means(made_starts, made_at, made_values, self.centre, means)
        return Coordinates(starts=made_starts, at=made_at, values=made_values, means=means, width=self.width)
