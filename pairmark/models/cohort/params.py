"""Parameters of cohort normalisation: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pairmark.models.core.spec import Params

Normalisation = Literal["none", "s", "adaptive-s"]


class CohortParams(Params):
    """Parameters of cohort normalisation."""

    learner: Literal[
        "metric", "plda", "similarity-forest", "similarity-logistic", "rankboost-kernel", "ghost"
    ] = Field("metric", description="the learner whose scores are normalised")
    learner_params: dict[str, Any] | None = Field(
        None, description="parameters of that learner; null: its defaults"
    )
    normalisation: Literal["auto", "none", "s", "adaptive-s"] = Field(
        "auto",
        description="s: by the mean and spread of both sides' scores with the cohort; adaptive-s: by those of the "
        "cohort's most similar members; auto: the better one where it pays on held-out identities, else none",
    )
    cohort_size: int = Field(200, ge=2, le=10_000, description="training rows in the cohort")
    top: int = Field(
        50, ge=2, le=10_000, description="adaptive-s: how many of the most similar cohort members are used"
    )
    protocol: Literal["auto", "open-set", "closed-set"] = Field(
        "auto", description="what the folds of auto hold out: identities, or rows of shared classes"
    )
    random_state: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        0, description="seed of the cohort, the folds and the learner"
    )
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads for learners that use several")
