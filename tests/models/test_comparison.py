"""Scorers compared on the same pairs: paired intervals, people weigh equally, baselines that are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark import kendall_tau
from pairmark.models.evaluation.comparison import (
    compare_pairs,
    compare_rows,
    ranking_baselines,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import pair_report
from pairmark.models.pairs.held_out import held_out_pairs


def scored(n_people: int, noise: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    pairs = held_out_pairs(
        np.repeat(np.arange(n_people), 4), protocol="open-set", n_pairs=4_000, random_state=seed
    )
    hard = rng.normal(size=n_people)
    base = 2.0 * pairs.same + 0.7 * (hard[pairs.units[:, 0]] + hard[pairs.units[:, 1]])
    return pairs, base + rng.normal(size=len(pairs)), base + noise * rng.normal(size=len(pairs))


def test_values_are_those_of_the_report_on_the_same_pairs():
    pairs, first, second = scored(40, 2.0)
    found = compare_pairs(
        {"a": first, "b": second}, pairs.same, pairs.units, reference="a", rates=(0.1, 0.01), n_replicates=100
    )
    for name, scores in (("a", first), ("b", second)):
        reported = pair_report(
            scores, pairs.same, pairs.units, fpr_targets=(0.01, 0.1), random_state=0
        ).metrics
        for rate in ("0.1", "0.01"):
            assert found[name].tpr_at_fpr[rate] == pytest.approx(reported["tpr_at_fpr"][rate]["value"])
    assert found["a"].difference == 0
    assert found["a"].difference_interval == (0, 0)
    assert found["b"].difference == pytest.approx(found["a"].value - found["b"].value)


def test_differences_are_paired_so_they_vary_less_than_the_values():
    pairs, first, _ = scored(40, 1.0)
    nearly = first + 0.05 * np.random.default_rng(5).normal(size=first.size)
    found = compare_pairs(
        {"a": first, "b": nearly}, pairs.same, pairs.units, reference="a", rates=(0.1, 0.03)
    )
    low, high = found["b"].difference_interval
    assert high - low < 0.3 * (found["b"].interval[1] - found["b"].interval[0])
    again = compare_pairs(
        {"a": first, "b": nearly}, pairs.same, pairs.units, reference="a", rates=(0.1, 0.03)
    )
    assert again == found


@pytest.mark.nightly
def test_paired_intervals_cover_the_true_difference():
    # Both scorers are equally good, so the difference is 0.
    covered = 0
    for seed in range(40):
        pairs, first, second = scored(40, 1.0, seed)
        low, high = compare_pairs(
            {"a": first, "b": second}, pairs.same, pairs.units, reference="a", rates=(0.1,), n_replicates=100
        )["b"].difference_interval
        covered += low <= 0 <= high
    assert covered >= 35


def test_rows_are_compared_by_groups():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=60), rng.normal(size=60)
    alone = compare_rows({"a": a, "b": b}, reference="a")["b"]
    repeated = compare_rows(
        {"a": np.repeat(a, 5), "b": np.repeat(b, 5)}, reference="a", units=np.repeat(np.arange(60), 5)
    )["b"]
    assert alone.difference == pytest.approx(a.mean() - b.mean())
    assert repeated.difference_interval == pytest.approx(alone.difference_interval)


def test_neighbours_rank_as_their_region_does_and_the_constant_as_the_majority():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Y = np.where(X[:, :1] > 0, [[0.0, 1.0, 2.0]], [[2.0, 1.0, 0.0]])
    Y[:10, 1] = np.nan
    queries = np.array([[3.0, 0.0], [-3.0, 0.0]])
    found = ranking_baselines(X, Y, queries)
    np.testing.assert_array_equal(found["borda of neighbours"], [[0, 1, 2], [2, 1, 0]])
    assert (found["constant"][0] == found["constant"][1]).all()
    most = [[0.0, 1.0, 2.0]] if (X[:, 0] > 0).mean() > 0.5 else [[2.0, 1.0, 0.0]]
    assert kendall_tau(found["constant"][:1], most)[0] == 1


@pytest.mark.parametrize(
    ("n_negative", "rates"),
    [(1_100, (0.1, 0.03, 0.01, 0.003)), (310, (0.1, 0.03, 0.01)), (20, (0.15,)), (2, (0.5,))],
)
def test_nobody_is_compared_at_rates_that_the_negative_pairs_do_not_show(
    n_negative: int, rates: tuple[float, ...]
):
    assert resolved_rates(n_negative) == rates
