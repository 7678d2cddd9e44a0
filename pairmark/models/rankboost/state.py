"""The states of both kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.core.state import Array, DeclaredState, Fact, StateRecord, StoredState, refuse, require
from pairmark.models.rankboost.rules import Rules
from pairmark.models.rankboost.svm import LinearRule


class RankersState(DeclaredState):
    """Weak rankers and what follows them. Pivots are in the projection, mapped and mixed: no row as it was."""

    rules_: Annotated[Rules, StateRecord()]
    task_: Annotated[Int64, Array(shape=("rankers",), low=0, high=2**31)]
    value_: Annotated[Float64, Array(shape=("rankers",))]
    _centre: Annotated[Float64, Array(shape=("coordinates",))]
    projection_: Annotated[Float64 | None, Array(shape=("coordinates", "components"))]
    classes_: Annotated[NDArray[Any] | None, Array(kind="labels", shape=("classes",))]
    svm_: Annotated[LinearRule | None, StateRecord(prefix="svm_")]

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        n_classes = file.length("classes")
        return {"machines": 1 if n_classes == 2 else n_classes}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        arrays, n = file.arrays, file.sizes["rankers"]
        if not n:
            raise refuse("features", None, "has no rows", "one or more")
        features = arrays["features"]
        require(features[:, 0] >= 0, "features", features[:, 0], "a feature: only the second may be -1")
        if file.sizes["coordinates"] != n:
            raise refuse("centre", None, f"has {file.sizes['coordinates']} rows", f"{n}, one a coordinate")
        if "projection" not in arrays and {"B", "C"} & set(file.params["chain"]):
            raise refuse("projection", None, "is missing", "it with pivots or a projection in the chain")
        if "svm_coef" in arrays and "classes" not in arrays:
            raise refuse("svm_coef", None, "stands alone", "svm_coef, svm_intercept and classes together")
        width = file.sizes.get("components", n)
        if file.sizes.get("svm_embedded", width) != width:
            raise refuse("svm_coef", None, f"has {file.sizes['svm_embedded']} columns", f"{width}")


def _layers(file: StoredState) -> range:
    return range(file.facts.layers)


def _has_both_sides(file: StoredState) -> bool:
    return not file.params["psd"]


class NetworkState(DeclaredState):
    """Layers, and without ``psd`` the pivots that rows are embedded by."""

    columns_: Annotated[Int64, Array(shape=("columns",), below="features", order="rising")]
    weights_: Annotated[list[Float64], Array(name="weight_{0}", shape=("size {0}", "size {1}"), each=_layers)]
    biases_: Annotated[list[Float64], Array(name="bias_{0}", shape=("size {1}",), each=_layers)]
    second_: Annotated[Float64 | None, Array(shape=("columns", "size 1"), when=_has_both_sides)]
    _pivots_left: Annotated[Float64 | None, Array(shape=("pivots", "size 1"), when=_has_both_sides)]
    _pivots_right: Annotated[Float64 | None, Array(shape=("pivots", "size 1"), when=_has_both_sides)]
    projection_: Annotated[
        Float64 | None, Array(shape=("pivots", "components"), when=_has_both_sides, optional=True)
    ]
    learning_rate_: Annotated[float, Fact(), Field(gt=0.0)]
    loss_curve_: Annotated[list[float], Fact()]
    _layers: Annotated[int, Fact(), Field(ge=1, le=5)]

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        sizes = [file.length("columns"), *file.params["hidden"], *([1] if _has_both_sides(file) else [])]
        if file.facts.layers != len(sizes) - 1:
            raise refuse(
                "layers",
                None,
                f"is {file.facts.layers} in the manifest",
                f"{len(sizes) - 1}, as parameters say",
            )
        if not sizes[0]:
            raise refuse("columns", None, "has no rows", "one or more")
        return {f"size {at}": size for at, size in enumerate(sizes)}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        if file.sizes.get("pivots", 1) < 1:
            raise refuse("pivots_left", None, "has no rows", "one or more")
