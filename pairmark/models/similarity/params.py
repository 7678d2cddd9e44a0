"""Parameters of similarity trees and forests: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

AskedFeatures = Literal[
    "raw", "distances", "posteriors", "discriminant", "kernel-discriminant", "whitened", "auto"
]
_FEATURES = (
    "features of a pair beside the raw ones: 'distances' where few identities are known, 'posteriors' "
    "when classes to come are those learned from (closed-set), 'discriminant', 'kernel-discriminant' or "
    "'whitened' for new identities (open-set), 'auto' for whichever finds most held-out same pairs at low "
    "false positive rates"
)
MaxFeatures = (
    Literal["sqrt", "log2"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None
)


class _SharedParams(Params):
    """Parameters of trees and forests."""

    max_depth: int = Field(8, ge=1, le=24, description="depth of the similarity tree: at most 2^depth scores")
    leaf_depth: int = Field(3, ge=1, le=8, description="depth of the tree that splits each cell (LeafRank)")
    leaf_rank: Literal["cart", "exhaustive", "linear", "boosting"] = Field(
        "cart",
        description="how a cell is split: by a small greedy tree, by the best of all trees of depth 2 (exhaustive: "
        "finds features that tell only together), by a plane (cost-sensitive logistic regression), or by "
        "boosting (a sum of stumps, which weighs up many weak features at once)",
    )
    leaf_rounds: int = Field(
        100, ge=1, le=1_000, description="maximum number of stumps for a cell that boosting splits"
    )
    pair_map: Literal["diff-sum", "max-min", "products"] = Field(
        "diff-sum",
        description="symmetric features of a pair: (|x-x'|, x+x'), (max, min), or products: (x x', x+x')",
    )
    pair_features: AskedFeatures | None = Field(
        None,
        description=f"{_FEATURES}; null: 'raw' from identities; from listed pairs of at most 512 features "
        "'discriminant', in half of the trees",
    )
    n_pairs: Annotated[int, Field(ge=2, le=200_000_000)] | None = Field(
        100_000, description="training pairs drawn from identities; null: all of them"
    )
    max_features: MaxFeatures = Field(
        None, description="features tried in each cell: a number, a share, 'sqrt', 'log2', or null for all"
    )
    random_state: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        None, description="seed; the same seed gives the same model"
    )
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads; -1: one per core")
    verbose: int = Field(0, ge=0, le=100, description="1: print a line when a tree finishes")


class SimilarityTreeParams(_SharedParams):
    """Parameters of a similarity tree."""

    pair_features: AskedFeatures = Field("raw", description=_FEATURES)
    prune: bool = Field(
        False, description="prune by a cross-validated AUC, which leaves fewer cells that generalise better"
    )


class SimilarityForestParams(_SharedParams):
    """Parameters of a similarity forest."""

    n_estimators: int = Field(50, ge=1, le=10_000, description="trees")
    max_depth: int = Field(12, ge=1, le=24, description="depth of each similarity tree")
    leaf_depth: int = Field(4, ge=1, le=8, description="depth of the tree that splits each cell (LeafRank)")
    aggregation: Literal["rank", "log-odds"] = Field(
        "log-odds",
        description="a forest's score: mean log-odds of the leaves, or mean rank of the cells",
    )
    max_features: MaxFeatures = Field(
        "sqrt", description="features tried in each cell: a number, a share, 'sqrt', 'log2', or null for all"
    )
    bootstrap: bool = Field(
        True,
        description="each tree draws its own pairs (or resamples explicit pairs); otherwise all use the same pairs",
    )
