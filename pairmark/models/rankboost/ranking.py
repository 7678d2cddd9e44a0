"""A RankBoost kernel as a ranking of single rows: H(x), its AUC by round, its margin."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.rankboost.binning import sparse_rows
from pairmark.models.rankboost.boosting import RankingTask
from pairmark.models.rankboost.kernels import scoring as scoring_kernels
from pairmark.models.rankboost.rules import Coordinates, FeatureMap, Rules
from pairmark.models.rankboost.sparse_input import KnownColumns
from pairmark.models.rankboost.tasks import MOST_CLASSES, class_tasks, graded_task

Ranking = Literal["classes", "graded"]
_BLOCK: Final = 16_384
"""Rows mapped at a time: a million rows never stand in the kernel's space at once."""


class RanksRows(KnownColumns):
    """The ranking that the weak rankers were learned for."""

    ranking: Ranking
    preference: list[list[float]] | None
    classes_: NDArray[Any] | None
    rules_: Rules
    task_: Int64
    _map: FeatureMap

    def decision_function(self, X: ArrayLike) -> Float64:
        """The ranking score H(x), equation 6.

        Returns
        -------
        (n,) for two classes or graded labels; (n, classes) when each class was ranked against the rest, and (n, 32)
        for the random halves of more than 32 classes.

        Raises
        ------
        ValueError
            When it was learned from pairs, which rank no single rows.
        """
        check_is_fitted(self)
        if self.classes_ is None:
            raise ValueError("learned from pairs, which give no ranking score: use fit with labels")
        rows = self._validated(X, "X")
        n_tasks = int(self.task_.max()) + 1
        by_task = np.ascontiguousarray(np.eye(n_tasks)[self._map.coordinate_task])
        scores = np.empty((rows.shape[0], n_tasks))
        for at, coordinates in self._blocks(rows):
            project(coordinates, by_task, scores[at])
        return scores[:, 0] if n_tasks == 1 else scores

    def staged_score(self, X: ArrayLike, y: ArrayLike) -> Iterator[float]:
        """AUC of the ranking after each round (the mean over classes where there are more than two).

        Raises
        ------
        ValueError
            When labels are unknown, or there is nothing to rank.
        """
        check_is_fitted(self)
        rows = sparse_rows(self._validated(X, "X"))
        tasks = self._tasks_of(y, rows.shape[0])
        phi = FeatureMap(self.rules_, self.rules_.alpha, self.task_, "rankers", self.n_features_in_)
        columns = phi(rows).matrix().tocsc()
        rules_of_task = [np.flatnonzero(self.task_ == task) for task in range(len(tasks))]
        scores, aucs = np.zeros((len(tasks), rows.shape[0])), np.full(len(tasks), 0.5)
        for number in range(max(part.size for part in rules_of_task)):
            for at, task in enumerate(tasks):
                if number < rules_of_task[at].size:
                    part = slice(*columns.indptr[rules_of_task[at][number] : rules_of_task[at][number] + 2])
                    scores[at, columns.indices[part]] += columns.data[part]
                    aucs[at] = ranking_auc(scores[at], task)
            yield float(aucs.mean())

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """AUC of the ranking: the last of `staged_score`."""
        return list(self.staged_score(X, y))[-1]

    def margin(self, X: ArrayLike, y: ArrayLike) -> float:
        """Half the smallest difference of ranking scores between a row and one to be ranked below it (section 3.1).

        Positive when every pair is ranked right; a linear SVM then finds at least this margin in Phi.

        Raises
        ------
        ValueError
            When more than one ranking was learned (more than two classes), or y orders no two rows.
        """
        scores = self.decision_function(X)
        tasks = self._tasks_of(y, scores.shape[0])
        if len(tasks) > 1:
            raise ValueError("a margin is that of one ranking; expected two classes, or graded labels")
        gaps = [high.min() - low.max() for low, high, _ in preferences(scores, tasks[0])]
        return float(min(gaps)) / 2.0

    def _tasks_of(self, y: ArrayLike, n_rows: int) -> list[RankingTask]:
        """The tasks learned, with other rows' labels."""
        if self.classes_ is None:
            raise ValueError("learned from pairs, which give no ranking: use fit with labels")
        classes, labels = self.classes_, np.asarray(y)
        if labels.shape != (n_rows,):
            raise ValueError(f"y has shape {labels.shape}; expected ({n_rows},), one label a row")
        codes = np.searchsorted(classes, labels).clip(0, classes.size - 1)
        unknown = classes[codes] != labels
        if unknown.any():
            raise ValueError(f"y holds {labels[unknown][0]!r}, which was not learned")
        if self.ranking == "graded":
            task = graded_task(classes, self.preference)
            return [replace(task, levels=codes.astype(np.int64), weight=np.ones(n_rows))]
        if classes.size > MOST_CLASSES:
            raise ValueError(f"over {MOST_CLASSES} classes are ranked by random halves, which have no score")
        return class_tasks(codes.astype(np.int64), classes.size, np.random.default_rng(0))

    def _blocks(self, rows: Any) -> Iterator[tuple[slice, Coordinates]]:
        for start in range(0, rows.shape[0], _BLOCK):
            at = slice(start, min(start + _BLOCK, rows.shape[0]))
            yield at, self._map(sparse_rows(rows[at]))


def project(rows: Coordinates, matrix: Float64, out: Any) -> None:
    """Rows in the space of the weak rankers times a matrix, (width, k), into ``out``, (n, k) of any type of float."""
    projected = np.empty(out.shape)
    scoring_kernels.project(rows.starts, rows.at, rows.values, matrix, projected)
    out[:] = projected


def preferences(scores: Float64, task: RankingTask) -> list[tuple[Float64, Float64, float]]:
    """Scores of the lower level, of the higher, and the weight, for every two levels that a task orders.

    Raises
    ------
    ValueError
        When no two rows are ordered.
    """
    levels = [
        (scores[task.levels == i], scores[task.levels == j], float(task.preference[i, j]))
        for i, j in zip(*np.nonzero(task.preference), strict=True)
    ]
    parts = [part for part in levels if part[0].size and part[1].size]
    if not parts:
        raise ValueError("the labels order no two rows; expected rows of at least two levels")
    return parts


def ranking_auc(scores: Float64, task: RankingTask) -> float:
    """Share of the preferences that scores respect, ties counting half: the AUC where there are two levels."""
    right = total = 0.0
    for low, high, preference in preferences(scores, task):
        low = np.sort(low)
        above = np.searchsorted(low, high, "left").sum() + np.searchsorted(low, high, "right").sum()
        right, total = right + preference * above / 2, total + preference * low.size * high.size
    return right / total
