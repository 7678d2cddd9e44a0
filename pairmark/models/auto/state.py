"""What a saved comparison must look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from pairmark.models.auto.candidates import RACING, CandidateName
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.inner import InnerModel, check_inner
from pairmark.models.core.schema import Facts, StateSchema, checked_model

PREFIX = "winner-"


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
        facts = checked_model(AutoFacts, meta)
        kind = facts.model.kind
        if kind not in RACING:
            raise ArtefactError(f"model.kind is {kind[:80]!r}; expected one of {', '.join(RACING)}")
        stray = sorted(name for name in arrays if not name.startswith(PREFIX))
        if stray:
            raise ArtefactError(f"array {stray[0]!r} is none of the winner's")
        check_inner(RACING[kind], facts.model, facts.n_features_in, arrays, PREFIX)


SCHEMA = AutoSchema(facts=AutoFacts, layout=lambda loaded: {})
