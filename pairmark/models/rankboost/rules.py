"""Weak rankers as arrays, and the feature map they define."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated

import numpy as np
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.inputs import csr_parts
from pairmark.models.core.state import Array
from pairmark.models.rankboost import kernels
from pairmark.models.rankboost.rows import places_of


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
    def concatenate(cls, sets: "Sequence[Rules]") -> "Rules":
        """All rankers of some sets of rules, in order."""
        bounds = np.empty((0, 2), np.float32)
        empty = cls(features=np.empty((0, 2), np.int64), low=bounds, high=bounds, alpha=np.empty(0))
        names = [field.name for field in fields(cls)]
        return cls(
            **{name: np.concatenate([getattr(rules, name) for rules in (empty, *sets)]) for name in names}
        )


class FeatureMap:
    """Phi of equation 9: rows -> (n, rankers) CSR of float64, coordinates ascending.

    Parameters
    ----------
    rules : the rankers. value : (T,) what each is when it fires.

    Attributes
    ----------
    width : coordinates.
    """

    def __init__(self, rules: Rules, value: Float64) -> None:
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
        self.width = len(rules)

    def __call__(self, rows: csr_array) -> csr_array:
        starts, columns, values = csr_parts(rows)
        places = places_of(columns, self.features)
        # A row has at most as many coordinates as its values are asked for; the last 0 is for those that are not.
        n_asked = np.append(np.diff(self._begins), 0)[places]
        most = np.diff(np.concatenate([[0], np.cumsum(n_asked)])[starts])
        capacity = int(np.minimum(most, self.width).sum())
        out_starts = np.zeros(starts.size, dtype=np.int64)
        out_columns, value = np.empty(capacity, dtype=np.int32), np.empty(capacity)
        kernels.apply_rules(
            starts, places, values, self._begins, self._rankers, self._low, self._high, self.n_conditions,
            self.value, out_starts, out_columns, value,
        )  # fmt: skip
        n = int(out_starts[-1])
        # What reads it often takes 32 bits only.
        kind = np.int32 if n < 2**31 else np.int64
        return csr_array(
            (value[:n], out_columns[:n], out_starts.astype(kind)), shape=(starts.size - 1, self.width)
        )
