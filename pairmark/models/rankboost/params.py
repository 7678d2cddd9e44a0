"""Parameters of RankBoost kernels and aligned kernels: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

Weak = Literal["stump", "grid"]
Criterion = Literal["r", "z"]
Ranking = Literal["classes", "graded"]
Coordinates = Literal["rankers", "features"]
Pivots = Literal["random", "kmeans", "greedy"]
Chain = Literal["A-D", "A-B-D", "A-C-D", "A-B-C-D"]
Loss = Literal["squared", "alignment"]

_Size = Annotated[int, Field(ge=1, le=100_000)]
_SEED = Field(None, ge=0, le=2**32 - 1, description="seed of all random draws; null: differs each time")


class RankBoostKernelParams(Params):
    """Parameters of the RankBoost kernel."""

    n_estimators: int = Field(
        300, ge=1, le=50_000, description="rounds of boosting: in each bag, for each class if more than two"
    )
    n_bags: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="rankings learned on bootstrap samples of the rows, each on a random half of the features, and "
        "averaged; 1: one ranking of all rows and features, as in the paper; null: 60 for two classes with more "
        "features than rows (fewer beyond 10,000 rows), else 1",
    )
    weak: Weak = Field(
        "stump", description="stump: one feature above a threshold; grid: two such conditions together"
    )
    criterion: Criterion = Field(
        "z",
        description="how weak rankers are chosen: r, the approximation of Freund's third method, or z, the exact "
        "normalisation factor",
    )
    ranking: Ranking = Field(
        "classes",
        description="classes: one class against the rest, for each class; graded: labels are levels, and a higher one "
        "is to be ranked above a lower one",
    )
    preference: list[list[Annotated[float, Field(ge=0.0, le=1e12)]]] | None = Field(
        None,
        description="for graded labels: how much it matters that a row of level j is ranked above one of level i < j, "
        "at [i][j] (levels in order); null: the difference of the labels",
    )
    coordinates: Coordinates = Field(
        "rankers",
        description="what the kernel multiplies: one coordinate a weak ranker, or one a feature (the sum of the "
        "rankers that look at it; stumps only)",
    )
    center: bool = Field(
        True,
        description="take the kernel between differences from the mean row in the rankers' space: what most rows share "
        "makes no two of them similar; false: the paper's plain inner product",
    )
    chain: Chain = Field(
        "A-B-C-D",
        description="stages of the embedding. A: outputs of the weak rankers; B: kernel with pivots; C: random "
        "projection; D: linear SVM",
    )
    n_pivots: _Size | None = Field(
        None, description="pivots of stage B; null: as many as there are rows to draw from, at most 1000"
    )
    pivots: Pivots = Field(
        "random",
        description="random rows, k-means centres, or rows chosen greedily to span the others (pivoted Cholesky)",
    )
    whiten: bool = Field(
        False,
        description="project orthogonally onto the span of the pivots (Cholesky factor of their kernel matrix)",
    )
    n_components: _Size = Field(100, description="dimensions after the random projection of stage C")
    random_state: int | None = _SEED


class AlignedKernelParams(Params):
    """Parameters of the aligned kernel."""

    hidden: tuple[Annotated[int, Field(ge=1, le=4096)], ...] = Field(
        (20, 20), min_length=1, max_length=4, description="sizes of the hidden layers of tanh units"
    )
    psd: bool = Field(
        True,
        description="a positive semi-definite kernel: the inner product of what both rows make of the network; false: "
        "one network reads both rows, and its two orders are averaged",
    )
    loss: Loss = Field(
        "alignment",
        description="squared: (K - yy')^2; alignment: one minus the cosine between the kernel matrix and the "
        "perfect one",
    )
    learning_rate: Literal["auto"] | Annotated[float, Field(gt=0.0, le=1e3)] = Field(
        "auto", description="step of gradient descent; auto: chosen on folds"
    )
    n_iter: int = Field(30, ge=1, le=10_000, description="passes over the rows (or pairs)")
    random_state: int | None = _SEED
