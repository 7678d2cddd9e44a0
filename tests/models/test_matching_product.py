"""The matching-product bound against exact permanents, against all matchings, and against its own promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmark.models.calibration import finite_sample
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.finite_sample import (
    AllPairs,
    ScoredGraph,
    mixture,
    multiple_of_floor,
)
from pairmark.models.calibration.kernels import log_mean_product
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.pairs.held_out import held_out_pairs
from pairmark.models.pairs.samples import pair_sample
from tests.models.pair_worlds import People

ONE = ((1.0, 0.8),)


def permanent(matrix: np.ndarray) -> float:
    n = matrix.shape[0]
    return sum(math.prod(matrix[i, p[i]] for i in range(n)) for p in itertools.permutations(range(n)))


def lower(hits: np.ndarray, shrink: float, scale: np.ndarray | None = None) -> float:
    n = hits.shape[0]
    rows, columns = np.nonzero(hits)
    block = np.zeros(n, dtype=np.int32)
    return float(
        log_mean_product(
            rows.astype(np.int32),
            columns.astype(np.int32),
            hits[rows, columns].astype(np.float64),
            rows.size,
            block,
            np.array([n]),
            shrink,
            np.ones(n) if scale is None else scale,
        )
    )


@given(seed=st.integers(0, 2**31), n=st.integers(1, 6), shrink=st.sampled_from([0.999, 0.8, 0.3]))
def test_scaling_never_exceeds_the_permanent_and_falls_with_every_hit(
    seed: int, n: int, shrink: float
) -> None:
    rng = np.random.default_rng(seed)
    hits = (rng.random((n, n)) < rng.random()) * rng.choice([1.0, 0.5, 0.02], (n, n))
    exact = math.log(permanent(1 - shrink * hits) / math.factorial(n))
    # A start off the optimum, within the range that is allowed, must not exceed it either.
    start = np.exp(-rng.random(n) * math.log(1 / (1 - shrink)))
    for bound in (lower(hits, shrink), lower(hits, shrink, start)):
        assert bound <= exact
    more = np.minimum(1.0, hits + (rng.random((n, n)) < 0.3))
    assert lower(more, shrink) <= lower(hits, shrink) + 2e-3


def matchings(units: list[int]) -> Iterator[list[tuple[int, int]]]:
    """All matchings that leave at most one unit alone."""
    if len(units) < 2:
        yield []
        return
    first, rest = units[0], units[1:]
    for at, other in enumerate(rest):
        for found in matchings(rest[:at] + rest[at + 1 :]):
            yield [(first, other), *found]
    if len(units) % 2:
        yield from matchings(rest)


@pytest.mark.parametrize("m", [6, 7])
@pytest.mark.parametrize("closed", [False, True])
def test_the_average_over_splits_is_below_that_over_all_matchings_on_the_mean(
    m: int, closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The splits' permanents average to that of all matchings, so the mean over many may not exceed it."""
    rng = np.random.default_rng(m)
    fpr, shrink = 0.2, 0.8
    first, second = np.triu_indices(m, 1)
    y = rng.integers(0, 3, m) if closed else np.arange(m)
    same = y[first] == y[second]
    scores = rng.random(first.size).astype(np.float32)
    sample = pair_sample(
        scores, same, np.stack([first, second], axis=1), protocol="closed-set" if closed else "open-set"
    )
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    at = thresholds.size // 3
    share = np.where(same, fpr if closed else 0.0, scores > thresholds[at])
    of_pair = {(i, j): a for i, j, a in zip(first.tolist(), second.tolist(), share, strict=True)}
    every = list(matchings(list(range(m))))
    exact = np.mean([math.prod(1 - shrink * of_pair[pair] for pair in one) for one in every])
    monkeypatch.setattr(finite_sample, "N_SPLITS", 2_400)
    entries = AllPairs(graph, above).matrices(at, fpr)
    means = [math.exp(one.log_mean(at, shrink, np.ones((m + 1) // 2))) for one in entries]
    assert np.mean(means) <= exact + 4 * np.std(means) / math.sqrt(len(means))
    assert np.mean(means) > 0.75 * exact


def test_the_lowest_admitted_threshold_is_found() -> None:
    """Against trying every threshold: admitted ones are a run from the highest score down."""
    drawn = People(m=60, per=1, effect=0.5, n_pairs=5_000, step=0.1).draw(np.random.default_rng(0))
    sample = pair_sample(drawn.scores, drawn.same, drawn.units)
    thresholds, above = sample.different.steps()
    graph = ScoredGraph.of(sample, thresholds)
    bound = AllPairs(graph, above)
    for fpr, parts in ((0.2, ONE), (0.3, ((0.8, 0.999), (0.2, 0.8)))):
        admitted = [at for at in range(above.size) if bound.admits(at, fpr, math.log(10), parts)]
        assert admitted == list(range(len(admitted)))
        assert abs(bound.lookup(fpr, math.log(10), parts) - admitted[-1]) <= 1
    assert bound.lookup(0.01, math.log(10), ONE) is None


def test_which_lambda_answers_is_a_matter_of_sizes() -> None:
    assert multiple_of_floor(299, 0.01, 0.95) == pytest.approx(1, rel=0.01)
    for multiple in (1.0, 1.6, 2.5, 4.0, 9.0):
        parts = mixture(multiple)
        assert sum(share for share, _ in parts) == pytest.approx(1)
        assert all(0 < shrink < 1 for _, shrink in parts)


def test_states_of_earlier_versions_load_or_say_what_to_do() -> None:
    people = People(m=90, n_pairs=30_000).draw(np.random.default_rng(0))
    now = Calibration.fit(people.scores, people.same, people.units, listing="random-people")
    arrays, meta = now.to_state()
    # Seeds and random numbers of earlier versions play no part: they are decided anew.
    loaded = Calibration.from_state(arrays, {**meta, "state_version": 1, "seed": 7, "uniform": 0.01})
    assert loaded.operating_point(0.2) == now.operating_point(0.2)
    with pytest.raises(ValueError, match="calibrate the version again"):
        Calibration.from_state(arrays, {name: meta[name] for name in meta.keys() - {"origin"}})
    broken = {**arrays, "graph_row_edge": np.full_like(arrays["graph_row_edge"], 2**30)}
    with pytest.raises(ValueError, match="graph_row_edge"):
        Calibration.from_state(broken, meta)
    # What no version wrote is no calibration.
    incomplete = {name: array for name, array in arrays.items() if not name.startswith("graph_")}
    with pytest.raises(ValueError, match="lacks 'graph_different'"):
        Calibration.from_state(incomplete, meta)


def test_what_the_plan_says_is_enough_is_answered() -> None:
    """Doing what `units_needed` says, with any number of pairs, is never refused; one person fewer is."""
    from pairmark.models.calibration.guarantees import reach, units_needed

    rng = np.random.default_rng(0)
    for fpr, n_pairs in ((0.05, 10**6), (0.02, 2_000), (0.01, 700), (0.001, 200_000)):
        needed = units_needed(fpr)["finite-sample"]
        assert needed is not None
        for people in (needed, needed - 1):
            pairs = held_out_pairs(np.arange(people), protocol="open-set", n_pairs=n_pairs, random_state=0)
            scores = rng.standard_normal(len(pairs))
            made = Calibration.fit(scores, pairs.same, pairs.units, listing="drawn", n_replicates=1_000)
            reported = reach(people)
            if people > 2_000:
                # Its refusal would take a bootstrap of six thousand people.
                assert people != needed or made.operating_point(fpr).guarantee == "finite-sample"
                continue
            assert made.smallest_fpr()["finite-sample"] == pytest.approx(reported.smallest_fpr, rel=1e-9)
            if people == needed:
                assert made.operating_point(fpr).guarantee == "finite-sample"
                assert reported.smallest_fpr is not None
                assert reported.smallest_fpr <= fpr * (1 + 1e-9)
            else:
                with pytest.raises(InsufficientCalibrationData):
                    made.operating_point(fpr)


def test_reach_says_what_the_next_power_of_ten_takes() -> None:
    from pairmark.models.calibration.guarantees import reach

    reported = reach(40)
    assert reported.smallest_fpr == pytest.approx(1 - 0.05 ** (1 / 20))
    assert (reported.next_fpr, reported.next_units) == (0.1, 58)
    assert reach(58).next_fpr == 0.01
    assert reach(1).smallest_fpr is None
    assert reach(58, different_share=0.5).smallest_fpr > reach(58).smallest_fpr
    with pytest.raises(ValueError, match="at least 0"):
        reach(-1)
