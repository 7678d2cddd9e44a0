"""The promise at its edges: lists, missing people, populations, and what is asked again and again; and how often
intervals hold the truth.

Each world is a function of a generator that says, by method, whether one calibration failed; None where nothing was
promised. The truth is known from formulas, or from fresh draws. Worlds of intervals have thirty people and more,
and the truth is that of a million fresh pairs of each kind.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.identification import GalleryCalibration
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from pairmark.models.calibration.records import without_columns
from pairmark.models.evaluation.pairs import pair_report, roc_curve_pairs
from pairmark.models.pairs.sampling import held_out_pairs
from tests.models.pair_worlds import CellScorer, lacking, record_people, stranger_scores

Outcome = dict[str, bool | None]
Rng = np.random.Generator
WOLF = 12.0
"""What is added to the scores of those who match everybody."""


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A world, the rate asked of it, and calibrations in the full preset.

    Attributes
    ----------
    outside : methods that show why something is asked for; nothing is promised by them.
    """

    name: str
    asked: float | str
    draw: Callable[[Rng], Outcome]
    outside: tuple[str, ...] = ()
    full: int = 400


def above(ordered: Any, threshold: float) -> float:
    """Share of ordered scores above a threshold."""
    return 1 - float(np.searchsorted(ordered, threshold, side="right")) / ordered.size


def failed(
    true_rate: Callable[[float], float], rate: float, made: Calibration, **options: Any
) -> bool | None:
    """Whether an answer broke its promise; None where it was refused, or promised nothing."""
    try:
        point = made.operating_point(rate, **options)
    except InsufficientCalibrationData:
        return None
    return None if point.guarantee == "none" else true_rate(point.threshold) > rate


def as_listed(true_rate: Callable[[float], float], rate: float, made: Callable[..., Calibration]) -> Outcome:
    """Of a list of pairs whose origin nobody told, and of the same declared to be of people drawn at random."""
    return {
        "auto": failed(true_rate, rate, made()),
        "declared random": failed(true_rate, rate, made(listing="random-people")),
    }


