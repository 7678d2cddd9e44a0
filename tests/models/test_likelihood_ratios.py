"""Log likelihood ratios: the formulas against their definitions, and what a stored map may not be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression

from pairmark import LikelihoodRatios, cllr, cllr_min
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.evaluation.pairs import likelihood_report


def scored(seed: int = 0, people: int = 30, rows: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of all pairs of people with unequal numbers of samples, with units."""
    rng = np.random.default_rng(seed)
    who = np.repeat(np.arange(people), rng.integers(2, rows + 2, people))
    pairs = np.array(list(itertools.combinations(range(who.size), 2)))
    units = who[pairs]
    same = units[:, 0] == units[:, 1]
    scores = rng.normal(size=len(pairs)) + 2.0 * same + rng.normal(size=people)[units].sum(axis=1) * 0.2
    return scores.astype(np.float32), same, units


def weights(same: np.ndarray, units: np.ndarray) -> np.ndarray:
    """Each row's weight by hand: rows of an edge share it, edges of a kind weigh equally, a kind weighs 1."""
    edges = [tuple(sorted(pair)) for pair in units.tolist()]
    count = {edge: edges.count(edge) for edge in set(edges)}
    kinds = {
        True: len({e for e, s in zip(edges, same, strict=True) if s}),
        False: len({e for e, s in zip(edges, same, strict=True) if not s}),
    }
    return np.array([1 / count[e] / kinds[bool(s)] for e, s in zip(edges, same, strict=True)])


def test_cllr_is_the_definition_with_people_weighing_equally():
    scores, same, units = scored(people=12)
    log_lr = 1.3 * scores.astype(np.float64) - 1.1
    weight = weights(same, units)
    by_hand = 0.5 * (
        (weight[same] * np.log2(1 + np.exp(-log_lr[same]))).sum()
        + (weight[~same] * np.log2(1 + np.exp(log_lr[~same]))).sum()
    )
    assert cllr(log_lr, same, units) == pytest.approx(by_hand, abs=1e-6)
    assert cllr(np.zeros(4), [0, 1, 0, 1]) == pytest.approx(1.0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=8).filter(
        lambda pairs: len({same for _, same in pairs}) == 2 and len({score for score, _ in pairs}) > 1
    )
)
def test_cllr_min_is_the_least_over_all_rising_maps(pairs):
    scores, same = np.array([one[0] for one in pairs], dtype=float), np.array([one[1] for one in pairs])
    least = cllr_min(scores, same)
    distinct = np.unique(scores)
    grid = np.array([-30.0, -1.0, -0.4, 0.0, 0.4, 1.0, 30.0])
    tried = [
        cllr(np.array(values)[np.searchsorted(distinct, scores)], same)
        for values in itertools.combinations_with_replacement(grid, distinct.size)
    ]
    assert all(least <= value + 1e-9 for value in tried)
    assert least <= 1.0 + 1e-12


def test_the_pav_map_is_scikit_learns_isotonic_regression():
    scores, same, units = scored(1)
    weight = weights(same, units)
    ours = LikelihoodRatios.fit(scores, same, units)
    theirs = IsotonicRegression(y_min=0, y_max=1).fit(scores, same, sample_weight=weight).predict(scores)
    with np.errstate(divide="ignore"):
        expected = np.clip(np.log(theirs / (1 - theirs)), ours.low, None)
    found = ours.log_lr(scores, "pav")
    # What people can show is less at the top: there, and there only, values are cut.
    cut = found < expected - 1e-6
    np.testing.assert_allclose(found[~cut], expected[~cut], atol=1e-6)
    assert (found <= expected + 1e-6).all()
    assert expected[cut].min() > 0
    assert cut.mean() < 0.3
    assert ours.pav_scores.size < np.unique(scores).size


