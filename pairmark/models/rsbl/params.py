"""Parameters of recursive similarity-based learning: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

Metric = Literal["euclidean", "manhattan", "chebyshev", "mahalanobis", "cosine", "correlation", "hamming"]


class RSBLParams(Params):
    """Parameters of recursive similarity-based learning; the defaults are the paper's."""

    depth: int = Field(5, ge=1, le=20, description="layers of similarity features")
    k_max: int = Field(
        20,
        ge=1,
        le=1000,
        description="maximum number of neighbours of each training row that become features in one layer",
    )
    beta: Annotated[float, Field(gt=0.0, le=1e12)] | Literal["median", "search"] = Field(
        0.1,
        description="width of the Gaussian features exp(-beta d^2), above 0; median: one over the median squared "
        "distance, chosen for each layer; search: the multiple of that which errs least on inner folds",
    )
    metric: Metric = Field(
        "euclidean", description="the distance d that neighbours and features are made from"
    )
    final: Literal["svm", "1nn"] = Field(
        "svm", description="classifier in the final space: a linear SVM, or the nearest training row"
    )
    C: float = Field(32.0, gt=0.0, le=1e12, description="cost of the linear SVM's errors")
    selection: Literal["training", "folds"] = Field(
        "folds",
        description="where the error that chooses k is measured: on inner folds, or on the training rows themselves",
    )
    n_folds: int = Field(
        5, ge=2, le=50, description="inner folds, for selection and for calibrated probabilities"
    )
    choose_depth: bool = Field(
        False,
        description="keep the number of layers (up to depth) with the fewest errors on inner folds, instead of all",
    )
    patience: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="stop after this many larger k without a smaller error; null: try all",
    )
    standardize: bool = Field(True, description="give features mean 0 and variance 1 first")
    nominal: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, description="0-based columns that hold nominal values: each value becomes a feature of its own"
    )
    max_references: int = Field(
        2_000,
        ge=2,
        le=50_000,
        description="maximum number of training rows that can be neighbours, drawn from each class",
    )
    random_state: int | None = Field(None, ge=0, le=2**32 - 1, description="seed of all random draws")
    n_jobs: int | None = Field(None, description="threads; null or -1: joblib's active setting, or all cores")
