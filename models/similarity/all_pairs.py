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
from models.similarity.binning import N_CODES, Grid, quantise
from models.similarity.trees import HALF_NAMES

_CLASSES_AT_A_TIME = 16


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
) -> NDArray[np.int64]:
    """How many pairs fall in each bin of each pair feature, of differences and sums or of maximum and minimum.

    Parameters
    ----------
    codes : (n, u) byte codes. classes : (n,) 0, 1, ...

    Returns
    -------
    (2, 2, u, bins) int64: same or different, half of the pair map, feature, bin; bins are codes' |difference| and sum
    (511 bins), or their maximum and minimum (256).
    """
    if pair_map == "products":
        raise ValueError(
            "pair_map is 'products', whose counts follow from no sum over codes; expected 'diff-sum' or 'max-min'"
        )
    u = codes.shape[1]
    places = np.arange(u) * N_CODES
    whole = np.zeros((1, u, N_CODES), dtype=np.int64)
    same = np.zeros_like(_counts(whole, pair_map))
    order = np.argsort(classes, kind="stable")
    borders = np.concatenate([[0], np.cumsum(np.bincount(classes))])
    for first in range(0, borders.size - 1, _CLASSES_AT_A_TIME):
        last = min(first + _CLASSES_AT_A_TIME, borders.size - 1)
        histograms = np.stack(
            [
                np.bincount((codes[order[a:b]] + places).ravel(), minlength=u * N_CODES)
                for a, b in zip(borders[first:last], borders[first + 1 : last + 1], strict=True)
            ]
        )
        histograms = histograms.reshape(last - first, u, N_CODES)
        whole += histograms.sum(axis=0)
        same += _counts(histograms, pair_map)
    return np.stack([same, _counts(whole, pair_map) - same])


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


def split_of_counts(counts: NDArray[np.int64], grid: Grid, pair_map: PairMap) -> RootSplit:
    """The best split given `pair_counts`."""
    low = counts.cumsum(axis=-1)
    totals = low[:, 0, 0, -1].astype(np.float64)
    a, c = low[0] / totals[0], low[1] / totals[1]
    with np.errstate(invalid="ignore", divide="ignore"):
        impurity = np.nan_to_num(a * c / (a + c)) + np.nan_to_num((1 - a) * (1 - c) / (2 - a - c))
    half, k, bin_ = np.unravel_index(int(impurity.argmin()), impurity.shape)
    base = grid.low[k] if pair_map == "max-min" else (2.0 * grid.low[k] if half == 1 else 0.0)
    return RootSplit(
        feature=int(grid.used[k]),
        map=HALF_NAMES[pair_map][half],
        threshold=float(base + (bin_ + 0.5) * grid.step[k]),
        low_same=int(low[0, half, k, bin_]),
        low_different=int(low[1, half, k, bin_]),
        n_same=int(totals[0]),
        n_different=int(totals[1]),
        impurity=float(impurity[half, k, bin_]),
    )


def _counts(histograms: NDArray[np.int64], pair_map: PairMap) -> NDArray[np.int64]:
    """Counts of pairs within each histogram, (classes, u, codes), summed over them: (2, u, bins)."""
    if pair_map == "max-min":
        at_most, at_least = histograms.cumsum(axis=2), histograms[:, :, ::-1].cumsum(axis=2)
        most = np.diff(at_most * (at_most - 1) // 2, axis=2, prepend=0)
        least = np.diff(at_least * (at_least - 1) // 2, axis=2, prepend=0)[:, :, ::-1]
        return np.stack([most.sum(axis=0), least.sum(axis=0)])
    bins = 2 * N_CODES - 1
    # Whole numbers below 2^53 come out of the transform to well within a half: rounding makes them exact.
    spectra = np.fft.rfft(histograms, n=2 * N_CODES, axis=2)
    lagged = np.rint(np.fft.irfft((np.abs(spectra) ** 2).sum(axis=0), n=2 * N_CODES)).astype(np.int64)
    summed = np.rint(np.fft.irfft((spectra**2).sum(axis=0), n=2 * N_CODES)).astype(np.int64)[:, :bins]
    rows = histograms.sum(axis=0)
    apart = np.zeros_like(summed)
    apart[:, :N_CODES] = lagged[:, :N_CODES]
    apart[:, 0] = (apart[:, 0] - rows.sum(axis=1)) // 2
    # Each row with itself stands at twice its code, every other pair twice.
    summed[:, ::2] -= rows
    return np.stack([apart, summed // 2])
