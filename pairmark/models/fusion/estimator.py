"""`Fusion`: a weighted sum of several learners' scores, with weights from people that none was fitted on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.base import Float32, GalleryIndex, Matrix, PairScorerMixin
from pairmark.models.core.inner import inner_arrays, inner_learner
from pairmark.models.core.inputs import checked_identities, checked_matrix, checked_pairs
from pairmark.models.core.progress import preparing, report
from pairmark.models.core.row_pairs import PairsOfRows
from pairmark.models.core.spec import check_params
from pairmark.models.evaluation.pair_folds import PairFold, pair_folds
from pairmark.models.evaluation.validation import (
    JUDGED_FPR,
    REPEATS,
    Fold,
    learner_protocol,
    tpr_at,
    validation_folds,
)
from pairmark.models.fusion.params import FUSED, FusionParams, components_of
from pairmark.models.fusion.state import FusionState, prefix_of
from pairmark.models.fusion.weighing import Judged, Weights
from pairmark.models.search.index import Rows

_MOST_PAIRS = 50_000
"""Pairs of a kind that a fold judges and weighs by."""

Fitted = Callable[[Any], Any]


class Fusion(FusionState, PairScorerMixin, BaseEstimator):
    """One score from several learners': a weighted sum whose weights are never negative.

    The weights are a logistic regression on scores of held-out identities: each learner is fitted to the other folds
    of the training rows and scores the fold that it did not see. Then every learner is fitted to all rows. Weights
    from rows that the learners had seen would favour the learner that remembers them best.

    Parameters
    ----------
    models : at least two learners, each an estimator or ``{"learner": kind, "params": {...}}``; None: PLDA and whitened
        cosine.
    keep : ``if-better``: the combination where it beats the best single learner on held-out folds by more than a
        standard error, else that learner alone, as a log likelihood ratio; ``always``: the combination.
    protocol : what folds hold out; ``auto``: identities from 15 on.
    random_state : seed of folds and learners.
    n_jobs : threads of learners that use several.

    Attributes
    ----------
    models_ : the learners, fitted to all rows; one whose weight is 0 is None.
    weights_ : (n_models,) of their scores. intercept_ : natural log odds.
    rates_ : JSON-able: mean rate over folds of each learner and of the combination, and the combination's gain over the
        best learner with its standard error; empty where nothing could be held out.
    """

    def __init__(
        self,
        *,
        models: Sequence[Any] | None = None,
        keep: str = "if-better",
        protocol: str = "auto",
        random_state: int | np.random.RandomState | None = 0,
        n_jobs: int | None = None,
    ) -> None:
        self.models = models
        self.keep = keep
        self.protocol = protocol
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Weigh the learners on folds, then fit them to all rows.

        Parameters
        ----------
        X : (n, d) finite numbers. y : (n,) identities or classes; at least two, one of them with at least two rows.

        Raises
        ------
        ValueError
            On anything else, and on parameters out of bounds, the learners' too.
        """
        check_params(self, FusionParams)
        rows = checked_matrix(self, X, "X", reset=True)
        _, codes = checked_identities(y, rows.shape[0])
        seed = self._seed()
        random = np.random.default_rng([seed, 2])
        protocol = learner_protocol(self.protocol, int(codes.max()) + 1)
        repeats = [validation_folds(codes, protocol, random, repeats=1) for _ in range(REPEATS)]

        def judged(fold: Fold) -> Judged:
            test, places = rows[fold.test], [_some(kind, random) for kind in fold.places]
            at = np.concatenate(places)
            found = [
                model.fit(rows[fold.train], codes[fold.train]).score_against(test, test).reshape(-1)[at]
                for model in self._learners(seed)
            ]
            return _judged(found, np.repeat([True, False], [place.size for place in places]))

        def every(models: list[Any]) -> Judged:
            some = _some(np.arange(rows.shape[0]), random)
            other = random.permutation(some)
            return _judged(
                [one.pair_score(rows[some], rows[other]) for one in models], codes[some] == codes[other]
            )

        return self._fused(repeats, judged, lambda model: model.fit(rows, codes), every, seed)

    def fit_pairs(
        self, left: ArrayLike, right: ArrayLike, same: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Weigh the learners on folds of listed pairs, then fit them to all. Parameters as `SimilarityAuto`."""
        check_params(self, FusionParams)
        a = checked_matrix(self, left, "left", reset=True)
        b = checked_matrix(self, right, "right")
        flags, weight = checked_pairs(a.shape[0], b.shape[0], same, sample_weight)
        seed = self._seed()
        random = np.random.default_rng([seed, 2])
        repeats = pair_folds(a, b, flags, weight, self.protocol, random).repeats

        def judged(fold: PairFold) -> Judged:
            seen = fold.train
            test = np.concatenate(
                [_some(fold.test[flags[fold.test] == kind], random) for kind in (True, False)]
            )
            found = [
                model.fit_pairs(a[seen], b[seen], flags[seen], sample_weight=weight[seen]).pair_score(
                    a[test], b[test]
                )
                for model in self._learners(seed)
            ]
            return _judged(found, flags[test])

        def every(models: list[Any]) -> Judged:
            return _judged([one.pair_score(a, b) for one in models], flags)

        return self._fused(
            repeats,
            judged,
            lambda model: model.fit_pairs(a, b, flags, sample_weight=sample_weight),
            every,
            seed,
        )

    def _fused(
        self, repeats: list[Any], judged: Callable[[Any], Judged], fit: Fitted, every: Any, seed: int
    ) -> Self:
        n_folds = sum(map(len, repeats))
        found: list[list[Judged]] = []
        done = 0
        for repeat in repeats:
            some = []
            for fold in repeat:
                report(0.75 * done / n_folds, f"weighing learners, fold {done + 1} of {n_folds}")
                with preparing("weighing learners"):
                    some.append(judged(fold))
                done += 1
            found.append(some)
        folds = [fold for repeat in found for fold in repeat]
        weights, self.rates_ = self._weighed(found, folds) if folds else (None, {})
        fitted: list[Any] = []
        for number, model in enumerate(self._learners(seed)):
            report(
                0.75 + 0.25 * number / len(components_of(self.models)),
                f"learning {components_of(self.models)[number].learner}",
            )
            kept = weights is None or weights.weight[number] > 0
            with preparing(f"learning {components_of(self.models)[number].learner}"):
                fitted.append(fit(model) if kept else None)
        if weights is None:
            # Too little to hold any of it out: every learner alike.
            weights = Weights.equal(every(fitted).scores)
        self.models_ = fitted
        self.weights_, self.intercept_ = weights.weight, weights.intercept
        return self

    def _weighed(self, repeats: list[list[Judged]], folds: list[Judged]) -> tuple[Weights, dict[str, Any]]:
        """Weights from all folds, and whether they pay: judged on each fold by weights from its repeat's others."""
        together = Weights.fit(folds)
        names = [str(number) for number in range(len(components_of(self.models)))]
        rates: dict[str, list[float]] = {name: [] for name in [*names, "combined"]}
        for repeat in repeats:
            for number, fold in enumerate(repeat):
                others = [one for at, one in enumerate(repeat) if at != number]
                if not others:
                    continue
                columns = list(fold.scores.T)
                rates["combined"].append(_rate(Weights.fit(others).combined(columns), fold.same))
                for name, column in zip(names, columns, strict=True):
                    rates[name].append(_rate(column, fold.same))
        if len(rates["combined"]) < 2:
            return together, {}
        best = max(names, key=lambda name: float(np.mean(rates[name])))
        apart = np.array(rates["combined"]) - np.array(rates[best])
        gain, error = float(apart.mean()), float(apart.std(ddof=1) / np.sqrt(apart.size))
        reported = {
            "single": [float(np.mean(rates[name])) for name in names],
            "combined": float(np.mean(rates["combined"])),
            "best": int(best),
            "gain": gain,
            "standard_error": error,
            "folds": apart.size,
        }
        if self.keep == "if-better" and gain <= error:
            return Weights.alone(int(best), folds), reported
        return together, reported

    def model_facts(self, feature_names: Any = None) -> dict[str, Any]:
        """What a version says of itself: the learners with their weights, and what the folds said."""
        check_is_fitted(self)
        reported = [
            {"learner": one.learner, "version": one.version, "weight": float(weight)}
            for one, weight in zip(components_of(self.models), self.weights_, strict=True)
        ]
        return {"fusion": {"models": reported, "intercept": self.intercept_, "rates": self.rates_}}

    def explain(
        self, left: ArrayLike, right: ArrayLike, feature_names: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """One pair's score as the sum of its parts.

        Returns
        -------
        JSON-able: ``intercept`` and ``models``, each with ``learner``, ``version``, ``score``, ``weight``,
        ``contribution`` (their product) and, where the learner explains itself, ``explanation``; contributions and the
        intercept add up to the score. Learners of weight 0 are left out.
        """
        check_is_fitted(self)
        a, b = self._validated(left, "left"), self._validated(right, "right")
        parts = []
        for one, model, weight in zip(
            components_of(self.models), self.models_, self.weights_.tolist(), strict=True
        ):
            if model is None:
                continue
            score = float(model.pair_score(a, b)[0])
            part: dict[str, Any] = {
                "learner": one.learner,
                "version": one.version,
                "score": score,
                "weight": weight,
                "contribution": weight * score,
            }
            if hasattr(model, "explain"):
                part["explanation"] = model.explain(a, b, feature_names=feature_names)
            parts.append(part)
        return {"score": float(self.pair_score(a, b)[0]), "intercept": self.intercept_, "models": parts}

    def _params(self) -> dict[str, Any]:
        """What scores depend on: learners in one form, however they were given, and wherever they are from."""
        components = [{"learner": one.learner, "params": one.params} for one in components_of(self.models)]
        return {**super()._params(), "models": components}

    def _learners(self, seed: int) -> list[Any]:
        """All learners, unfitted."""
        shared = {"random_state": seed, "n_jobs": self.n_jobs, "protocol": self.protocol}
        return [
            inner_learner(FUSED[one.learner], one.params, shared, f"models[{number}].params")
            for number, one in enumerate(components_of(self.models))
        ]

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31))

    def _combined(self, score: Callable[[int, Any], Any]) -> Float32:
        return Weights(weight=self.weights_, intercept=self.intercept_).combined(
            [None if model is None else score(number, model) for number, model in enumerate(self.models_)]
        )

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        return self._combined(lambda _, model: model._pair_score(left, right))

    def _pairs_of(self, rows: Matrix) -> PairsOfRows:
        scores: dict[int, PairsOfRows] = {
            number: model._pairs_of(rows) for number, model in enumerate(self.models_) if model is not None
        }
        return lambda left, right: self._combined(lambda number, _: scores[number](left, right))

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        return {
            prefix_of(number) + name: array
            for number, model in enumerate(self.models_)
            if model is not None
            for name, array in model._index_arrays(vectors).items()
        }

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        def scores(number: int, model: Any) -> Any:
            arrays = inner_arrays(index.arrays, prefix_of(number))
            return model._score_rows(queries, GalleryIndex(vectors=index.vectors, arrays=arrays), rows)

        return self._combined(scores)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")


def _judged(found: list[Any], same: NDArray[np.bool_]) -> Judged:
    return Judged(scores=np.column_stack(found).astype(np.float64), same=same)


def _some(places: NDArray[np.int64], random: np.random.Generator) -> NDArray[np.int64]:
    return (
        places if places.size <= _MOST_PAIRS else np.sort(random.choice(places, _MOST_PAIRS, replace=False))
    )


def _rate(scores: NDArray[np.floating], same: NDArray[np.bool_]) -> float:
    return float(tpr_at(scores[same], scores[~same], JUDGED_FPR).mean())
