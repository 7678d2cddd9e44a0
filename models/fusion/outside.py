"""Scores of several systems for the same pairs: half of the people set the weights, the others calibrate."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pairmark.models.fusion.weighing import Judged, Weights

Indices = NDArray[np.int64]
MOST_SYSTEMS = 16


@dataclass(frozen=True, kw_only=True)
class Halves:
    """Weights from one half of the units, and the pairs of the other half.

    Attributes
    ----------
    weights : of the systems. rest : numbers of the pairs whose units had no part in them.
    n_weighed : pairs that the weights come from.
    """

    weights: Weights
    rest: Indices = field(repr=False)
    n_weighed: int


def weighed(
    scores: NDArray[np.float64], same: NDArray[np.bool_], units: Indices | None, random_state: int
) -> Halves:
    """Weights of systems, from pairs within one half of the units; pairs across the halves are in neither.

    Parameters
    ----------
    scores : (n, n_systems) finite. same : (n,).
    units : (n, 2) the sampling unit on each side; None: pairs are independent. The halves look at no score.

    Raises
    ------
    ValueError
        Where a half has no pairs of one kind.
    """
    random = np.random.default_rng([random_state, 4])
    given = np.repeat(np.arange(same.size)[:, None], 2, axis=1) if units is None else units
    codes = np.unique(given, return_inverse=True)[1].reshape(given.shape)
    first = np.zeros(int(codes.max()) + 1, dtype=np.bool_)
    first[random.permutation(first.size)[: first.size // 2]] = True
    inside = first[codes].sum(axis=1)
    used, rest = np.flatnonzero(inside == 2), np.flatnonzero(inside == 0)
    for rows, what in ((used, "weigh the systems"), (rest, "calibrate")):
        if same[rows].all() or not same[rows].any():
            kind = "differ" if same[rows].any() else "are the same"
            raise ValueError(
                f"the half of the units that is to {what} has no pairs that {kind}: bring more people, or scores of "
                "one system"
            )
    return Halves(
        weights=Weights.fit([Judged(scores=scores[used], same=same[used])]), rest=rest, n_weighed=used.size
    )
