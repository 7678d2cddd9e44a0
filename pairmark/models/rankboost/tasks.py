"""Ranking tasks from labels: one class against the rest, or halves of many classes."""

from __future__ import annotations

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
