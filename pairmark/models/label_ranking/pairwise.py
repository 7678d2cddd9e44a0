"""Label ranking by pairwise comparison."""

from __future__ import annotations

import warnings
from typing import Annotated, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field
from sklearn.utils.validation import has_fit_parameter

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.inputs import checked_weight
from pairmark.models.core.spec import PYTHON_ONLY, Classifier, RandomState, Threads, document_parameters
from pairmark.models.label_ranking.base import aggregated, spread_seeds
from pairmark.models.label_ranking.pair_models import fit_pair_models, problems_of, square
from pairmark.models.label_ranking.rankings_data import TrainingRankings
from pairmark.models.label_ranking.state import PairwiseState

_FOLDS = 3
_NAMED = 10


@document_parameters
class PairwiseLabelRanker(PairwiseState):
    """Rank labels by one binary classifier a pair of labels (Fotakis et al. 2022, Algorithms 2, 6, 7 and 8).

    The classifier of a pair learns from the rows that show both labels and do not tie them, so incomplete and partial
    rankings need no completing. A pair that no row orders gets a constant preference, inferred from the labels that
    both were compared with where there are any (log-odds add up along the way), else one half; a warning names such
    pairs.

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

    def __init__(
        self,
        *,
        estimator: Annotated[
            Literal["logistic", "forest", "tree"] | Annotated[Classifier, PYTHON_ONLY],
            Field(description="binary classifier of each pair of labels"),
        ] = "logistic",
        aggregation: Annotated[
            Literal["copeland", "borda", "kemeny"],
            Field(description="rank by labels beaten, by mean probability, or by least disagreement"),
        ] = "copeland",
        random_state: Annotated[
            RandomState, Field(description="seed; the same seed gives the same model")
        ] = 0,
        n_jobs: Threads = None,
        verbose: Annotated[
            int, Field(ge=0, le=100, description="has no effect; accepted like in the other rankers")
        ] = 0,
    ) -> None:
        self.estimator = estimator
        self.aggregation = aggregation
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, Y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn to rank labels; parameters as in `LabelRankingTree.fit`.

        Parameters
        ----------
        sample_weight : (n,) numbers >= 0; rows of weight 0 are left out.

        Raises
        ------
        ValueError
            As there; and when weights are given to a classifier that takes none.
        """
        self._weight = sample_weight
        try:
            return super().fit(X, Y)
        finally:
            del self._weight

    def _learn(self, X: Float32, rankings: TrainingRankings, random: np.random.RandomState) -> None:
        n, k = rankings.positions.shape
        weight = checked_weight(self._weight, n, "row")
        weighted = self._weight is not None
        if (
            weighted
            and not isinstance(self.estimator, str)
            and not has_fit_parameter(self.estimator, "sample_weight")
        ):
            raise ValueError(f"{type(self.estimator).__name__} takes no sample_weight: leave weights out")
        i, j = np.triu_indices(k, 1)
        seeds = spread_seeds(random, i.size)
        constant = rankings.shares[i, j].copy()
        problems = problems_of(rankings.positions, weight)
        empty = np.array([problem.rows.size == 0 for problem in problems])
        self.unseen_pairs_ = np.sort(np.stack([rankings.order[i], rankings.order[j]], axis=1)[empty], axis=1)
        _warn_unseen(self.unseen_pairs_)
        for at, problem in enumerate(problems):
            if problem.rows.size:
                constant[at] = problem.share()
        modelled = np.flatnonzero([not problem.one_sided for problem in problems])
        self.constant_, self.modelled_ = constant, modelled
        modelled_problems = [problems[at] for at in self.modelled_]
        self.models_ = fit_pair_models(
            X,
            modelled_problems,
            seeds=[seeds[at] for at in self.modelled_],
            stage="learning pairs",
            estimator=self.estimator,
            weighted=weighted,
            n_jobs=self.n_jobs,
        )

    def _scores(self, X: Float32) -> Float64:
        before = square(self.models_.shares(X), self.modelled_, self.constant_, self.n_labels_)
        return aggregated(before, self.aggregation)


def _warn_unseen(pairs: NDArray[np.intp]) -> None:
    if len(pairs):
        pair_names = ", ".join(f"({a}, {b})" for a, b in sorted(map(tuple, pairs.tolist()))[:_NAMED])
        tail = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
        warnings.warn(
            f"no training row orders the labels {pair_names}{tail}: their preference is inferred from the labels that "
            "both were compared with, and the same for every X",
            UserWarning,
            stacklevel=5,
        )
