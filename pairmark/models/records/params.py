"""Parameters of models of records: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from pydantic import Field

from pairmark.models.core.spec import Params, Seed

_COLUMNS = (
    "from column to its type (number, category, text, name, date:FORMAT, place, boolean, id, ignore, "
    "...); null: inferred "
    "from what the columns hold"
)


class RecordSimilarityParams(Params):
    """Parameters of boosted trees on comparators of fields."""

    columns: dict[str, str] | None = Field(None, description=_COLUMNS)
    n_estimators: int = Field(300, ge=0, le=10_000, description="boosted trees")
    n_forest: int = Field(300, ge=0, le=10_000, description="trees of the randomised forest beside them")
    learning_rate: float = Field(0.05, gt=0, le=1, description="how much of each boosted tree is added")
    max_depth: int = Field(6, ge=1, le=12, description="depth of the boosted trees")
    n_pairs: int = Field(
        100_000,
        ge=2,
        le=5_000_000,
        description="training pairs drawn from identities; explicit pairs are all used",
    )
    random_state: Seed = Field(None, description="seed; the same seed gives the same model")


class FellegiSunterParams(Params):
    """Parameters of the Fellegi-Sunter model."""

    columns: dict[str, str] | None = Field(None, description=_COLUMNS)
    n_pairs: int = Field(
        200_000, ge=100, le=50_000_000, description="random pairs that say how often strangers agree"
    )
    max_frequency: int = Field(
        50, ge=2, le=10_000, description="rows that may share a key before it makes no candidates any more"
    )
    max_iter: int = Field(100, ge=1, le=10_000, description="steps of expectation maximisation")
    random_state: Seed = Field(None, description="seed; the same seed gives the same model")
