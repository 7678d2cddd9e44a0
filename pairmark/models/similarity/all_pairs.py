"""Exact counts over all n (n - 1) / 2 pairs without going through them.

The pairs of a class whose codes of a feature differ by t are the autocorrelation of the class's histogram at t, those
whose codes sum to t its self-convolution; their maximum and minimum follow from cumulated counts. So the counts of
same pairs are sums over classes, those of all pairs come from the whole histogram, and what is left is different. Both
correlations are products of Fourier transforms, which add up over classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.pairs.sampling import PairMap
from pairmark.models.similarity.binning import N_CODES
from pairmark.models.similarity.kernels.all_pairs import (
    add_extremes,
    add_one_by_one,
    add_products,
    histograms,
    in_order,
)

ONE_BY_ONE = 48
"""Classes of at most so many rows: going through their pairs is less work than through their histograms."""
TRANSFORMED = 2**20
"""Rows up to which correlations by Fourier transforms are exact once rounded: they are off by some twenty roundings of
numbers up to n^2, of 2e-16 each, so by less than .01."""


def pair_counts(codes: NDArray[np.uint8], classes: Int64, pair_map: PairMap = "diff-sum") -> Float64:
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
    sorted_codes = np.empty_like(codes)
    in_order(codes, order, sorted_codes)
    extremes = pair_map == "max-min"
    counts = np.zeros((2, 2, codes.shape[1], N_CODES if extremes else 2 * N_CODES - 1))
    sizes = np.diff(borders)
    add_one_by_one(sorted_codes, borders, np.flatnonzero(sizes <= ONE_BY_ONE), extremes, counts[0])
    totals, of_identity = np.zeros((codes.shape[1], N_CODES)), np.empty((codes.shape[1], N_CODES))
    histograms(_rows_of(sorted_codes, borders, sizes <= ONE_BY_ONE), totals)
    within, all_pairs = _Correlations(codes.shape[1]), _Correlations(codes.shape[1])
    for c in np.flatnonzero(sizes > ONE_BY_ONE):
        histograms(sorted_codes[borders[c] : borders[c + 1]], of_identity)
        totals += of_identity
        if extremes:
            add_extremes(of_identity, float(sizes[c]), counts[0])
        elif sizes[c] > TRANSFORMED:
            add_products(of_identity, counts[0])
        else:
            within.add(of_identity)
    if extremes:
        add_extremes(totals, float(codes.shape[0]), counts[1])
    elif codes.shape[0] > TRANSFORMED:
        add_products(totals, counts[1])
    else:
        all_pairs.add(totals)
    if not extremes:
        within.add_to(counts[0])
        all_pairs.add_to(counts[1])
    counts[1] -= counts[0]
    return counts


def _rows_of(sorted_codes: NDArray[np.uint8], borders: Int64, classes: Bool) -> NDArray[np.uint8]:
    if not classes.any():
        return sorted_codes[:0]
    return sorted_codes if classes.all() else sorted_codes[np.repeat(classes, np.diff(borders))]


class _Correlations:
    """Sums over histograms of their autocorrelation and self-convolution, in frequencies, where both are products."""

    def __init__(self, n_features: int) -> None:
        self._rows = np.zeros((n_features, N_CODES))
        self._power = np.zeros((n_features, N_CODES + 1))
        self._square = np.zeros((n_features, N_CODES + 1), dtype=np.complex128)

    def add(self, histogram: Float64) -> None:
        """Add a histogram, (u, 256)."""
        waves = np.fft.rfft(histogram, 2 * N_CODES, axis=1)
        self._rows += histogram
        self._power += waves.real**2 + waves.imag**2
        self._square += waves * waves

    def add_to(self, counts: Float64) -> None:
        """Add the pairs within each histogram to ``counts`` (2, u, 511), by the codes' difference and sum."""
        if not self._rows.any():
            return
        by_difference = np.rint(np.fft.irfft(self._power, 2 * N_CODES, axis=1)[:, :N_CODES])
        # A row is no pair with itself, and a pair of one code is counted from both ends, as one of any sum is.
        by_difference[:, 0] = (by_difference[:, 0] - self._rows.sum(axis=1)) / 2.0
        counts[0, :, :N_CODES] += by_difference
        summed = np.rint(np.fft.irfft(self._square, 2 * N_CODES, axis=1)[:, : 2 * N_CODES - 1])
        summed[:, ::2] -= self._rows
        counts[1] += summed / 2.0
