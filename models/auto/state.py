"""A race's winner as named arrays, with the race."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from pairmark.models.auto.candidates import RACING
from pairmark.models.auto.params import CandidateName
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.schema import Facts, State, Stateful, StateSchema

_PREFIX = "winner-"


class AutoState(Stateful):
    """The winner's state, under its own names with a prefix."""

    model_: Any
    winner_: str
    leaderboard_: list[dict[str, Any]]

    def to_state(self) -> State:
        """The winner's arrays; its kind, parameters and facts; the race."""
        spec = next(spec for spec in RACING.values() if type(self.model_) is spec.estimator)
        arrays, meta = self.model_.to_state()
        given = self.model_.get_params(deep=False)
        params = spec.params.model_validate(given).model_dump(mode="json")
        return {f"{_PREFIX}{name}": array for name, array in arrays.items()}, {
            "winner": self.winner_,
            "model": {"kind": spec.kind, "params": params, "meta": meta},
            "leaderboard": self.leaderboard_,
        }

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        inner_model = meta["model"]
        spec = RACING[inner_model["kind"]]
        model = spec.estimator(**spec.params.model_validate(inner_model["params"]).model_dump())
        self.model_ = model.from_state(_own(arrays), inner_model["meta"])
        if "n_features_in" in meta:
            self.model_.n_features_in_ = int(meta["n_features_in"])
        self.winner_, self.leaderboard_ = meta["winner"], meta["leaderboard"]
        return self


class _Model(BaseModel):
    model_config = ConfigDict(strict=True)

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]


class AutoFacts(Facts):
    """What a saved race says beside the winner's arrays."""

    winner: CandidateName
    model: _Model
    leaderboard: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class AutoSchema(StateSchema):
    """The schema of the winner's family, for arrays whose names have a prefix."""

    def check(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """See `StateSchema.check`."""
        try:
            facts = self.facts.model_validate(meta)
        except ValidationError as error:
            line = error.errors(include_url=False, include_context=False)[0]
            raise ArtefactError(f"{'.'.join(map(str, line['loc']))}: {line['msg']}") from None
        assert isinstance(facts, AutoFacts)
        inner_model = facts.model
        if inner_model.kind not in RACING:
            raise ArtefactError(
                f"model.kind is {inner_model.kind[:80]!r}; expected one of {', '.join(RACING)}"
            )
        stray = sorted(name for name in arrays if not name.startswith(_PREFIX))
        if stray:
            raise ArtefactError(f"array {stray[0]!r} is none of the winner's")
        spec = RACING[inner_model.kind]
        try:
            inner = spec.params.model_validate(inner_model.params).model_dump()
        except ValidationError as error:
            line = error.errors(include_url=False, include_context=False)[0]
            raise ArtefactError(f"model.params.{'.'.join(map(str, line['loc']))}: {line['msg']}") from None
        own = {**inner_model.meta, "n_features_in": facts.n_features_in, "feature_names_in": None}
        try:
            spec.state.check(inner, own, _own(arrays))
        except ArtefactError as error:
            # Named as they are in the file.
            raise ArtefactError(str(error).replace("array '", f"array '{_PREFIX}")) from error


def _own(arrays: Mapping[str, NDArray[Any]]) -> dict[str, np.ndarray[Any, Any]]:
    return {name.removeprefix(_PREFIX): array for name, array in arrays.items()}


SCHEMA = AutoSchema(facts=AutoFacts, layout=lambda loaded: {})
