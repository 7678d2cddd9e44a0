"""What saved kernels must look like."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from pairmark.models.core.schema import Array, Facts, Loaded, StateSchema, refuse, require


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
            kind="float64", shape=("coordinates", "components"), optional="C" not in loaded.params["chain"]
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
    if "B" in loaded.params["chain"] and "projection" not in arrays:
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
