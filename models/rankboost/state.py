"""Fitted kernels as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.rankboost.aligned import AlignedKernel
from pairmark.models.rankboost.estimator import RankBoostKernel
from pairmark.models.rankboost.rules import FeatureMap, Rules
from pairmark.models.rankboost.svm import LinearRule

State = tuple[Arrays, dict[str, Any]]
Stored = Mapping[str, np.ndarray[Any, Any]]


def to_state(estimator: RankBoostKernel | AlignedKernel) -> State:
    """Named arrays of either kernel."""
    return _of_rankers(estimator) if isinstance(estimator, RankBoostKernel) else _of_network(estimator)


def _of_rankers(estimator: RankBoostKernel) -> State:
    """Rankers, the embedding's matrix, the SVM. Pivots are in the matrix, mapped and mixed: no row as it was."""
    rules = estimator.rules_
    arrays: Arrays = {
        "features": rules.features,
        "low": rules.low,
        "high": rules.high,
        "alpha": rules.alpha,
        "task": estimator.task_,
        "value": estimator.value_,
        "centre": estimator._map.centre,
    }
    if estimator.projection_ is not None:
        arrays["projection"] = estimator.projection_
    if estimator.classes_ is not None:
        arrays["classes"] = plain_labels(estimator.classes_)
    if estimator.svm_ is not None:
        arrays["svm_coef"], arrays["svm_intercept"] = estimator.svm_.coef, estimator.svm_.intercept
    return arrays, {}


def rankers_from_state(
    estimator: RankBoostKernel, arrays: Stored, meta: Mapping[str, Any]
) -> RankBoostKernel:
    """The estimator, fitted with what `to_state` gave."""
    estimator.rules_ = Rules(
        features=np.array(arrays["features"], dtype=np.int64),
        low=np.array(arrays["low"], dtype=np.float32),
        high=np.array(arrays["high"], dtype=np.float32),
        alpha=np.array(arrays["alpha"], dtype=np.float64),
    )
    estimator.task_ = np.array(arrays["task"], dtype=np.int64)
    estimator.value_ = np.array(arrays["value"], dtype=np.float64)
    estimator._map = FeatureMap(
        estimator.rules_, estimator.value_, estimator.task_, estimator.coordinates, int(meta["n_features_in"])
    )
    estimator._map.centred(np.array(arrays["centre"], dtype=np.float64))
    # Copies, so that kernels meet one kind of array whether the file was mapped or read.
    estimator.projection_ = (
        np.array(arrays["projection"], dtype=np.float64, order="C") if "projection" in arrays else None
    )
    estimator.classes_ = np.array(arrays["classes"]) if "classes" in arrays else None
    estimator.svm_ = None
    if "svm_coef" in arrays:
        estimator.svm_ = LinearRule(
            coef=np.array(arrays["svm_coef"]), intercept=np.array(arrays["svm_intercept"])
        )
    return estimator


def _of_network(estimator: AlignedKernel) -> State:
    """Weights, and without ``psd`` what the first layer makes of the pivots."""
    arrays: Arrays = {"columns": estimator.columns_}
    for at, (weight, bias) in enumerate(zip(estimator.weights_, estimator.biases_, strict=True)):
        arrays[f"weight_{at}"], arrays[f"bias_{at}"] = weight, bias
    if estimator.second_ is not None and estimator.pivots_ is not None:
        arrays["second"] = estimator.second_
        arrays["pivots_left"], arrays["pivots_right"] = estimator.pivots_
    if estimator.projection_ is not None:
        arrays["projection"] = estimator.projection_
    facts = {"layers": len(estimator.weights_), "learning_rate": estimator.learning_rate_}
    return arrays, {**facts, "loss_curve": [float(value) for value in estimator.loss_curve_]}


def network_from_state(estimator: AlignedKernel, arrays: Stored, meta: Mapping[str, Any]) -> AlignedKernel:
    """The estimator, fitted with what `to_state` gave."""
    layers = range(int(meta["layers"]))
    estimator.columns_ = np.array(arrays["columns"], dtype=np.int64)
    estimator.weights_ = [np.array(arrays[f"weight_{at}"], dtype=np.float64, order="C") for at in layers]
    estimator.biases_ = [np.array(arrays[f"bias_{at}"], dtype=np.float64) for at in layers]
    estimator.second_ = np.array(arrays["second"], dtype=np.float64) if "second" in arrays else None
    estimator.pivots_ = None
    if "pivots_left" in arrays:
        estimator.pivots_ = np.array(arrays["pivots_left"]), np.array(arrays["pivots_right"])
    estimator.projection_ = np.array(arrays["projection"]) if "projection" in arrays else None
    estimator.learning_rate_ = float(meta["learning_rate"])
    estimator.loss_curve_ = [float(value) for value in meta["loss_curve"]]
    return estimator._prepare()


def plain_labels(labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Labels as an array that an artefact holds: words of any length instead of objects."""
    return labels if labels.dtype.kind in "biufSU" else labels.astype(np.str_)
