"""A fitted GHOST as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.ghost.classify import Classes
from pairmark.models.ghost.estimator import Ghost
from pairmark.models.ghost.graphs import Graph
from pairmark.models.ghost.registry import choose
from pairmark.models.ghost.space import Companions, Points, Scales, Space


def to_state(estimator: Ghost) -> tuple[Arrays, dict[str, Any]]:
    """Weights and scales; the graph with its rows; the classes with theirs."""
    space, classes = estimator._space, estimator._classes
    arrays: Arrays = {
        "weights": estimator.weights_,
        "names": estimator.meta_feature_names_,
        "other_scales": estimator.other_scales_,
        "differences": space.scales.differences,
        "thresholds": space.scales.thresholds,
        "variances": space.scales.variances,
        "history": np.array([[p.objective, p.energy, p.dual, p.rounded] for p in estimator.history_]),
        "n_weights": np.array([p.n_weights for p in estimator.history_], dtype=np.int64),
    }
    meta: dict[str, Any] = {
        "exemplar_price": estimator.exemplar_price_,
        "cluster_price": estimator.cluster_price_,
        "graph": None,
        "classes": None,
    }
    if space.graph is not None:
        assert space.graph_rows is not None
        graph = space.graph
        arrays.update(graph_rows=space.graph_rows, paths=graph.paths, links=graph.links)
        meta["graph"] = {
            "far": graph.far,
            "n_neighbours": graph.n_neighbours,
            "top_degree": graph.top_degree,
            "unit": graph.unit,
            "by_features": graph.by_features,
        }
    if classes is not None:
        labels = np.asarray(estimator.classes_)
        arrays.update(
            classes=labels.astype(np.str_) if labels.dtype.kind == "O" else labels,
            codes=classes.codes,
            exemplars=classes.exemplars,
        )
        if space.graph is None:
            arrays["rows"] = classes.members.raw
        for size, sets in classes.companions.items():
            arrays.update(
                {
                    f"sets{size}_rows": sets.rows,
                    f"sets{size}_members": sets.members,
                    f"sets{size}_first": sets.first,
                }
            )
        meta["classes"] = {
            "strategy": estimator.strategy_,
            "temperature": estimator.temperature_,
            "validation": estimator.validation_,
            "sizes": sorted(classes.companions),
        }
    return arrays, meta


def from_state(
    estimator: Ghost, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> Ghost:
    """The estimator, fitted with what `to_state` gave."""
    from pairmark.models.ghost.learning import Progress

    # Copies, so that kernels meet one kind of array whether the file was mapped or read.
    held = {name: np.array(array, order="C") for name, array in arrays.items()}
    chosen = choose(
        estimator.meta_features,
        order=estimator.order,
        graph=meta["graph"] is not None,
        cluster_metric=estimator.cluster_metric,
    )
    scales = Scales(
        differences=held["differences"], thresholds=held["thresholds"], variances=held["variances"]
    )
    graph = None
    if meta["graph"] is not None:
        graph = Graph(paths=held["paths"], links=held["links"], **meta["graph"])
    space = Space(chosen, scales, graph, held.get("graph_rows"))
    estimator._space = space
    estimator.weights_ = held["weights"]
    estimator.meta_feature_names_ = held["names"]
    estimator.other_scales_ = held["other_scales"]
    estimator.exemplar_price_ = float(meta["exemplar_price"])
    price = meta.get("cluster_price")
    estimator.cluster_price_ = None if price is None else float(price)
    estimator.history_ = [
        Progress(objective=row[0], energy=row[1], dual=row[2], rounded=row[3], n_weights=int(n))
        for row, n in zip(held["history"].tolist(), held["n_weights"], strict=True)
    ]
    estimator.n_features_in_ = int(scales.differences.size)
    estimator._weigh()
    estimator._classes = None
    told = meta["classes"]
    if told is not None:
        rows = held["rows"] if graph is None else held["graph_rows"]
        points = space.graph_points if graph is not None else Points(space, rows, np.arange(rows.shape[0]))
        estimator.classes_ = held["classes"]
        estimator._classes = Classes(
            members=points,
            codes=held["codes"],
            exemplars=held["exemplars"],
            companions={
                int(size): Companions(
                    rows=held[f"sets{size}_rows"],
                    members=held[f"sets{size}_members"],
                    first=held[f"sets{size}_first"],
                )
                for size in told["sizes"]
            },
        )
        estimator.exemplars_ = held["exemplars"]
        estimator.strategy_ = str(told["strategy"])
        estimator.temperature_ = float(told["temperature"])
        estimator.validation_ = {str(name): float(value) for name, value in told["validation"].items()}
    return estimator
