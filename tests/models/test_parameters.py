"""A learner's parameters stand once, in its constructor: model, help and refusals say what stands there."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from pairmark.models.registry import learner_specs


@pytest.mark.parametrize("spec", learner_specs(), ids=lambda spec: spec.kind)
def test_help_of_every_learner_describes_each_parameter(spec: Any) -> None:
    text = " ".join((inspect.getdoc(spec.estimator) or "").split())
    properties: dict[str, Any] = spec.params.model_json_schema()["properties"]
    for name, field in properties.items():
        assert f"{name} : {field['description'].replace('null', 'None')}" in text, name
