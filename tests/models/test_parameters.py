"""A learner's parameters stand once, in its constructor: model, help and refusals say what stands there."""

from __future__ import annotations

import inspect
import json
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import Field
from sklearn.base import BaseEstimator, clone

from pairmark.models.core.spec import (
    LearnerSpec,
    RandomState,
    check_params,
    document_parameters,
    parameters_of,
)
from pairmark.models.registry import LEARNERS


@document_parameters
class Counting(BaseEstimator):
    """Counts.

    Attributes
    ----------
    count_ : how many.
    """

    def __init__(
        self,
        *,
        limit: Annotated[
            Literal["auto"] | Annotated[int, Field(ge=1)], Field(description="most of them")
        ] = "auto",
        share: Annotated[float, Field(gt=0, le=1, description="of the rows; null is never taken")] = 0.5,
        random_state: Annotated[RandomState, Field(description="seed")] = 0,
    ) -> None:
        self.limit = limit
        self.share = share
        self.random_state = random_state


def test_the_model_has_what_the_constructor_says() -> None:
    schema = parameters_of(Counting).model_json_schema()
    assert list(schema["properties"]) == ["limit", "share", "random_state"]
    assert schema["properties"]["share"] == {
        "default": 0.5, "description": "of the rows; null is never taken", "exclusiveMinimum": 0, "maximum": 1,
        "title": "Share", "type": "number",
    }  # fmt: skip
    # A generator is for Python alone.
    assert "RandomState" not in json.dumps(schema)
    assert {choice.get("type") for choice in schema["properties"]["random_state"]["anyOf"]} == {
        "integer",
        "null",
    }


def test_help_lists_every_parameter_before_the_attributes() -> None:
    text = inspect.getdoc(Counting) or ""
    assert "limit : most of them (default 'auto')" in text
    assert "share : of the rows; None is never taken (default 0.5)" in text
    assert (
        text.index("Parameters\n----------") < text.index("random_state : seed") < text.index("Attributes\n")
    )
    assert "Annotated" not in str(inspect.signature(Counting))


def test_values_out_of_bounds_are_named_with_what_was_expected() -> None:
    for params, message in (
        ({"limit": 0}, r"Counting: limit is 0: .*greater than or equal to 1"),
        ({"share": np.float32(2)}, r"share is 2\.0: .*less than or equal to 1"),
        ({"random_state": "x"}, r"random_state is 'x': .*, or a RandomState"),
        ({"limit": 0, "share": 0}, r"limit is 0: .*; share is 0: "),
    ):
        with pytest.raises(ValueError, match=message):
            check_params(Counting(**params))
    check_params(Counting(limit=np.int64(3), random_state=np.random.RandomState(0)))


def test_it_stays_an_estimator() -> None:
    model = Counting(limit=4)
    assert clone(model).get_params() == {"limit": 4, "share": 0.5, "random_state": 0}
    assert model.set_params(share=1.0).share == 1.0


@pytest.mark.parametrize("spec", LEARNERS, ids=lambda spec: spec.kind)
def test_help_of_every_learner_describes_each_parameter(spec: LearnerSpec) -> None:
    text = " ".join((inspect.getdoc(spec.estimator) or "").split())
    properties: dict[str, Any] = spec.params.model_json_schema()["properties"]
    for name, field in properties.items():
        assert f"{name} : {field['description'].replace('null', 'None')}" in text, name
