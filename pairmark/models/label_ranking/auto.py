"""A ranker that tries several ways to rank and blends those that help."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.artefact import OutdatedModel
from pairmark.models.core.progress import report, spread_seeds
from pairmark.models.core.spec import LearnerSpec, RandomState, Threads, document_parameters, keep_arguments
from pairmark.models.core.state import Array, Fact, StateRecord, StoredState, refuse
from pairmark.models.evaluation.rankings import Aggregation, kendall_tau, pairwise_shares, positions_of
from pairmark.models.label_ranking.base import (
    RankerBase,
    TrainingRankings,
    aggregate_shares,
    n_pairs,
)
from pairmark.models.label_ranking.pairwise import (
    LogisticPairs,
    problems_of,
    square,
)
from pairmark.models.label_ranking.trees import (
    GrowOptions,
    Trees,
    complete_rankings,
    grow_trees,
    require_trees,
)

_TREES = 50
"""Of each forest; twice as many cost twice as much, and the blend is no better."""


@dataclass(frozen=True, kw_only=True)
class Examples:
    """What candidates learn from: positions (NaN = absent) and completed targets, in canonical label order."""

    X: Float32
    positions: Float32
    targets: Float64


@dataclass(frozen=True, kw_only=True)
class ConstantCandidate:
    """What all rows have in common, whatever their features: nothing beats it where features tell next to nothing."""

    before: Annotated[Float64, Array(shape=("n_labels", "n_labels"), low=0, high=1)]

    def shares(self, X: Float32) -> Float64:
        return np.broadcast_to(self.before, (X.shape[0], *self.before.shape))

    @classmethod
    def fit(cls, name: str, data: Examples, seed: int, n_jobs: int | None) -> "ConstantCandidate":
        # Two labels that no row shows together say nothing of each other: even.
        return cls(before=np.nan_to_num(pairwise_shares(data.positions), nan=0.5))


@dataclass(frozen=True, kw_only=True)
class ForestCandidate:
    """Forest of best or of random borders, read by its leaves' pairwise votes."""

    trees: Annotated[Trees, StateRecord()]
    positions: Annotated[Float32, Array(shape=("rows", "n_labels"), nan=True)]
    targets: Annotated[Float64, Array(shape=("rows", "n_labels"))]

    def relate(self, prefix: str) -> None:
        """Refuse a forest without a tree."""
        require_trees(self.trees, prefix)

    def shares(self, X: Float32) -> Float64:
        return self.trees.votes(X, self.positions, self.targets)

    @classmethod
    def fit(cls, name: str, data: Examples, seed: int, n_jobs: int | None) -> "ForestCandidate":
        random_borders = GrowOptions(splitter="random")
        options = (
            random_borders if name == "extra-trees" else GrowOptions(max_features="third", bootstrap=True)
        )
        seeds = [int(s) for s in np.random.default_rng(seed).integers(0, 2**62, _TREES)]
        trees, _ = grow_trees(data.X, data.targets, options, seeds, n_jobs=n_jobs, stage="")
        return cls(trees=trees, positions=data.positions, targets=data.targets)


@dataclass(frozen=True, kw_only=True)
class LogisticCandidate:
    """A logistic regression a pair."""

    models: Annotated[LogisticPairs, StateRecord()]
    modelled: Annotated[Int64, Array(shape=("models",), below="pairs", order="rising")]
    constant: Annotated[Float64, Array(shape=("pairs",), low=0, high=1)]
    k: Annotated[Int64, Array(shape=(), low=2)]

    def relate(self, prefix: str) -> None:
        """Refuse another number of labels."""
        if n_pairs(int(self.k)) != self.constant.size:
            raise refuse(
                f"{prefix}k", None, f"is {self.k}", f"that of labels with {self.constant.size} pairs"
            )

    def shares(self, X: Float32) -> Float64:
        return square(self.models.shares(X), self.modelled, self.constant, int(self.k))

    @classmethod
    def fit(cls, name: str, data: Examples, seed: int, n_jobs: int | None) -> "LogisticCandidate":
        problems = problems_of(data.positions)
        constant = np.array([problem.share() for problem in problems])
        modelled = np.flatnonzero([not problem.one_sided for problem in problems])
        models = LogisticPairs.fit(data.X, [problems[at] for at in modelled], n_jobs, "")
        return cls(models=models, modelled=modelled, constant=constant, k=np.array(data.positions.shape[1]))


Candidate = ConstantCandidate | ForestCandidate | LogisticCandidate
"""Its ``shares``: how surely the first label comes before the second, (n, k, k), the diagonal 0."""
CandidateName = Literal["constant", "extra-trees", "forest", "logistic"]
CANDIDATE_CLASSES: dict[str, Any] = {
    "constant": ConstantCandidate,
    "extra-trees": ForestCandidate,
    "forest": ForestCandidate,
    "logistic": LogisticCandidate,
}
"""In the order tried."""


