"""Fused learners as named arrays: each one's own under a prefix, and the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.inner import InnerModel, check_inner, inner_model, inner_state
from pairmark.models.core.schema import Facts, State, Stateful, StateSchema, checked_model, refuse, require
from pairmark.models.fusion.params import FUSED, components_of


def prefix_of(number: int) -> str:
    """What the names of a learner's arrays begin with."""
    return f"model-{number}-"


class FusionState(Stateful):
    """The learners' states under their own names with prefixes, and the weights."""

    models: Any
    models_: list[Any]
    weights_: NDArray[np.float64]
    intercept_: float
    rates_: dict[str, Any]

    def to_state(self) -> State:
        """The learners' arrays, parameters and facts; their weights; what the folds said."""
        arrays: dict[str, NDArray[Any]] = {"weights": self.weights_}
        kept: list[dict[str, Any] | None] = []
        for number, (component, model) in enumerate(
            zip(components_of(self.models), self.models_, strict=True)
        ):
            if model is None:
                kept.append(None)
                continue
            some, facts = inner_state(FUSED[component.learner], model, prefix_of(number))
            arrays |= some
            kept.append(facts)
        return arrays, {"intercept": self.intercept_, "rates": self.rates_, "models": kept}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        self.models_ = [
            None if kept is None else inner_model(FUSED, kept, arrays, prefix_of(number))
            for number, kept in enumerate(meta["models"])
        ]
        for model in self.models_:
            if model is not None and "n_features_in" in meta:
                model.n_features_in_ = int(meta["n_features_in"])
        self.weights_ = np.asarray(arrays["weights"])
        self.intercept_, self.rates_ = float(meta["intercept"]), meta["rates"]
        return self


class FusionFacts(Facts):
    """What a saved one says beside its arrays."""

    intercept: float
    rates: dict[str, Any]
    models: list[InnerModel | None]


@dataclass(frozen=True, kw_only=True)
class FusionSchema(StateSchema):
    """The schemas of the learners' families, for arrays whose names have a prefix, and of the weights."""

    def check(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """See `StateSchema.check`."""
        facts = checked_model(FusionFacts, meta)
        if "weights" not in arrays:
            raise ArtefactError("array 'weights' is missing")
        _check_weights(arrays["weights"], facts)
        prefixes = tuple(prefix_of(number) for number, one in enumerate(facts.models) if one is not None)
        stray = sorted(name for name in arrays if name != "weights" and not name.startswith(prefixes))
        if stray:
            raise ArtefactError(f"array {stray[0]!r} is none of the fused learners'")
        asked = params.get("models")
        if asked is not None and len(asked) != len(facts.models):
            raise ArtefactError(f"models has {len(facts.models)} entries; expected {len(asked)}")
        for number, kept in enumerate(facts.models):
            if kept is None:
                continue
            if kept.kind not in FUSED or (asked is not None and kept.kind != asked[number]["learner"]):
                raise ArtefactError(
                    f"models.{number}.kind is {kept.kind[:80]!r}; expected the learner of `models`"
                )
            check_inner(FUSED[kept.kind], kept, facts.n_features_in, arrays, prefix_of(number))


def _check_weights(weights: NDArray[Any], facts: FusionFacts) -> None:
    if weights.dtype != np.float64:
        raise refuse("weights", None, f"dtype is {weights.dtype}", "float64")
    if weights.shape != (len(facts.models),):
        raise refuse("weights", None, f"shape is {weights.shape}", f"({len(facts.models)},)")
    require(np.isfinite(weights) & (weights >= 0), "weights", weights, "a finite number of at least 0")
    there = np.array([one is not None for one in facts.models])
    if not there.any() or ((weights > 0) != there).any():
        raise refuse(
            "weights", None, "does not say which learners there are", "weights above 0 for those alone"
        )


SCHEMA = FusionSchema(facts=FusionFacts, layout=lambda loaded: {})
