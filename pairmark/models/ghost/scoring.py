"""Scores of pairs by the learned distance, one by one and against galleries, and coordinates where there are any."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from pairmark.models.core.arrays import Float32, Float64, Matrix
from pairmark.models.core.base import EmbedderMixin, GalleryIndex, PairScorerMixin
from pairmark.models.core.inputs import one_of_equals
from pairmark.models.core.search.forms import SearchForm
from pairmark.models.core.search.index import Rows
from pairmark.models.ghost.classify import Weighing, distances
from pairmark.models.ghost.graphs import Attachment
from pairmark.models.ghost.kernels import energy as kernels
from pairmark.models.ghost.registry import PATH
from pairmark.models.ghost.space import Space


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

    def get_metric(self) -> Callable[[ArrayLike, ArrayLike], float]:
        """The learned distance as a function of two (d,) vectors, as metric-learn's ``get_metric`` gives one."""
        check_is_fitted(self)

        def metric(u: ArrayLike, v: ArrayLike) -> float:
            return -float(self.pair_score(np.asarray(u)[None, :], np.asarray(v)[None, :])[0])

        return metric

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
