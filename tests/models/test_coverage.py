"""The promise, tested: P(answered and FPR(threshold) > alpha) <= 1 - confidence, by seeded simulation.

Beside it the naive quantile, which breaks the promise: so these tests can fail.
"""

import numpy as np
import pytest
from scipy.stats import binom, norm

from pairmark import InsufficientCalibrationData
from pairmark.models.calibration.calibration import Calibration
from tests.models.pair_worlds import Classes, Crowd, EndToEnd, People, Photos, Scored, World

N = 60


def failures(world: World, fpr: float, method: str, *, n: int = N, units: bool = True) -> tuple[int, int]:
    """How often the promise of 90 % was broken, and how often an answer was given, in n calibrations."""
    rng = np.random.default_rng(20_261_121)
    broken = answered = 0
    for _ in range(n):
        threshold = choose(world.draw(rng), fpr, method, rng, units=units)
        if threshold is not None:
            answered += 1
            broken += world.true_rate(threshold) > fpr
    return broken, answered


def choose(drawn: Scored, fpr: float, method: str, rng: np.random.Generator, *, units: bool) -> float | None:
    if method == "naive":
        return float(np.quantile(drawn.scores[~drawn.same], 1 - fpr, method="higher"))
    protocol = "closed-set" if (drawn.same & (drawn.units[:, 0] != drawn.units[:, 1])).any() else "open-set"
    calibration = Calibration.fit(
        drawn.scores,
        drawn.same,
        drawn.units if units else None,
        protocol=protocol,
        n_replicates=1_000,
        listing="drawn" if units else None,
    )
    try:
        return calibration.operating_point(fpr, 0.9, method).threshold
    except InsufficientCalibrationData:
        return None


def most_failures(n: int, confidence: float) -> int:
    """What a method that uses up all that its promise allows exceeds once in 400,000 simulations.

    A run of the tests holds some forty of them: seeded anew, chance would fail one of 10,000 runs.
    """
    return int(binom.ppf(1 - 2.5e-6, n, 1 - confidence))


WORLDS: dict[str, tuple[World, float]] = {
    "people": (People(m=300, n_pairs=6_000), 0.05),
    "few people, many samples": (People(m=60, per=20, n_pairs=8_000), 0.1),
    "ties": (People(m=300, n_pairs=6_000, step=0.5), 0.05),
    "a partial list": (People(m=500, per=1, n_pairs=1_500), 0.05),
    "1 % wolves": (Crowd(m=120, kind="wolves"), 0.05),
    "relatives": (Crowd(m=240, kind="relatives"), 0.05),
    "unequal samples": (Crowd(m=120, kind="lambs", uneven=True), 0.1),
    "hubs in a list": (Crowd(m=400, kind="lambs", listed="hubs"), 0.05),
    "rare classes": (Classes(m=160, n_classes=12), 0.1),
    "classes, a partial list": (Classes(m=400, n_pairs=4_000), 0.1),
    "photos": (Photos(), 0.15),
    "end to end": (EndToEnd(m=240), 0.1),
}


@pytest.mark.parametrize("name", list(WORLDS))
def test_the_promise_is_kept(name: str) -> None:
    broken, answered = failures(*WORLDS[name], "auto")
    assert answered > 0
    assert broken <= most_failures(N, 0.9)


@pytest.mark.parametrize("name", ["people", "few people, many samples", "rare classes", "a partial list"])
def test_the_naive_quantile_breaks_it(name: str) -> None:
    broken, _ = failures(*WORLDS[name], "naive")
    assert broken > most_failures(N, 0.9)


def test_guessed_units_break_it() -> None:
    """Why a pairs file needs labels, groups or units: photos of one person are no people of their own."""
    broken, answered = failures(Photos(named=False), 0.05, "auto", n=2 * N)
    assert answered == 2 * N
    assert broken > most_failures(2 * N, 0.9)


def test_taking_pairs_for_independent_breaks_it() -> None:
    """The reason why units are asked for."""
    broken, _ = failures(People(m=100, effect=1.5, n_pairs=10_000), 0.05, "finite-sample", units=False)
    assert broken > most_failures(N, 0.9)


def test_what_is_promised_before_the_rate_is_chosen_holds_after() -> None:
    """Scores of few levels: the bound that comes with the threshold is exceeded no more often than stated."""
    world = Crowd(m=160, kind="camps", step=0.5)
    rng = np.random.default_rng(5)
    exceeded = 0
    for _ in range(N):
        drawn = world.draw(rng)
        point = Calibration.fit(drawn.scores, drawn.same, drawn.units, listing="drawn").operating_point(0.08)
        exceeded += world.true_rate(point.threshold) > point.fpr_upper_bound
    assert exceeded <= most_failures(N, 0.95)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("world", "fpr"),
    [
        (People(m=150, per=1, n_pairs=12_000), 0.1),
        (People(m=150, per=1, effect=0.0, n_pairs=12_000), 0.02),
        (Classes(m=140), 0.1),
    ],
)
def test_bootstrap_is_close_to_its_promise(world: World, fpr: float) -> None:
    broken, answered = failures(world, fpr, "bootstrap")
    assert answered > 0.9 * N
    # Two points for being asymptotic, beside Monte-Carlo error.
    assert broken <= most_failures(N, 0.88)


def test_the_best_of_several_versions_keeps_a_simultaneous_promise() -> None:
    fpr, versions, rounds = 0.05, 12, 40
    broken = {"pointwise": 0, "simultaneous": 0}
    for seed in range(rounds):
        rng = np.random.default_rng([3, seed])
        best: dict[str, tuple[float, float]] = {}
        for number in range(1, versions + 1):
            # Independent pairs: one version by itself breaks its promise in all of the 10 % that it may.
            same = np.arange(700) >= 500
            made = Calibration.fit((rng.standard_normal(same.size) + 2 * same).astype(np.float32), same)
            for name, point in (
                ("pointwise", made.operating_point(fpr, 0.9)),
                ("simultaneous", made.operating_point(fpr, 0.9, simultaneous=True, candidate=number)),
            ):
                assert point.tpr is not None
                # Whoever chooses sees the TPR beside the promise, and takes the most.
                best[name] = max(best.get(name, (0.0, 0.0)), (point.tpr, point.threshold))
        for name, (_, threshold) in best.items():
            broken[name] += norm.sf(threshold) > fpr
    assert broken["pointwise"] > broken["simultaneous"] + 5
    assert broken["simultaneous"] <= most_failures(rounds, 0.9)
