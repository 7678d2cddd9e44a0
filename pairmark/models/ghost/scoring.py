"""Scores of pairs by the learned distance, one by one and against galleries, and coordinates where there are any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Float64, Matrix
from pairmark.models.core.base import EmbedderMixin, GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import LISTED, feature_names_of, one_of_equals
from pairmark.models.core.search import Rows, SearchForm
from pairmark.models.ghost.classify import Weighing, distances
from pairmark.models.ghost.graphs import Attachment
from pairmark.models.ghost.kernels import energy as kernels
from pairmark.models.ghost.space import PATH, Space


class GhostScores(PairScorerMixin, EmbedderMixin):
    """What a fitted GHOST says of pairs; classes are `pairmark.models.ghost.classify`'s."""

    _space: Space
    _weighing: Weighing

    def transform(self, X: ArrayLike) -> Float32:
        """Coordinates whose city-block distance is the learned distance: the selected features, weighted.

        Returns
        -------
        (n, n_selected) float32.

        Raises
        ------
        ValueError
            When the distance holds meta-features that no coordinates can express, or no feature has a weight.
        """
        check_is_fitted(self)
        rows = self._validated(X, "X")
        if self._weighing.pairs:
            raise ValueError(
                f"the learned distance weighs {', '.join(self._weighing.pairs)}, which no vectors express: train "
                "with meta_features=['features'] to embed"
            )
        if self._weighing.columns.size == 0:
            raise ValueError("no single feature has a weight, so there are no coordinates to give")
        weighted = rows[:, self._weighing.columns].astype(np.float64) * self._weighing.features
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(weighted, dtype=np.float32)

    def _pair_score(self, left: Matrix, right: Matrix) -> Float32:
        self._check_pairs()
        a, b = (np.require(one_of_equals(side), requirements=["C", "W"]) for side in (left, right))
        out = np.zeros(left.shape[0])
        kernels.weighted(a, b, False, self._weighing.columns, self._weighing.features, out[:, None])
        if self._weighing.pairs:
            A, B = self._space.points(a), self._space.points(b)
            for name, weight in self._weighing.pairs.items():
                out += weight * self._space.pair_values(name, A, B)
        return _score(out)

    def _score_rows(self, queries: Matrix, index: GalleryIndex, rows: Rows) -> Float32:
        self._check_pairs()
        block = np.require(index.vectors[rows], requirements=["C", "W"])
        A = self._space.points(np.require(queries, requirements=["C", "W"]))
        B = self._space.points(block)
        if PATH in self._weighing.pairs:
            # What links the gallery to the graph was worked out once.
            B.attached = Attachment(
                places=np.require(index.arrays["places"][rows], requirements=["C", "W"]),
                lengths=np.require(index.arrays["lengths"][rows], requirements=["C", "W"]),
            )
        return _score(distances(self._space, self._weighing, A, B))

    def _check_pairs(self) -> None:
        if self._weighing.columns.size == 0 and not self._weighing.pairs:
            raise ValueError(
                "only meta-features of sets and classes have a weight, so all pairs would score alike: use a smaller "
                "tau, or meta_features of pairs"
            )

    def _index_arrays(self, vectors: Matrix) -> dict[str, Any]:
        if not self._weighing.pairs:
            coordinates = np.asarray(self.transform(vectors))
            return {"coordinates": coordinates, "reach": _reach(coordinates)}
        if PATH not in self._weighing.pairs:
            return {}
        attached = self._space.points(np.require(vectors, requirements=["C", "W"])).attached
        return {"places": attached.places, "lengths": attached.lengths}

    def _search_form(self, queries: Matrix, index: GalleryIndex) -> SearchForm | None:
        if "coordinates" not in index.arrays:
            return None
        coordinates = np.asarray(self.transform(queries))
        # Pairs are scored from the rows in float64; the coordinates are rounded, each by half a unit of its last place.
        slack = float(index.arrays["reach"][0] + _reach(coordinates)[0]) * 2.0**-23
        if not np.isfinite(slack):
            return None
        return SearchForm(
            measure="manhattan", queries=coordinates, gallery=index.arrays["coordinates"], slack=slack
        )


