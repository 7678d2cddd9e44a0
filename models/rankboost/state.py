"""Fitted kernels as named arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.schema import Array, Facts, Loaded, State, Stateful, StateSchema, refuse, require
from pairmark.models.rankboost.rules import FeatureMap, Rules
from pairmark.models.rankboost.svm import LinearRule

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
_RULES = ("features", "low", "high", "alpha")


class RankersState(Stateful):
    """Rankers, the embedding's matrix, the SVM. Pivots are in the matrix, mapped and mixed: no row as it was."""

    coordinates: Literal["rankers", "features"]
    rules_: Rules
    task_: Int64
    value_: Float64
    projection_: Float64 | None
    classes_: NDArray[Any] | None
    svm_: LinearRule | None
    _map: FeatureMap

    def to_state(self) -> State:
        """Named arrays."""
        arrays = {name: getattr(self.rules_, name) for name in _RULES}
        arrays |= {"task": self.task_, "value": self.value_, "centre": self._map.centre}
        if self.projection_ is not None:
            arrays["projection"] = self.projection_
        if self.classes_ is not None:
            arrays["classes"] = plain_labels(self.classes_)
        if self.svm_ is not None:
            arrays["svm_coef"], arrays["svm_intercept"] = self.svm_.coef, self.svm_.intercept
        return arrays, {}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        self.rules_ = Rules(
            features=np.array(arrays["features"], dtype=np.int64),
            low=np.array(arrays["low"], dtype=np.float32),
            high=np.array(arrays["high"], dtype=np.float32),
            alpha=np.array(arrays["alpha"], dtype=np.float64),
        )
        self.task_ = np.array(arrays["task"], dtype=np.int64)
        self.value_ = np.array(arrays["value"], dtype=np.float64)
        self._map = FeatureMap(
            self.rules_, self.value_, self.task_, self.coordinates, int(meta["n_features_in"])
        )
        self._map.centred(np.array(arrays["centre"], dtype=np.float64))
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        self.projection_ = (
            np.array(arrays["projection"], dtype=np.float64, order="C") if "projection" in arrays else None
        )
        self.classes_ = np.array(arrays["classes"]) if "classes" in arrays else None
        self.svm_ = None
        if "svm_coef" in arrays:
            self.svm_ = LinearRule(
                coef=np.array(arrays["svm_coef"]), intercept=np.array(arrays["svm_intercept"])
            )
        return self


class NetworkState(Stateful):
    """Weights, and without ``psd`` what the first layer makes of the pivots."""

    columns_: Int64
    weights_: list[Float64]
    biases_: list[Float64]
    second_: Float64 | None
    pivots_: tuple[Float64, Float64] | None
    projection_: Float64 | None
    learning_rate_: float
    loss_curve_: list[float]

    @abstractmethod
    def _prepare(self) -> Self: ...

    def to_state(self) -> State:
        """Named arrays and the course of training."""
        arrays: dict[str, NDArray[Any]] = {"columns": self.columns_}
        for at, (weight, bias) in enumerate(zip(self.weights_, self.biases_, strict=True)):
            arrays[f"weight_{at}"], arrays[f"bias_{at}"] = weight, bias
        if self.second_ is not None and self.pivots_ is not None:
            arrays["second"] = self.second_
            arrays["pivots_left"], arrays["pivots_right"] = self.pivots_
        if self.projection_ is not None:
            arrays["projection"] = self.projection_
        facts = {"layers": len(self.weights_), "learning_rate": self.learning_rate_}
        return arrays, {**facts, "loss_curve": [float(value) for value in self.loss_curve_]}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        layers = range(int(meta["layers"]))
        self.columns_ = np.array(arrays["columns"], dtype=np.int64)
        self.weights_ = [np.array(arrays[f"weight_{at}"], dtype=np.float64, order="C") for at in layers]
        self.biases_ = [np.array(arrays[f"bias_{at}"], dtype=np.float64) for at in layers]
        self.second_ = np.array(arrays["second"], dtype=np.float64) if "second" in arrays else None
        self.pivots_ = None
        if "pivots_left" in arrays:
            self.pivots_ = np.array(arrays["pivots_left"]), np.array(arrays["pivots_right"])
        self.projection_ = np.array(arrays["projection"]) if "projection" in arrays else None
        self.learning_rate_ = float(meta["learning_rate"])
        self.loss_curve_ = [float(value) for value in meta["loss_curve"]]
        return self._prepare()


