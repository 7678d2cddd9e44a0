"""What a learner is to the library: its kind, what it can serve, its parameters, how its state is saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pairmark.models.core.schema import StateSchema

Capability = Literal["similarity", "match", "search", "embed", "classify", "rank-labels"]


Seed = Annotated[int, Field(ge=0, lt=2**32)] | None
"""A ``random_state``; the same seed gives the same model."""


class Params(BaseModel):
    """Base of every learner's parameter model: names are those of the estimator, unknown ones are refused."""

    model_config = ConfigDict(extra="forbid")


AnyParams = TypeVar("AnyParams", bound=Params)


@dataclass(frozen=True, kw_only=True)
class LearnerSpec:
    """Everything the library and the service need to know of a learner.

    Attributes
    ----------
    kind : public name, e.g. ``similarity-forest``.
    title : one line for people.
    estimator : the class, a `Stateful`; ``estimator(**params.model_dump())`` builds it.
    capabilities : what a fitted one can serve.
    params : pydantic model of the JSON-able parameters; its JSON Schema is public.
    state : schema of what its `to_state` gives, checked at every load before its `from_state` reads it.
    needs : what a training dataset must bring.
    accepts_sparse : whether CSR input is taken as it is.
    distributes : whether parallel parts of a fit may run in processes of other machines, through joblib.
    keeps_rows : whether an artefact holds rows of its training data (references, pivots, exemplars), which an erasure
        cannot reach: its receipt names such versions.
    takes_unlabelled : whether ``fit`` and ``fit_pairs`` take ``unlabelled=`` rows.
    log_lr : whether its score is a natural log likelihood ratio by itself.
    learns : parameters -> whether anything is learned from the training part. A plain metric learns nothing, so all
        data may calibrate it.
    retired : parameters that earlier versions had, which their artefacts still name: the only value with which such a
        model can be read, or ``...`` for those that mattered to training alone.
    renamed : (parameter, value) of earlier versions -> the value that stands for it now.
    takes_records : whether it reads cells of tables itself, so that no encoder stands before it.
    ignores_unknown : whether columns beyond those of training say nothing to it, so that sparse rows may hold some.
    """

    kind: str
    title: str
    estimator: type[Any]
    capabilities: frozenset[Capability]
    params: type[Params]
    state: StateSchema
    needs: Literal["identities", "rankings"] = "identities"
    accepts_sparse: bool = False
    distributes: bool = False
    keeps_rows: bool = False
    takes_unlabelled: bool = False
    takes_records: bool = False
    ignores_unknown: bool = False
    log_lr: bool = False
    retired: Mapping[str, Any] = field(default_factory=dict)
    renamed: Mapping[tuple[str, Any], Any] = field(default_factory=dict)
    learns: Callable[[Mapping[str, Any]], bool] = lambda params: True


def capabilities_of(spec: LearnerSpec, estimator: Any) -> frozenset[Capability]:
    """What this fitted learner can serve: of its kind's capabilities, all that it does not name as ``unavailable_``."""
    unavailable = frozenset(getattr(estimator, "unavailable_", ()))
    # Galleries hold vectors.
    records = frozenset({"search"}) if getattr(estimator, "encoder_", None) is not None else frozenset()
    return spec.capabilities - unavailable - records


def check_params(estimator: Any, params: type[AnyParams]) -> AnyParams:
    """An estimator's parameters, held against their model; a seed that is a generator is left out.

    A `ValueError` names each parameter that does not fit and what was expected.
    """
    given = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in estimator.get_params(deep=False).items()
        # scikit-learn's generators are welcome as a seed, though no JSON can carry them.
        if name in params.model_fields and not isinstance(value, np.random.RandomState)
    }
    try:
        return params.model_validate(given)
    except ValidationError as error:
        wrong = {str(line["loc"][0]): line["msg"] for line in error.errors()}
        said = "; ".join(f"{name} is {given.get(name)!r}: {message}" for name, message in wrong.items())
        raise ValueError(f"{type(estimator).__name__}: {said}") from None


def jsonable_params(spec: LearnerSpec, estimator: Any) -> dict[str, Any]:
    """Parameters as their model writes them; a `ValueError` where one is an object that JSON cannot carry."""
    given = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name in spec.params.model_fields
    }
    return spec.params.model_validate(given).model_dump(mode="json")
