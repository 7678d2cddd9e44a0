"""Draws pairs of subjects to calibrate on: k enrolled samples of one person against p samples of another.

A decision about subjects of k and p samples is calibrated as a whole, on held-out people. A person's samples are put
in a random order, the first k enrolled and the next p probes; nothing looks at scores. The unit is the person: all
draws of two people are one edge, whose rows are averaged before anything else. Each draw is scored both ways, k samples
of one with p of the other and the reverse, so the share of an edge that lies above a threshold is a symmetric function
of two independent people, as the bounds of `pairmark.models.calibration` ask.

People with fewer than max(k, p) samples are left out: the promise is about people who can bring as many. A person with
k + p or more gives a same pair too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.pairs.order import codes_by_appearance
from pairmark.models.pairs.pair_budget import SAME_SHARE
from pairmark.models.pairs.splits import held_out_pairs

LEAST_DRAWS, MOST_DRAWS = 2, 32
"""Draws of samples of one person."""


@dataclass(frozen=True, kw_only=True)
class SubjectPairs:
    """Pairs of subjects, chosen without looking at scores.

    Attributes
    ----------
    index : (n_samples,) rows of the data, subject after subject. counts : (n,) samples of each subject.
    left, right : (n_pairs,) subjects of each pair. same : (n_pairs,) whether they are of one person.
    units : (n_pairs, 2) the sampling unit on each side.
    n_people : people that the pairs are of. n_mated : those of them with a same pair.
    """

    index: Int64 = field(repr=False)
    counts: Int64 = field(repr=False)
    left: Int64 = field(repr=False)
    right: Int64 = field(repr=False)
    same: Bool = field(repr=False)
    units: Int64 = field(repr=False)
    n_people: int
    n_mated: int

    def __len__(self) -> int:
        return int(self.left.size)


class TooFewSamples(ValueError):
    """Too few people have so many samples.

    Attributes
    ----------
    n_samples : samples that a person needs. n_people : people who have them. largest : samples that two people have.
    """

    def __init__(self, detail: str, *, n_samples: int, n_people: int, largest: int) -> None:
        super().__init__(detail)
        self.n_samples, self.n_people, self.largest = n_samples, n_people, largest


def subject_pairs(
    y: ArrayLike,
    k: int,
    p: int,
    *,
    n_pairs: int = 200_000,
    units: ArrayLike | None = None,
    random_state: int = 0,
) -> SubjectPairs:
    """Draw pairs of subjects of k and p samples.

    Parameters
    ----------
    y : (n,) whose each row is.
    k, p : samples of the two sides of a pair, at least 1.
    n_pairs : about as many are drawn at most.
    units : (n,) what was drawn independently, where that is more than a person; people of one unit are never paired.

    Raises
    ------
    TooFewSamples
        When fewer than two people have max(k, p) samples.
    """
    code, first = codes_by_appearance(np.asarray(y))
    counts = np.bincount(code)
    unit_of = np.arange(first.size)
    if units is not None:
        unit_of[code] = codes_by_appearance(np.asarray(units))[0]
    n_needed = max(k, p)
    eligible = np.flatnonzero(counts >= n_needed)
    if np.unique(unit_of[eligible]).size < 2:
        largest_counts = [int(counts[unit_of == unit].max()) for unit in np.unique(unit_of)]
        largest = sorted(largest_counts)[-2] if len(largest_counts) > 1 else 0
        raise TooFewSamples(
            f"{eligible.size} of {first.size} people have {n_needed} samples; expected at least two such people",
            n_samples=n_needed,
            n_people=int(eligible.size),
            largest=largest,
        )
    random = np.random.default_rng(random_state)
    m = eligible.size
    ways = 1 if k == p else 2
    draws = int(np.clip(np.sqrt(2.0 * n_pairs / (ways * m * (m - 1))), LEAST_DRAWS, MOST_DRAWS))
    enrolled, probes, mated = _draw_pairs(code, eligible, counts, k, p, draws, random)
    # Subjects: all enrolled ones, person after person and draw after draw, then all probes.
    n = m * draws
    different = held_out_pairs(
        np.repeat(unit_of[eligible], draws),
        protocol="open-set",
        n_pairs=max(2, n_pairs // ways),
        random_state=int(random.integers(2**31)),
    )
    rows = np.flatnonzero(~different.same)
    a, b = different.left[rows], different.right[rows]
    same = np.flatnonzero(np.repeat(mated, draws))
    limit = max(m, n_pairs // SAME_SHARE)
    if same.size > limit:
        # As many draws of everybody: the first ones.
        same = same[same % draws < max(1, limit // m)]
    unit_of_draw = np.repeat(unit_of[eligible], draws)
    left = [a] if ways == 1 else [a, b]
    right = [b] if ways == 1 else [n + b, n + a]
    ends = np.stack([unit_of_draw[a], unit_of_draw[b]], axis=1)
    units_apart = ends if ways == 1 else np.concatenate([ends, ends[:, ::-1]])
    return SubjectPairs(
        index=np.concatenate([enrolled.ravel(), probes.ravel()]),
        counts=np.concatenate([np.full(n, k), np.full(n, p)]),
        left=np.concatenate([*left, same]),
        right=np.concatenate([*right, n + same]),
        same=np.concatenate([np.zeros(ways * a.size, dtype=np.bool_), np.ones(same.size, dtype=np.bool_)]),
        units=np.concatenate([units_apart, np.stack([unit_of_draw[same], unit_of_draw[same]], axis=1)]),
        n_people=int(m),
        n_mated=int(mated.sum()),
    )


def _draw_pairs(
    code: Int64, eligible: Int64, counts: Int64, k: int, p: int, draws: int, random: np.random.Generator
) -> tuple[Int64, Int64, Bool]:
    """Rows of enrolled samples, (n_people * draws, k), of probes, and who has k + p samples."""
    order = np.argsort(code, kind="stable")
    starts = np.cumsum(counts) - counts
    enrolled = np.empty((eligible.size * draws, k), dtype=np.int64)
    probes = np.empty((eligible.size * draws, p), dtype=np.int64)
    for at, person in enumerate(eligible.tolist()):
        rows = order[starts[person] : starts[person] + counts[person]]
        for draw in range(draws):
            picks = rows[random.permutation(rows.size)]
            enrolled[at * draws + draw] = picks[:k]
            probes[at * draws + draw] = picks[-p:]
    return enrolled, probes, counts[eligible] >= k + p
