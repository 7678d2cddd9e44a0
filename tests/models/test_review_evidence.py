"""Bounds of reviews: exact on tiny populations, valid at every look, monotone."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pairmark.models.reviews.evidence import (
    Judgements,
    draws_match,
    expected_judgements,
    expected_records,
    missed_bound,
    recall_bound,
    share_bound,
)


def bound_of(wrong: list[int], size: int, at_most: float = 0.02) -> int:
    return Judgements(size, wrong).most_wrong(at_most, 0.95)


def most_failures(runs: int, share: float) -> int:
    """Seeded anew, a bound that uses up all that it may exceeds this in one of 400,000 simulations."""
    return int(binom.ppf(1 - 2.5e-6, runs, share))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_population_that_is_judged_whole_is_known(size: int) -> None:
    for wrong in itertools.product([0, 1], repeat=size):
        assert bound_of(list(wrong), size) == sum(wrong)


def test_nothing_judged_rules_nothing_out() -> None:
    assert bound_of([], 3) == 3
    assert share_bound(Judgements(1_000, []), 0.02, 0.95) == 1.0


@pytest.mark.parametrize(("size", "at_most"), [(5, 0.2), (7, 0.3), (6, 0.01), (8, 0.9)])
def test_every_order_of_a_small_population_fails_rarely_enough(size: int, at_most: float) -> None:
    """Exact: all orders in which a population can be drawn, and all looks at each."""
    for wrong in range(size + 1):
        orders = list(itertools.combinations(range(size), wrong))
        failed = 0
        for places in orders:
            order = [int(at in places) for at in range(size)]
            failed += any(
                Judgements(size, order[:n]).most_wrong(at_most, 0.7) < wrong for n in range(size + 1)
            )
        assert failed <= 0.3 * len(orders)


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(0, 200), st.floats(0.005, 0.6))
def test_a_wrong_judgement_never_lowers_the_bound(wrong: list[bool], more: int, at_most: float) -> None:
    x = [int(one) for one in wrong]
    size = len(x) + more
    judged = bound_of(x, size, at_most)
    assert sum(x) <= judged <= sum(x) + more
    for at in range(len(x)):
        if not x[at]:
            assert bound_of([*x[:at], 1, *x[at + 1 :]], size, at_most) >= judged
            break


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


def test_missed_matches_count_against_what_is_the_same() -> None:
    matched = Judgements(100, [0] * 90 + [1] * 10)
    different = Judgements(100, [1] * 5 + [0] * 95)
    # All 200 were judged: 90 true matches and 5 missed.
    assert missed_bound(matched, different, 0.05, 0.95) == pytest.approx(5 / 95)
    assert missed_bound(Judgements(100, []), different, 0.05, 0.95) == 1.0
    # Where no pair is the same, nothing bounds the share of those that are.
    assert missed_bound(Judgements(0, []), Judgements(3, [0] * 3), 0.05, 0.95) == 1.0


def test_the_bound_of_missed_matches_holds_at_all_looks() -> None:
    """15 of 115 same pairs are missed: a bound below that is wrong."""
    rng = np.random.default_rng(6)
    failed, runs = 0, 30
    for _ in range(runs):
        queues = [rng.permutation(np.arange(size) < wrong).tolist() for size, wrong in ((110, 10), (200, 15))]
        wrong: list[list[int]] = [[], []]
        low = False
        for t in range(121):
            matched, different = Judgements(110, wrong[0]), Judgements(200, wrong[1])
            kind = 0 if draws_match((110, 200), (matched.n, different.n)) else 1
            wrong[kind].append(int(queues[kind].pop()))
            low = low or (t % 20 == 0 and missed_bound(matched, different, 0.12, 0.9) < 15 / 115)
        failed += low
    assert failed <= most_failures(runs, 0.1)
    # As soon as a few of each were judged, it is not far off either.
    assert 0.0 < missed_bound(Judgements(100, [0] * 60), Judgements(100, [0] * 90), 0.05, 0.95) < 0.05


def test_draws_end_when_everything_is_drawn() -> None:
    drawn = [0, 0]
    for _ in range(9):
        drawn[0 if draws_match((3, 6), drawn) else 1] += 1
    assert drawn == [3, 6]


def test_expected_judgements_fall_and_end() -> None:
    expected = [expected_judgements(Judgements(10_000, [0] * n), 0.02, 0.95) for n in (0, 50, 100, 170)]
    assert (expected, expected[-1]) == (sorted(expected, reverse=True), 0)
    assert 130 <= expected[0] <= 200
    assert expected_judgements(Judgements(10, [1, 1, 1]), 0.1, 0.95) is None


def test_recall_is_bounded_at_any_look_and_grows_with_records():
    random = np.random.default_rng(0)
    size, over = 1_000, 0
    for _ in range(30):
        found = np.where(random.random(size) < 0.5, random.random(size) < 0.9, np.nan)
        drawn = random.permutation(found)
        bound = max(recall_bound(size, drawn[:n], 0.9) for n in (30, 60, 120, 240))
        over += int(bound > np.nanmean(found))
    assert over <= 5
    assert recall_bound(5_000, np.ones(0), 0.95) == 0
    assert 0.9 < recall_bound(5_000, np.ones(65), 0.95) < recall_bound(5_000, np.ones(300), 0.95)
    assert recall_bound(100, np.full(100, 0.5), 0.95) == pytest.approx(0.495)
    assert 55 < expected_records(5_000, np.ones(0), 0.95, 0.95) < 200
    assert expected_records(5_000, np.full(50, 0.5), 0.95, 0.95) is None
