"""Folds of listed pairs: training on the pairs of some points, evaluation on the pairs of the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse, vstack

from pairmark.models.core.arrays import Bool, Float64, Int64
from pairmark.models.evaluation.validation import FOLDS, REPEATS, learner_protocol
from pairmark.models.pairs.identities import identities_of_pairs


@dataclass(frozen=True, kw_only=True)
class PairFold:
    """Numbers of listed pairs: training ones, and those that judge; see `pairmark.models.evaluation.validation.Fold`.

    Attributes
    ----------
    n_independent : pairs of groups, or points, that the different pairs of ``test`` are of.
    """

    train: Int64 = field(repr=False)
    test: Int64 = field(repr=False)
    n_independent: int
    repeat: int


@dataclass(frozen=True, kw_only=True)
class PairFolds:
    """Folds of listed pairs.

    Attributes
    ----------
    repeats : the folds of each repeat; those of one repeat judge disjoint points.
    n_points, n_groups : distinct points, and groups of them that same pairs join.
    closed : whether points rather than groups are held out.
    """

    repeats: list[list[PairFold]]
    n_points: int
    n_groups: int
    closed: bool

    @property
    def folds(self) -> list[PairFold]:
        return [fold for repeat in self.repeats for fold in repeat]


def pair_folds(
    a: Any,
    b: Any,
    same: Bool,
    weight: Float64,
    protocol: str,
    random: np.random.Generator,
) -> PairFolds:
    """Folds that hold out connected groups of points which same pairs join (open-set), or points (closed-set).

    Parameters
    ----------
    a, b : (n, d) sides of the pairs, both dense or both CSR. weight : pairs of weight 0 are in no fold.

    Returns
    -------
    folds with pairs of both kinds on both sides, possibly none. Pairs across the border of a fold are left out of it.
    """
    numbers = np.flatnonzero(weight > 0)
    points, group = _points(a, b, same & (weight > 0))
    n = same.size
    n_groups = int(group.max()) + 1
    closed = learner_protocol(protocol, n_groups) == "closed-set"
    unit = points if closed else group
    n_units = int(unit.max()) + 1
    repeats: list[list[PairFold]] = []
    for repeat in range(REPEATS):
        part = (random.permutation(n_units) % FOLDS)[unit]
        left, right = part[:n], part[n:]
        folds = []
        for number in range(FOLDS):
            test = numbers[(left[numbers] == number) & (right[numbers] == number)]
            train = numbers[(left[numbers] != number) & (right[numbers] != number)]
            if all(0 < np.count_nonzero(same[rows]) < rows.size for rows in (train, test)):
                sides = np.sort(np.stack([unit[:n], unit[n:]])[:, test[~same[test]]], axis=0)
                pair_codes = sides if closed else sides[0] * n_units + sides[1]
                folds.append(
                    PairFold(train=train, test=test, n_independent=np.unique(pair_codes).size, repeat=repeat)
                )
        repeats.append(folds)
    return PairFolds(repeats=repeats, n_points=int(points.max()) + 1, n_groups=n_groups, closed=closed)


def _points(a: Any, b: Any, same: Bool) -> tuple[Int64, Int64]:
    """Numbers of distinct points, and of the groups that same pairs join, of left rows, then right rows."""
    if bool(issparse(a)):
        rows = csr_array(vstack([a, b]))
        rows.sort_indices()
        keys = [
            rows.indices[start:stop].tobytes() + rows.data[start:stop].tobytes()
            for start, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        ]
        points = np.unique(np.array(keys, dtype=object), return_inverse=True)[1].astype(np.float32)[:, None]
    else:
        points = np.concatenate([a, b])
    number = np.unique(points, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return number, identities_of_pairs(points, same)
