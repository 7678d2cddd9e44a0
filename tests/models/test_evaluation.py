"""ROC on pairs and its figures, against brute force and scikit-learn."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from pairmark.models import roc_curve_pairs
from pairmark.models.evaluation.pairs import EvaluationReport, pair_report, rates_at
from pairmark.models.pairs.held_out import held_out_pairs
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
    repeated = roc_curve_pairs(np.repeat(scores, weight), np.repeat(same, weight))
    for one, other in zip(weighted, repeated, strict=True):
        np.testing.assert_allclose(one, other)


def test_equal_error_rate_and_its_words() -> None:
    scores = np.array([4.0, 3, 2, 1, 3.5, 2.5, 1.5, 0.5])
    same = np.array([1, 1, 1, 1, 0, 0, 0, 0])
    metrics = pair_report(scores, same, random_state=0).metrics
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
    lowest = np.unique(fpr[fpr > 0])[:10]
    assert np.isin(lowest, report.fpr).all()
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
    with pytest.raises(ValueError, match="no pair marked same"):
        roc_curve_pairs([0.1, 0.2], [0, 0])
    with pytest.raises(ValueError, match="no pair marked different"):
        pair_report([0.1, 0.2], [1, 1])
    with pytest.raises(ValueError, match="confidence is 1"):
        pair_report([0.1, 0.2], [1, 0], confidence=1)


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
    scores = rng.random(len(pairs)) + 5 * pairs.same
    metrics = pair_report(scores, pairs.same, pairs.units, n_replicates=100, random_state=0).metrics
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
