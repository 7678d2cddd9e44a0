"""Parameters of fusion: names, defaults, bounds; the source of their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from pairmark.models.auto import spec as auto
from pairmark.models.auto.candidates import RACING
from pairmark.models.cohort import spec as cohort
from pairmark.models.core.spec import LearnerSpec, Params
from pairmark.models.similarity import spec as similarity

FUSED: Final[dict[str, LearnerSpec]] = {
    **RACING,
    **{spec.kind: spec for spec in (similarity.TREE, cohort.COHORT, auto.AUTO)},
}
"""Learners that can be fused, by kind."""

Kind = Literal[
    "metric",
    "plda",
    "similarity-logistic",
    "similarity-forest",
    "rankboost-kernel",
    "ghost",
    "similarity-tree",
    "cohort",
    "similarity-auto",
]


class Component(BaseModel):
    """One of the learners whose scores are combined."""

    model_config = ConfigDict(extra="forbid")

    learner: Kind = Field(description="kind of the learner")
    params: dict[str, Any] | None = Field(None, description="parameters of that learner; null: its defaults")
    version: str | None = Field(
        None, max_length=200, description="the registered version that learner and parameters are of"
    )

    @model_serializer(mode="wrap")
    def _as_given(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What was left out is left out again."""
        return {name: value for name, value in dumped(self).items() if value is not None}


def _of_estimator(given: Any) -> Any:
    """An estimator as its kind and parameters."""
    if isinstance(given, str):
        raise ValueError(
            f"{given[:100]!r} is a name; expected an estimator or {{'learner': KIND, 'params': {{...}}}} (registered "
            "versions can be named in training jobs only)"
        )
    for spec in FUSED.values():
        if type(given) is spec.estimator:
            known = {
                name: value
                for name, value in given.get_params(deep=False).items()
                if name in spec.params.model_fields
            }
            return {"learner": spec.kind, "params": spec.params.model_validate(known).model_dump(mode="json")}
    return given


class FusionParams(Params):
    """Parameters of fusion."""

    models: (
        Annotated[
            list[Annotated[Component, BeforeValidator(_of_estimator)]], Field(min_length=2, max_length=8)
        ]
        | None
    ) = Field(
        None,
        description="what is combined: kinds with their parameters or, in a training job, registered versions (`name`, "
        "`name@alias`, `name:version`), whose kind and parameters are learned again on the job's training part; null: "
        "plda and whitened cosine",
    )
    keep: Literal["if-better", "always"] = Field(
        "if-better",
        description="if-better: the combination where its rate on held-out identities is above that of the best single "
        "one by more than a standard error, else that one alone; always: the combination",
    )
    protocol: Literal["auto", "open-set", "closed-set"] = Field(
        "auto", description="what the folds hold out: identities, or rows of shared classes"
    )
    random_state: Annotated[int, Field(ge=0, lt=2**32)] | None = Field(
        0, description="seed of the folds and of the learners"
    )
    n_jobs: int | None = Field(None, ge=-64, le=1024, description="threads for learners that use several")


_DEFAULT = (Component(learner="plda"), Component(learner="metric", params={"whiten": True}))


def components_of(models: Any) -> list[Component]:
    """The learners that the parameter ``models`` names, however they are given."""
    if models is None:
        return list(_DEFAULT)
    found = FusionParams.model_validate({"models": list(models)}).models
    assert found is not None
    return found
