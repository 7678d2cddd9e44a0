"""Label ranking by pairwise comparison: binary models of single pairs of labels, learned and read together."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.base import clone

from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.core.progress import in_threads, report, spread_seeds
from pairmark.models.core.spec import (
    Classifier,
    LearnerSpec,
    RandomState,
    Threads,
    document_parameters,
    keep_arguments,
)
from pairmark.models.core.state import Array, State, StateRecord, StoredState
from pairmark.models.label_ranking.base import RankerBase, TrainingRankings, aggregate_shares
from pairmark.models.label_ranking.trees import (
    GrowOptions,
    Trees,
    end_to_end,
    grow_trees,
)

_MODELS = "pairs_"
"""Begins the names of the models' arrays."""


@dataclass(frozen=True, kw_only=True)
class PairProblem:
    """One pair's rows: where the first label came before the second (1) or behind (0)."""

    rows: NDArray[np.intp]
    first: Bool

    def share(self) -> float:
        """Smoothed share of rows that put the first label before."""
        return float((self.first.sum() + 0.5) / (self.first.size + 1.0))

    @property
    def one_sided(self) -> bool:
        """Whether all rows (or there is none) say the same, so that there is nothing to tell apart."""
        return bool(self.first.all() or not self.first.any())


def problems_of(positions: Float32) -> list[PairProblem]:
    """Of all pairs of labels, in the order of `numpy.triu_indices`: rows that show both and do not tie them."""
    problems = []
    for first, second in combinations(positions.T, 2):
        # NaN compares false: a row that does not show both labels is no example, and neither is a tie.
        rows = np.flatnonzero(np.abs(second - first) > 0)
        problems.append(PairProblem(rows=rows, first=second[rows] > first[rows]))
    return problems


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
    def fit(
        cls,
        X: Float32,
        problems: list[PairProblem],
        n_jobs: int | None,
        stage: str = "",
        **_: Any,
    ) -> "LogisticPairs":
        from sklearn.linear_model import LogisticRegression

        mean, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        # Constant features stay as they are.
        scale[scale == 0] = 1.0
        points = (X - mean) / scale

        def fit(problem: PairProblem) -> tuple[Float64, float]:
            model = LogisticRegression(max_iter=1_000)
            model.fit(points[problem.rows], problem.first)
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
    def fit(
        cls,
        X: Float32,
        problems: list[PairProblem],
        n_jobs: int | None,
        stage: str,
        *,
        seeds: list[int],
        estimator: Any,
    ) -> Self:
        def fit(job: tuple[PairProblem, int]) -> Trees:
            problem, seed = job
            tree_seeds = [int(s) for s in np.random.default_rng(seed).integers(0, 2**62, cls.n_each)]
            return grow_trees(
                X[problem.rows],
                problem.first.astype(np.float64)[:, None],
                cls.options,
                tree_seeds,
                n_jobs=1,
                stage="",
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
        n_jobs: int | None,
        stage: str,
        *,
        seeds: list[int],
        estimator: Any,
    ) -> "UserPairs":
        seeded = "random_state" in estimator.get_params()

        def fit(job: tuple[PairProblem, int]) -> Any:
            problem, seed = job
            model = clone(estimator)
            if seeded:
                model.set_params(random_state=seed % 2**32)
            return model.fit(X[problem.rows], problem.first.astype(np.int64))

        return cls(models=_each(fit, list(zip(problems, seeds, strict=True)), n_jobs, stage))


PairModels = LogisticPairs | TreePairs | UserPairs
"""Of the pairs that have something to tell apart; its ``shares``: chances of first before second, (n, n_models)."""


STORED: dict[Any, Any] = {"logistic": LogisticPairs, "tree": TreePairs, "forest": ForestPairs}
"""By the estimator's name."""


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
    return np.asarray(model.predict(X), dtype=np.float64)


_FOLDS = 3
_NAMED = 10