def test_a_report_says_what_calibration_loses():
    reported = likelihood_report(LikelihoodRatios.fit(*scored(2, 80)), *scored(3, 80))
    assert reported["calibration_loss"] == pytest.approx(reported["cllr"] - reported["cllr_min"])
    assert 0 <= reported["calibration_loss"] < 0.08


def test_no_likelihood_ratio_is_stronger_than_the_people_can_show() -> None:
    """Thirty people make 435 pairs: without a false match they show odds of 12.5, step by step less with some."""
    who = np.arange(30)
    units = np.concatenate([np.stack(np.triu_indices(30, 1), axis=1), np.stack([who, who], axis=1)])
    same = units[:, 0] == units[:, 1]
    scores = np.where(same, 5.0, 0.0) + np.random.default_rng(0).random(same.size)
    found = LikelihoodRatios.fit(scores, same, units)
    for method in ("pav", "own"):
        assert math.exp(found.log_lr([1e6], method)[0]) <= (15 / 1.8 + 1) * (1 + 1e-9)
    assert math.exp(found.log_lr([5.9], "pav")[0]) == pytest.approx(15 / 1.8 + 1)
    # Somebody who matches everybody is in 29 of 435 pairs: as much as one of the 15 independent ones.
    wolf = (units == 0).any(axis=1) & ~same
    shown = LikelihoodRatios.fit(np.where(wolf, 5.5, scores), same, units)
    assert math.exp(shown.log_lr([5.45], "pav")[0]) <= 8 * (1 + 1e-9)
    arrays, facts = shown.to_state()
    with pytest.raises(ValueError, match="lr_cap"):
        LikelihoodRatios.from_state({**arrays, "lr_cap_values": arrays["lr_cap_values"][::-1] - 1}, facts)


def test_scores_that_run_backwards_are_no_evidence():
    found = LikelihoodRatios.fit([1.0, 2.0, 3.0, 4.0], [1, 1, 0, 0])
    assert found.log_lr([1.0, 4.0]).tolist() == [0.0, 0.0]
    assert cllr(found.log_lr([1.0, 2.0, 3.0, 4.0]), [1, 1, 0, 0]) == pytest.approx(1.0)


def test_a_calibration_keeps_them_to_the_last_bit_and_refuses_what_no_fit_writes():
    scores, same, units = scored(6)
    made = Calibration.fit(scores, same, units)
    arrays, meta = made.to_state()
    again = Calibration.from_state(arrays, meta).likelihood_ratios
    assert again is not None
    for method in ("pav", "own"):
        np.testing.assert_array_equal(
            again.log_lr(scores, method), made.likelihood_ratios.log_lr(scores, method)
        )
    before = {name: value for name, value in meta.items() if name != "likelihood_ratios"}
    assert Calibration.from_state(arrays, before).likelihood_ratios is None
    facts = meta["likelihood_ratios"]
    for broken in ({**facts, "high": math.inf}, {**facts, "low": 1.0}, 7, {}):
        with pytest.raises(ValueError, match="likelihood_ratios"):
            Calibration.from_state(arrays, {**meta, "likelihood_ratios": broken})
    falling = {**arrays, "lr_scores": arrays["lr_scores"][::-1].copy()}
    with pytest.raises(ValueError, match="lr_scores"):
        Calibration.from_state(falling, meta)
    wild = arrays["lr_values"].copy()
    wild[-1] = 1e9
    with pytest.raises(ValueError, match="lr_values"):
        Calibration.from_state({**arrays, "lr_values": wild}, meta)
    assert Calibration.fit(scores[~same], same[~same], units[~same]).likelihood_ratios is None


def test_bad_input_says_what_was_expected():
    found = LikelihoodRatios.fit([1.0, 2.0, 0.5], [0, 1, 0])
    with pytest.raises(ValueError, match="expected one of pav, own"):
        found.log_lr([1.0], "magic")
    with pytest.raises(ValueError, match="no pair marked same"):
        LikelihoodRatios.fit([1.0, 2.0], [0, 0])
