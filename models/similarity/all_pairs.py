"""Exact counts over all n (n - 1) / 2 pairs without going through them.

The pairs of a class whose codes of a feature differ by t are the autocorrelation of the class's histogram at t, those
whose codes sum to t its self-convolution; their maximum and minimum follow from cumulated counts. So the counts of
same pairs are sums over classes, those of all pairs come from the whole histogram, and what is left is different.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.base import checked_identities
from models.pairs import PairMap
from models.similarity.all_pairs_kernels import best_border, count_all_pairs
from models.similarity.binning import N_CODES, Grid, quantise
from models.similarity.trees import HALF_NAMES


class RootSplit(NamedTuple):
    """The best first split of all pairs.

    Attributes
    ----------
    feature : the feature. map : which of its two pair features. threshold : pairs at most this go to the low side.
    low_same, low_different : pairs on the low side. n_same, n_different : all pairs.
    impurity : Gini impurity under costs that balance both kinds, .5 before the split.
    """

    feature: int
    map: str
    threshold: float
    low_same: int
    low_different: int
    n_same: int
    n_different: int
    impurity: float


def pair_counts(
    codes: NDArray[np.uint8], classes: NDArray[np.int64], pair_map: PairMap = "diff-sum"
) -> NDArray[np.float64]:
    """How many pairs fall in each bin of each pair feature, of differences and sums or of maximum and minimum.

    Parameters
    ----------
    codes : (n, u) byte codes. classes : (n,) 0, 1, ...

    Returns
    -------
    (2, 2, u, bins), whole numbers: same or different, half of the pair map, feature, bin; bins are codes' |difference|
    and sum (511 bins), or their maximum and minimum (256).
    """
    if pair_map == "products":
        raise ValueError(
            "pair_map is 'products', whose counts follow from no sum over codes; expected 'diff-sum' or 'max-min'"
        )
    # Few classes are sorted by counting.
    order = np.argsort(classes.astype(np.uint16) if classes.max() < 2**16 else classes, kind="stable")
    borders = np.concatenate([[0], np.cumsum(np.bincount(classes))])
    bins = N_CODES if pair_map == "max-min" else 2 * N_CODES - 1
    counts = np.zeros((2, 2, codes.shape[1], bins))
    count_all_pairs(codes[order], borders, pair_map == "max-min", counts)
    return counts


def root_split(X: ArrayLike, y: ArrayLike, pair_map: PairMap = "diff-sum") -> RootSplit:
    """The split of least Gini impurity over all pairs of rows (n, d) with identities y, among the bins' borders.

    Exact for features that lie on an even grid of at most 256 steps; for others exact on their codes.

    Raises
    ------
    ValueError
        When no two rows share an identity or all do, or every feature is constant.
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    _, classes = checked_identities(y, X.shape[0])
    grid = quantise(X)
    if not grid.used.size:
        raise ValueError("every feature is constant: expected some that varies")
    return split_of_counts(pair_counts(grid.codes, classes, pair_map), grid, pair_map)


def split_of_counts(counts: NDArray[np.float64], grid: Grid, pair_map: PairMap) -> RootSplit:
    """The best split given `pair_counts`."""
    half, k, bin_, gain, low_same, low_different = best_border(counts)
    base = grid.low[k] if pair_map == "max-min" else (2.0 * grid.low[k] if half == 1 else 0.0)
    return RootSplit(
        feature=int(grid.used[k]),
        map=HALF_NAMES[pair_map][half],
        threshold=float(base + (bin_ + 0.5) * grid.step[k]),
        low_same=int(low_same),
        low_different=int(low_different),
        n_same=int(counts[0, 0, 0].sum()),
        n_different=int(counts[1, 0, 0].sum()),
        impurity=0.5 * (1.0 - gain),
    )
