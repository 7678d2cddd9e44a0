"""The OpenAPI document, made from the table of routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Path
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from pairmark.service.api.document_values import FIELDS, OF_A_SCHEMA, PATHS
from pairmark.service.api.examples import add_examples
from pairmark.service.api.problems import ProblemOut, responses
from pairmark.service.api.routing import Route, RouteTable

DESCRIPTION: Final = """\
Pairmark learns similarity from your own labelled vectors and answers "same" or "different" at the false positive
rate you ask for, with a stated guarantee, or refuses when the data cannot support it.

A model is named `name` (its production version), `name@alias` or `name:version`. Errors are
`application/problem+json`; their `type` is a page of this service that says how to fix them.
"""
_BINARY: Final = {"type": "string", "format": "binary"}
_RATE_LIMITS: Final = {
    name: {"description": text, "schema": {"type": "string"}}
    for name, text in (
        ("RateLimit-Policy", "the limits that this request counts towards: `q` at once, and in `w` seconds"),
        ("RateLimit", "what remains of each: `r` now, all of it in `t` seconds"),
    )
}
"""Fields of answers where something is limited (draft-ietf-httpapi-ratelimit-headers-11)."""


def document(app: FastAPI, table: RouteTable) -> dict[str, Any]:
    """Build the document once; afterwards the same one is given."""
    if app.openapi_schema is None:
        public = [route for route in table.routes if route.tag is not None]
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=[_as_the_framework_sees(route) for route in public],
            separate_input_output_schemas=False,
        )
        components: dict[str, Any] = schema.setdefault("components", {})
        schemas: dict[str, Any] = components.setdefault("schemas", {})
        schemas["Problem"] = ProblemOut.model_json_schema()
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        for route in public:
            _complete(route, schema["paths"][route.label][route.method.lower()])
        app.openapi_schema = _with_clean_names(schema)
        _add_meanings(app.openapi_schema)
        add_examples(app.openapi_schema)
    return app.openapi_schema


def _as_the_framework_sees(route: Route) -> APIRoute:
    """The route with the signature that its handler would have if the framework read the body."""
    if not (route.direct or route.reads_stream):
        return route.framework_route(route.handler)
    if route.limits.decoded:
        parameters = [
            parameter.replace(kind=Parameter.KEYWORD_ONLY)
            for parameter in signature(route.handler, eval_str=True).parameters.values()
        ]
    else:
        parameters = [
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[str, Path(description=PATHS[name])])
            for name in re.findall(r"{([^}]*)}", route.label)
        ]
    if route.body is not None:
        parameters.append(Parameter("body", Parameter.KEYWORD_ONLY, annotation=Annotated[route.body, Body()]))

    def endpoint(**_: Any) -> None: ...

    described: Callable[..., Any] = endpoint
    described.__doc__ = route.handler.__doc__
    described.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return route.framework_route(described)


def _complete(route: Route, operation: dict[str, Any]) -> None:
    """Add what the framework does not know: queries, binary bodies, access, links, and how requests can fail."""
    parameters = [*operation.get("parameters", ()), *_query_parameters(route)]
    if parameters:
        operation["parameters"] = parameters
    if route.access != "open":
        operation["security"] = [{"bearer": []}, {"key": []}]
        operation["x-required-scope"] = "any" if route.access == "metrics" else route.access
    answers: dict[str, Any] = operation["responses"]
    # The framework's own description of 422 is not what this service answers.
    answers["422"] = responses(422)[422]
    for status, answer in answers.items():
        if status.startswith("2"):
            headers = answer.setdefault("headers", {})
            headers["X-Request-ID"] = {"schema": {"type": "string"}}
            if route.access != "open":
                headers.update(_RATE_LIMITS)
    success = answers[str(route.status)]
    content = operation.get("requestBody", {}).get("content", {})
    if route.links:
        success["links"] = {
            target: {"operationId": target, "parameters": dict(arguments)}
            for target, arguments in route.links.items()
        }
    if route.binary is not None:
        content.update({kind: {"schema": _BINARY} for kind in route.binary.bodies})
        if route.binary.text:
            operation["description"] += "\n\n" + route.binary.text
        if route.binary.answer_headers is not None:
            success["content"]["application/octet-stream"] = {"schema": _BINARY}
            for name, description in route.binary.answer_headers.items():
                success["headers"][name] = {"description": description, "schema": {"type": "string"}}
    operation["responses"] = dict(sorted(answers.items()))


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    schema = route.reader.schema
    required = schema.get("required", ())
    parameters = []
    for name, schema_of_field in schema.get("properties", {}).items():
        field = {
            key: value
            for key, value in schema_of_field.items()
            if key not in ("title", "description", "examples")
        }
        options = [option for option in field.pop("anyOf", ()) if option.get("type") != "null"]
        if options:
            field = {**options[0], **{key: value for key, value in field.items() if value is not None}}
        if field.get("default", 0) is None:
            del field["default"]
        parameter = {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": schema_of_field.get("description", ""),
            "schema": field,
        }
        if schema_of_field.get("examples"):
            parameter["example"] = schema_of_field["examples"][0]
        parameters.append(parameter)
    return parameters


def _with_clean_names(schema: dict[str, Any]) -> dict[str, Any]:
    """The document with schemas called by their titles, and multipart bodies (the framework's `Body_add_dataset`) by
    ours (`AddDatasetForm`), after all others."""
    schemas: dict[str, Any] = schema["components"]["schemas"]
    renamed = {}
    for name, shape in schemas.items():
        if name.startswith("Body_"):
            words = name.removeprefix("Body_").split("_")
            shape["title"] = "".join(word.capitalize() for word in words) + "Form"
        renamed[name] = shape.get("title", name)
    bodies_last = sorted(schemas, key=lambda name: name.startswith("Body_"))
    schema["components"]["schemas"] = {renamed[name]: schemas[name] for name in bodies_last}

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            reference = value.get("$ref")
            if isinstance(reference, str):
                head, _, name = reference.rpartition("/")
                value["$ref"] = f"{head}/{renamed.get(name, name)}"
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(schema)
    return schema


def _add_meanings(document: dict[str, Any]) -> None:
    """Describe the members of schemas and the parameters of paths that have no description of their own."""
    for name, schema in document["components"]["schemas"].items():
        for field, shape in schema.get("properties", {}).items():
            of_its_name, *_ = FIELDS.get(field, (None,))
            meaning, *_ = OF_A_SCHEMA.get(f"{name}.{field}", (None,))
            _describe(shape, meaning or of_its_name)
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                _describe(parameter, PATHS.get(parameter["name"]))


def _describe(entry: dict[str, Any], meaning: str | None) -> None:
    if meaning is not None and not entry.get("description"):
        entry["description"] = meaning
