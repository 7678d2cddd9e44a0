"""Ranking tasks from labels: one class against the rest, halves of many classes, or graded levels."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.core.arrays import Int64
from pairmark.models.rankboost.boosting import RankingTask, one_against_rest

MOST_CLASSES = 32
"""With more classes than this, tasks are random halves of the classes instead of each against the rest."""


def class_tasks(codes: Int64, n_classes: int, rng: np.random.Generator) -> list[RankingTask]:
    """Tasks for classes.

    Two classes: the second above the first (the paper's bipartite form). Up to `MOST_CLASSES`: each against the rest,
    so that every weak ranker finds what one class has in common, which is what makes rows of a class similar. Pairwise
    preferences between classes would need k(k - 1)/2 rankings, and an order of classes that identities do not have.
    More: `MOST_CLASSES` random halves of the classes (output codes: Dietterich and Bakiri 1995), so that the time does
    not grow with the number of identities.
    """
    if n_classes == 2:
        return [one_against_rest(codes, np.array([1]))]
    if n_classes <= MOST_CLASSES:
        return [one_against_rest(codes, np.array([label])) for label in range(n_classes)]
    halves = [np.sort(rng.permutation(n_classes)[: n_classes // 2]) for _ in range(MOST_CLASSES)]
    return [one_against_rest(codes, half) for half in halves]


def graded_task(y: Any, preference: list[list[float]] | None) -> RankingTask:
    """The task of graded labels.

    Raises
    ------
    ValueError
        When labels are no numbers and no preference is given, or the preference does not fit them.
    """
    levels, codes = np.unique(np.asarray(y), return_inverse=True)
    n = levels.size
    if preference is not None:
        matrix = np.array(preference, dtype=np.float64) if _square(preference) else np.zeros((0, 0))
        if matrix.shape != (n, n):
            raise ValueError(
                f"preference: expected {n} lists of {n} numbers, one for each level of y in order"
            )
        matrix = np.triu(matrix, 1)
        if not matrix.any():
            raise ValueError(
                "preference prefers no level to a lower one; expected a positive number above the diagonal"
            )
    else:
        if levels.dtype.kind not in "biuf":
            raise ValueError(
                "ranking='graded' takes labels that are numbers, or a preference between the labels in order"
            )
        grades = levels.astype(np.float64)
        # The paper's P(i, j) = (y_j - y_i) / Z; its scale does not matter.
        span = grades[-1] - grades[0]
        matrix = np.triu((grades[None, :] - grades[:, None]) / span, 1)
    return RankingTask(levels=codes.astype(np.int64), preference=matrix, weight=np.ones(codes.size))


def _square(rows: list[list[float]]) -> bool:
    return all(len(row) == len(rows) for row in rows)
