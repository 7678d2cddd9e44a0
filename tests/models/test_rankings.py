"""Distances against SciPy's, and shares of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from pairmark.models import kendall_tau
from pairmark.models.evaluation.rankings import (
    mid_positions,
    pairwise_shares,
)


@pytest.mark.parametrize(("n", "k", "levels"), [(200, 2, 9), (200, 6, 3), (100, 12, 100), (3, 40, 5)])
def test_equals_tau_b(n: int, k: int, levels: int) -> None:
    rng = np.random.default_rng(k)
    a, b = rng.integers(0, levels, (2, n, k)).astype(float)
    with np.errstate(invalid="ignore"):
        expected = [kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(kendall_tau(a, b), expected, atol=1e-12)


def test_absent_labels_are_left_out_of_their_row() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 300, 7))
    a[rng.random(a.shape) < 0.2] = np.nan
    b[rng.random(b.shape) < 0.2] = np.nan
    for row, tau in enumerate(kendall_tau(a, b)):
        both = np.isfinite(a[row]) & np.isfinite(b[row])
        if both.sum() < 2:
            assert np.isnan(tau)
        else:
            assert tau == pytest.approx(kendalltau(a[row, both], b[row, both]).statistic)


def test_bad_shapes() -> None:
    with pytest.raises(ValueError, match=r"expected \(n, k\) for both"):
        kendall_tau([[1, 2]], [[1, 2, 3]])
    with pytest.raises(ValueError, match="infinities"):
        kendall_tau([[1, np.inf]], [[1, 2]])


def test_mid_positions_and_shares() -> None:
    np.testing.assert_array_equal(mid_positions([[3, 1, 1, np.nan]]), [[2, 0.5, 0.5, np.nan]])
    shares = pairwise_shares([[0, 1, np.nan], [1, 0, np.nan], [0, 1, 1], [0, 1, np.nan]])
    assert (shares[0, 1], shares[1, 0], shares[1, 2], shares[0, 2]) == (0.75, 0.25, 0.5, 1.0)
