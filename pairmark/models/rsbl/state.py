"""The state of a fitted space and its classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float32, Float64, Int64
from pairmark.models.core.state import Array, DeclaredState, Fact, StateRecord, StoredState, refuse
from pairmark.models.rsbl.growth import Layer
from pairmark.models.rsbl.inputs import MAX_VALUES, Inputs
from pairmark.models.rsbl.scoring import RSBLScores

_MOST_LAYERS = 20


def _layers(file: StoredState) -> range:
    return range(len(file.facts.betas))


def _is_1nn(file: StoredState) -> bool:
    return bool(file.params["final"] == "1nn")


def _is_svm(file: StoredState) -> bool:
    return not _is_1nn(file)


class RSBLState(DeclaredState, RSBLScores):
    """Inputs, references, layers and the final classifier."""

    classes_: Annotated[NDArray[Any], Array(kind="labels", shape=("classes",))]
    k_: Annotated[list[int], Fact(kind=list[Annotated[int, Field(ge=0)]])]
    errors_: Annotated[list[list[float]], Fact()]
    depth_errors_: Annotated[list[float], Fact()]
    n_components_: Annotated[int, Fact(), Field(ge=1)]
    _sharpness: Annotated[float, Fact(), Field(ge=0.0)]
    _inputs: Annotated[Inputs, StateRecord()]
    _refs: Annotated[
        list[Float32], Array(name="refs_{0}", shape=("width of {0}", "references"), each=_layers)
    ]
    layers_: Annotated[list[Layer], StateRecord(prefix="*_{0}", each=_layers)]
    _final_codes: Annotated[Int64 | None, Array(shape=("rows",), below="classes", when=_is_1nn)]
    _final_rows: Annotated[
        list[Float32] | None,
        Array(
            name="final_rows_{0}",
            shape=("width of {0}", "rows"),
            when=_is_1nn,
            each=lambda file: range(len(file.facts.betas) + 1),
        ),
    ]
    _coef: Annotated[Float64 | None, Array(shape=("machines", "n_components"), when=_is_svm)]
    _intercept: Annotated[Float64 | None, Array(shape=("machines",), when=_is_svm)]

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        nominal, d = file.facts.nominal, file.sizes["features"]
        if nominal != sorted(set(nominal)) or (nominal and nominal[-1] >= d):
            raise refuse("nominal", None, f"is {nominal}", f"rising columns below {d} in the manifest")
        n_values = [file.length(f"values_{at}") for at in nominal]
        if max(n_values, default=0) > MAX_VALUES:
            at = int(np.argmax(n_values))
            raise refuse(f"values_{nominal[at]}", None, f"has {n_values[at]} rows", f"at most {MAX_VALUES}")
        n_layers = len(file.facts.betas)
        if n_layers > _MOST_LAYERS:
            raise refuse("columns_0", None, f"is one of {n_layers} layers", f"{_MOST_LAYERS} at most")
        widths = [
            d - len(nominal) + sum(n_values),
            *(file.length(f"columns_{at}") for at in range(n_layers)),
        ]
        if sum(widths) != file.facts.n_components:
            raise refuse(
                "columns_0",
                None,
                f"all layers make {sum(widths)} components",
                f"{file.facts.n_components} of them",
            )
        n_classes = file.length("classes")
        if n_classes < 2:
            raise refuse("classes", None, f"has {n_classes} rows", "two or more")
        sizes = {f"width of {at}": width for at, width in enumerate(widths)}
        references = file.length("refs_0", 1)
        return sizes | {"machines": 1 if n_classes == 2 else n_classes, "references": references}
