"""A fitted logistic similarity as named arrays, with the schema they are held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.schema import Array, Facts, Loaded, State, Stateful, StateSchema
from pairmark.models.logistic.learning import N_TERMS, Weights
from pairmark.models.logistic.rows import RowMap, RowScale


class LogisticState(Stateful):
    """How rows are prepared, and the weights."""

    _map: RowMap
    _weights: Weights

    def to_state(self) -> State:
        d = self._map.scale.size
        return {
            "centre": self._map.centre,
            "scale": self._map.scale,
            "weights": self._weights.weights[:d],
            "terms": self._weights.terms,
        }, {"rows": self._map.kind, "sparse": self._map.sparse}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        centre, scale, weights, terms = (
            np.array(arrays[name], dtype=np.float64) for name in ("centre", "scale", "weights", "terms")
        )
        self._map = RowMap(kind=meta["rows"], sparse=meta["sparse"], centre=centre, scale=scale)
        self._weights = Weights(self._map.padded(weights), terms)
        return self


class LogisticFacts(Facts):
    """What a saved one says beside its arrays."""

    rows: RowScale
    sparse: bool


def _layout(loaded: Loaded) -> dict[str, Array]:
    d = loaded.n_features
    unit = loaded.facts.rows == "unit"
    bounds = {"high": 1e3} if unit else {"low": 0.0}
    return {
        "centre": Array(kind="float64", shape=(d,)),
        "scale": Array(kind="float64", shape=(d,), positive=unit, **bounds),  # type: ignore[arg-type]
        "weights": Array(kind="float64", shape=(d,)),
        "terms": Array(kind="float64", shape=(N_TERMS,)),
    }


SCHEMA = StateSchema(facts=LogisticFacts, layout=_layout)