@document_parameters
class PairwiseLabelRanker(RankerBase):
    """Rank labels by one binary classifier a pair of labels (Fotakis et al. 2022, Algorithms 2, 6, 7 and 8).

    The classifier of a pair learns from the rows that show both labels and do not tie them, so incomplete and partial
    rankings need no completing. A pair that no row orders is taken to be even, and a warning names such pairs.

    ``logistic`` standardises features, ``forest`` has 50 trees. Of any other scikit-learn classifier clones are
    fitted; what holds one cannot be saved, since saving an object of your own means pickle. ``copeland`` ranks by how
    many labels each beats, equal numbers by Borda: on the paper's targets ``g_ij = sgn(position i - position j)`` the
    0-based place of i is the number of j with ``g_ij = +1``.

    Attributes
    ----------
    order_, n_labels_ : as in `LabelRankingTree`.
    unseen_pairs_ : (m, 2) pairs of labels that no training row orders.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import PairwiseLabelRanker
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(60, 2)])  # of 3 labels, 0 is the best
    >>> model = PairwiseLabelRanker().fit(X, Y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array([[1., 0., 2.],
           [0., 1., 2.]])
    """

    models_: PairModels
    modelled_: Annotated[NDArray[np.int64], Array(shape=("models",), below="pairs", order="rising")]
    constant_: Annotated[Float64, Array(shape=("pairs",), low=0, high=1)]
    unseen_pairs_: Annotated[NDArray[np.int64], Array(shape=("unseen", 2), below="n_labels")]

    def __init__(
        self,
        *,
        estimator: Annotated[
            Literal["logistic", "forest", "tree"] | Classifier,
            Field(description="binary classifier of each pair of labels"),
        ] = "logistic",
        aggregation: Annotated[
            Literal["copeland", "borda"],
            Field(description="rank by labels beaten, or by mean probability"),
        ] = "copeland",
        random_state: Annotated[
            RandomState, Field(description="seed; the same seed gives the same model")
        ] = 0,
        n_jobs: Threads = None,
    ) -> None:
        keep_arguments(self, locals())

    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None:
        i, j = np.triu_indices(rankings.positions.shape[1], 1)
        seeds = spread_seeds(random, i.size)
        problems = problems_of(rankings.positions)
        empty = np.array([problem.rows.size == 0 for problem in problems])
        self.unseen_pairs_ = np.sort(np.stack([rankings.order[i], rankings.order[j]], axis=1)[empty], axis=1)
        n_unseen = len(self.unseen_pairs_)
        if n_unseen:
            pair_names = ", ".join(f"({a}, {b})" for a, b in sorted(self.unseen_pairs_.tolist())[:_NAMED])
            tail = f" and {n_unseen - _NAMED} more" if n_unseen > _NAMED else ""
            warnings.warn(
                f"no training row orders the labels {pair_names}{tail}: either may come before the other, for every X",
                UserWarning,
                stacklevel=3,
            )
        shares = np.array([problem.share() for problem in problems])
        constant = np.where(empty, rankings.shares[i, j], shares)
        modelled = np.flatnonzero([not problem.one_sided for problem in problems])
        self.constant_, self.modelled_ = constant, modelled
        estimator: Any = self.estimator
        models = STORED[estimator] if isinstance(estimator, str) else UserPairs
        self.models_ = models.fit(
            X,
            [problems[number] for number in modelled],
            self.n_jobs,
            "learning pairs",
            seeds=[seeds[number] for number in modelled],
            estimator=estimator,
        )

    def _scores(self, X: Float32) -> Float64:
        before = square(self.models_.shares(X), self.modelled_, self.constant_, self.n_labels_)
        return aggregate_shares(before, self.aggregation)

    def to_state(self) -> State:
        """As `Stateful.to_state`; a `ValueError` when the classifier is one of the user's own."""
        if isinstance(self.models_, UserPairs):
            raise ValueError(
                f"a PairwiseLabelRanker of {type(self.estimator).__name__} cannot be saved, since files hold plain "
                "arrays and no objects: use estimator='logistic', 'forest' or 'tree'"
            )
        return super().to_state()

    def _sizes(self, file: StoredState) -> Mapping[str, int]:
        n = file.length("modelled")
        n_each = getattr(STORED[self.estimator], "n_each", 1)
        return {**super()._sizes(file), "models": n, f"{_MODELS}trees": n * n_each}

    def _parts(self) -> Mapping[str, Any]:
        return {_MODELS: self.models_}

    def _read_parts(self, file: StoredState) -> None:
        self.models_ = file.record(STORED[self.estimator], _MODELS)


PAIRWISE = LearnerSpec(
    kind="label-ranking-pairwise",
    title="Pairwise label ranker: one classifier for each pair of labels; for incomplete and partial rankings",
    estimator=PairwiseLabelRanker,
    retired={"calibrate": ..., "verbose": ...},
    capabilities=frozenset({"rank-labels"}),
    needs="rankings",
)
