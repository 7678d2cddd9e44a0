"""Fitted models of records as named arrays and JSON, and the schemas that every load is held against."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.state import Array, Facts, State, Stateful, StoredState, check_arrays, checked_model
from pairmark.models.records.comparators import Comparators, TextFacts, check_rarity, rarity_layout
from pairmark.models.records.neighbours import N_CONTEXT
from pairmark.models.records.schema import Schema
from pairmark.models.trees.boosted import BoostedTrees, check_trees

N_LEVELS = 3
"""Levels of agreement of a field: apart, alike, equal."""
_TREES = ("roots", "features", "thresholds", "low_missing", "children", "values")
_CONTEXT = "context_"


class RecordFacts(Facts):
    """What a saved model of records says beside its arrays."""

    comparators: dict[str, Any]


class TreeFacts(RecordFacts):
    """The same, with trees."""

    n_boosted: int = Field(ge=0)
    bias: float = Field(ge=-1e6, le=1e6)
    context_n_boosted: int | None = Field(None, ge=0)
    context_bias: float = Field(0.0, ge=-1e6, le=1e6)


class RecordSimilarityState(Stateful):
    """Comparators, trees, and those that also see a pair's rivals."""

    _comparators: Comparators
    trees_: BoostedTrees
    context_: BoostedTrees | None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "trees_")

    def to_state(self) -> State:
        """Arrays and JSON-able facts."""
        arrays, meta = self._comparators.to_state()
        facts: dict[str, Any] = {"comparators": meta}
        for prefix, trees in (("", self.trees_), (_CONTEXT, self.context_)):
            if trees is not None:
                arrays |= {f"{prefix}{name}": getattr(trees, name) for name in _TREES}
                facts |= {f"{prefix}n_boosted": trees.n_boosted, f"{prefix}bias": trees.bias}
        return arrays, facts

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave; an `ArtefactError` names what no fit writes."""
        self._check_state(meta, arrays)
        self._comparators = Comparators.from_state(arrays, meta["comparators"])
        self.trees_ = _trees(arrays, meta, "")
        self.context_ = None if meta.get(f"{_CONTEXT}n_boosted") is None else _trees(arrays, meta, _CONTEXT)
        return self

    @classmethod
    def _check_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        file = _state_file(checked_model(TreeFacts, meta), arrays)
        check_arrays(file, _tree_layout(file))
        check_rarity(file)
        check_trees(file, file.facts.n_boosted)
        if file.facts.context_n_boosted is not None:
            check_trees(file, file.facts.context_n_boosted, _CONTEXT)


class FellegiSunterState(Stateful):
    """Comparators and the weight of each level of each field."""

    _comparators: Comparators
    m_: NDArray[np.float64]
    u_: NDArray[np.float64]
    prior_: float

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "prior_")

    def to_state(self) -> State:
        """Arrays and JSON-able facts."""
        arrays, meta = self._comparators.to_state()
        return arrays | {"m": self.m_, "u": self.u_}, {"comparators": meta, "prior": self.prior_}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave; an `ArtefactError` names what no fit writes."""
        self._check_state(meta, arrays)
        self._comparators = Comparators.from_state(arrays, meta["comparators"])
        self.m_, self.u_ = np.array(arrays["m"]), np.array(arrays["u"])
        self.prior_ = float(meta["prior"])
        return self

    @classmethod
    def _check_state(cls, meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        file = _state_file(checked_model(FellegiSunterFacts, meta), arrays)
        check_arrays(file, _level_layout(file))
        check_rarity(file)


class FellegiSunterFacts(RecordFacts):
    """The same, with the share of same pairs."""

    prior: float = Field(ge=0, le=1)


def _comparators(state: StoredState) -> Comparators:
    """What the facts declare, once they are found to make sense together."""
    facts = state.facts.comparators
    try:
        comparators = Comparators(Schema.model_validate_json(json.dumps(facts["schema"])))
        text = TextFacts.model_validate_json(json.dumps(facts["text"]))
        fields = comparators.schema.fields
        if any(not 0 <= at < len(fields) or fields[at].type != "number" for at in text.whole):
            raise ValueError("text.whole names fields that are no numbers")
        comparators.describe(text)
        if text.crossed is not None and not all(0 <= at < comparators.n_texts for at in text.crossed):
            raise ValueError("text.crossed names strings that are not there")
    except (ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"comparators: {error}") from None
    if len(fields) != state.sizes["features"]:
        raise ArtefactError(f"the schema has {len(fields)} fields for {state.sizes['features']} features")
    return comparators


def _trees(arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], prefix: str) -> BoostedTrees:
    return BoostedTrees(
        n_boosted=int(meta[f"{prefix}n_boosted"]),
        bias=float(meta[f"{prefix}bias"]),
        **{name: np.array(arrays[f"{prefix}{name}"]) for name in _TREES},
    )


def _tree_layout(state: StoredState) -> dict[str, Array]:
    comparators = _comparators(state)
    n_features = len(comparators.features)
    layout = rarity_layout(comparators.n_texts) | _layout_of_trees("", n_features)
    if state.facts.context_n_boosted is not None:
        layout |= _layout_of_trees(_CONTEXT, n_features + N_CONTEXT)
    return layout


def _layout_of_trees(prefix: str, n_features: int) -> dict[str, Array]:
    arrays = {
        "roots": Array(kind="int64", shape=(f"{prefix}trees",), low=0, order="rising"),
        "features": Array(kind="int32", shape=(f"{prefix}nodes",), low=-1, high=n_features - 1),
        "thresholds": Array(kind="float32", shape=(f"{prefix}nodes",)),
        "low_missing": Array(kind="uint8", shape=(f"{prefix}nodes",), high=1),
        "children": Array(kind="int64", shape=(f"{prefix}nodes",), low=0),
        "values": Array(kind="float64", shape=(f"{prefix}nodes",), low=-1e6, high=1e6),
    }
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _level_layout(state: StoredState) -> dict[str, Array]:
    comparators = _comparators(state)
    shares = Array(kind="float64", shape=(state.sizes["features"], N_LEVELS), positive=True, high=1.0)
    return rarity_layout(comparators.n_texts) | {"m": shares, "u": shares}


def _state_file(facts: Facts, arrays: Mapping[str, NDArray[Any]]) -> StoredState:
    return StoredState(params={}, facts=facts, arrays=arrays, sizes={"features": facts.n_features_in})
