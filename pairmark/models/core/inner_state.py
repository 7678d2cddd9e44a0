"""The state of a learner inside another one: its arrays under a prefix, with its kind, parameters and facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from pairmark.models.core.artefact import ArtefactError, OutdatedModel
from pairmark.models.core.schema import StoredState, checked_model
from pairmark.models.core.spec import LearnerSpec, jsonable_params


class InnerModel(BaseModel):
    """What is kept of the inner learner beside its arrays."""

    model_config = ConfigDict(strict=True)

    kind: str
    params: dict[str, Any]
    meta: dict[str, Any]


def inner_facts(specs: Mapping[str, LearnerSpec], model: Any) -> dict[str, Any]:
    spec = next(spec for spec in specs.values() if type(model) is spec.estimator)
    return {"kind": spec.kind, "params": jsonable_params(spec, model), "meta": model.to_state()[1]}


def inner_model(specs: Mapping[str, LearnerSpec], facts: InnerModel, file: StoredState, prefix: str) -> Any:
    spec = specs[facts.kind]
    model = spec.estimator(**current_params(spec, facts.params))
    width = {"n_features_in": file.sizes["features"]} if "features" in file.sizes else {}
    return model.from_state(_inner_arrays(file.arrays, prefix), facts.meta | width)


def _inner_arrays(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, np.ndarray[Any, Any]]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def current_params(spec: LearnerSpec, stored: Mapping[str, Any], before: str = "params.") -> dict[str, Any]:
    """Parameters of an artefact of any version as this one has them; an `OutdatedModel` names one that it no longer
    has."""
    params = dict(stored)
    for name in spec.retired.keys() & params.keys():
        value = params.pop(name)
        if spec.retired[name] is not ... and value != spec.retired[name]:
            raise OutdatedModel(
                f"{before}{name} is {value!r}, which this version no longer has; expected {spec.retired[name]!r}"
            )
    for (name, value), current in spec.renamed.items():
        if params.get(name) == value:
            params[name] = current
    try:
        return checked_model(spec.params, params, before).model_dump()
    except ArtefactError as error:
        raise OutdatedModel(str(error)) from None


def check_inner(
    spec: LearnerSpec, inner: InnerModel, n_features: int, arrays: Mapping[str, NDArray[Any]], prefix: str
) -> None:
    """Check the inner learner's state by its own schema; errors name parameters and arrays as they are in the file."""
    params = current_params(spec, inner.params, "model.params.")
    facts = {**inner.meta, "n_features_in": n_features, "feature_names_in": None}
    try:
        spec.estimator.check_state(params, facts, _inner_arrays(arrays, prefix))
    except ArtefactError as error:
        raise ArtefactError(str(error).replace("array '", f"array '{prefix}")) from error
