"""The state of a fitted GHOST: weights and scales; the rows, the graph between them, and their classes."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.core.state import Array, DeclaredState, Fact, StateRecord, StoredState, refuse
from pairmark.models.ghost.classify import GhostClasses, weighing_of
from pairmark.models.ghost.graphs import MAX_POINTS, Graph
from pairmark.models.ghost.scoring import GhostScores
from pairmark.models.ghost.space import MetaFeatures, Scales, Space, choose

_Strategy = Literal["center", "average", "knn", "minimum", "maximum"]


class GhostState(DeclaredState, GhostScores):
    """What is learned."""

    order: int
    meta_features: Any
    cluster_metric: bool
    weights_: Annotated[Float64, Array(shape=("weights",), low=0)]
    meta_feature_names_: Annotated[NDArray[Any], Array(name="names", kind="text", shape=("weights",))]
    other_scales_: Annotated[Float64, Array(shape=("others",), low=0)]
    exemplar_price_: Annotated[float, Fact()]
    loss_curve_: Annotated[list[float], Fact()]
    _set_sizes: Annotated[list[Annotated[int, Field(ge=3, le=5)]], Fact()]
    strategy_: Annotated[Any, Fact(kind=_Strategy | None)]
    temperature_: Annotated[Any, Fact(kind=Annotated[float, Field(gt=0.0)] | None)]
    validation_: Annotated[Any, Fact(kind=dict[str, float] | None)]
    classes_: Annotated[NDArray[Any] | None, Array(kind="labels", shape=("classes",))]
    _classes: Annotated[GhostClasses | None, StateRecord()]
    _scales: Annotated[Scales, StateRecord(get=attrgetter("_space.scales"))]
    _graph: Annotated[Graph | None, StateRecord(fact="graph", get=attrgetter("_space.graph"))]
    _rows: Annotated[Float32 | None, Array(shape=("rows", "features"), get=attrgetter("_space.rows"))]

    def _restored(self) -> None:
        meta_features = _meta_features(self._params(), self._graph is not None)
        self._space = Space(meta_features, self._scales, self._rows, self._graph)
        self.n_features_in_ = int(self._scales.differences.size)
        self._weighing = weighing_of(self._space, self.weights_, self.other_scales_, self.n_features_in_)

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        meta_features = _meta_features(file.params, file.facts.graph is not None)
        n_features = file.sizes["features"] if meta_features.features else 0
        n_others = len(meta_features.names)
        return {
            "weights": n_features + n_others,
            "others": n_others,
            "rows": file.length("rows"),
            "classes": file.length("classes"),
        }

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        arrays, facts, n = file.arrays, file.facts, file.sizes["rows"]
        if "rows" not in arrays and (facts.graph is not None or "classes" in arrays):
            raise refuse("rows", None, "is missing", "the rows of the graph and of the classes")
        if "rows" in arrays and not (n >= 1 and (facts.graph is None or n <= MAX_POINTS)):
            raise refuse("rows", None, f"has {n} rows", f"1 or more, with a graph at most {MAX_POINTS}")
        if "classes" not in arrays:
            return
        if "codes" not in arrays or None in (facts.strategy, facts.temperature, facts.validation):
            raise refuse(
                "classes", None, "stands alone", "codes, strategy, temperature and validation with it"
            )
        counts = np.bincount(arrays["codes"], minlength=file.sizes["classes"])
        if not counts.all():
            raise refuse(
                "codes", None, f"hold no row of class {int(np.argmin(counts))}", "some of every class"
            )
        for size in facts.set_sizes:
            members = arrays[f"sets{size}_members"]
            if members.shape[1] != size - 2:
                raise refuse(f"sets{size}_members", None, f"has {members.shape[1]} columns", f"{size - 2}")
        meta_features = _meta_features(file.params, facts.graph is not None)
        n_features = file.sizes["weights"] - file.sizes["others"]
        in_use = (arrays["weights"][n_features:] > 0) & (arrays["other_scales"] > 0)
        start = len(meta_features.pairs)
        for (name, size), has_weight in zip(
            meta_features.sets, in_use[start : start + len(meta_features.sets)], strict=True
        ):
            if has_weight and size not in facts.set_sizes:
                raise refuse(
                    f"sets{size}_rows", None, "is missing", f"it, since {name} of {size} points has a weight"
                )


def _meta_features(params: Mapping[str, Any], graph: bool) -> MetaFeatures:
    return choose(
        params["meta_features"], order=params["order"], graph=graph, cluster_metric=params["cluster_metric"]
    )
