"""Cohort normalisation of any pair scorer, kept only if it raises the TPR on held-out identities."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.auto.candidates import RACING
from pairmark.models.cohort.normalising import Spread, normalised, spread_with_cohort
from pairmark.models.cohort.params import CohortParams, Normalisation
from pairmark.models.cohort.state import CohortState
from pairmark.models.core.base import Float32, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.inner import inner_learner
from pairmark.models.core.inputs import checked_identities, checked_matrix, checked_pairs
from pairmark.models.core.row_pairs import PairsOfRows
from pairmark.models.core.spec import check_params
from pairmark.models.evaluation.validation import Fold, learner_protocol, validation_folds
from pairmark.models.search.index import Rows

TRIED: tuple[Normalisation, ...] = ("s", "adaptive-s")
_MEAN, _SD = "cohort_mean", "cohort_sd"


class CohortSimilarity(CohortState, PairScorerMixin, BaseEstimator):
    """A learner's scores, normalised by how both sides score with a cohort of training rows.

    Parameters
    ----------
    learner : kind of the learner whose scores are normalised. learner_params : its parameters.
    normalisation : ``none``, ``s``, ``adaptive-s``; ``auto`` takes the better one of both where its mean true positive
        rate at low false positive rates is higher by more than a standard error, paired over twice four folds of
        held-out identities, and else none. Listed pairs have no identities to hold out: ``auto`` is then none.
    cohort_size : training rows in the cohort, spread evenly over identities.
    top : members that count in ``adaptive-s``.
    protocol : what folds hold out; ``auto``: identities from 15 on.
    random_state : seed of cohort, folds and learner.
    n_jobs : threads of learners that use several.

    Attributes
    ----------
    model_ : the learner, fitted to all rows. normalisation_ : what is done. cohort_ : (c, d) rows, none without.
    rates_ : JSON-able: mean rate of each way tried, and its gain over none with the gain's standard error.
    """

    def __init__(
        self,
        *,
        learner: str = "metric",
        learner_params: dict[str, Any] | None = None,
        normalisation: str = "auto",
        cohort_size: int = 200,
        top: int = 50,
        protocol: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.learner = learner
        self.learner_params = learner_params
        self.normalisation = normalisation
        self.cohort_size = cohort_size
        self.top = top
        self.protocol = protocol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the learner, draw the cohort and, with ``auto``, choose.

        Parameters
        ----------
        X : (n, d) finite numbers. y : (n,) identities or classes; at least two, one of them with at least two rows.

        Raises
        ------
        ValueError
            On anything else, and on parameters out of bounds, the learner's too.
        """
        check_params(self, CohortParams)
        rows = checked_matrix(self, X, "X", reset=True)
        _, codes = checked_identities(y, rows.shape[0])
        seed = self._seed()
        how: Any = self.normalisation
        self.rates_: dict[str, Any] = {}
        if how == "auto":
            how = self._chosen(rows, codes, seed)
        self.model_ = self._learner(seed).fit(rows, codes)
        return self._with_cohort(rows, codes, how, seed)

    def fit_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the learner to listed pairs; the cohort is drawn from their points. Parameters as `SimilarityAuto`."""
        check_params(self, CohortParams)
        a = checked_matrix(self, left, "left", reset=True)
        b = checked_matrix(self, right, "right")
        flags, _ = checked_pairs(a.shape[0], b.shape[0], same, sample_weight)
        seed = self._seed()
        how: Any = "none" if self.normalisation == "auto" else self.normalisation
        self.rates_ = {}
        self.model_ = self._learner(seed).fit_pairs(a, b, flags, sample_weight=sample_weight)
        points = np.unique(np.concatenate([a, b]), axis=0)
        return self._with_cohort(points, np.arange(points.shape[0]), how, seed)

    def model_facts(self, feature_names: Any = None) -> dict[str, Any]:
        """What a version says of itself: the learner's facts, what was chosen and why."""
        check_is_fitted(self)
        facts = self.model_.model_facts(feature_names) if hasattr(self.model_, "model_facts") else {}
        reported = {"learner": self.learner, "normalisation": self.normalisation_, "size": len(self.cohort_)}
        return {**facts, "cohort": {**reported, "rates": self.rates_}}

    def _learner(self, seed: int) -> Any:
        shared = {"random_state": seed, "n_jobs": self.n_jobs, "protocol": self.protocol}
        return inner_learner(RACING[self.learner], self.learner_params, shared, "learner_params")

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _with_cohort(self, rows: Matrix, codes: NDArray[np.int64], how: Normalisation, seed: int) -> Self:
        self.normalisation_: Normalisation = how
        chosen = _spread_over(codes, self.cohort_size, np.random.default_rng([seed, 1]))
        self._set_cohort(np.ascontiguousarray(rows[chosen[:0] if how == "none" else chosen]))
        return self

    def _set_cohort(self, cohort: Matrix) -> None:
        self.cohort_ = cohort
        self._cohort_index = self.model_._indexed(cohort, None) if len(cohort) else None

    def _chosen(self, rows: Matrix, codes: NDArray[np.int64], seed: int) -> Normalisation:
        """The way that pays on held-out identities, else none."""
        rng = np.random.default_rng([seed, 2])
        protocol = learner_protocol(self.protocol, int(codes.max()) + 1)
        folds = validation_folds(codes, protocol, rng)
        found: dict[str, list[float]] = {name: [] for name in ("none", *TRIED)}
        for fold in folds:
            for name, rate in self._tried(rows, codes, fold, seed).items():
                found[name].append(rate)
        best: Normalisation = "none"
        gain = 0.0
        for name in TRIED:
            apart = np.array(found[name]) - np.array(found["none"])
            if apart.size < 2:
                continue
            mean, error = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(apart.size))
            self.rates_[name] = {"value": float(np.mean(found[name])), "gain": mean, "standard_error": error}
            if mean > max(error, gain):
                best, gain = name, mean
        if found["none"]:
            self.rates_["none"] = {"value": float(np.mean(found["none"])), "gain": 0.0, "standard_error": 0.0}
        return best

    def _tried(self, rows: Matrix, codes: NDArray[np.int64], fold: Fold, seed: int) -> dict[str, float]:
        """Mean rate of each way on one fold, whose cohort is of its training rows."""
        model = self._learner(seed).fit(rows[fold.train], codes[fold.train])
        picked = _spread_over(codes[fold.train], self.cohort_size, np.random.default_rng([seed, 3]))
        test = rows[fold.test]
        plain = model.score_against(test, test)
        with_cohort = model.score_against(test, rows[fold.train][picked])
        found = {"none": float(fold.rates(plain).mean())}
        for name in TRIED:
            spread = spread_with_cohort(with_cohort, self.top if name == "adaptive-s" else None)
            across = Spread(mean=spread.mean[:, None], sd=spread.sd[:, None])
            found[name] = float(fold.rates(normalised(plain, across, spread)).mean())
        return found

    def _spread(self, rows: Matrix) -> Spread:
        """Of rows with the cohort; equal rows, as one beside many comes, are looked at once."""
        top = self.top if self.normalisation_ == "adaptive-s" else None
        if rows.shape[0] > 1 and rows.strides[0] == 0:
            one = self._spread(rows[:1])
            n = rows.shape[0]
            return Spread(mean=np.repeat(one.mean, n), sd=np.repeat(one.sd, n))
        assert self._cohort_index is not None
        scores = self.model_._score_rows(rows, self._cohort_index, slice(0, len(self.cohort_)))
        return spread_with_cohort(np.asarray(scores), top)

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        scores = np.asarray(self.model_._pair_score(left, right))
        if self._cohort_index is None:
            return scores
        return normalised(scores, self._spread(left), self._spread(right))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        score: PairsOfRows = self.model_._pairs_of(rows)
        if self._cohort_index is None:
            return score
        spread = self._spread(rows)

        def scored(left: NDArray[np.int64], right: NDArray[np.int64]) -> Float32:
            return normalised(score(left, right), spread.take(left), spread.take(right))

        return scored

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        arrays = dict(self.model_._index_arrays(vectors))
        if self._cohort_index is not None:
            spread = self._spread(vectors)
            arrays |= {_MEAN: spread.mean, _SD: spread.sd}
        return arrays

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        scores = np.asarray(self.model_._score_rows(queries, index, rows))
        if self._cohort_index is None:
            return scores
        known = Spread(mean=np.asarray(index.arrays[_MEAN][rows]), sd=np.asarray(index.arrays[_SD][rows]))
        own = self._spread(queries)
        return normalised(scores, Spread(mean=own.mean[:, None], sd=own.sd[:, None]), known)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")


def _spread_over(codes: NDArray[np.int64], size: int, random: np.random.Generator) -> NDArray[np.int64]:
    """Rows spread evenly over identities: one of each in random order, then a second of each, and so on."""
    order = random.permutation(codes.size)
    place = np.empty(codes.size, dtype=np.int64)
    by_identity = order[np.argsort(codes[order], kind="stable")]
    counts = np.bincount(codes)
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    place[by_identity] = np.arange(codes.size) - starts
    return np.sort(order[np.argsort(place[order], kind="stable")][:size])
