"""The OpenAPI document: FastAPI's, with problems, keys and names."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from pairmark.service.api.problems import ProblemOut

PATHS: Final = {
    "calibration": "id of the calibration",
    "calibration_id": "id of the calibration",
    "gallery": "the gallery's name",
    "job_id": "id of the job",
    "kind": "kind of the learner",
    "slug": "the last part of the problem's `type`",
    "subject": "the subject; it may contain slashes",
}
DESCRIPTION: Final = """\
Pairmark learns similarity from your own labelled vectors and answers "same" or "different" at the false positive
rate you ask for, with a stated guarantee, or refuses when the data cannot support it.

A model is named `name` (its production version), `name@alias` or `name:version`. Errors are
`application/problem+json`; their `type` is a page of this service that says how to fix them.
"""


def document(app: FastAPI) -> dict[str, Any]:
    """Build the document once; afterwards the same one is given."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description=DESCRIPTION,
            routes=app.routes,
            separate_input_output_schemas=False,
        )
        components: dict[str, Any] = schema["components"]
        components["schemas"]["Problem"] = ProblemOut.model_json_schema()
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        document = _with_clean_names(schema)
        _describe_paths(document)
        app.openapi_schema = document
    return app.openapi_schema


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


def _describe_paths(document: dict[str, Any]) -> None:
    """Describe parameters that their handlers do not."""
    for operations in document["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if not parameter.get("description"):
                    name, schema = parameter["name"], parameter["schema"]
                    parameter["description"] = schema.get("description") or PATHS.get(name, "")
