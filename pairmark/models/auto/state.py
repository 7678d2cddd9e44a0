"""The state of a comparison: the winner's, its arrays under a prefix, and the race."""

from __future__ import annotations

from typing import Annotated, Any

from pairmark.models.auto.candidates import RACING, CandidateName
from pairmark.models.core.base import PairScorerMixin
from pairmark.models.core.schema import StateSchema
from pairmark.models.core.state import DeclaredState, Fact, Inner


class SimilarityAutoState(DeclaredState):
    """The winner and the race."""

    model_: Annotated[PairScorerMixin, Inner(specs=RACING, prefix="winner-", fact="model")]
    winner_: Annotated[CandidateName, Fact()]
    leaderboard_: Annotated[list[dict[str, Any]], Fact()]


SCHEMA = StateSchema(SimilarityAutoState)