def plain_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels as an array that an artefact holds: words of any length instead of objects."""
    return labels if labels.dtype.kind in "biufSU" else labels.astype(np.str_)


def _rankers_layout(loaded: Loaded) -> dict[str, Array]:
    d = loaded.n_features
    bound = Array(kind="float32", shape=("rankers", 2), infinite=True)
    n_classes = loaded.length("classes")
    return {
        "features": Array(kind="int64", shape=("rankers", 2), low=-1, below=d),
        "low": bound,
        "high": bound,
        "alpha": Array(kind="float64", shape=("rankers",)),
        "task": Array(kind="int64", shape=("rankers",), low=0, high=2**31),
        "value": Array(kind="float64", shape=("rankers",)),
        "centre": Array(kind="float64", shape=("coordinates",)),
        "projection": Array(
            kind="float64", shape=("coordinates", "components"), optional="C" not in _stages(loaded)
        ),
        "classes": Array(kind="labels", shape=("classes",), optional=True),
        "svm_coef": Array(
            kind="float64", shape=(1 if n_classes == 2 else n_classes, "embedded"), optional=True
        ),
        "svm_intercept": Array(
            kind="float64",
            shape=(1 if n_classes == 2 else n_classes,),
            optional="svm_coef" not in loaded.arrays,
        ),
    }


def _stages(loaded: Loaded) -> str:
    return str(loaded.params["chain"])


def _rankers_fit_together(loaded: Loaded) -> None:
    arrays, sizes = loaded.arrays, loaded.sizes
    if not sizes["rankers"]:
        raise refuse("features", None, "has no rows", "one or more")
    features = arrays["features"]
    require(features[:, 0] >= 0, "features", features[:, 0], "a feature: only the second may be -1")
    n = sizes["rankers"]
    if loaded.params["coordinates"] == "features":
        n = np.unique(np.stack([arrays["task"], features[:, 0]], axis=1), axis=0).shape[0]
    if sizes["coordinates"] != n:
        raise refuse("centre", None, f"has {sizes['coordinates']} rows", f"{n}, one a coordinate")
    if "B" in _stages(loaded) and "projection" not in arrays:
        raise refuse("projection", None, "is missing", "it with pivots")
    if ("svm_coef" in arrays) != ("svm_intercept" in arrays) or (
        "svm_coef" in arrays and "classes" not in arrays
    ):
        raise refuse("svm_coef", None, "stands alone", "svm_coef, svm_intercept and classes together")
    width = sizes.get("components", n)
    if sizes.get("embedded", width) != width:
        raise refuse("svm_coef", None, f"has {sizes['embedded']} columns", f"{width}")


class NetworkFacts(Facts):
    """What a saved network says beside its arrays."""

    layers: int = Field(ge=1, le=5)
    learning_rate: float = Field(gt=0.0)
    loss_curve: list[float]


def _network_layout(loaded: Loaded) -> dict[str, Array]:
    facts, psd = loaded.facts, bool(loaded.params["psd"])
    sizes = [*loaded.params["hidden"], *([] if psd else [1])]
    if facts.layers != len(sizes):
        raise refuse("layers", None, f"is {facts.layers} in the manifest", f"{len(sizes)}, as parameters say")
    layout = {"columns": Array(kind="int64", shape=("columns",), below=loaded.n_features, order="rising")}
    inputs: list[int | str] = ["columns", *sizes]
    for at, size in enumerate(sizes):
        layout[f"weight_{at}"] = Array(kind="float64", shape=(inputs[at], size))
        layout[f"bias_{at}"] = Array(kind="float64", shape=(size,))
    if psd:
        return layout
    pivots = Array(kind="float64", shape=("pivots", sizes[0]))
    return layout | {
        "second": Array(kind="float64", shape=("columns", sizes[0])),
        "pivots_left": pivots,
        "pivots_right": pivots,
        "projection": Array(kind="float64", shape=("pivots", "components"), optional=True),
    }


def _some_columns(loaded: Loaded) -> None:
    for name, size in (("columns", "columns"), ("pivots_left", "pivots")):
        if loaded.sizes.get(size, 1) < 1:
            raise refuse(name, None, "has no rows", "one or more")


RANKERS = StateSchema(layout=_rankers_layout, relations=(_rankers_fit_together,))
NETWORK = StateSchema(facts=NetworkFacts, layout=_network_layout, relations=(_some_columns,))
