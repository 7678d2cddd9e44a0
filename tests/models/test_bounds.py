"""The finite-sample bound against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from pairmark.models.calibration.finite_sample import (
    FiniteSample,
    binomial_log_tail,
    order_rank,
    order_upper,
    population_rank,
    wilson_interval,
)


def test_binomial_tail() -> None:
    for n in (1, 30, 100_000):
        for p in (0.001, 0.05, 0.7):
            for k in {0, min(2, n), n // 2}:
                terms = binom.logpmf(np.arange(k + 1), n, p)
                expected = terms.max() + np.log(np.exp(terms - terms.max()).sum())
                found = binomial_log_tail(k, p, n)
                # Far beyond what any confidence asks for, the tail may be rounded to nothing.
                assert (
                    found == pytest.approx(expected, rel=1e-9, abs=1e-10) if expected > -600 else found < -600
                )


def test_the_upper_bound_is_clopper_and_pearsons() -> None:
    for k in (0, 3, 50):
        assert order_upper(k, 100, 0.95) == pytest.approx(beta.ppf(0.95, k + 1, 100 - k), rel=1e-9)


@pytest.mark.parametrize(("n", "population"), [(30, 30), (30, 60), (60, 90), (200, 1_000)])
@pytest.mark.parametrize("fpr", [0.05, 0.1, 0.3])
def test_a_sample_of_a_population_is_bounded_for_every_number_of_different_pairs(
    n: int, population: int, fpr: float
) -> None:
    """The largest count that no population with a higher rate shows more often than allowed."""
    from scipy.stats import hypergeom

    def worst(k: int) -> float:
        return max(
            float(hypergeom.cdf(k, size, math.floor(fpr * size + 1e-12) + 1, n))
            for size in range(n, population + 1)
        )

    rank = population_rank(n, population, fpr, 0.95)
    if rank is None:
        assert worst(0) > 0.05
        return
    assert worst(rank) <= 0.05
    assert rank + 1 >= n or worst(rank + 1) > 0.05
    # Never behind the bound for a population without an end; a population that was judged whole has no doubt left.
    assert rank >= (order_rank(n, fpr, 0.95) or 0)
    assert n < population or rank == math.floor(fpr * n + 1e-12)


def test_no_blocks_no_answer() -> None:
    bound = FiniteSample(above=np.zeros(1), n=0, n_matched=0, different_share=1.0)
    assert bound.smallest(0.95) is None


def test_wilson() -> None:
    for k, n in ((0, 10), (10, 10), (3, 17), (400, 1000)):
        expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
        low, high = wilson_interval(k / n, n, 0.95)
        assert low == pytest.approx(expected.low, abs=1e-12)
        assert high == pytest.approx(expected.high, abs=1e-12)
    assert wilson_interval(0.5, 0, 0.95) == (0.0, 1.0)


@pytest.mark.parametrize("n", [1, 29, 30, 59, 500])
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_order_statistic_rank_is_the_largest_admitted(n: int, p: float) -> None:
    k = order_rank(n, p, 0.95)
    if k is None:
        assert (1 - p) ** n > 0.05
        return
    assert binom.cdf(k, n, p) <= 0.05 < binom.cdf(k + 1, n, p)
    assert order_upper(k, n, 0.95) <= p
    assert binom.cdf(k, n, order_upper(k, n, 0.95)) == pytest.approx(0.05)


def test_the_bound_of_independent_rows_is_that_of_the_largest_rank() -> None:
    """Ties leave fewer rows above the threshold than the rank; only the rank was fixed before scores were seen."""
    bound = FiniteSample(above=np.arange(6) / 5, n=200, n_matched=200, different_share=1.0, counts_rows=True)
    rank = order_rank(200, 0.35, 0.95)
    assert rank is not None
    assert bound.choose(0.35, 0.95) == (1, pytest.approx(beta.ppf(0.95, rank + 1, 200 - rank)))
