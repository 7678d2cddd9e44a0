"""A fitted GHOST as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.schema import (
    Array,
    Facts,
    Loaded,
    State,
    StateSchema,
    refuse,
    require_offsets,
)
from pairmark.models.ghost.classify import Classes, weighing_of
from pairmark.models.ghost.clustering import MOST_CLUSTERED
from pairmark.models.ghost.graphs import MAX_POINTS, Graph
from pairmark.models.ghost.learning import Progress
from pairmark.models.ghost.registry import Chosen, choose
from pairmark.models.ghost.scoring import GhostScores
from pairmark.models.ghost.space import Companions, Points, Scales, Space


class GhostState(GhostScores):
    """Weights and scales; the graph with its rows; the classes with theirs."""

    order: int
    meta_features: Any
    cluster_metric: bool
    weights_: Float64
    meta_feature_names_: NDArray[Any]
    other_scales_: Float64
    exemplar_price_: float
    history_: list[Progress]
    classes_: NDArray[Any]
    exemplars_: Int64
    strategy_: str
    temperature_: float
    validation_: dict[str, float]
    _classes: Classes | None
    _cluster_rows: Int64 | None
    """Rows that the price of a cluster is chosen on; None where it is known, or there are no classes."""
    _cluster_price: float | None

    def to_state(self) -> State:
        space, classes = self._space, self._classes
        arrays: dict[str, NDArray[Any]] = {
            "weights": self.weights_,
            "names": self.meta_feature_names_,
            "other_scales": self.other_scales_,
            **space.scales.arrays(),
            "history": np.array([[p.objective, p.energy, p.dual, p.rounded] for p in self.history_]),
            "n_weights": np.array([p.n_weights for p in self.history_], dtype=np.int64),
        }
        meta: dict[str, Any] = {
            "exemplar_price": self.exemplar_price_,
            # A price that was chosen since the fit is not kept: the state would depend on what was asked.
            "cluster_price": self._cluster_price if self._cluster_rows is None else None,
            "graph": None,
            "classes": None,
        }
        if self._cluster_rows is not None:
            arrays["cluster_rows"] = self._cluster_rows
        if space.graph is not None:
            assert space.graph_rows is not None
            graph = space.graph
            arrays.update(graph_rows=space.graph_rows, paths=graph.paths, links=graph.links)
            meta["graph"] = {name: getattr(graph, name) for name in GraphFacts.model_fields}
        if classes is not None:
            labels = np.asarray(self.classes_)
            arrays.update(
                classes=labels.astype(np.str_) if labels.dtype.kind == "O" else labels,
                codes=classes.codes,
                exemplars=classes.exemplars,
            )
            if space.graph is None:
                arrays["rows"] = classes.members.raw
            for size, sets in classes.companions.items():
                arrays |= {f"sets{size}_{name}": array for name, array in sets.arrays().items()}
            meta["classes"] = {
                "strategy": self.strategy_,
                "temperature": self.temperature_,
                "validation": self.validation_,
                "sizes": sorted(classes.companions),
            }
        return arrays, meta

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        held = {name: np.array(array, order="C") for name, array in arrays.items()}
        scales = Scales.restore(held)
        graph = None
        if meta["graph"] is not None:
            graph = Graph(paths=held["paths"], links=held["links"], **meta["graph"])
        chosen = _chosen(self._params(), graph is not None)
        space = Space(chosen, scales, graph, held.get("graph_rows"))
        self._space = space
        self.weights_ = held["weights"]
        self.meta_feature_names_ = held["names"]
        self.other_scales_ = held["other_scales"]
        self.exemplar_price_ = float(meta["exemplar_price"])
        price = meta.get("cluster_price")
        self._cluster_price = None if price is None else float(price)
        # Earlier versions chose the price in fit.
        self._cluster_rows = held.get("cluster_rows")
        self.history_ = [
            Progress(objective=row[0], energy=row[1], dual=row[2], rounded=row[3], n_weights=int(n))
            for row, n in zip(held["history"].tolist(), held["n_weights"], strict=True)
        ]
        self.n_features_in_ = int(scales.differences.size)
        self._weighing = weighing_of(space, self.weights_, self.other_scales_, self.n_features_in_)
        self._classes = None
        saved = meta["classes"]
        if saved is not None:
            rows = held["rows"] if graph is None else held["graph_rows"]
            points = (
                space.graph_points if graph is not None else Points(space, rows, np.arange(rows.shape[0]))
            )
            self.classes_ = held["classes"]
            self._classes = Classes(
                members=points,
                codes=held["codes"],
                exemplars=held["exemplars"],
                companions={int(size): Companions.restore(held, f"sets{size}_") for size in saved["sizes"]},
            )
            self.exemplars_ = held["exemplars"]
            self.strategy_ = str(saved["strategy"])
            self.temperature_ = float(saved["temperature"])
            self.validation_ = {str(name): float(value) for name, value in saved["validation"].items()}
        return self


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False, extra="forbid")


class GraphFacts(_Strict):
    """The graph's numbers, see `Graph`."""

    far: float = Field(ge=0.0)
    n_neighbours: int = Field(ge=1, le=1_000)
    top_degree: int = Field(ge=0, le=MAX_POINTS)
    unit: float = Field(ge=0.0)
    by_features: bool


