"""Parameters of the logistic similarity: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from pairmark.models.core.spec import Params, Seed

RowScale = Literal["unit", "standard"]


class SimilarityLogisticParams(Params):
    """Parameters of the logistic similarity."""

    rows: Literal["auto"] | RowScale = Field(
        "auto",
        description="unit: rows weighed by the rarity of their features and scaled to length one, for counts of words "
        "and n-grams; standard: features centred and scaled one by one; auto: unit where rows are sparse, or never "
        "negative and at least half zeros",
    )
    C: float = Field(
        30.0, gt=0.0, le=1e6, description="inverse strength of the penalty on the weights of single features"
    )
    n_pairs: int = Field(
        20_000,
        ge=2,
        le=10_000_000,
        description="maximum number of training pairs drawn from identities; listed pairs are all used",
    )
    random_state: Seed = Field(0, description="seed of the pairs")
