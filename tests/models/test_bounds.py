"""Bounds against their definitions: finite-sample, of searches, and the bootstrap against resampling by hand."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom, binomtest

from pairmark.models import InsufficientCalibrationData
from pairmark.models.calibration.bootstrap import _Dyads, _grid, _replicate, bootstrap_table
from pairmark.models.calibration.finite_sample import (
    FiniteSample,
    binomial_log_tail,
    order_rank,
    order_upper,
    population_rank,
    wilson_interval,
)
from pairmark.models.calibration.identification import GalleryCalibration
from pairmark.models.pairs.samples import PairSample, pair_sample
from tests.models.pair_worlds import Classes, People


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
    assert FiniteSample(above=np.zeros(1), n=0, n_matched=0, different_share=1.0).smallest(0.95) is None


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


@pytest.mark.parametrize(("fpir", "probes"), [(0.1, 29), (0.05, 59), (0.01, 299)])
def test_floor_and_refusal(fpir: float, probes: int) -> None:
    best = np.random.default_rng(0).random(probes)
    point = GalleryCalibration(best, gallery_size=5).operating_point(fpir)
    assert (point.threshold, point.observed_fpir) == (np.float32(best.max()), 0)
    with pytest.raises(InsufficientCalibrationData, match="one probe each") as refused:
        GalleryCalibration(best[1:], gallery_size=5).operating_point(fpir)
    assert refused.value.required_units == {"finite-sample": probes}
    assert refused.value.smallest_fpr["finite-sample"] > fpir


def strangers(rng: np.random.Generator, gallery: np.ndarray, n: int) -> np.ndarray:
    return (rng.standard_normal((n, gallery.shape[1])) @ gallery.T).max(axis=1)


def test_coverage_in_this_gallery_and_of_the_naive_quantile() -> None:
    rng = np.random.default_rng(1)
    truth = np.sort(strangers(rng, rng.standard_normal((100, 6)), 100_000).astype(np.float32))
    n, exact, naive = 400, 0, 0
    for _ in range(n):
        best = truth[rng.integers(0, truth.size, 120)]
        threshold = GalleryCalibration(best, gallery_size=100).operating_point(0.05, 0.9).threshold
        exact += (truth > np.float32(threshold)).mean() > 0.05
        naive += (truth > np.quantile(best, 0.95, method="higher")).mean() > 0.05
    assert exact <= binom.ppf(0.999, n, 0.1)
    assert naive > 2 * binom.ppf(0.999, n, 0.1) * 0.9


def test_mated_probes() -> None:
    calibration = GalleryCalibration(np.arange(100), gallery_size=3, mated_scores=[10.0, 97.5, 200.0, 300.0])
    point = calibration.operating_point(0.1)
    assert point.fnir == np.mean(np.array([10.0, 97.5, 200.0, 300.0]) <= point.threshold)
    assert point.fnir_interval is not None
    assert point.as_dict()["fnir_interval"] == list(point.fnir_interval)
    assert GalleryCalibration.from_state(*calibration.to_state()).operating_point(0.1) == point
    arrays, meta = calibration.to_state()
    with pytest.raises(ValueError, match=r"gallery's calibration has state version 99.*upgrade"):
        GalleryCalibration.from_state(arrays, {**meta, "state_version": 99})
    with pytest.raises(ValueError, match="gallery's calibration lacks 'mated'"):
        GalleryCalibration.from_state({"best": arrays["best"]}, meta)


def test_bad_input_is_named() -> None:
    for best, said in (([], "no un-enrolled"), ([np.nan], "NaN"), ([0.1], "strictly between")):
        with pytest.raises(ValueError, match=said):
            GalleryCalibration(best, gallery_size=1).operating_point(0)
    # An empty comparison is a probe that matched nothing.
    assert GalleryCalibration([-np.inf] * 60, gallery_size=1).operating_point(0.05).observed_fpir == 0


@pytest.mark.parametrize(("fpir", "n"), [(0.05, 400), (0.1, 120), (0.02, 300)])
def test_the_bound_is_clopper_and_pearsons_at_the_strangers_above(fpir: float, n: int) -> None:
    point = GalleryCalibration(np.random.default_rng(2).random(n), gallery_size=5).operating_point(fpir)
    above = round(point.observed_fpir * n)
    assert point.fpir_upper_bound == pytest.approx(min(fpir, beta.ppf(0.95, above + 1, n - above)), rel=1e-9)


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
    return rate, max(of_units - ((pair * x**2).sum() / 2), of_units / 2)


@pytest.mark.parametrize("world", [People(m=10, per=3, n_pairs=250), Classes(m=18)])
def test_one_sweep_equals_the_definition(world: People | Classes) -> None:
    rng = np.random.default_rng(0)
    drawn = world.draw(rng)
    sample = pair_sample(drawn.scores, drawn.same, drawn.units)
    dyads = _Dyads(sample)
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
            dyads = _Dyads(sample)
            stop = np.array([(sample.different.scores > threshold).sum()], dtype=np.int64)
            rate, variance = dyads.run(stop, np.ones((dyads.m, 1)))
            rates.append(rate[0, 0])
            variances.append(variance[0, 0])
        # Its floor makes it a little too large where units do not matter at all.
        assert 0.75 < np.mean(variances) / np.var(rates) < 1.5


def test_one_person_behind_all_false_positives_is_not_enough() -> None:
    first, second = np.triu_indices(200, 1)
    scores = np.random.default_rng(0).random(first.size)
    scores[first == 0] += 1
    units = np.stack([first, second], axis=1)
    table = bootstrap_table(pair_sample(scores, np.zeros(first.size), units), n_replicates=1_000)
    assert not table.admitted[table.thresholds > scores[first == 0].min()].any()
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
