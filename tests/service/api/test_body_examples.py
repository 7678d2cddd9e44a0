"""Examples of the OpenAPI document: those of requests are taken, and those of answers fit their schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from pydantic import TypeAdapter

from pairmark.service.api.routers import guarded_routes
from pairmark.service.app import create_app
from pairmark.service.settings import Settings

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
    for operation in _operations(document):
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            example = json.dumps(content["application/json"]["example"])
            TypeAdapter(BODIES[operation["operationId"]]).validate_json(example)


def test_each_answer_in_json_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    for operation in _operations(document):
        for status, answer in operation["responses"].items():
            content = answer.get("content", {}).get("application/json")
            if status.startswith("2") and content is not None:
                schema = {**content["schema"], "components": document["components"]}
                validator = jsonschema_rs.Draft202012Validator(schema)
                errors = [error.message for error in validator.iter_errors(content["example"])]
                assert errors == [], operation["operationId"]
