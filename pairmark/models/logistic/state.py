"""The state of a fitted logistic similarity."""

from __future__ import annotations

from typing import Annotated

from pairmark.models.core.arrays import Float64
from pairmark.models.core.state import Array, DeclaredState, StateRecord, StoredState, require
from pairmark.models.logistic.rows import RowPreparation

_MOST_RARE = 1e3


class LogisticState(DeclaredState):
    """How rows are prepared, and the weights."""

    coef_: Annotated[Float64, Array(name="weights", shape=("features",))]
    _map: Annotated[RowPreparation, StateRecord()]
    _terms: Annotated[Float64, Array(shape=(5,))]

    @classmethod
    def _relate(cls, file: StoredState) -> None:
        if file.facts.rows == "unit":
            scale = file.arrays["scale"]
            valid = (scale > 0) & (scale <= _MOST_RARE)
            require(valid, "scale", scale, f"a number above 0, at most {_MOST_RARE:g}")
