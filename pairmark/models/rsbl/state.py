"""A fitted space and its classifier as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.schema import Array, Facts, Loaded, State, StateSchema, refuse
from pairmark.models.rsbl.growth import Layer
from pairmark.models.rsbl.inputs import MAX_VALUES, Inputs
from pairmark.models.rsbl.scoring import RSBLScores


class RSBLState(RSBLScores):
    """Inputs, references, layers and the final classifier."""

    classes_: NDArray[Any]
    k_: list[int]
    errors_: list[list[float]]
    depth_errors_: list[float]
    _final_rows: list[Float32] | None
    _final_codes: Int64 | None
    _coef: Float64 | None
    _intercept: Float64 | None
    _sharpness: float

    def to_state(self) -> State:
        arrays, meta = self._inputs.to_state()
        classes = self.classes_
        arrays["classes"] = classes.astype(str) if classes.dtype.kind not in "biufSU" else classes
        for at, (refs, layer) in enumerate(zip(self._refs, self.layers_, strict=True)):
            arrays[f"refs_{at}"], arrays[f"columns_{at}"] = refs, layer.columns
            arrays[f"counts_{at}"] = layer.counts
        if self._final_rows is not None and self._final_codes is not None:
            arrays["final_codes"] = self._final_codes
            for at, rows in enumerate(self._final_rows):
                arrays[f"final_rows_{at}"] = rows
        elif self._coef is not None and self._intercept is not None:
            arrays["coef"], arrays["intercept"] = self._coef, self._intercept
        return arrays, {
            **meta,
            "betas": [float(layer.beta) for layer in self.layers_],
            "k": [int(k) for k in self.k_],
            "errors": [[float(error) for error in tried] for tried in self.errors_],
            "depth_errors": [float(error) for error in self.depth_errors_],
            "sharpness": float(self._sharpness),
            "n_components": int(self.n_components_),
        }

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        def plain(name: str) -> Any:
            return np.array(arrays[name], order="C")

        self._inputs = Inputs.from_state(arrays, meta)
        self.classes_ = plain("classes")
        self.k_, self.errors_ = list(meta["k"]), [list(tried) for tried in meta["errors"]]
        self.depth_errors_ = list(meta["depth_errors"])
        self.n_components_ = int(meta["n_components"])
        self._sharpness = float(meta["sharpness"])
        self.layers_ = [
            Layer(columns=plain(f"columns_{at}"), counts=plain(f"counts_{at}"), beta=float(beta))
            for at, beta in enumerate(meta["betas"])
        ]
        self._coef = self._intercept = self._final_rows = self._final_codes = None
        if "final_codes" in arrays:
            self._final_codes = plain("final_codes")
            self._final_rows = [plain(f"final_rows_{at}") for at in range(len(self.layers_) + 1)]
        else:
            self._coef, self._intercept = plain("coef"), plain("intercept")
        self._refs = [plain(f"refs_{at}") for at in range(len(self.layers_))]
        return self


class RSBLFacts(Facts):
    """What a saved space says beside its arrays."""

    nominal: list[Annotated[int, Field(ge=0)]]
    betas: list[Annotated[float, Field(ge=0.0)]] = Field(max_length=20)
    k: list[Annotated[int, Field(ge=0)]]
    errors: list[list[float]]
    depth_errors: list[float]
    sharpness: float = Field(ge=0.0)
    n_components: int = Field(ge=1)


def _layout(loaded: Loaded) -> dict[str, Array]:
    facts, nominal = loaded.facts, loaded.facts.nominal
    if nominal != sorted(set(nominal)) or (nominal and nominal[-1] >= loaded.n_features):
        raise refuse(
            "nominal", None, f"is {nominal}", f"rising columns below {loaded.n_features} in the manifest"
        )
    layout = {f"values_{at}": Array(kind="float64", shape=(f"values of {at}",)) for at in nominal}
    n_values = [loaded.length(f"values_{at}") for at in nominal]
    if max(n_values, default=0) > MAX_VALUES:
        at = int(np.argmax(n_values))
        raise refuse(f"values_{nominal[at]}", None, f"has {n_values[at]} rows", f"at most {MAX_VALUES}")
    width = loaded.n_features - len(nominal) + sum(n_values)
    layout |= {
        "mean": Array(kind="float64", shape=(width,)),
        "scale": Array(kind="float64", shape=(width,), positive=True),
        "classes": Array(kind="labels", shape=("classes",)),
    }
    if loaded.params["metric"] == "mahalanobis":
        layout["whitening"] = Array(kind="float64", shape=(width, width))
    widths = [width]
    for at in range(len(facts.betas)):
        layout |= {
            f"refs_{at}": Array(kind="float32", shape=(widths[at], "references")),
            f"columns_{at}": Array(kind="int64", shape=(f"columns of {at}",), below="references"),
            f"counts_{at}": Array(kind="float64", shape=(f"columns of {at}",), low=0),
        }
        widths.append(loaded.length(f"columns_{at}"))
    if sum(widths) != facts.n_components:
        raise refuse(
            "columns_0", None, f"all layers make {sum(widths)} components", f"{facts.n_components} of them"
        )
    if loaded.params["final"] == "1nn":
        layout["final_codes"] = Array(kind="int64", shape=("rows",), below="classes")
        layout |= {
            f"final_rows_{at}": Array(kind="float32", shape=(size, "rows")) for at, size in enumerate(widths)
        }
        return layout
    n_machines = 1 if loaded.length("classes") == 2 else loaded.length("classes")
    return layout | {
        "coef": Array(kind="float64", shape=(n_machines, facts.n_components)),
        "intercept": Array(kind="float64", shape=(n_machines,)),
    }


def _enough(loaded: Loaded) -> None:
    if loaded.sizes["classes"] < 2:
        raise refuse("classes", None, f"has {loaded.sizes['classes']} rows", "two or more")


SCHEMA = StateSchema(facts=RSBLFacts, layout=_layout, relations=(_enough,))
