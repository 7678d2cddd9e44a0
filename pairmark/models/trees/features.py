"""How many features a node tries."""

import math
from typing import Annotated, Literal

from pydantic import Field

MaxFeatures = Annotated[
    Literal["sqrt", "log2", "third"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None,
    Field(
        description="features tried in each node: a number, a share, 'sqrt', 'log2', 'third', or null for all"
    ),
]


def n_features_tried(max_features: int | float | str | None, n_features: int) -> int:
    """Of so many, at least one; see `MaxFeatures`."""
    if max_features is None:
        return n_features
    if isinstance(max_features, int):
        return min(max_features, n_features)
    words = {"sqrt": math.isqrt(n_features), "log2": int(math.log2(n_features)), "third": -(-n_features // 3)}
    return max(1, words[max_features] if isinstance(max_features, str) else round(max_features * n_features))
