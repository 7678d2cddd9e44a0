"""`/docs`: the OpenAPI document as a page, drawn here so that it needs nothing from elsewhere."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import Field

from pairmark.service.api.query import QueryModel
from pairmark.service.api.routing import GuardedRoute, needs

router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


POLICY = (
    "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
# Tag -> what people call it, and one sentence.
GROUPS = {
    "scoring": (
        "Score and decide",
        "How alike two vectors are, and whether they match at a rate you choose.",
    ),
    "ranking": ("Rank labels", "The order of labels for a point."),
    "datasets": ("Datasets", "Labelled vectors, in immutable versions."),
    "jobs": ("Training jobs", "Submit, follow and cancel long work."),
    "models": ("Models and versions", "What was trained, what it promises, and which version serves."),
    "calibrations": (
        "Calibrations",
        "The data that thresholds are computed from, also for scores of other systems.",
    ),
    "learners": ("Learners", "What can be trained, and with which parameters."),
    "galleries": ("Galleries", "Enrol, search, verify and erase."),
    "keys": ("API keys", "Who may do what, and until when."),
    "audit": ("Audit", "Who changed what."),
    "status": ("Status", "Whether the service is alive and ready, and its metrics."),
}


class DocsQuery(QueryModel):
    """Which requests the page shows."""

    operation: str | None = Field(
        None, max_length=64, description="show this request alone, with all there is on it"
    )


@router.get("/docs", response_class=HTMLResponse)
@needs("any")
def show_docs(request: Request, query: Annotated[DocsQuery, Query()]) -> HTMLResponse:
    """Every endpoint with its parameters, bodies, answers and a curl line."""
    document: dict[str, Any] = request.app.openapi()
    base = str(request.base_url).rstrip("/")
    page = _template().render(
        title=document["info"]["title"],
        version=document["info"]["version"],
        description=document["info"]["description"],
        csrf=request.scope.get("pairmark.csrf"),
        operation_id=query.operation,
        groups=[
            {
                "id": f"group-{tag}",
                "title": GROUPS.get(tag, (tag.capitalize(), ""))[0],
                "about": GROUPS.get(tag, ("", ""))[1],
                "operations": operations,
            }
            for tag, operations in operation_groups(document, base, query.operation)
        ],
    )
    return HTMLResponse(page, headers={"content-security-policy": POLICY, "cache-control": "no-store"})


@router.get("/openapi.json")
@needs("any")
def openapi_document(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader

    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["code"] = with_code
    return environment.get_template("docs.html")


def with_code(text: str) -> Any:
    """Text whose words between backticks are set as code, and whose numbers keep their percent signs."""
    from markupsafe import Markup, escape

    parts = str(escape(text)).replace(" %", "\u00a0%").split("`")
    return Markup("".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts)))


def operation_groups(
    document: dict[str, Any], base: str, operation_id: str | None = None
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Operations by tag, as the page shows them. ``operation_id``: the one that is wanted; None for all."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if operation_id not in (None, operation["operationId"]):
                continue
            entry = _operation(document, base, path, method.upper(), operation)
            groups.setdefault(operation.get("tags", ["other"])[0], []).append(entry)
    return list(groups.items())


def _operation(
    document: dict[str, Any], base: str, path: str, method: str, operation: dict[str, Any]
) -> dict[str, Any]:
    bodies = []
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        # Alternatives are shown one by one: what one of them requires, another does not have.
        bodies += [
            {
                "media_type": media_type,
                "fields": _fields(document, schema),
                "example": next(iter(examples_of(document, {media_type: {"schema": schema}})), None),
            }
            for schema in content["schema"].get("anyOf", [content["schema"]])
        ]
    successes: list[dict[str, Any]] = [
        {"status": status, **answer}
        for status, answer in operation["responses"].items()
        if status.startswith("2")
    ]
    for answer in successes:
        content = answer.get("content", {})
        answer["media_types"] = ", ".join(content)
        schemas = [media.get("schema", {}) for media in content.values()]
        answer["fields"] = _fields(document, schemas[0]) if schemas else []
        answer["examples"] = examples_of(document, content)
    return {
        "id": operation["operationId"],
        "path": path,
        "method": method,
        "summary": operation["summary"],
        "paragraphs": operation["description"].split("\n\n"),
        "scope": operation.get("x-required-scope"),
        "parameters": [
            {**parameter, "where": parameter["in"], "kind": _kind(parameter["schema"])}
            for parameter in operation.get("parameters", [])
        ],
        "bodies": bodies,
        "responses": successes,
        "curl": _curl(base, path, method, bodies, operation),
    }


def examples_of(document: dict[str, Any], content: dict[str, Any]) -> list[str]:
    """An example of each alternative of a request or an answer in JSON."""
    schema = content.get("application/json", {}).get("schema", {})
    return [
        json_text(example_of(document, option))
        for option in schema.get("anyOf", [schema])
        if "$ref" in option
    ]


def example_of(document: dict[str, Any], schema: dict[str, Any]) -> Any:
    """What a schema describes: its own example, or else one of each member that is required or has an example."""
    if schema.get("examples"):
        return schema["examples"][0]
    if "$ref" in schema:
        return example_of(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        holds_objects = any("$ref" in {**option, **option.get("items", {})} for option in schema["anyOf"])
        is_null = {"type": "null"} in schema["anyOf"] and not holds_objects
        return None if is_null else example_of(document, schema["anyOf"][0])
    if schema.get("type") == "array":
        return [example_of(document, schema["items"])] if "$ref" in schema["items"] else []
    if "properties" in schema:
        return {
            name: example_of(document, member)
            for name, member in schema["properties"].items()
            if name in schema.get("required", ()) or "examples" in member or "const" in member
        }
    plain = {"boolean": False, "integer": 0, "number": 0.5, "string": "", "object": {}}
    return schema.get("const", schema.get("enum", [plain.get(schema.get("type", ""))])[0])


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


def _curl(base: str, path: str, method: str, bodies: list[dict[str, Any]], operation: dict[str, Any]) -> str:
    required = [parameter for parameter in operation.get("parameters", []) if parameter.get("required")]
    query = "&".join(
        f"{parameter['name']}={parameter.get('example', '...')}"
        for parameter in required
        if parameter["in"] == "query"
    )
    address = f"{base}{path}{'?' + query if query else ''}"
    parts = ["curl", *([] if method == "GET" else [f"-X {method}"]), f"'{address}'"]
    if operation.get("x-required-scope"):
        parts.append('-H "X-API-Key: $PAIRMARK_API_KEY"')
    if bodies and bodies[0]["media_type"] == "multipart/form-data":
        parts += [f"-F {field['name']}=..." for field in bodies[0]["fields"] if field["required"]]
    elif bodies:
        example = bodies[0]["example"] or json.dumps(
            {field["name"]: "..." for field in bodies[0]["fields"] if field["required"]}
        )
        parts += ["-H 'Content-Type: application/json'", f"-d '{example}'"]
    return " ".join(parts)


def _fields(document: dict[str, Any], schema: dict[str, Any]) -> list[dict[str, Any]]:
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    required = schema.get("required", ())
    return [
        {**field, "name": name, "kind": _kind(field), "required": name in required}
        for name, field in schema.get("properties", {}).items()
    ]


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(option) for option in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))
