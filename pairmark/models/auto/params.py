"""Parameters of `similarity-auto`: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

CandidateName = Literal[
    "cosine",
    "whitened cosine",
    "discriminant cosine",
    "plda",
    "logistic",
    "residual forest",
    "similarity forest",
    "boosted forest",
    "rankboost",
    "ghost",
]


class SimilarityAutoParams(Params):
    """Parameters of the race."""

    candidates: list[CandidateName] | None = Field(
        None, description="candidates to compare; null: all that take the data"
    )
    budget_seconds: float = Field(
        120.0,
        gt=0.0,
        le=86_400.0,
        description="seconds after which no slow candidate is started; quick ones always run. The leaderboard "
        "records which ran",
    )
    protocol: Literal["auto", "open-set", "closed-set"] = Field(
        "auto",
        description="what folds hold out: identities (open-set), or rows of shared classes (closed-set); auto: "
        "open-set from 15 training identities on",
    )
    target_fpr: Annotated[float, Field(gt=0.0, lt=1.0)] | None = Field(
        None,
        description="false positive rate near which candidates are compared; null: the mean over 0.1, 0.03, 0.01 "
        "and 0.003",
    )
    max_rows: int = Field(
        10_000,
        ge=100,
        le=1_000_000,
        description="maximum number of rows for the comparison; the winner is fitted on all rows",
    )
    random_state: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        0, description="seed of folds and candidates"
    )
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads for candidates that use several")
    verbose: int = Field(0, ge=0, le=100, description="1: print a line when a candidate finishes")
