"""The state of a fitted GHOST: weights and scales; the graph with its rows; the classes with theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.schema import Array, StateSchema, StoredState, refuse
from pairmark.models.core.state import DeclaredState, Fact, StateRecord
from pairmark.models.ghost.classify import GhostClasses, weighing_of
from pairmark.models.ghost.clustering import MOST_CLUSTERED
from pairmark.models.ghost.graphs import MAX_POINTS, Graph
from pairmark.models.ghost.learning import Iteration
from pairmark.models.ghost.scoring import GhostScores
from pairmark.models.ghost.space import Companions, GhostPoints, MetaFeatures, Scales, Space, choose


@dataclass(frozen=True)
class History:
    """The course of learning, a row an iteration."""

    history: Annotated[Float64, Array(shape=("iterations", 4))]
    n_weights: Annotated[Int64, Array(shape=("iterations",), below="weights + 1")]

    @classmethod
    def of(cls, steps: list[Iteration]) -> History:
        rows = np.array([[step.objective, step.energy, step.dual, step.rounded] for step in steps])
        return cls(rows, np.array([step.n_weights for step in steps], dtype=np.int64))

    def steps(self) -> list[Iteration]:
        return [
            Iteration(objective=row[0], energy=row[1], dual=row[2], rounded=row[3], n_weights=int(n))
            for row, n in zip(self.history.tolist(), self.n_weights, strict=True)
        ]


def _without_graph(file: StoredState) -> bool:
    return file.facts.graph is None


@dataclass(frozen=True)
class StoredClasses:
    """How classes are described, and by which rows: the graph's where there is one."""

    classes: Annotated[NDArray[Any], Array(kind="labels", shape=("classes",))]
    codes: Annotated[Int64, Array(shape=("rows",), below="classes")]
    exemplars: Annotated[Int64, Array(shape=("classes",), below="rows")]
    rows: Annotated[Float32 | None, Array(shape=("rows", "features"), when=_without_graph)]
    companions: Annotated[
        dict[int, Companions],
        StateRecord(
            prefix="sets{key}_", each=lambda file: file.facts.classes.sizes, of=lambda *_: Companions
        ),
    ]
    sizes: Annotated[list[int], Fact(kind=list[Annotated[int, Field(ge=3, le=5)]])]
    strategy: Annotated[Literal["center", "average", "knn", "minimum", "maximum"], Fact()]
    temperature: Annotated[float, Fact(), Field(gt=0.0)]
    validation: Annotated[dict[str, float], Fact()]

    @classmethod
    def of(cls, model: Any) -> StoredClasses | None:
        classes = model._classes
        return classes and cls(
            classes=model.classes_,
            codes=classes.codes,
            exemplars=classes.exemplars,
            rows=classes.members.raw,
            companions=classes.companions,
            sizes=sorted(classes.companions),
            strategy=model.strategy_,
            temperature=model.temperature_,
            validation=model.validation_,
        )


def _price_of_fit(model: Any) -> float | None:
    # Earlier versions chose it in fit. One chosen since is not kept: the state would depend on what was asked.
    price: float | None = model._cluster_price if model._cluster_rows is None else None
    return price