def _score(distance: Float64) -> Float32:
    """Minus the distance, finite; and 0.0, never -0.0, of no distance."""
    return (0.0 - np.minimum(distance, np.finfo(np.float32).max)).astype(np.float32)


def _reach(coordinates: Float32) -> Float64:
    """The greatest sum of absolute coordinates of a row, (1,), with headroom for coordinates too small for float32."""
    sums = np.abs(coordinates).sum(axis=1, dtype=np.float64)
    return np.array([sums.max(initial=0.0) + coordinates.shape[1] * 2.0**-120])


def contributions(
    estimator: Any,
    space: Space,
    weighing: Weighing,
    left: Float32,
    right: Float32,
    score: float,
    feature_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Contributions that add up to one pair's score.

    Parameters
    ----------
    estimator : the fitted learner. space, weighing : its meta-features, and the weights in use.
    left, right : (1, d).
    feature_names : (d,) names to use; those of training when None.

    Returns
    -------
    ``distance``; ``contributions``, the largest first: ``meta_feature``, its ``weight`` (of the meta-feature divided
    by its mean), and the ``contribution`` to the score, never above 0; ``rest`` is what all others add.
    """
    features, names = feature_names_of(estimator, feature_names), estimator.meta_feature_names_
    gaps = np.abs(left[0].astype(np.float64) - right[0])
    entries: list[dict[str, Any]] = [
        {
            "meta_feature": features[column],
            "weight": float(estimator.weights_[column]),
            "left": float(left[0, column]),
            "right": float(right[0, column]),
            "contribution": 0.0 - float(weight * gaps[column]),
        }
        for column, weight in zip(weighing.columns, weighing.features, strict=True)
    ]
    A, B = space.points(left), space.points(right)
    by_name = dict(zip(names.tolist(), estimator.weights_.tolist(), strict=True))
    for name, weight in weighing.pairs.items():
        value = 0.0 - weight * float(space.pair_values(name, A, B)[0])
        entries.append(
            {
                "meta_feature": name,
                "weight": by_name[name],
                "left": None,
                "right": None,
                "contribution": value,
            }
        )
    entries.sort(key=lambda entry: (entry["contribution"], entry["meta_feature"]))
    largest = entries[:LISTED]
    remainder = sum(entry["contribution"] for entry in entries[LISTED:])
    return {"distance": 0.0 - score, "contributions": largest, "rest": float(remainder)}


def selection(
    estimator: Any, space: Space, feature_names: Sequence[str] | None, *, classifies: bool
) -> dict[str, Any]:
    """The weights that are left, the largest first: the model read as a selection of features.

    Returns
    -------
    ``weights``: the `LISTED` largest, ``meta_feature`` and ``weight``; ``n_weights`` of ``n_meta_features`` are not 0;
    ``exemplar_price``; and of a classifier ``strategy`` and ``validation``, each strategy's balanced accuracy on
    withheld rows.
    """
    names = estimator.meta_feature_names_.tolist()
    d = estimator.n_features_in_
    if feature_names is not None and space.meta_features.features and len(feature_names) == d:
        names[:d] = [str(name) for name in feature_names]
    order = np.argsort(-estimator.weights_, kind="stable")
    positive = [int(at) for at in order if estimator.weights_[at] > 0]
    summary: dict[str, Any] = {
        "weights": [
            {"meta_feature": names[at], "weight": float(estimator.weights_[at])} for at in positive[:LISTED]
        ],
        "n_weights": len(positive),
        "n_meta_features": len(names),
        "exemplar_price": estimator.exemplar_price_,
    }
    if classifies:
        summary["strategy"] = estimator.strategy_
        summary["validation"] = dict(estimator.validation_)
    return summary
