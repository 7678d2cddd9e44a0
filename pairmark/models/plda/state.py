"""The state of a fitted PLDA."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from pairmark.models.core.arrays import Float64
from pairmark.models.core.state import Array, DeclaredState, Fact, StateRecord, StoredState, refuse
from pairmark.models.plda.mapping import MAX_COMPONENTS, LatentMap
from pairmark.models.plda.residual import Residual

_Rate = Annotated[list[float], Field(min_length=2, max_length=2)]


class PldaState(DeclaredState):
    """The map from rows to latent coordinates, and the model's variances."""

    settings_: Annotated[dict[str, Any], Fact(kind=dict[str, bool | int | float | str])]
    validated_tpr_: Annotated[
        dict[float, float], Fact(kind=list[_Rate], write=lambda rates: list(rates.items()), read=dict)
    ]
    psi_: Annotated[Float64, Array(shape=("coordinates",), low=0)]
    _map: Annotated[LatentMap, StateRecord()]
    _trees: Annotated[
        Residual | None,
        StateRecord(prefix="residual_", when=lambda file: file.facts.residual_bound is not None),
    ]

    @classmethod
    def _sizes(cls, file: StoredState) -> Mapping[str, int]:
        width = file.length("components", 1) if "components" in file.arrays else file.sizes["features"]
        return {"prepared": width}

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        if file.sizes["coordinates"] < 1:
            raise refuse("psi", None, "has no rows", "one or more")
        if "components" not in file.arrays:
            return
        if file.facts.residual_bound is None and file.facts.length is None:
            # With nothing in between, components are part of the weights.
            raise refuse("components", None, "is there", "none, without lengths or trees")
        if not 1 <= file.sizes["prepared"] <= MAX_COMPONENTS:
            raise refuse(
                "components", None, f"has {file.sizes['prepared']} columns", f"1 to {MAX_COMPONENTS}"
            )