class GhostState(DeclaredState, GhostScores):
    """What is learned."""

    order: int
    meta_features: Any
    cluster_metric: bool
    weights_: Annotated[Float64, Array(shape=("weights",), low=0)]
    meta_feature_names_: Annotated[NDArray[Any], Array(name="names", kind="text", shape=("weights",))]
    other_scales_: Annotated[Float64, Array(shape=("others",), low=0)]
    exemplar_price_: Annotated[float, Fact()]
    history_: Annotated[
        list[Iteration], StateRecord(of=lambda *_: History, write=History.of, read=History.steps)
    ]
    _scales: Annotated[Scales, StateRecord(get=attrgetter("_space.scales"))]
    _graph: Annotated[Graph | None, StateRecord(fact="graph", get=attrgetter("_space.graph"))]
    _graph_rows: Annotated[
        Float32 | None,
        Array(
            shape=("rows", "features"),
            when=lambda file: file.facts.graph is not None,
            get=attrgetter("_space.graph_rows"),
        ),
    ]
    _stored_classes: Annotated[StoredClasses | None, StateRecord(fact="classes", get=StoredClasses.of)]
    _cluster_rows: Annotated[
        Int64 | None,
        Array(
            shape=("cluster rows",),
            below="rows",
            optional=True,
            when=lambda file: file.facts.classes is not None,
        ),
    ]
    """Rows that the price of a cluster is chosen on; None where it is known, or there are no classes."""
    _cluster_price: Annotated[float | None, Fact(default=None, get=_price_of_fit), Field(ge=0.0, le=1.0)]
    classes_: NDArray[Any]
    exemplars_: Int64
    strategy_: str
    temperature_: float
    validation_: dict[str, float]
    _classes: GhostClasses | None

    def _restored(self) -> None:
        has_graph = self._graph is not None
        self._space = Space(
            _meta_features(self._params(), has_graph), self._scales, self._graph, self._graph_rows
        )
        self.n_features_in_ = int(self._scales.differences.size)
        self._weighing = weighing_of(self._space, self.weights_, self.other_scales_, self.n_features_in_)
        state, self._classes = self._stored_classes, None
        if state is None:
            return
        rows = state.rows
        self.classes_, self.exemplars_, self.strategy_ = state.classes, state.exemplars, state.strategy
        self.temperature_, self.validation_ = state.temperature, state.validation
        self._classes = GhostClasses(
            members=self._space.graph_points
            if rows is None
            else GhostPoints(self._space, rows, np.arange(len(rows))),
            codes=state.codes,
            exemplars=state.exemplars,
            companions=state.companions,
        )

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        meta_features = _meta_features(file.params, file.facts.graph is not None)
        n_features = file.sizes["features"] if meta_features.features else 0
        n_others = len(meta_features.names)
        rows = "rows" if _without_graph(file) else "graph_rows"
        return {
            "weights": n_features + n_others,
            "others": n_others,
            "rows": file.length(rows),
            "classes": file.length("classes"),
        }

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        arrays, facts, n = file.arrays, file.facts, file.sizes["rows"]
        rows = "rows" if facts.graph is None else "graph_rows"
        if rows in arrays and not (n >= 1 and (facts.graph is None or n <= MAX_POINTS)):
            raise refuse(rows, None, f"has {n} rows", f"1 or more, with a graph at most {MAX_POINTS}")
        n = file.length("cluster_rows")
        if "cluster_rows" in arrays and not 1 <= n <= MOST_CLUSTERED:
            raise refuse("cluster_rows", None, f"has {n} rows", f"1 to {MOST_CLUSTERED}")
        if facts.classes is None:
            return
        counts = np.bincount(arrays["codes"], minlength=file.sizes["classes"])
        if not counts.all():
            raise refuse(
                "codes", None, f"hold no row of class {int(np.argmin(counts))}", "some of every class"
            )
        for size in facts.classes.sizes:
            if file.sizes[f"sets{size}_beside"] != size - 2:
                raise refuse(f"sets{size}_members", None, "has too many columns or too few", f"{size - 2}")
        meta_features = _meta_features(file.params, facts.graph is not None)
        meta_weights = arrays["weights"][arrays["weights"].size - len(meta_features.names) :]
        in_use = (meta_weights > 0) & (arrays["other_scales"] > 0)
        start = len(meta_features.pairs)
        for (name, size), has_weight in zip(
            meta_features.sets, in_use[start : start + len(meta_features.sets)], strict=True
        ):
            if has_weight and size not in facts.classes.sizes:
                raise refuse(
                    f"sets{size}_rows", None, "is missing", f"it, since {name} of {size} points has a weight"
                )


def _meta_features(params: Mapping[str, Any], graph: bool) -> MetaFeatures:
    return choose(
        params["meta_features"], order=params["order"], graph=graph, cluster_metric=params["cluster_metric"]
    )


SCHEMA = StateSchema(GhostState)
