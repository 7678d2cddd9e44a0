"""Figures of pairs and classes against brute force and scikit-learn; scorers compared; rows that look wrong."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pairmark import kendall_tau
from pairmark.models import roc_curve_pairs
from pairmark.models.evaluation.comparison import (
    classification_metrics,
    compare_pairs,
    compare_rows,
    ranking_baselines,
    resolved_rates,
)
from pairmark.models.evaluation.pairs import EvaluationReport, pair_report, rates_at
from pairmark.models.evaluation.precision import suspects
from pairmark.models.pairs.sampling import held_out_pairs
from tests.models.pair_worlds import Classes, People


def brute_roc(scores: np.ndarray, same: np.ndarray, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    above = scores[None, :] > thresholds[:, None]
    return above[:, ~same].mean(axis=1), above[:, same].mean(axis=1)


@given(
    values=st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=2, max_size=40).filter(
        lambda rows: {label for _, label in rows} == {True, False} and len({value for value, _ in rows}) > 1
    )
)
def test_every_point_is_a_pair_of_rates(values: list[tuple[int, bool]]) -> None:
    scores = np.array([value for value, _ in values], dtype=np.float32)
    same = np.array([label for _, label in values])
    fpr, tpr, thresholds = roc_curve_pairs(scores, same)
    expected = brute_roc(scores, same, thresholds)
    np.testing.assert_allclose(fpr, expected[0], atol=1e-12)
    np.testing.assert_allclose(tpr, expected[1], atol=1e-12)
    assert (fpr[0], tpr[0], fpr[-1], tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(thresholds) < 0).all()
    report = pair_report(scores, same, random_state=0, n_replicates=100)
    assert report.metrics["auc"]["value"] == pytest.approx(roc_auc_score(same, scores))
    np.testing.assert_allclose(np.trapezoid(report.tpr, report.fpr), report.metrics["auc"]["value"])
    n_different = np.count_nonzero(same == 0)
    for target, found in report.metrics["tpr_at_fpr"].items():
        if n_different * float(target) >= 3:
            assert found["value"] == pytest.approx(tpr[fpr <= float(target) + 1e-12].max())
        else:
            assert found == {"value": None, "interval": None, "resolved": False}


def test_identities_weigh_equally() -> None:
    """One pair of identities with many rows above must not carry the curve."""
    units = np.array([[0, 1]] * 8 + [[0, 2], [1, 2]] + [[0, 0]] * 3 + [[1, 1]])
    scores = np.array([5.0] * 8 + [1, 0] + [6, 6, 6, 2])
    same = np.array([0] * 10 + [1] * 4)
    fpr, tpr, thresholds = roc_curve_pairs(scores, same, units=units)
    at = int(np.flatnonzero(thresholds == 2)[0])
    assert fpr[at] == pytest.approx(1 / 3)
    assert tpr[at] == pytest.approx(1 / 2)
    plain, _, _ = roc_curve_pairs(scores, same)
    assert plain[at] == pytest.approx(0.8)


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(0)
    scores, same = rng.integers(0, 9, 200).astype(float), rng.random(200) < 0.4
    weight = rng.integers(0, 4, 200)
    weighted = roc_curve_pairs(scores, same, sample_weight=weight)
    for one, other in zip(
        weighted, roc_curve_pairs(np.repeat(scores, weight), np.repeat(same, weight)), strict=True
    ):
        np.testing.assert_allclose(one, other)


def test_equal_error_rate_and_its_words() -> None:
    metrics = pair_report(
        np.array([4.0, 3, 2, 1, 3.5, 2.5, 1.5, 0.5]), np.array([1, 1, 1, 1, 0, 0, 0, 0]), random_state=0
    ).metrics
    assert metrics["eer"]["value"] == pytest.approx(0.5)
    perfect = pair_report(np.array([2.0, 2, 1, 1]), np.array([1, 1, 0, 0]), random_state=0).metrics
    assert (perfect["eer"]["value"], perfect["auc"]["value"]) == (0, 1)
    for rates in (perfect["fnmr_at_fmr"], perfect["tpr_at_fpr"]):
        assert rates["0.01"] == {"value": None, "interval": None, "resolved": False}


@pytest.mark.parametrize("world", [People(m=60, per=4, n_pairs=9_000), Classes(m=160)])
def test_report_is_small_complete_and_repeatable(world: People | Classes) -> None:
    drawn = world.draw(np.random.default_rng(0))

    def made(n_jobs: int) -> EvaluationReport:
        return pair_report(
            drawn.scores, drawn.same, drawn.units, random_state=0, n_replicates=200, n_jobs=n_jobs
        )

    report = made(1)
    json.dumps([report.metrics, report.roc()], allow_nan=False)
    assert report.roc() == made(2).roc()
    assert report.metrics == made(2).metrics
    assert report.fpr.size <= 1_000
    fpr, _, _ = roc_curve_pairs(drawn.scores, drawn.same, units=drawn.units)
    assert np.isin(np.unique(fpr[fpr > 0])[:10], report.fpr).all()
    for name in ("auc", "eer"):
        low, high = report.metrics[name]["interval"]
        assert low <= report.metrics[name]["value"] <= high
    bands = report.bands
    assert (bands["fpr_low"] <= report.fpr + 1e-12).mean() > 0.99
    assert (bands["fpr_high"] >= report.fpr - 1e-12).mean() > 0.99
    assert all(array.shape == report.fpr.shape for array in report.arrays().values())


def test_intervals_are_those_of_people_not_of_pairs() -> None:
    """Few people with many samples: the spread of the AUC over new people, which pairs would understate."""
    world = People(m=40, per=8, effect=1.2, n_pairs=6_000)
    rng = np.random.default_rng(0)
    drawn = [world.draw(rng) for _ in range(60)]
    spread = np.std([roc_auc_score(d.same, d.scores) for d in drawn])

    def width(units: np.ndarray | None) -> float:
        low, high = pair_report(
            drawn[0].scores, drawn[0].same, units, protocol="open-set", random_state=0, n_replicates=200
        ).metrics["auc"]["interval"]
        return float(high - low) / (2 * 1.96)

    assert width(drawn[0].units) > 0.6 * spread
    assert width(None) < 0.6 * width(drawn[0].units)


def test_intervals_know_blocks_of_a_list_where_there_are_enough_of_them() -> None:
    """People of one block are alike: the same shift in all their scores."""
    rng = np.random.default_rng(0)
    n_blocks, i, j = 24, *np.triu_indices(20, 1)
    shift = rng.normal(size=n_blocks)[:, None]
    different = (shift + 0.3 * rng.normal(size=(n_blocks, i.size))).ravel()
    same = (2.5 + shift + 0.3 * rng.normal(size=(n_blocks, 40))).ravel()
    blocks = 20 * np.arange(n_blocks)[:, None]
    ends = [np.stack([(blocks + i).ravel(), (blocks + j).ravel()], axis=1)]
    ends.append(np.repeat((blocks + np.repeat(np.arange(20), 2)).ravel()[:, None], 2, axis=1))
    units, truth = np.concatenate(ends), np.repeat([False, True], [different.size, same.size])
    scores = np.concatenate([different, same])

    def interval(clusters: np.ndarray | None) -> tuple[float, str]:
        metrics = pair_report(
            scores, truth, units, clusters=clusters, random_state=0, n_replicates=200, fpr_targets=(0.1,)
        ).metrics
        low, high = metrics["tpr_at_fpr"]["0.1"]["interval"]
        return high - low, metrics["intervals"]

    by_people, known = interval(None), interval(units // 20)
    assert known[0] > 1.5 * by_people[0]
    assert "identities, one over 24 blocks of the list" in known[1]
    few = interval(units // 60)
    assert few[0] == by_people[0]
    assert "identities only, since the list has fewer than 10 blocks" in few[1]


def test_needs_both_kinds() -> None:
    for same, confidence, said in (
        ([0, 0], 0.95, "no pair marked same"),
        ([1, 1], 0.95, "no pair marked different"),
        ([1, 0], 1, "confidence is 1"),
    ):
        with pytest.raises(ValueError, match=said):
            pair_report([0.1, 0.2], same, confidence=confidence)


def test_rates_of_one_threshold_weigh_people_equally() -> None:
    # One pair of people with nine rows above the threshold, three pairs with one row below it.
    units = np.array([[0, 1]] * 9 + [[0, 2], [1, 2], [2, 3], [0, 0], [1, 1], [1, 1], [1, 1]])
    same = units[:, 0] == units[:, 1]
    scores = np.array([1.0] * 9 + [0.0] * 3 + [1.0, 0.0, 0.0, 0.0])
    assert rates_at(scores, same, 0.5, units=units, protocol="open-set") == pytest.approx((0.25, 0.5))
    report = pair_report(scores, same, units, fpr_targets=(0.3,), random_state=0)
    assert report.metrics["tpr_at_fpr"]["0.3"]["value"] == pytest.approx(0.5)


def test_perfect_separation_of_few_people_is_no_certainty() -> None:
    rng = np.random.default_rng(0)
    pairs = held_out_pairs(np.repeat(np.arange(30), 3), protocol="open-set", n_pairs=2_000, random_state=0)
    metrics = pair_report(
        rng.random(len(pairs)) + 5 * pairs.same, pairs.same, pairs.units, n_replicates=100, random_state=0
    ).metrics
    assert metrics["auc"]["value"] == 1
    for found in (metrics["auc"], metrics["tpr_at_fpr"]["0.01"]):
        assert 0.8 < found["interval"][0] < 0.93
        assert found["interval"][1] == 1
    assert 0.05 < metrics["eer"]["interval"][1] < 0.2
    assert metrics["estimand"] == "every person counts the same, however many samples they have"


@pytest.mark.nightly
def test_intervals_cover_what_they_say_with_thirty_people_and_unequal_samples() -> None:
    """The AUC of a world whose AUC is known: percentiles alone covered it in .88."""
    rng = np.random.default_rng(0)
    different = rng.normal(0, np.sqrt(1.5), 400_000)
    same = rng.normal(2, np.sqrt(2), 400_000)
    truth = (np.searchsorted(np.sort(different), same) / different.size).mean()
    covered = 0
    for seed in range(60):
        drawn = np.random.default_rng([30, seed])
        y = np.repeat(np.arange(30), np.clip(drawn.geometric(0.25, 30), 2, 20))
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=2_000, random_state=drawn)
        effect = 0.5 * drawn.standard_normal(30)
        scores = effect[pairs.units].sum(axis=1) + drawn.standard_normal(len(pairs)) + 2 * pairs.same
        low, high = pair_report(scores, pairs.same, pairs.units, n_replicates=100, random_state=seed).metrics[
            "auc"
        ]["interval"]
        covered += low <= truth <= high
    assert covered >= 53


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
    assert (found["a"].difference, found["a"].difference_interval) == (0, (0, 0))
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


def test_neighbors_rank_as_their_region_does_and_the_constant_as_the_majority():
    X = np.random.default_rng(0).normal(size=(300, 2))
    Y = np.where(X[:, :1] > 0, [[0.0, 1.0, 2.0]], [[2.0, 1.0, 0.0]])
    Y[:10, 1] = np.nan
    found = ranking_baselines(X, Y, np.array([[3.0, 0.0], [-3.0, 0.0]]))
    np.testing.assert_array_equal(found["borda of neighbors"], [[0, 1, 2], [2, 1, 0]])
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


def of(labels: list[int], k: int = 3) -> np.ndarray:
    return np.eye(k)[labels] * 0.7 + 0.1


def test_values_are_those_of_the_definitions() -> None:
    reported = classification_metrics(of([0, 0, 1, 2, 2, 0]), [0, 0, 0, 2, 1, -1], reference=[0, 0, 1, 2])
    assert reported["accuracy"]["value"] == pytest.approx(3 / 6)
    assert reported["balanced_accuracy"]["value"] == pytest.approx((2 / 3 + 1 + 0 + 0) / 4)
    assert reported["log_loss"] == pytest.approx(-np.log([0.8, 0.8, 0.1, 0.8, 0.1]).mean())
    assert reported["constant_accuracy"] == pytest.approx(3 / 6)
    assert reported["n_rows_of_unknown_classes"] == 1
    sure = classification_metrics(of([0, 1]), [0, 1])
    assert sure["accuracy"]["interval"][0] < 0.5
    assert sure["balanced_accuracy"]["interval"][0] < 0.7
    assert classification_metrics(of([0, 1]), [0, 1], units=[5, 5])["accuracy"]["interval"] is None


@pytest.mark.parametrize("grouped", [False, True])
def test_intervals_hold_as_often_as_they_say(grouped: bool) -> None:
    rng = np.random.default_rng(0)
    held = {"accuracy": 0, "balanced_accuracy": 0}
    chances = np.array([0.9, 0.6])
    runs = 200
    for _ in range(runs):
        truth = (rng.random(160) < 0.3).astype(int)
        units = None
        right = rng.random(160) < chances[truth]
        if grouped:
            # Four rows a group share class and fate.
            units = np.repeat(np.arange(40), 4)
            truth, right = truth[units * 4], right[units * 4]
        reported = classification_metrics(
            of(np.where(right, truth, 1 - truth).tolist(), 2), truth, units=units
        )
        for name, expected in (("accuracy", 0.7 * 0.9 + 0.3 * 0.6), ("balanced_accuracy", 0.75)):
            low, high = reported[name]["interval"]
            held[name] += low <= expected <= high
    # Intervals that cover in .95 (and in .94) fall below these once in 400,000 runs with other seeds.
    assert held["accuracy"] / runs > 0.87
    assert held["balanced_accuracy"] / runs > 0.85


def people(n: int, rows: int, width: int = 32) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(n, width)), rows, axis=0) + 0.5 * rng.normal(size=(n * rows, width))
    return X.astype(np.float32), np.repeat(np.arange(n), rows)


def test_double_names_and_wrong_labels_are_reported() -> None:
    X, y = people(40, 6, 64)
    y = y.copy()
    # Person 3 is also called 40; one row of person 7 is said to be of person 8.
    y[3 * 6 + 3 : 4 * 6] = 40
    y[7 * 6] = 8
    left, right = np.triu_indices(len(y), 1)
    scores = -np.linalg.norm(X[left] - X[right], axis=1)
    rows = np.stack([left, right], axis=1)
    double_names, labels = suspects(scores, y[left] == y[right], rows, y[rows])
    assert double_names.tolist() == [[3, 40]]
    assert labels.tolist() == [7 * 6]
    clean = np.repeat(np.arange(40), 6)
    assert not sum(map(len, suspects(scores, clean[left] == clean[right], rows, clean[rows])))