class ClassFacts(_Strict):
    """How classes are described."""

    strategy: Literal["center", "average", "knn", "minimum", "maximum"]
    temperature: float = Field(gt=0.0)
    validation: dict[str, float]
    sizes: list[Annotated[int, Field(ge=3, le=5)]]


class GhostFacts(Facts):
    """What a saved GHOST says beside its arrays."""

    exemplar_price: float
    cluster_price: float | None = Field(None, ge=0.0, le=1.0)
    graph: GraphFacts | None
    classes: ClassFacts | None


def _chosen(params: Mapping[str, Any], graph: bool) -> Chosen:
    return choose(
        params["meta_features"], order=params["order"], graph=graph, cluster_metric=params["cluster_metric"]
    )


def _layout(loaded: Loaded) -> dict[str, Array]:
    facts, d = loaded.facts, loaded.n_features
    chosen = _chosen(loaded.params, facts.graph is not None)
    n_others = len(chosen.names)
    n_weights = n_others + (d if chosen.features else 0)
    layout = {
        "weights": Array(kind="float64", shape=(n_weights,), low=0),
        "names": Array(kind="text", shape=(n_weights,)),
        "other_scales": Array(kind="float64", shape=(n_others,), low=0),
        "differences": Array(kind="float64", shape=(d,), low=0),
        "thresholds": Array(kind="float64", shape=(d,)),
        "variances": Array(kind="float64", shape=(d,), low=0),
        "history": Array(kind="float64", shape=("iterations", 4)),
        "n_weights": Array(kind="int64", shape=("iterations",), low=0, high=n_weights),
    }
    if facts.graph is not None:
        layout |= {
            "graph_rows": Array(kind="float32", shape=("rows", d)),
            "paths": Array(kind="float32", shape=("rows", "rows"), low=0),
            "links": Array(kind="bool", shape=("rows", "rows")),
        }
    if facts.classes is None:
        return layout
    if facts.graph is None:
        layout["rows"] = Array(kind="float32", shape=("rows", d))
    layout |= {
        "classes": Array(kind="labels", shape=("classes",)),
        "codes": Array(kind="int64", shape=("rows",), below="classes"),
        "exemplars": Array(kind="int64", shape=("classes",), below="rows"),
        "cluster_rows": Array(kind="int64", shape=("cluster rows",), below="rows", optional=True),
    }
    for size in facts.classes.sizes:
        layout |= {
            f"sets{size}_rows": Array(kind="int64", shape=(f"rows of sets of {size}",), below="rows"),
            f"sets{size}_members": Array(
                kind="int64", shape=(f"sets of {size}", size - 2), below=f"rows of sets of {size}"
            ),
            f"sets{size}_first": Array(kind="int64", shape=("classes + 1",), low=0, order="never-falling"),
        }
    return layout


def _points(loaded: Loaded) -> None:
    if not loaded.sizes.get("rows", 1) >= 1 or (
        loaded.facts.graph is not None and loaded.sizes["rows"] > MAX_POINTS
    ):
        name = "rows" if loaded.facts.graph is None else "graph_rows"
        raise refuse(
            name, None, f"has {loaded.sizes['rows']} rows", f"1 or more, with a graph at most {MAX_POINTS}"
        )


def _cluster_rows(loaded: Loaded) -> None:
    n = loaded.length("cluster_rows")
    if "cluster_rows" in loaded.arrays and not 1 <= n <= MOST_CLUSTERED:
        raise refuse("cluster_rows", None, f"has {n} rows", f"1 to {MOST_CLUSTERED}")


def _classes(loaded: Loaded) -> None:
    facts = loaded.facts.classes
    if facts is None:
        return
    counts = np.bincount(loaded.arrays["codes"], minlength=loaded.sizes["classes"])
    if not counts.all():
        raise refuse("codes", None, f"hold no row of class {int(np.argmin(counts))}", "some of every class")
    for size in facts.sizes:
        require_offsets(
            f"sets{size}_first",
            loaded.arrays[f"sets{size}_first"],
            loaded.sizes[f"sets of {size}"],
            f"sets{size}_members",
        )
    chosen = _chosen(loaded.params, loaded.facts.graph is not None)
    others = loaded.arrays["weights"][loaded.arrays["weights"].size - len(chosen.names) :]
    weighed = (others > 0) & (loaded.arrays["other_scales"] > 0)
    start = len(chosen.pairs)
    for (name, size), used in zip(chosen.sets, weighed[start : start + len(chosen.sets)], strict=True):
        if used and size not in facts.sizes:
            raise refuse(
                f"sets{size}_rows", None, "is missing", f"it, since {name} of {size} points has a weight"
            )


SCHEMA = StateSchema(facts=GhostFacts, layout=_layout, relations=(_points, _cluster_rows, _classes))