def _candidate_class(name: str) -> Any:
    """What holds the state of a candidate of that name; an `OutdatedModel` where there is none any more."""
    if name not in CANDIDATE_CLASSES:
        raise OutdatedModel(f"members has {name[:80]!r}; expected some of {', '.join(CANDIDATE_CLASSES)}")
    return CANDIDATE_CLASSES[name]


_STEPS = 20
_VALIDATION_ROWS = 3_000
"""Rows that the choice is made on at most; the chosen ones learn from all."""
_VALIDATION_CELLS = 60_000_000
_SLOW_PAIRS = 500
_AGGREGATIONS: tuple[Aggregation, ...] = ("borda", "copeland")


@document_parameters
class LabelRankingAuto(RankerBase):
    """Choose and blend label rankers by cross-validation.

    One ranking for all rows, forests of best and of random borders, and pairwise logistic regression each predict, for
    every training row, by models that have not seen the row, how surely each label comes before each other. Greedy
    selection with replacement (Caruana et al. 2004) finds the blend of these predictions with the best mean Kendall
    tau; its members are fitted again on all rows. The one ranking for all rows stays unless the blend is ahead of it by
    more than a standard error. What is tried depends on the data alone, never on a clock.

    Attributes
    ----------
    order_, n_labels_ : as in `LabelRankingTree`.
    tau_ : candidate -> mean Kendall tau on rows left out.
    weights_ : candidate -> weight in the blend; those of weight 0 are not kept.
    blend_tau_ : the blend's mean tau on rows left out. The blend was chosen on these rows, so it is a little
        optimistic: judge by rows held out from `fit`.
    aggregation_ : the aggregation used.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import LabelRankingAuto
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> Y = np.column_stack([X[:, 0] > 0, X[:, 0] <= 0, np.full(60, 2)])  # of 3 labels, 0 is the best
    >>> model = LabelRankingAuto(candidates=["forest", "logistic"]).fit(X, Y)
    >>> model.predict([[2.0, 0.0], [-2.0, 0.0]])
    array([[1., 0., 2.],
           [0., 1., 2.]])
    """

    _member_names: Annotated[list[str], Fact(name="members"), Field(min_length=1)]
    members_: dict[str, Candidate]
    weights_: Annotated[dict[str, float], Fact()]
    tau_: Annotated[dict[str, float], Fact()]
    blend_tau_: Annotated[float, Fact()]
    aggregation_: Annotated[Aggregation, Fact()]

    def __init__(
        self,
        *,
        candidates: Annotated[
            Annotated[
                list[CandidateName],
                Field(min_length=1),
            ]
            | None,
            Field(description="rankers to try; null: all that suit the number of labels"),
        ] = None,
        n_folds: Annotated[
            int, Field(ge=2, le=50, description="folds of the cross-validation that chooses")
        ] = 3,
        aggregation: Annotated[
            Literal["auto", "borda", "copeland"],
            Field(description="how pairwise shares become a ranking; auto: the best by cross-validation"),
        ] = "auto",
        random_state: Annotated[
            RandomState, Field(description="seed; the same seed gives the same model")
        ] = 0,
        n_jobs: Threads = None,
        verbose: Annotated[
            int, Field(ge=0, le=100, description="1: print each candidate's validated tau")
        ] = 0,
    ) -> None:
        keep_arguments(self, locals())

    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None:
        n, k = rankings.positions.shape
        seeds = dict(zip(CANDIDATE_CLASSES, spread_seeds(random, len(CANDIDATE_CLASSES)), strict=True))
        choosing = np.random.default_rng(spread_seeds(random, 1)[0])
        completing = spread_seeds(random, 1)[0]
        slow = {"logistic"} if n_pairs(k) > _SLOW_PAIRS else set()
        chosen = self.candidates or CANDIDATE_CLASSES.keys() - slow
        names = [name for name in CANDIDATE_CLASSES if name in chosen]
        limit = max(200, min(_VALIDATION_ROWS, _VALIDATION_CELLS // (k * k * len(names))))
        rows = np.sort(choosing.permutation(n)[:limit])
        sample = X[rows]
        validation = rankings.positions[rows]
        n_folds = min(self.n_folds, rows.size)
        self.tau_, self.members_ = {}, {}
        self.weights_, self.blend_tau_ = {names[0]: 1.0}, 0.0
        self.aggregation_ = "borda" if self.aggregation == "auto" else self.aggregation
        if n_folds >= 2:
            fold = choosing.permutation(np.arange(rows.size) % n_folds)
            predictions = {name: np.empty((rows.size, k, k)) for name in names}
            for part in range(n_folds):
                train, test = np.flatnonzero(fold != part), np.flatnonzero(fold == part)
                data = self._examples(
                    sample[train], replace(rankings, positions=validation[train]), completing
                )
                for number, name in enumerate(names):
                    report(0.8 * (part + number / len(names)) / n_folds, f"trying {name}")
                    fitted = CANDIDATE_CLASSES[name].fit(name, data, seeds[name], self.n_jobs)
                    predictions[name][test] = fitted.shares(sample[test])
            self.tau_ = {name: _tau(before, validation, "borda") for name, before in predictions.items()}
            if self.verbose:
                print(f"LabelRankingAuto: {self.tau_}")
            self.weights_ = _beyond_constant(_greedy(predictions, validation), predictions, validation)
            blend: Any = sum(predictions[name] * weight for name, weight in self.weights_.items())
            taus = {name: _tau(blend, validation, name) for name in _AGGREGATIONS}
            if self.aggregation == "auto":
                self.aggregation_ = max(taus, key=lambda name: taus[name])
            self.blend_tau_ = taus[self.aggregation_]
        self._member_names = list(self.weights_)
        data = self._examples(X, rankings, completing)
        for number, name in enumerate(self._member_names):
            self.members_[name] = CANDIDATE_CLASSES[name].fit(name, data, seeds[name], self.n_jobs)
            report(0.8 + 0.2 * (number + 1) / len(self._member_names), f"learning {name}")

    def _examples(self, X: Float32, rankings: TrainingRankings, seed: int) -> Examples:
        return Examples(
            X=X, positions=rankings.positions, targets=complete_rankings(X, rankings, seed, self.n_jobs)
        )

    def _scores(self, X: Float32) -> Float64:
        blend = np.zeros((X.shape[0], self.n_labels_, self.n_labels_))
        for name, weight in self.weights_.items():
            blend += weight * self.members_[name].shares(X)
        return aggregate_shares(blend, self.aggregation_)

    def _restored(self) -> None:
        # Adding up the blend in another order would change its last bits.
        self.weights_ = {name: self.weights_[name] for name in self._member_names}

    def _parts(self) -> Mapping[str, Any]:
        return {f"member{at}_": member for at, member in enumerate(self.members_.values())}

    def _read_parts(self, file: StoredState) -> None:
        self.members_ = {
            name: file.record(_candidate_class(name), f"member{at}_")
            for at, name in enumerate(file.facts.members)
        }

    def _relate(self, file: StoredState) -> None:
        super()._relate(file)
        names = self._member_names
        if len(set(names)) < len(names) or set(names) - self.weights_.keys():
            raise refuse("members", None, f"is {names} in the manifest", "each once, with a weight")


def _taus(before: Float64, validation: Float32, aggregation: str) -> Float64:
    return kendall_tau(validation.astype(np.float64), positions_of(aggregate_shares(before, aggregation)))


def _tau(before: Float64, validation: Float32, aggregation: str) -> float:
    tau = _taus(before, validation, aggregation)
    return float(np.nanmean(tau)) if np.isfinite(tau).any() else 0.0


def _beyond_constant(
    weights: dict[str, float], predictions: dict[str, Float64], validation: Float32
) -> dict[str, float]:
    """Weights of a blend that is ahead of one ranking for all by more than a standard error, else of that ranking."""
    if "constant" not in predictions:
        return weights
    blend = np.sum([predictions[name] * weight for name, weight in weights.items()], axis=0)
    lead = _taus(blend, validation, "borda") - _taus(predictions["constant"], validation, "borda")
    lead = lead[np.isfinite(lead)]
    ahead = lead.size > 1 and lead.mean() > lead.std(ddof=1) / np.sqrt(lead.size)
    return weights if ahead else {"constant": 1.0}


def _greedy(predictions: dict[str, Float64], validation: Float32) -> dict[str, float]:
    """Weights by greedy selection with replacement: each step adds the prediction that helps most."""
    counts = dict.fromkeys(predictions, 0)
    total = np.zeros_like(next(iter(predictions.values())))
    best_tau, best_counts = -np.inf, dict(counts)
    for step in range(_STEPS):
        taus = {
            name: _tau((total + before) / (step + 1), validation, "borda")
            for name, before in predictions.items()
        }
        name = max(taus, key=lambda candidate: taus[candidate])
        counts[name] += 1
        total += predictions[name]
        if taus[name] > best_tau + 1e-9:
            best_tau, best_counts = taus[name], dict(counts)
    total_count = sum(best_counts.values())
    return {name: count / total_count for name, count in best_counts.items() if count}


AUTO = LearnerSpec(
    kind="label-ranking-auto",
    title="Automatic label ranker: several rankers, blended by cross-validation; the most accurate, slower to train",
    estimator=LabelRankingAuto,
    retired={"max_validation_rows": ..., "time_budget": ...},
    capabilities=frozenset({"rank-labels"}),
    needs="rankings",
)
