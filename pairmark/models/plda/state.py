"""A fitted PLDA as named arrays."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.arrays import Float64
from pairmark.models.core.marginals import NormalMarginals
from pairmark.models.core.schema import Array, Facts, Loaded, State, Stateful, StateSchema, refuse, require
from pairmark.models.plda.kernels.residual import LEAVES, NODES
from pairmark.models.plda.mapping import MAX_COMPONENTS, Preparation, RowMap
from pairmark.models.plda.residual import Residual

_TREES = ("features", "thresholds", "values")


class PldaState(Stateful):
    """The map from rows to latent coordinates, and the model's variances."""

    settings_: dict[str, Any]
    validated_tpr_: dict[float, float]
    psi_: Float64
    _map: RowMap
    _trees: Residual | None

    @abstractmethod
    def _restored(self, rows: RowMap, psi: Float64, trees: Residual | None) -> Self: ...

    def to_state(self) -> State:
        rows = self._map
        preparation = rows.preparation
        arrays: dict[str, NDArray[Any]] = {
            "centre": preparation.centre,
            "scale": preparation.scale,
            "weights": rows.weights,
            "bias": rows.bias,
            "psi": self.psi_,
        }
        if preparation.normal is not None:
            arrays["knots"], arrays["values"] = preparation.normal.knots, preparation.normal.values
        if preparation.components is not None:
            arrays["components"] = preparation.components
        trees = self._trees
        if trees is not None:
            arrays |= {f"residual_{name}": getattr(trees, name) for name in _TREES}
        return arrays, {
            "residual_bound": None if trees is None else trees.bound,
            "settings": self.settings_,
            "validated_tpr": [[rate, tpr] for rate, tpr in self.validated_tpr_.items()],
            "length": rows.length,
        }

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        copies = {name: np.array(array, order="C") for name, array in arrays.items()}
        self.settings_ = dict(meta["settings"])
        self.validated_tpr_ = {float(rate): float(tpr) for rate, tpr in meta["validated_tpr"]}
        preparation = Preparation(
            normal=NormalMarginals(copies["knots"], copies["values"]) if "knots" in copies else None,
            centre=copies["centre"],
            scale=copies["scale"],
            components=copies.get("components"),
        )
        rows = RowMap(
            preparation=preparation, length=meta["length"], weights=copies["weights"], bias=copies["bias"]
        )
        bound = meta["residual_bound"]
        grown = {name: copies[f"residual_{name}"] for name in _TREES if bound is not None}
        trees = None if bound is None else Residual(**grown, bound=bound)
        return self._restored(rows, copies["psi"], trees)


class PldaFacts(Facts):
    """What a saved PLDA says beside its arrays."""

    settings: dict[str, bool | int | float | str]
    validated_tpr: list[Annotated[list[float], Field(min_length=2, max_length=2)]]
    length: float | None = Field(gt=0.0, le=1e6)
    residual_bound: float | None = Field(ge=0.0)


def _layout(loaded: Loaded) -> dict[str, Array]:
    d = loaded.n_features
    # With nothing in between, components are part of the weights.
    grown = loaded.facts.residual_bound is not None
    own = grown or loaded.facts.length is not None
    p: int | str = "components" if own and "components" in loaded.arrays else d
    components = {"components": Array(kind="float32", shape=(d, "components"), optional=True)} if own else {}
    trees: dict[str, Array] = {}
    if grown:
        trees = {
            "residual_features": Array(kind="int32", shape=("trees", NODES), below=p),
            "residual_thresholds": Array(kind="float32", shape=("trees", NODES)),
            "residual_values": Array(kind="float64", shape=("trees", LEAVES)),
        }
    return (
        components
        | trees
        | {
            "centre": Array(kind="float64", shape=(d,)),
            "scale": Array(kind="float64", shape=(d,)),
            "weights": Array(kind="float32", shape=(p, "coordinates")),
            "bias": Array(kind="float32", shape=("coordinates",)),
            "psi": Array(kind="float64", shape=("coordinates",), low=0),
            "knots": Array(
                kind="float32", shape=(d, "knots"), infinite=True, optional="values" not in loaded.arrays
            ),
            "values": Array(kind="float32", shape=(d, "knots"), optional="knots" not in loaded.arrays),
        }
    )


def _fit_together(loaded: Loaded) -> None:
    arrays, sizes = loaded.arrays, loaded.sizes
    if sizes["coordinates"] < 1:
        raise refuse("psi", None, "has no rows", "one or more")
    if "components" in sizes and not 1 <= sizes["components"] <= MAX_COMPONENTS:
        raise refuse("components", None, f"has {sizes['components']} columns", f"1 to {MAX_COMPONENTS}")
    if "knots" not in arrays:
        return
    knots = arrays["knots"]
    if sizes["knots"] < 1:
        raise refuse("knots", None, "has no columns", "one or more")
    require(np.isfinite(knots[:, :1]), "knots", knots[:, :1], "a finite number first")
    require(knots[:, 1:] >= knots[:, :-1], "knots", knots[:, 1:], "numbers that never fall within a row")


SCHEMA = StateSchema(facts=PldaFacts, layout=_layout, relations=(_fit_together,))
