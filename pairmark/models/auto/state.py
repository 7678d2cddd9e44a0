"""The state of a comparison: the winner's, its arrays under a prefix, the race, and how samples are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.auto.candidates import RACING
from pairmark.models.auto.sample_rules import SampleRule
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.schema import State
from pairmark.models.core.state import DeclaredState, Fact, Inner, facts_model


def _as_json(rules: list[SampleRule]) -> list[dict[str, Any]]:
    return [rule.model_dump() for rule in rules]


class SimilarityAutoState(DeclaredState):
    """The winner, the race, and how samples of a subject are compared."""

    model_: Annotated[PairScorerMixin, Inner(specs=RACING, prefix="winner-", fact="model")]
    winner_: Annotated[str, Fact()]
    leaderboard_: Annotated[list[dict[str, Any]], Fact()]
    sample_rules_: Annotated[list[SampleRule], Fact(default=[], write=_as_json)]

    def to_state(self) -> State:
        """Fitted state as named arrays and JSON-able facts."""
        arrays, meta = super().to_state()
        if not meta["sample_rules"]:
            # As versions without rules wrote it: their saved indices know the model by a digest of this.
            del meta["sample_rules"]
        return arrays, meta

    @classmethod
    def check_state(
        cls, params: Mapping[str, Any], meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """Check what a file holds; an `ArtefactError` names the fact, or the array and its row."""
        super().check_state(params, meta, arrays)
        declared: Any = cls
        facts: Any = facts_model(declared).model_validate(meta)
        raced = [entry.get("name") for entry in facts.leaderboard]
        if facts.winner not in raced:
            raise ArtefactError(
                f"winner is {facts.winner!r}; expected a candidate of leaderboard: restore the artefact or train again"
            )
        ways = RACING[facts.model.kind].estimator(**facts.model.params).aggregations
        sizes = [(np.inf, 1) if rule.samples is None else tuple(rule.samples) for rule in facts.sample_rules]
        if sizes != sorted(set(sizes)) or any(not k > 1 or k < p for k, p in sizes):
            raise ArtefactError(
                "sample_rules is not in rising order of samples, the larger number first, each pair once, null last: "
                "restore the artefact or train again"
            )
        for number, rule in enumerate(facts.sample_rules):
            strange = [way for way in rule.mean_tpr if way not in ways]
            if strange or rule.aggregation not in rule.mean_tpr:
                raise ArtefactError(
                    f"sample_rules.{number} names {(*strange, rule.aggregation)[0]!r}; expected one of "
                    f"{', '.join(ways)}, with its mean_tpr: restore the artefact or train again"
                )
