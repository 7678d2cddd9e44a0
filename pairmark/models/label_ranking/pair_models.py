"""Binary models of single pairs of labels, learned and read together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.core.progress import report
from pairmark.models.core.state import Array, StateRecord, StoredState, refuse
from pairmark.models.label_ranking.trees import GrowOptions, Trees, end_to_end, grow_trees, in_threads


@dataclass(frozen=True, kw_only=True)
class PairProblem:
    """One pair's rows: where the first label came before the second (1) or behind (0)."""

    rows: NDArray[np.intp]
    first: Bool
    weight: Float64

    @classmethod
    def of(cls, positions: Float32, first: int, second: int, weight: Float64) -> PairProblem:
        """The pair's rows: those of positive weight that show both labels and do not tie them."""
        difference = positions[:, second] - positions[:, first]
        # NaN compares false: a row that does not show both labels is no example, and neither is a tie.
        rows = np.flatnonzero((np.abs(difference) > 0) & (weight > 0))
        return cls(rows=rows, first=difference[rows] > 0, weight=weight[rows])

    def share(self) -> float:
        """Smoothed share of rows that put the first label before."""
        total = self.weight.sum()
        return float((self.weight[self.first].sum() + 0.5) / (total + 1.0))

    @property
    def one_sided(self) -> bool:
        """Whether all rows (or there is none) say the same, so that there is nothing to tell apart."""
        return bool(self.first.all() or not self.first.any())


def problems_of(positions: Float32, weight: Float64) -> list[PairProblem]:
    """Of all pairs of labels, in the order of `numpy.triu_indices`."""
    i, j = np.triu_indices(positions.shape[1], 1)
    return [PairProblem.of(positions, a, b, weight) for a, b in zip(i.tolist(), j.tolist(), strict=True)]


def square(shares: Float64, modelled: NDArray[np.intp], constant: Float64, k: int) -> Float64:
    """Shares of modelled pairs and constants of the others as (n, k, k), the diagonal 0."""
    n = shares.shape[0]
    flat = np.broadcast_to(constant, (n, constant.size)).copy()
    flat[:, modelled] = np.clip(shares, 0.0, 1.0)
    before = np.zeros((n, k, k))
    i, j = np.triu_indices(k, 1)
    before[:, i, j] = flat
    before[:, j, i] = 1.0 - flat
    return before


def standard(X: Float32) -> tuple[Float64, Float64]:
    """Mean and standard deviation of the features, 1 where they are constant."""
    scale = X.std(axis=0, dtype=np.float64)
    scale[scale == 0] = 1.0
    return X.mean(axis=0, dtype=np.float64), scale


@dataclass(frozen=True, kw_only=True)
class LogisticPairs:
    """Logistic regressions on standardised features.

    Attributes
    ----------
    mean, scale : (d,) of the features. coef : (n_models, d). intercept : (n_models,).
    """

    mean: Annotated[Float64, Array(shape=("features",))]
    scale: Annotated[Float64, Array(shape=("features",), positive=True)]
    coef: Annotated[Float64, Array(shape=("models", "features"))]
    intercept: Annotated[Float64, Array(shape=("models",))]

    def shares(self, X: Float32) -> Float64:
        # einsum without BLAS: a row's answer does not depend on the rows beside it.
        margin = np.einsum("nd,pd->np", (X - self.mean) / self.scale, self.coef) + self.intercept
        return np.asarray(0.5 * (1.0 + np.tanh(0.5 * margin)))

    @classmethod
    def fit(cls, X: Float32, problems: list[PairProblem], n_jobs: int | None, stage: str) -> LogisticPairs:
        from sklearn.linear_model import LogisticRegression

        mean, scale = standard(X)
        points = (X - mean) / scale

        def fit(problem: PairProblem) -> tuple[Float64, float]:
            model = LogisticRegression(max_iter=1_000)
            model.fit(points[problem.rows], problem.first, sample_weight=problem.weight)
            return model.coef_[0], float(model.intercept_[0])

        planes = _each(fit, problems, n_jobs, stage)
        return cls(
            mean=mean,
            scale=scale,
            coef=np.array([coef for coef, _ in planes]).reshape(len(planes), X.shape[1]),
            intercept=np.array([intercept for _, intercept in planes]),
        )