def blocks(rng: Rng, *, n: int, size: int, rate: float = 0.05, share: float = 0.05) -> Outcome:
    """All pairs inside of blocks; a share of blocks match all."""
    within = np.stack(np.triu_indices(size, 1), axis=1)
    units = np.concatenate([within + size * block for block in range(n)])
    wolf = WOLF * (rng.random(n) < share)
    scores = wolf[units[:, 0] // size] + rng.standard_normal(len(units))

    def true_rate(t: float) -> float:
        return share * float(norm.sf(t - WOLF)) + (1 - share) * float(norm.sf(t))

    return as_listed(true_rate, rate, partial(Calibration.fit, scores, np.zeros(len(units)), units))


def wolves_rate(share: float, spread: float) -> Callable[[float], float]:
    """FPR by threshold of pairs of people of whom a share matches everybody."""

    def true_rate(t: float) -> float:
        one, none = 1 - (1 - share) ** 2, (1 - share) ** 2
        return one * float(norm.sf((t - WOLF) / spread)) + none * float(norm.sf(t / spread))

    return true_rate


def wolves(
    rng: Rng, m: int, share: float
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
    """Units and scores of all pairs of people, and who matches everybody."""
    units = np.stack(np.triu_indices(m, 1), axis=1)
    wolf = rng.random(m) < share
    either = wolf[units].any(axis=1)
    return units, WOLF * either + rng.standard_normal(len(units)), wolf


def rare_listing(rng: Rng, *, m: int = 400, share: float = 0.01, rate: float = 0.0195) -> Outcome:
    """Those who match everybody are listed less often: .002 against .03 a pair."""
    units, scores, wolf = wolves(rng, m, share)
    listed = rng.random(len(units)) < np.where(wolf[units].any(axis=1), 0.002, 0.03)
    made = partial(Calibration.fit, scores[listed], np.zeros(listed.sum()), units[listed])
    return as_listed(wolves_rate(share, 1.0), rate, made)


def no_units(rng: Rng, *, m: int, share: float = 0.03, rate: float = 0.05) -> Outcome:
    """All pairs of people whom nobody names."""
    units, scores, _ = wolves(rng, m, share)
    same = np.zeros(len(units))
    true_rate = wolves_rate(share, 1.0)
    return {
        "auto": failed(true_rate, rate, Calibration.fit(scores, same)),
        "declared independent": failed(true_rate, rate, Calibration.fit(scores, same, independent=True)),
        "units named": failed(true_rate, rate, Calibration.fit(scores, same, units)),
    }


def many_fnr(rng: Rng, *, people: int = 400) -> Outcome:
    """Any of 40 false negative rates beside one false positive rate."""
    same = np.arange(people + 600) >= 600
    scores = (rng.standard_normal(same.size) + 3 * same).astype(np.float32)
    made = Calibration.fit(scores, same, independent=True)
    found: Outcome = {"pointwise": False, "simultaneous": False}
    for fnr in np.geomspace(0.012, 0.5, 40):
        for name in found:
            try:
                point = made.operating_point(0.2, fnr=float(fnr), simultaneous=name == "simultaneous")
            except InsufficientCalibrationData:
                continue
            assert point.fnr_threshold is not None
            # Where the two meet, the one for false positives is the lower.
            if point.fnr_threshold < point.threshold and norm.cdf(point.fnr_threshold - 3) > fnr:
                found[name] = True
    return found


def crowd(rng: Rng, effects: NDArray[np.float64], y: NDArray[np.int64], n_pairs: int) -> Calibration:
    """People with effects, and a number of samples each, as Pairmark draws their pairs."""
    pairs = held_out_pairs(y, protocol="open-set", n_pairs=n_pairs, random_state=rng)
    scores = effects[pairs.units].sum(axis=1) + rng.standard_normal(len(pairs)) + 4.0 * pairs.same
    return Calibration.fit(scores, pairs.same, pairs.units, listing="drawn")


@lru_cache
def lambs() -> NDArray[np.float64]:
    """A million scores of different people of whom a fifth are easy to match, in order."""
    rng = np.random.default_rng(96)
    sides = 0.5 * rng.standard_normal((2, 1_000_000)) + 1.5 * (rng.random((2, 1_000_000)) < 0.2)
    return np.sort(sides.sum(axis=0) + rng.standard_normal(1_000_000))


def lambs_rate(t: float) -> float:
    """FPR of those people."""
    return above(lambs(), t)


def informative(rng: Rng, *, m: int = 160, rate: float = 0.05) -> Outcome:
    """Those who are easy to match have few samples, all others many."""
    lamb = rng.random(m) < 0.2
    effects = 0.5 * rng.standard_normal(m) + 1.5 * lamb
    y = np.repeat(np.arange(m), np.where(lamb, 1, rng.integers(4, 12, m)))
    return {"auto": failed(lambs_rate, rate, crowd(rng, effects, y, 8_000))}


def twins(rng: Rng, *, m: int = 200, rate: float = 0.05) -> Outcome:
    """A tenth of the people are there under two names."""
    person = np.concatenate([np.arange(m), rng.permutation(m)[: m // 10]])
    effects = 0.5 * rng.standard_normal(m) + 1.5 * (rng.random(m) < 0.2)
    units = np.stack(np.triu_indices(person.size, 1), axis=1)
    ends = person[units]
    scores = effects[ends].sum(axis=1) + rng.standard_normal(len(units)) + 4.0 * (ends[:, 0] == ends[:, 1])
    made = Calibration.fit(scores, np.zeros(len(units)), units)
    return {"auto": failed(lambs_rate, rate, made)}


def families(rng: Rng, *, rate: float = 0.05, probes: int = 300) -> Outcome:
    """A gallery that grows by a tenth, by relatives of those who search: the threshold follows it."""
    kin = rng.standard_normal((60, 6))

    def people(n: int) -> NDArray[np.float64]:
        return kin[rng.integers(0, 60, n)] + 0.7 * rng.standard_normal((n, 6))

    gallery = rng.standard_normal((500, 6))
    strangers = people(probes)
    grown = np.concatenate([gallery, people(50)])
    fresh = (people(20_000) @ grown.T).max(axis=1)
    found: Outcome = {}
    for name, items in (("auto", grown), ("as calibrated", gallery)):
        threshold = (
            GalleryCalibration((strangers @ items.T).max(axis=1), gallery_size=len(items))
            .operating_point(rate)
            .threshold
        )
        found[name] = bool((fresh > threshold).mean() > rate)
    return found


def adaptive(rng: Rng, *, m: int = 240) -> Outcome:
    """Rates are asked from small to large until the TPR is enough; the answer that was stopped at is used."""
    effects = 0.5 * rng.standard_normal(m) + 1.5 * (rng.random(m) < 0.2)
    made = crowd(rng, effects, np.repeat(np.arange(m), 2), 30_000)
    found: Outcome = {"pointwise": None, "simultaneous": None}
    for name in found:
        for rate in np.geomspace(0.03, 0.4, 25):
            try:
                point = made.operating_point(float(rate), simultaneous=name == "simultaneous")
            except InsufficientCalibrationData:
                continue
            found[name] = lambs_rate(point.threshold) > rate
            if (point.tpr or 0.0) >= 0.95:
                break
    return found


def population(rng: Rng, *, size: int = 3_000, judged: int = 400, rate: float = 0.03) -> Outcome:
    """A random sample of a fixed list: blocks, hubs and people who match everybody are in it once and for all."""
    block = rng.integers(0, 40, size)
    same = rng.random(size) < 0.2
    scores = (WOLF * (rng.random(40) < 0.05)[block] + rng.standard_normal(size) + 4 * same).astype(np.float32)
    some = rng.permutation(size)[:judged]
    made = Calibration.fit(scores[some], same[some], population=size)

    def true_rate(t: float) -> float:
        return float((scores[~same] > np.float32(t)).mean())

    return {"auto": failed(true_rate, rate, made)}


@lru_cache
def of_strangers(*places: int) -> NDArray[np.float32]:
    """Scores of strangers who lack just these columns, in order."""
    return np.sort(stranger_scores(lacking(*places)))


CHOICES = ((), (0,), (1, 2), (0, 1, 2, 3))
"""Columns that a pair may lack, none to all but one."""


def cells(rng: Rng, *, m: int = 300, rate: float = 0.05, missing: float = 0.1) -> Outcome:
    """Records of whose cells a tenth is blanked at random: the threshold for the columns that are there, and the one
    of complete records."""
    records, who = record_people(m, rng, missing=missing)
    pairs = held_out_pairs(who, protocol="open-set", n_pairs=12_000, random_state=rng)
    scorer = CellScorer()
    whole = Calibration.of_pairs(scorer.score_pairs(records, pairs.left, pairs.right), records, pairs)
    outcome: Outcome = {}
    for places in CHOICES:
        scores = of_strangers(*places)

        def true_rate(t: float, scores: Any = scores) -> float:
            return above(scores, float(np.float32(t)))

        own = without_columns(whole, lacking(*places), scorer).whole
        outcome[f"{len(places)} of 5 columns missing"] = failed(true_rate, rate, own)
    # The last choice leaves one column.
    outcome["one threshold"] = failed(true_rate, rate, whole)
    return outcome


EDGES = (
    Edge(
        name="12 blocks of 20, 5 % match all",
        asked=0.05,
        draw=partial(blocks, n=12, size=20),
        outside=("declared random",),
    ),
    Edge(
        name="30 blocks of 8, 5 % match all",
        asked=0.05,
        draw=partial(blocks, n=30, size=8),
        outside=("declared random",),
    ),
    Edge(
        name="60 blocks of 4, 5 % match all",
        asked=0.05,
        draw=partial(blocks, n=60, size=4),
        outside=("declared random",),
    ),
    Edge(
        name="those who match everybody are listed less often",
        asked=0.0195,
        draw=rare_listing,
        outside=("declared random",),
    ),
    Edge(
        name="40 people without units, 3 % match everybody",
        asked=0.1,
        draw=partial(no_units, m=40, rate=0.1),
        outside=("declared independent",),
    ),
    Edge(
        name="120 people without units, 3 % match everybody",
        asked=0.05,
        draw=partial(no_units, m=120),
        outside=("declared independent",),
    ),
    Edge(name="any of 40 false negative rates", asked="40 fnr", draw=many_fnr, outside=("pointwise",)),
    Edge(name="informative numbers of samples", asked=0.05, draw=informative),
    Edge(name="twins under two labels", asked=0.05, draw=twins),
    Edge(name="a gallery that grows by relatives", asked=0.05, draw=families, outside=("as calibrated",)),
    Edge(name="rates asked until one is liked", asked="25 rates", draw=adaptive, outside=("pointwise",)),
    Edge(name="a sample of a fixed population", asked=0.03, draw=population),
    Edge(name="records that lack columns", asked=0.05, draw=cells, outside=("one threshold",)),
)


def measured(edge: Edge, draws: range) -> list[tuple[str, int, int]]:
    """By method: how many calibrations failed, and how many promised nothing."""
    found = [edge.draw(np.random.default_rng([31, seed])) for seed in draws]
    return [
        (name, sum(bool(one[name]) for one in found), sum(one[name] is None for one in found))
        for name in found[0]
    ]


CONFIDENCE = 0.95
TARGETS = (0.01, 0.1)
FRESH = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Figures:
    """People whose score is effect + effect + noise, and ``apart`` more for two samples of one person."""

    name: str
    m: int = 30
    effect: float = 0.5
    apart: float = 3.0
    uneven: bool = False
    closed: bool = False
    n_pairs: int = 2_000

    def draw(self, rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Scores, same, units."""
        if self.closed:
            y = rng.integers(0, 4, self.m)
        else:
            counts = np.clip(rng.geometric(0.25, self.m), 2, 20) if self.uneven else np.full(self.m, 2)
            y = np.repeat(np.arange(self.m), counts)
        pairs = held_out_pairs(
            y,
            protocol="closed-set" if self.closed else "open-set",
            n_pairs=self.n_pairs,
            random_state=rng,
        )
        effects = self.effect * rng.standard_normal(self.m)
        scores = effects[pairs.units].sum(axis=1) + rng.standard_normal(len(pairs)) + self.apart * pairs.same
        return scores.astype(np.float32), pairs.same, pairs.units


@lru_cache
def truth(world: Figures) -> tuple[dict[str, float], NDArray[np.float64]]:
    """Figures of the whole population, and scores of same pairs in order."""
    rng = np.random.default_rng(96)
    effects = world.effect * rng.standard_normal((3, FRESH))
    mates = effects[0] + effects[1] if world.closed else 2 * effects[0]
    different = np.sort(effects[1] + effects[2] + rng.standard_normal(FRESH))
    same = np.sort(mates + world.apart + rng.standard_normal(FRESH))
    fpr, tpr, _ = roc_curve_pairs(np.concatenate([different, same]), np.arange(2 * FRESH) >= FRESH)
    # To the right of where the curves cross, as the evaluation has it.
    cross = int(np.searchsorted(fpr - (1 - tpr), 0))
    found = {
        "AUC": float(np.searchsorted(different, same).mean() / FRESH),
        "EER": float((fpr[cross] + 1 - tpr[cross]) / 2),
    }
    for target in TARGETS:
        cut = different[-int(target * FRESH) - 1]
        found[f"TPR at FPR {target:g}"] = above(same, cut)
    return found, same


WORLDS = (
    Figures(name="30 people"),
    Figures(name="30 people, unequal samples", uneven=True),
    Figures(name="30 people, strong effects", effect=1.0),
    Figures(name="30 people, separated", apart=12.0),
    Figures(name="60 people, unequal samples", m=60, uneven=True, n_pairs=6_000),
    Figures(name="closed-set, 60 samples", m=60, closed=True),
)


def misses(world: Figures, draws: Sequence[int]) -> list[tuple[str, int, int]]:
    """By figure: its intervals, and those among them that miss the truth."""
    figures, same = truth(world)
    asked: Counter[str] = Counter()
    missed: Counter[str] = Counter()

    def ask(what: str, true: float, interval: Any) -> None:
        asked[what] += 1
        # The truth is known to a few parts in ten thousand.
        missed[what] += not interval[0] - 2e-4 <= true <= interval[1] + 2e-4

    for draw in draws:
        rng = np.random.default_rng([20_261_122, draw])
        scores, kind, units = world.draw(rng)
        metrics = pair_report(
            scores, kind, units, fpr_targets=TARGETS, random_state=draw, n_jobs=1, confidence=CONFIDENCE
        ).metrics
        ask("AUC", figures["AUC"], metrics["auc"]["interval"])
        ask("EER", figures["EER"], metrics["eer"]["interval"])
        for target in TARGETS:
            name = f"TPR at FPR {target:g}"
            ask(name, figures[name], metrics["tpr_at_fpr"][f"{target:g}"]["interval"])
        point = Calibration.fit(scores, kind, units).operating_point(0.2)
        ask("TPR beside a promise", above(same, point.threshold), point.tpr_interval)
    return [(what, count, missed[what]) for what, count in asked.items()]
