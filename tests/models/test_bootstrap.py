"""The bootstrap's sweep against resampling by hand."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.models.calibration.bootstrap import _Dyads, _grid, _replicate, bootstrap_table
from pairmark.models.pairs.samples import PairSample, pair_sample
from tests.models.pair_worlds import Classes, People


def by_hand(sample: PairSample, units: np.ndarray, stop: int, count: np.ndarray) -> tuple[float, float]:
    """Rate and variance from their definitions, on m x m matrices."""
    m, side = count.size, sample.different
    above, every = np.zeros((m, m)), np.zeros((m, m))
    for row, (edge, weight) in enumerate(zip(side.edge, side.weight, strict=True)):
        i, j = units[edge]
        every[[i, j], [j, i]] += weight
        if row < stop:
            above[[i, j], [j, i]] += weight
    pair = np.outer(count, count)
    total = (pair * every).sum() / 2
    rate = (pair * above).sum() / 2 / total
    x = (above - rate * every) / total
    of_units = (count * (x @ count) ** 2).sum()
    of_edges = (pair * x**2).sum() / 2
    return rate, max(of_units - of_edges, of_units / 2)


@pytest.mark.parametrize("world", [People(m=10, per=3, n_pairs=250), Classes(m=18)])
def test_one_sweep_equals_the_definition(world: People | Classes) -> None:
    rng = np.random.default_rng(0)
    drawn = world.draw(rng)
    sample = pair_sample(drawn.scores, drawn.same, drawn.units)
    dyads = _Dyads.of(sample)
    count = rng.multinomial(dyads.m, np.full(dyads.m, 1 / dyads.m), size=5).T.astype(float, order="C")
    stops = np.array([1, 4, 30, len(sample.different)], dtype=np.int64)
    rate, variance = dyads.run(stops, count)
    for g, stop in enumerate(stops):
        for k in range(5):
            expected = by_hand(sample, dyads.units, int(stop), count[:, k])
            np.testing.assert_allclose((rate[g, k], variance[g, k]), expected, rtol=1e-9, atol=1e-13)


@pytest.mark.nightly
def test_variance_is_that_of_repeated_draws() -> None:
    """Both where units matter and where they do not: resampling alone would be 3 times too wide in the latter."""
    for effect in (0.0, 0.7):
        rng = np.random.default_rng(1)
        world = People(m=80, per=1, effect=effect)
        threshold = next(t for t in np.linspace(0, 6, 600) if world.true_rate(t) < 0.05)
        rates, variances = [], []
        for _ in range(200):
            drawn = world.draw(rng)
            sample = pair_sample(drawn.scores, drawn.same, drawn.units)
            dyads = _Dyads.of(sample)
            stop = np.array([(sample.different.scores > threshold).sum()], dtype=np.int64)
            rate, variance = dyads.run(stop, np.ones((dyads.m, 1)))
            rates.append(rate[0, 0])
            variances.append(variance[0, 0])
        # Its floor makes it a little too large where units do not matter at all.
        assert 0.75 < np.mean(variances) / np.var(rates) < 1.5


def test_one_person_behind_all_false_positives_is_not_enough() -> None:
    m = 200
    first, second = np.triu_indices(m, 1)
    scores = np.random.default_rng(0).random(first.size)
    scores[first == 0] += 1
    units = np.stack([first, second], axis=1)
    table = bootstrap_table(pair_sample(scores, np.zeros(first.size), units), n_replicates=1_000)
    lowest = scores[first == 0].min()
    assert not table.admitted[table.thresholds > lowest].any()
    even = bootstrap_table(
        pair_sample(np.random.default_rng(0).random(first.size), np.zeros(first.size), units),
        n_replicates=1_000,
    )
    assert even.admitted.all()
    assert even.smallest(0.95) == pytest.approx(30 / first.size * 1.5, rel=0.3)


def test_bounds_rise_along_the_grid_and_with_confidence() -> None:
    drawn = People(m=150, n_pairs=12_000).draw(np.random.default_rng(0))
    table = bootstrap_table(pair_sample(drawn.scores, drawn.same, drawn.units), n_replicates=1_000)
    assert (np.diff(table.thresholds) < 0).all()
    assert (np.diff(table.upper, axis=1) >= 0).all()
    assert (np.diff(table.upper, axis=0) >= 0).all()
    assert table.lookup(1e-9, 0.95) is None
    assert table.lookup(0.2, 0.94) is None
    assert table.smallest(0.94) is None


def test_independent_rows_resample_as_rows() -> None:
    n = 3_000
    sample = pair_sample(np.random.default_rng(0).random(n), np.zeros(n))
    _, stops = _grid(sample)
    rate, variance = _replicate(sample, stops, 1_000, 0)
    share = sample.different.weight / sample.different.weight.sum()
    for g in (0, stops.size // 2, stops.size - 1):
        f = share[: stops[g]].sum()
        expected = (share[: stops[g]] ** 2).sum() * (1 - 2 * f) + f**2 * (share**2).sum()
        assert rate[g].mean() == pytest.approx(f, rel=0.02)
        assert rate[g].var() == pytest.approx(expected, rel=0.2)
        assert variance[g].mean() == pytest.approx(expected, rel=0.1)