@dataclass(frozen=True, kw_only=True)
class TreePairs:
    """A tree for each pair, on targets 0 and 1 (whose variance is half the Gini impurity).

    Attributes
    ----------
    trees : of all pairs end to end, ``n_each`` a pair; members point into ``targets``, (n_examples, 1).
    """

    trees: Annotated[Trees, StateRecord()]
    targets: Annotated[Float64, Array(shape=("rows", 1))]
    n_each: ClassVar[int] = 1
    options: ClassVar[GrowOptions] = GrowOptions(min_samples_leaf=5)

    def shares(self, X: Float32) -> Float64:
        roots = self.trees.roots
        columns = [
            self.trees.means(X, self.targets, roots=roots[at : at + self.n_each])
            for at in range(0, roots.size, self.n_each)
        ]
        return np.hstack(columns) if columns else np.empty((X.shape[0], 0))

    @classmethod
    def relate(cls, file: StoredState, prefix: str) -> None:
        """Refuse another number of trees."""
        n, n_expected = file.sizes[f"{prefix}trees"], file.sizes["models"] * cls.n_each
        if n != n_expected:
            raise refuse(f"{prefix}roots", None, f"has {n} rows", f"{n_expected}")

    @classmethod
    def fit(
        cls,
        X: Float32,
        problems: list[PairProblem],
        *,
        seeds: list[int],
        n_jobs: int | None,
        stage: str,
    ) -> Self:
        def fit(job: tuple[PairProblem, int]) -> Trees:
            problem, seed = job
            own = [int(s) for s in np.random.default_rng(seed).integers(0, 2**62, cls.n_each)]
            return grow_trees(
                X[problem.rows],
                problem.first.astype(np.float64)[:, None],
                cls.options,
                own,
                n_jobs=1,
                stage="",
                sample_weight=problem.weight,
            )[0]

        forests = _each(fit, list(zip(problems, seeds, strict=True)), n_jobs, stage)
        firsts = [problem.first for problem in problems]
        return cls(
            trees=end_to_end(forests, [first.size for first in firsts]),
            targets=np.concatenate([np.empty(0), *firsts]).astype(np.float64)[:, None],
        )


@dataclass(frozen=True, kw_only=True)
class ForestPairs(TreePairs):
    """A forest for each pair."""

    n_each: ClassVar[int] = 50
    options: ClassVar[GrowOptions] = GrowOptions(min_samples_leaf=2, max_features="sqrt", bootstrap=True)


@dataclass(frozen=True, kw_only=True)
class UserPairs:
    """Classifiers of the user's own."""

    models: list[Any]

    def shares(self, X: Float32) -> Float64:
        columns = [_probability(model, X) for model in self.models]
        return np.stack(columns, axis=1) if columns else np.empty((X.shape[0], 0))

    @classmethod
    def fit(
        cls,
        X: Float32,
        problems: list[PairProblem],
        *,
        estimator: Any,
        seeds: list[int],
        weighted: bool,
        n_jobs: int | None,
        stage: str,
    ) -> UserPairs:
        seeded = "random_state" in estimator.get_params()

        def fit(job: tuple[PairProblem, int]) -> Any:
            problem, seed = job
            model = clone(estimator)
            if seeded:
                model.set_params(random_state=seed % 2**32)
            weight = {"sample_weight": problem.weight} if weighted else {}
            return model.fit(X[problem.rows], problem.first.astype(np.int64), **weight)

        return cls(models=_each(fit, list(zip(problems, seeds, strict=True)), n_jobs, stage))


PairModels = LogisticPairs | TreePairs | UserPairs
"""Of the pairs that have something to tell apart; its ``shares``: chances of first before second, (n, n_models)."""


STORED: dict[str, type] = {"logistic": LogisticPairs, "tree": TreePairs, "forest": ForestPairs}
"""By the estimator's name."""


def fit_pair_models(
    X: Float32,
    problems: list[PairProblem],
    estimator: Any,
    *,
    seeds: list[int],
    weighted: bool,
    n_jobs: int | None,
    stage: str,
) -> PairModels:
    """Learn a model for every problem; see `PairwiseLabelRanker` for what ``estimator`` may be."""
    if estimator == "logistic":
        return LogisticPairs.fit(X, problems, n_jobs, stage)
    if isinstance(estimator, str):
        trees = ForestPairs if estimator == "forest" else TreePairs
        return trees.fit(X, problems, seeds=seeds, n_jobs=n_jobs, stage=stage)
    return UserPairs.fit(
        X, problems, estimator=estimator, seeds=seeds, weighted=weighted, n_jobs=n_jobs, stage=stage
    )


def _each(fit: Any, jobs: list[Any], n_jobs: int | None, stage: str) -> list[Any]:
    results: list[Any] = []
    for result in in_threads(fit, jobs, n_jobs):
        results.append(result)
        if stage and len(results) % max(1, len(jobs) // 50) == 0:
            report(len(results) / len(jobs), f"{stage}: pair {len(results)} of {len(jobs)}")
    return results


def _probability(model: Any, X: Float32) -> Float64:
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X)[:, list(model.classes_).index(1)], dtype=np.float64)
    if hasattr(model, "decision_function"):
        return np.asarray(
            0.5 * (1.0 + np.tanh(0.5 * np.asarray(model.decision_function(X), dtype=np.float64)))
        )
    return np.asarray(model.predict(X), dtype=np.float64)
