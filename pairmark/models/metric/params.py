"""Parameters of the metric learner: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

Metric = Literal[
    "cosine",
    "correlation",
    "dot",
    "euclidean",
    "sqeuclidean",
    "manhattan",
    "chebyshev",
    "minkowski",
    "canberra",
    "braycurtis",
    "hamming",
]


class MetricParams(Params):
    """Parameters of the metric learner."""

    metric: Metric = Field(
        "cosine",
        description="how two vectors are compared; distances are scored negated, so that higher is more similar",
    )
    p: float = Field(2.0, ge=1.0, le=100.0, description="exponent of the Minkowski distance")
    whiten: bool = Field(
        False, description="whiten by the covariance within identities first (learned from the training part)"
    )
    shrinkage: Literal["auto"] | Annotated[float, Field(ge=0.0, le=1.0)] = Field(
        "auto",
        description="how far the covariance within identities is shrunk to a multiple of the identity before "
        "whitening: 0 to 1, or auto (Ledoit and Wolf)",
    )
