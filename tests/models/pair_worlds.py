"""Made-up worlds of pairs whose true false positive rate is known, to test promises against."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from pairmark.models.calibration.records import cells_missing
from pairmark.models.core.scores import SampleSets, score_samples
from pairmark.models.pairs.lists import listed_units
from pairmark.models.pairs.sampling import held_out_pairs
from pairmark.models.pairs.splits import split_data


@dataclass(frozen=True, kw_only=True)
class Scored:
    scores: NDArray[np.float32]
    same: NDArray[np.bool_]
    units: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class People:
    """Open-set: score of a different pair = effect + effect + noise, rounded down to a grid where asked.

    Effects are Gaussian, or Student's with three degrees of freedom (``tail="t3"``).
    """

    m: int
    per: int = 2
    effect: float = 0.7
    n_pairs: int = 20_000
    step: float = 0.0
    tail: Literal["normal", "t3"] = "normal"

    def draw(self, rng: np.random.Generator) -> Scored:
        y = np.repeat(np.arange(self.m), self.per)
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=self.n_pairs, random_state=rng)
        heavy = self.tail == "t3"
        effects = self.effect * (rng.standard_t(3, self.m) if heavy else rng.standard_normal(self.m))
        scores = effects[pairs.units].sum(axis=1) + rng.standard_normal(len(pairs)) + 4.0 * pairs.same
        if self.step:
            scores = np.floor(scores / self.step) * self.step
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)

    def true_rate(self, threshold: float) -> float:
        if self.step:
            # score > t on the grid means that the value before rounding reached the next step.
            threshold = (np.floor(threshold / self.step) + 1) * self.step
        if self.tail == "t3":
            ordered = _heavy_tailed(self.effect)
            return 1 - float(np.searchsorted(ordered, threshold, side="right")) / ordered.size
        return float(norm.sf(threshold / np.sqrt(1 + 2 * self.effect**2)))


@lru_cache
def _heavy_tailed(effect: float) -> NDArray[np.float64]:
    """Two million scores of different pairs in order: a rate of 1 % is known to within 1 % of itself."""
    rng = np.random.default_rng(99)
    return np.sort(effect * rng.standard_t(3, (2_000_000, 2)).sum(axis=1) + rng.standard_normal(2_000_000))


@dataclass(frozen=True, kw_only=True)
class Classes:
    """Closed-set: unequal classes on a line, score = -distance of two noisy samples. The rate is given different."""

    m: int
    n_classes: int = 4
    spread: float = 0.6
    n_pairs: int = 20_000

    def shares(self) -> NDArray[np.float64]:
        weights = 1.0 / np.arange(1, self.n_classes + 1)
        return weights / weights.sum()

    def draw(self, rng: np.random.Generator) -> Scored:
        y = rng.choice(self.n_classes, self.m, p=self.shares())
        pairs = held_out_pairs(y, protocol="closed-set", n_pairs=self.n_pairs, random_state=rng)
        x = y + self.spread * rng.standard_normal(self.m)
        scores = -np.abs(x[pairs.left] - x[pairs.right])
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)

    def true_rate(self, threshold: float) -> float:
        shares, scale = self.shares(), self.spread * np.sqrt(2)
        hit = different = 0.0
        for a, p in enumerate(shares):
            for b, q in enumerate(shares):
                if a != b:
                    different += p * q
                    near = norm.cdf((-threshold - (a - b)) / scale) - norm.cdf((threshold - (a - b)) / scale)
                    hit += p * q * max(0.0, near)
        return hit / different


Kind = Literal["wolves", "lambs", "lognormal", "relatives", "camps"]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Open-set people of one kind; the true rate is that of two million fresh pairs.

    wolves: a share of people who match everybody. lambs: a fifth who match more than others. lognormal: effects with a
    heavy upper tail. relatives: 15 families, within which scores are higher. camps: two of them.
    """

    m: int
    kind: Kind
    share: float = 0.01
    n_pairs: int = 20_000
    step: float = 0.0
    uneven: bool = False
    listed: Literal["", "hubs", "random"] = ""

    def draw(self, rng: np.random.Generator) -> Scored:
        if self.listed:
            ends = _list(self.listed, self.m, rng)
            same = np.zeros(ends.shape[0], dtype=np.bool_)
        else:
            samples = (
                np.minimum(rng.geometric(0.2, self.m), 40) if self.uneven else np.ones(self.m, dtype=int)
            )
            y = np.repeat(np.arange(self.m), samples)
            pairs = held_out_pairs(y, protocol="open-set", n_pairs=self.n_pairs, random_state=rng)
            ends, same = pairs.units, pairs.same
        people = self._people(rng, self.m)
        scores = self._scores(rng, people[ends[:, 0]], people[ends[:, 1]]) + 4.0 * same
        return Scored(scores=scores.astype(np.float32), same=same, units=ends)

    def true_rate(self, threshold: float) -> float:
        ordered = _fresh(self)
        return 1 - float(np.searchsorted(ordered, np.float32(threshold), side="right")) / ordered.size

    def _people(self, rng: np.random.Generator, n: int) -> NDArray[np.float64]:
        if self.kind == "wolves":
            return 0.5 * rng.standard_normal(n) + 12.0 * (rng.random(n) < self.share)
        if self.kind == "lambs":
            return 0.5 * rng.standard_normal(n) + 1.5 * (rng.random(n) < 0.2)
        if self.kind == "lognormal":
            return np.exp(0.8 * rng.standard_normal(n))
        return rng.integers(0, 15 if self.kind == "relatives" else 2, n).astype(np.float64)

    def _scores(
        self, rng: np.random.Generator, left: NDArray[np.float64], right: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        if self.kind in ("relatives", "camps"):
            together = (2.5 if self.kind == "relatives" else 1.0) * (left == right)
        else:
            together = left + right
        scores = together + rng.standard_normal(left.size)
        if self.step:
            scores = np.floor(scores / self.step) * self.step
        return scores.astype(np.float32)


def _list(kind: str, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A list of pairs in which everybody is: at random, or half of it with one of a few people."""
    first = np.concatenate([np.arange(m), rng.integers(0, m, 3 * m)])
    if kind == "hubs":
        first[2 * m :] = rng.integers(0, max(2, m // 20), 2 * m)
    second = rng.integers(0, m, first.size)
    kept = first != second
    return np.stack([first[kept], second[kept]], axis=1)


@lru_cache
def _fresh(crowd: Crowd) -> NDArray[np.float32]:
    rng = np.random.default_rng(98)
    left, right = (crowd._people(rng, 2_000_000) for _ in range(2))
    return np.sort(crowd._scores(rng, left, right))


@dataclass(frozen=True, kw_only=True)
class _OfWolves:
    """A world some of whose people match everybody."""

    share: float

    def true_rate(self, threshold: float) -> float:
        return self._crowd().true_rate(threshold)

    def _crowd(self) -> Crowd:
        return Crowd(m=1, kind="wolves", share=self.share)


@dataclass(frozen=True, kw_only=True)
class Photos(_OfWolves):
    """A list of pairs of photos, some of whose owners match everybody; units as a pairs file gives them."""

    n_people: int = 60
    photos: int = 40
    share: float = 0.03
    named: bool = True

    def draw(self, rng: np.random.Generator) -> Scored:
        person = np.repeat(np.arange(self.n_people), self.photos)
        left = rng.integers(0, person.size, 6_000)
        right = (left + rng.integers(1, person.size, left.size)) % person.size
        mates = rng.integers(0, person.size - 1, 900)
        left, right = np.concatenate([left, mates]), np.concatenate([right, mates + 1])
        same = person[left] == person[right]
        people = self._crowd()._people(rng, self.n_people)
        scores = self._crowd()._scores(rng, people[person[left]], people[person[right]]) + 4.0 * same
        listed = listed_units(left, right, same, labels=person if self.named else None)
        return Scored(scores=scores.astype(np.float32), same=same, units=listed.units)


@dataclass(frozen=True, kw_only=True)
class EndToEnd:
    """Rows of people, split, learned from, paired and calibrated as a job does it; the rate is that of fresh people.

    ``copies``: each row of a third of the people is there so many times more, all but equal.
    """

    m: int
    calibration_fraction: float = 0.5
    width: int = 8
    copies: int = 0

    def draw(self, rng: np.random.Generator) -> Scored:
        centre = rng.standard_normal((self.m, self.width)) * rng.exponential(1.0, (self.m, 1))
        y = np.repeat(np.arange(self.m), 3)
        X = (centre[y] + 0.7 * rng.standard_normal((y.size, self.width))).astype(np.float32)
        if self.copies:
            row = np.repeat(np.arange(y.size), np.where(y < self.m // 3, 1 + self.copies, 1))
            y, X = (
                y[row],
                X[row] + np.float32(0.001) * rng.standard_normal((row.size, self.width), np.float32),
            )
        rows = split_data(
            y,
            protocol="open-set",
            calibration_fraction=self.calibration_fraction,
            test_fraction=0.1,
            random_state=rng,
        ).calibration
        pairs = held_out_pairs(y[rows], protocol="open-set", n_pairs=20_000, random_state=rng)
        return Scored(
            scores=_cosine(X[rows[pairs.left]], X[rows[pairs.right]]), same=pairs.same, units=pairs.units
        )

    def true_rate(self, threshold: float) -> float:
        ordered = _fresh_cosines(self.width)
        return 1 - float(np.searchsorted(ordered, np.float32(threshold), side="right")) / ordered.size


@dataclass(frozen=True, kw_only=True)
class Mislabelled(_OfWolves):
    """People of whom some match everybody, with false names: each has several, or some rows bear another's.

    Outside of what is promised: sampling units that are no people.
    """

    n_people: int
    names: int = 1
    swapped: float = 0.0
    samples: int = 4
    share: float = 0.015

    def draw(self, rng: np.random.Generator) -> Scored:
        person = np.repeat(np.arange(self.n_people), self.names * self.samples)
        name = np.arange(person.size) // self.samples
        wrong = rng.random(name.size) < self.swapped
        name[wrong] = rng.integers(0, self.n_people * self.names, int(wrong.sum()))
        pairs = held_out_pairs(name, protocol="open-set", n_pairs=40_000, random_state=rng)
        people = self._crowd()._people(rng, self.n_people)
        left, right = person[pairs.left], person[pairs.right]
        scores = self._crowd()._scores(rng, people[left], people[right]) + 4.0 * (left == right)
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)


@lru_cache
def _fresh_cosines(width: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(97)
    sides = [
        rng.standard_normal((1_000_000, width)) * rng.exponential(1.0, (1_000_000, 1))
        + 0.7 * rng.standard_normal((1_000_000, width))
        for _ in range(2)
    ]
    return np.sort(_cosine(*(side.astype(np.float32) for side in sides)))


def _cosine(left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.float32]:
    product = (left * right).sum(axis=1)
    return product / np.sqrt((left**2).sum(axis=1) * (right**2).sum(axis=1))


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """People of three groups, all pairs: those of ``lax``, and they alone, look more alike; ``tiny`` has twelve people.

    The rate is that of the worse of the two large groups.
    """

    m: int
    alike: float = 1.2

    def draw(self, rng: np.random.Generator) -> Scored:
        group = self._group(np.arange(self.m))
        first, second = np.triu_indices(self.m, 1)
        units = np.concatenate(
            [np.stack([first, second], axis=1), np.repeat(np.arange(self.m), 2).reshape(-1, 2)]
        )
        same = units[:, 0] == units[:, 1]
        effects = 0.4 * rng.standard_normal(self.m)
        within = self.alike * (group[units] == 0).all(axis=1)
        scores = effects[units].sum(axis=1) + within + 4.0 * same + rng.standard_normal(len(units))
        return Scored(scores=scores.astype(np.float32), same=same, units=units)

    def names(self, units: NDArray[np.int64]) -> NDArray[np.str_]:
        return np.array(["lax", "strict", "tiny"])[self._group(units)]

    def true_rate(self, threshold: float) -> float:
        return float(norm.sf((threshold - self.alike) / np.sqrt(1 + 2 * 0.4**2)))

    def _group(self, units: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(units >= self.m - 12, 2, (units >= 120).astype(np.int64))


@dataclass(frozen=True, kw_only=True)
class Strangers(_OfWolves):
    """Some people with names, and rows without: each of a person drawn from a population, so that some are there twice.

    Pairs of one person score four more, whether or not it is known that they are.
    """

    labeled: int
    strangers: int
    population: int
    share: float = 0.01
    n_pairs: int = 40_000

    def draw(self, rng: np.random.Generator) -> Scored:
        people = self._crowd()._people(rng, self.population)
        person = rng.integers(0, self.population, self.labeled + self.strangers)
        y = np.concatenate([np.repeat(np.arange(self.labeled), 2), self.labeled + np.arange(self.strangers)])
        pairs = held_out_pairs(y, protocol="open-set", n_pairs=self.n_pairs, random_state=rng)
        left, right = person[pairs.units].T
        scores = self._crowd()._scores(rng, people[left], people[right]) + 4.0 * (left == right)
        return Scored(scores=scores.astype(np.float32), same=pairs.same, units=pairs.units)


World = People | Classes | Crowd | Photos | EndToEnd | Mislabelled | Strangers | Grouped


COLUMNS = 5


class CellScorer:
    """A model of records of numbers: what cells differ by speaks against a pair, and a missing one says nothing."""

    def score_pairs(
        self, cells: Any, left: NDArray[np.int64], right: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        values = np.where(cells_missing(cells), np.nan, cells).astype(np.float64)
        return np.nansum(0.2 - np.abs(values[left] - values[right]), axis=1).astype(np.float32)

    def _prepared_subjects(self, sets: SampleSets, how: str) -> SampleSets:
        return sets

    def _subject_score(self, left: SampleSets, right: SampleSets, how: str) -> NDArray[np.float32]:
        return score_samples(self._pair_score, left, right, how)

    def _pair_score(self, left: Any, right: Any) -> NDArray[np.float32]:
        numbers = np.arange(max(len(left), len(right)))
        a, b = numbers % len(left), len(left) + numbers % len(right)
        return self.score_pairs(np.concatenate([left, right]), a, b)

    def patterns(self, left: NDArray[np.bool_], right: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.repeat((left | right)[:, None], 2, axis=1)

    def compare_once(self, cells: Any, left: NDArray[np.int64], right: NDArray[np.int64]) -> None: ...


def record_people(
    m: int, rng: np.random.Generator, *, samples: int = 2, missing: float = 0.0, columns: int = COLUMNS
) -> tuple[Any, NDArray[np.int64]]:
    """Records of people, of whose cells a share is blanked at random, and whose each is."""
    values = np.repeat(rng.normal(size=(m, columns)), samples, axis=0)
    cells = (values + 0.1 * rng.normal(size=values.shape)).astype(object)
    cells[rng.random(cells.shape) < missing] = None
    return cells, np.repeat(np.arange(m), samples)


def lacking(*places: int) -> NDArray[np.bool_]:
    """(2, d) both sides of a pair without some columns."""
    columns = np.zeros((2, COLUMNS), dtype=np.bool_)
    columns[:, list(places)] = True
    return columns


def stranger_scores(columns: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Scores of 20,000 pairs of strangers who lack just these columns."""
    cells, who = record_people(20_000, np.random.default_rng(95), samples=1)
    cells[:, columns[0]] = None
    return CellScorer().score_pairs(cells, who, np.roll(who, 1))
