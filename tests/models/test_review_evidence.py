"""Bounds of reviews: exact on tiny populations, valid at every look, monotone."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pairmark.models.reviews.evidence import (
    Judgements,
    expected_judgements,
    missed_bound,
    next_group,
    share_bound,
)


def bound_of(wrong: list[int], size: int, at_most: float = 0.02) -> int:
    return Judgements.of([size], [0] * len(wrong), wrong).most_wrong(at_most, 0.95)


def most_failures(runs: int, share: float) -> int:
    """Seeded anew, a bound that uses up all that it may exceeds this in one of 400,000 simulations."""
    return int(binom.ppf(1 - 2.5e-6, runs, share))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_population_that_is_judged_whole_is_known(size: int) -> None:
    for wrong in itertools.product([0, 1], repeat=size):
        assert bound_of(list(wrong), size) == sum(wrong)


def test_nothing_judged_rules_nothing_out() -> None:
    assert bound_of([], 3) == 3
    assert share_bound(Judgements.of([700, 300], [], []), 0.02, 0.95) == 1.0


@pytest.mark.parametrize(("size", "at_most"), [(5, 0.2), (7, 0.3), (6, 0.01), (8, 0.9)])
def test_every_order_of_a_small_population_fails_rarely_enough(size: int, at_most: float) -> None:
    """Exact: all orders in which a population can be drawn, and all looks at each."""
    for wrong in range(size + 1):
        orders = list(itertools.combinations(range(size), wrong))
        failed = 0
        for places in orders:
            order = [int(at in places) for at in range(size)]
            failed += any(
                Judgements.of([size], [0] * n, order[:n]).most_wrong(at_most, 0.7) < wrong
                for n in range(size + 1)
            )
        assert failed <= 0.3 * len(orders)


@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.integers(0, 200),
    st.floats(0.005, 0.6),
    st.integers(0, 60),
)
def test_a_wrong_judgement_never_lowers_the_bound(
    wrong: list[bool], more: int, at_most: float, alike: int
) -> None:
    x = [int(one) for one in wrong]
    size = len(x) + more
    first = size // 3 + 1
    stratum = [0] * len(x)
    judged = Judgements.of([size], stratum, x).most_wrong(at_most, 0.95)
    assert sum(x) <= judged <= sum(x) + more
    for at in range(len(x)):
        if not x[at]:
            worse = [*x[:at], 1, *x[at + 1 :]]
            assert Judgements.of([size], stratum, worse).most_wrong(at_most, 0.95) >= judged
            break
    labels = [at % 2 for at in range(len(x))]
    counts = (labels.count(0) + first, labels.count(1) + more)
    by_strata = Judgements.of(counts, labels, x, min(alike, len(x))).most_wrong(at_most, 0.95)
    assert sum(x) <= by_strata <= sum(x) + sum(counts) - len(x)


@pytest.mark.parametrize(("size", "at_most"), [(120, 0.05), (60, 0.02)])
def test_the_bound_holds_at_all_looks(size: int, at_most: float) -> None:
    """Just above the share asked about; 1.5/N and less included."""
    rng = np.random.default_rng(3)
    wrong = math.floor(at_most * size) + 1
    truth = np.arange(size) < wrong
    runs, failed = 60, 0
    for _ in range(runs):
        x = rng.permutation(truth).astype(int).tolist()
        failed += any(bound_of(x[:n], size, at_most) < wrong for n in range(5, size + 1, max(1, size // 40)))
    assert failed <= most_failures(runs, 0.05)


def test_the_bound_holds_where_draws_follow_strata() -> None:
    rng = np.random.default_rng(4)
    sizes, wrong = [30, 170], (6, 3)
    failed, runs = 0, 40
    for _ in range(runs):
        truth = [rng.permutation(np.arange(n) < w).tolist() for n, w in zip(sizes, wrong, strict=True)]
        everyone = rng.permutation([0] * 30 + [1] * 170).tolist()
        stratum: list[int] = []
        x: list[int] = []
        alike = None
        low = False
        while len(x) < 120 and not low:
            judged = Judgements.of(sizes, stratum, x, alike)
            if alike is None and not judged.draws_alike():
                alike = len(x)
            h = everyone[len(x)] if alike is None else judged.next_stratum(0.04)
            stratum.append(h)
            x.append(int(truth[h].pop()))
            if len(x) > 30:
                low = Judgements.of(sizes, stratum, x, alike).most_wrong(0.04, 0.9) < sum(wrong)
        failed += low
    assert failed <= most_failures(runs, 0.1)


def test_missed_matches_count_against_what_is_the_same() -> None:
    matched = Judgements.of([100], [0] * 100, [0] * 90 + [1] * 10, 0)
    different = Judgements.of([20, 80], [0] * 20 + [1] * 80, [1] * 5 + [0] * 95, 0)
    # All 200 were judged: 90 true matches and 5 missed.
    assert missed_bound(matched, different, 0.05, 0.95) == pytest.approx(5 / 95)
    nothing = Judgements.of([100], [], [], 0)
    assert missed_bound(nothing, different, 0.05, 0.95) == 1.0
    assert missed_bound(
        Judgements.of([0], [], [], 0), Judgements.of([3], [0] * 3, [0] * 3, 0), 0.05, 0.95
    ) in (0.0, 1.0)


def test_the_bound_of_missed_matches_holds_at_all_looks() -> None:
    """15 of 115 same pairs are missed: a bound below that is wrong."""
    rng = np.random.default_rng(6)
    failed, runs = 0, 30
    for _ in range(runs):
        queues = [
            rng.permutation(np.arange(110) < 10).tolist(),
            rng.permutation(np.arange(40) < 10).tolist(),
            rng.permutation(np.arange(160) < 5).tolist(),
        ]
        of: list[tuple[list[int], list[int]]] = [([], []), ([], [])]
        low = False
        for t in range(121):
            first, second = Judgements.of([110], *of[0], 0), Judgements.of([40, 160], *of[1], 0)
            is_match, stratum = next_group(first, second, 0.12)
            of[not is_match][0].append(stratum)
            of[not is_match][1].append(int(queues[0 if is_match else 1 + stratum].pop()))
            low = low or (t % 20 == 0 and missed_bound(first, second, 0.12, 0.9) < 15 / 115)
        failed += low
    assert failed <= most_failures(runs, 0.1)
    # As soon as a few of each were judged, it is not far off either.
    first, second = Judgements.of([100], [0] * 60, [0] * 60, 0), Judgements.of([100], [0] * 90, [0] * 90, 0)
    assert 0.0 < missed_bound(first, second, 0.05, 0.95) < 0.05


def test_draws_end_when_everything_is_drawn() -> None:
    rng = np.random.default_rng(5)
    of: list[tuple[list[int], list[int]]] = [([], []), ([], [])]
    for _ in range(9):
        first, second = Judgements.of([3], *of[0], 0), Judgements.of([2, 4], *of[1], 0)
        is_match, stratum = next_group(first, second, 0.2)
        of[not is_match][0].append(stratum)
        of[not is_match][1].append(int(rng.random() < 0.3))
    assert [len(of[0][0]), of[1][0].count(0), of[1][0].count(1)] == [3, 2, 4]


def test_expected_judgements_fall_and_end() -> None:
    sizes = [10_000]
    expected = [
        expected_judgements(Judgements.of(sizes, [0] * n, [0] * n), 0.02, 0.95) for n in (0, 50, 100, 170)
    ]
    assert expected == sorted(expected, reverse=True)
    assert expected[-1] == 0
    assert 130 <= expected[0] <= 200
    assert expected_judgements(Judgements.of([10], [0] * 3, [1, 1, 1]), 0.1, 0.95) is None
