"""Examples of requests and answers in the OpenAPI document, made of declared values."""

from __future__ import annotations

import json
from typing import Any, Final

from pairmark.service.api.document_values import ANSWERS, FIELDS, OF_A_SCHEMA, REQUESTS, SHOWN

_EMPTY: Final[dict[str, Any]] = {"boolean": False, "integer": 0, "array": [], "object": {}}
"""By type: what a member holds that no row gives a value, where it may not be null. Numbers and texts need one."""


def add_examples(document: dict[str, Any]) -> None:
    """Show each request and answer in JSON by an example; an answer's is in the document once, as a component."""
    schemas = document["components"]["schemas"]
    shared = document["components"].setdefault("examples", {})
    for operations in document["paths"].values():
        for operation in operations.values():
            name = operation["operationId"]
            if name in REQUESTS:
                body = operation["requestBody"]["content"]["application/json"]
                body["examples"] = {"example": {"value": REQUESTS[name]}}
            for status, answer in operation["responses"].items():
                content = answer.get("content", {}).get("application/json")
                if content is None or not status.startswith("2"):
                    continue
                options = content["schema"].get("anyOf", [content["schema"]])
                examples = {
                    option["$ref"].rpartition("/")[2]: _example_of(schemas, option)
                    for option in options
                    if "$ref" in option
                } or {each: value for each, value in ANSWERS.items() if each == name}
                shared.update({component: {"value": value} for component, value in examples.items()})
                content["examples"] = {
                    component: {"$ref": f"#/components/examples/{component}"} for component in examples
                }


def answer_examples(document: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    """The examples of an answer in JSON, as text."""
    examples = answer.get("content", {}).get("application/json", {}).get("examples", {})
    return [json_text(document["components"]["examples"][component]["value"]) for component in examples]


def json_text(value: Any, indent: str = "") -> str:
    """JSON for people: what fits a line stays on one."""
    line = json.dumps(value)
    if len(indent) + len(line) <= 80 or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        entries = [f"{json.dumps(key)}: {json_text(member, deeper)}" for key, member in value.items()]
    else:
        entries = [json_text(member, deeper) for member in value]
    return f"{line[0]}\n{deeper}" + f",\n{deeper}".join(entries) + f"\n{indent}{line[-1]}"


def _example_of(schemas: dict[str, Any], schema: dict[str, Any]) -> Any:
    """What a schema describes, made of its members' examples."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        required = schemas[name].get("required", ())
        return {
            member: _member(schemas, f"{name}.{member}", shape)
            for member, shape in schemas[name]["properties"].items()
            if member in required or len(OF_A_SCHEMA.get(f"{name}.{member}", ())) > 1 or "const" in shape
        }
    if "anyOf" in schema:
        first, *others = schema["anyOf"]
        is_plain = "enum" not in first and not _holds_objects(first)
        return None if is_plain and {"type": "null"} in others else _example_of(schemas, first)
    if schema.get("type") == "array" and _holds_objects(schema):
        return [_example_of(schemas, schema["items"])]
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    return _EMPTY[schema["type"]]


def _holds_objects(shape: dict[str, Any]) -> bool:
    return "$ref" in shape or ("items" in shape and _holds_objects(shape["items"]))


def _member(schemas: dict[str, Any], name: str, shape: dict[str, Any]) -> Any:
    of_objects = "$ref" in {**shape, **shape.get("items", {})}
    of_its_name = () if of_objects else FIELDS.get(name.rpartition(".")[2], ())
    value = [SHOWN, *of_its_name[1:], *OF_A_SCHEMA.get(name, ())[1:]][-1]
    return _example_of(schemas, shape) if value is SHOWN else value
