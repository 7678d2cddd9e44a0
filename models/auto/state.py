"""The winner of a comparison as named arrays, with the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import NDArray

from pairmark.models.auto.candidates import RACING
from pairmark.models.auto.params import CandidateName
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.inner import InnerModel, check_inner, checked_facts, inner_model, inner_state
from pairmark.models.core.schema import Facts, State, Stateful, StateSchema

_PREFIX = "winner-"


class AutoState(Stateful):
    """The winner's state, under its own names with a prefix."""

    model_: PairScorerMixin
    winner_: str
    leaderboard_: list[dict[str, Any]]

    def to_state(self) -> State:
        """The winner's arrays; its kind, parameters and facts; the race."""
        spec = next(spec for spec in RACING.values() if type(self.model_) is spec.estimator)
        arrays, kept = inner_state(spec, self.model_, _PREFIX)
        return arrays, {"winner": self.winner_, "model": kept, "leaderboard": self.leaderboard_}

    def from_state(self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """The estimator, fitted with what `to_state` gave."""
        self.model_ = inner_model(RACING, meta["model"], arrays, _PREFIX)
        if "n_features_in" in meta:
            self.model_.n_features_in_ = int(meta["n_features_in"])
        self.winner_, self.leaderboard_ = meta["winner"], meta["leaderboard"]
        return self


class AutoFacts(Facts):
    """What a saved race says beside the winner's arrays."""

    winner: CandidateName
    model: InnerModel
    leaderboard: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class AutoSchema(StateSchema):
    """The schema of the winner's family, for arrays whose names have a prefix."""

    def check(
        self, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """See `StateSchema.check`."""
        facts = checked_facts(AutoFacts, meta)
        kind = facts.model.kind
        if kind not in RACING:
            raise ArtefactError(f"model.kind is {kind[:80]!r}; expected one of {', '.join(RACING)}")
        stray = sorted(name for name in arrays if not name.startswith(_PREFIX))
        if stray:
            raise ArtefactError(f"array {stray[0]!r} is none of the winner's")
        check_inner(RACING[kind], facts.model, facts.n_features_in, arrays, _PREFIX)


SCHEMA = AutoSchema(facts=AutoFacts, layout=lambda loaded: {})
