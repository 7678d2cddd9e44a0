"""Parameters of label rankers: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params, Seed

MaxFeatures = (
    Literal["sqrt", "log2", "third"]
    | Annotated[int, Field(ge=1, le=1_000_000)]
    | Annotated[float, Field(gt=0.0, le=1.0)]
    | None
)


class LabelRankingTreeParams(Params):
    """Parameters of a label ranking tree."""

    split: Literal["breiman", "level"] = Field(
        "breiman", description="the best split of each node, or one feature per level (Level-Splits)"
    )
    outputs: Literal["joint", "per-label"] = Field(
        "joint", description="one tree for all labels, or one for each label as in the paper"
    )
    max_depth: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="maximum depth; null: fully grown"
    )
    max_features: MaxFeatures = Field(
        None,
        description="features tried in each node: a number, a share, 'sqrt', 'log2', 'third', or null for all",
    )
    honest: bool = Field(
        False, description="choose splits on one half of the sample and fill the leaves with the other"
    )
    max_samples: Annotated[int, Field(ge=1, le=10**9)] | Annotated[float, Field(gt=0.0, le=1.0)] | None = (
        Field(
            None, description="rows drawn for each tree: a number, a share, or null for as many as there are"
        )
    )
    aggregation: Literal["mean", "borda", "copeland", "kemeny"] = Field(
        "mean",
        description="rank by the mean position in the leaf, or aggregate its rows' pairwise majorities",
    )
    random_state: Seed = Field(None, description="seed; the same seed gives the same model")
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads; -1: one per core")
    verbose: int = Field(0, ge=0, le=100, description="1: print a line when a tree finishes")


class LabelRankingForestParams(LabelRankingTreeParams):
    """Parameters of a label ranking forest."""

    n_estimators: int = Field(100, ge=1, le=10_000, description="trees")
    bootstrap: bool = Field(
        True,
        description="each tree draws its rows with replacement; otherwise without (all rows if max_samples is null)",
    )


class PairwiseLabelRankerParams(Params):
    """Parameters of a pairwise label ranker."""

    estimator: Literal["logistic", "forest", "tree"] = Field(
        "logistic", description="binary classifier of each pair of labels"
    )
    aggregation: Literal["copeland", "borda", "kemeny"] = Field(
        "copeland", description="rank by labels beaten, by mean probability, or by least disagreement"
    )
    calibrate: bool = Field(True, description="calibrate the probabilities by cross-fitting")
    random_state: Seed = Field(None, description="seed; the same seed gives the same model")
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads; -1: one per core")
    verbose: int = Field(0, ge=0, le=100, description="has no effect; accepted like in the other rankers")


class LabelRankingAutoParams(Params):
    """Parameters of the automatic choice of a label ranker."""

    candidates: (
        Annotated[
            list[Literal["extra-trees", "forest", "neighbours", "kernel", "boosting", "logistic"]],
            Field(min_length=1),
        ]
        | None
    ) = Field(None, description="rankers to try; null: all that suit the number of labels")
    n_folds: int = Field(5, ge=2, le=50, description="folds of the cross-validation that chooses")
    aggregation: Literal["auto", "borda", "copeland", "kemeny"] = Field(
        "auto", description="how pairwise shares become a ranking; auto: the best by cross-validation"
    )
    random_state: Seed = Field(None, description="seed; the same seed gives the same model")
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads; -1: one per core")
    verbose: int = Field(0, ge=0, le=100, description="1: print each candidate's validated tau")
