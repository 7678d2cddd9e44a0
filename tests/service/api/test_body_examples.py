"""Examples of the OpenAPI document: every request and answer in JSON has one, which fits its schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from pydantic import TypeAdapter

from pairmark.service.api import document_values
from pairmark.service.api.routers import guarded_routes
from pairmark.service.app import create_app
from pairmark.service.settings import Settings

JSON_TYPE = "application/json"
BODIES = {
    route.operation_id: route.body_field.field_info.annotation
    for route in guarded_routes()
    if route.body_field is not None
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(Settings(), warm=False).openapi()


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for operations in document["paths"].values() for operation in operations.values()]


def test_each_body_in_json_has_an_example_that_the_service_takes(document: dict[str, Any]) -> None:
    shown = set()
    for operation in _operations(document):
        content = operation.get("requestBody", {}).get("content", {}).get(JSON_TYPE)
        if content is not None:
            name = operation["operationId"]
            for example in content["examples"].values():
                TypeAdapter(BODIES[name]).validate_json(json.dumps(example["value"]))
                shown.add(name)
    assert shown == set(document_values.REQUESTS) <= set(BODIES)


def test_each_answer_in_json_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    components = document["components"]
    for operation in _operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get(JSON_TYPE)
            if content is None or not status.startswith("2"):
                continue
            validator = jsonschema_rs.Draft202012Validator({**content["schema"], "components": components})
            assert content["examples"], operation["operationId"]
            for example in content["examples"].values():
                value = components["examples"][example["$ref"].rpartition("/")[2]]["value"]
                errors = [error.message for error in validator.iter_errors(value)]
                assert errors == [], operation["operationId"]
