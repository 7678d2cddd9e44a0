"""Parameters of GHOST: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from pairmark.models.core.spec import Params
from pairmark.models.ghost.registry import known_names

Strategy = Literal["auto", "average", "minimum", "maximum", "center", "knn"]


class GhostParams(Params):
    """Parameters of GHOST."""

    order: int = Field(2, ge=2, le=5, description="number of points in the largest sets; 2: pairs only")
    meta_features: Literal["auto"] | list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        "auto",
        description="what is weighed: 'features' (the distance in each feature), distances of whole rows (euclidean, "
        "minkowski, cityblock, chebyshev, braycurtis, cosine, correlation, pearson, spearman, kendall, hamming, "
        "jaccard, matching, yule, dice, kulsinski, russellrao), with a graph 'path', and for order 3 and more "
        "perimeter, area, mahalanobis, and with a graph eccentricity, hub, cliques, resilience; 'auto': features, "
        "and what graph and order allow",
    )
    graph: Literal["knn"] | None = Field(
        None,
        description="'knn' links each point to its five nearest by features, which gives paths; null: no graph",
    )
    cluster_metric: bool = Field(
        False,
        description="also weight metrics between a point and a whole class (used to classify, not for pairs)",
    )
    balanced: bool = Field(
        True,
        description="weight errors by class size, so that small classes count; false: every error counts the same",
    )
    strategy: Strategy = Field(
        "auto",
        description="how the distance to a class is read: average, minimum or maximum over its points, to its "
        "center, or by the k nearest; 'auto': whatever was most accurate on rows judged without themselves",
    )
    max_iter: int = Field(50, ge=1, le=100_000, description="maximum number of iterations")
    n_neighbors: int = Field(5, ge=1, le=1_000, description="neighbours that vote under 'knn'")
    alpha: float = Field(1.0, ge=0.0, le=1e6, description="cost of too many or no centers in a class")
    beta: float = Field(1.0, ge=0.0, le=1e6, description="cost of points assigned to another class's center")
    tau: float = Field(0.5, ge=0.0, le=1e9, description="strength of the penalty on weights")
    penalty: Literal["l1", "l2", "none"] = Field("l1", description="the penalty: l1 selects features")
    n_updates: int = Field(2, ge=1, le=1_000, description="updates per iteration, between new centers (T)")
    coupling: Literal["clamped", "free"] = Field(
        "clamped",
        description="how sets of three and more enter learning: 'clamped' with the rest of the set as labelled, 'free' "
        "as in the paper's lemmas, under which the sets of the true classes only cost",
    )
    subset_size: int = Field(
        1_024, ge=2, le=4_096, description="rows in a training set; more rows make several sets, used in turn"
    )
    max_sets: int = Field(
        256, ge=1, le=100_000, description="maximum number of sets of points for each class, drawn at random"
    )
    validation_fraction: float = Field(
        0.2, gt=0.0, le=0.5, description="share of rows withheld to calibrate probabilities"
    )
    tol: float = Field(
        1e-4, ge=0.0, le=1.0, description="relative progress below which training stops; 0: never"
    )
    random_state: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = Field(
        None, description="seed of all random draws"
    )

    @field_validator("meta_features")
    @classmethod
    def _known(cls, names: list[str] | str) -> list[str] | str:
        unknown = [] if isinstance(names, str) else [name for name in names if name not in known_names()]
        if unknown:
            raise ValueError(f"names {unknown[0]!r}; known: {', '.join(known_names())}")
        return names
