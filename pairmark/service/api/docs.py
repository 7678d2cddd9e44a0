"""Pages beside the console: the OpenAPI document and its page, `/guide`, and what problems mean."""

from __future__ import annotations

import json
from functools import cache
from html import escape
from pathlib import Path
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import Field

from pairmark.service.api.problems import PAGES, ProblemOut, UnknownAddress
from pairmark.service.api.routing import GuardedRoute, QueryModel, needs

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


router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


DOCS_POLICY = (
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
    page = _docs_template().render(
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
    return HTMLResponse(page, headers={"content-security-policy": DOCS_POLICY, "cache-control": "no-store"})


@router.get("/openapi.json")
@needs("any")
def openapi_document(request: Request) -> JSONResponse:
    """The OpenAPI document."""
    return JSONResponse(request.app.openapi())


@cache
def _docs_template() -> Any:
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


GUIDE: Final = Path(__file__).parent.parent / "guide"
# The theme sets light or dark with a line of script in each page. Nothing here is made from what a client sent.
GUIDE_POLICY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_ABSENT: Final = (
    '<div class="head"><div><h1>The guide is not built yet</h1><p>This installation came without it.</p></div></div>'
    '<div class="card"><div class="title"><h2>Where to read</h2></div><p>In a checkout, <code>make docs</code> builds '
    "the guide; this address then shows it at once. Its pages are Markdown files in <code>docs/</code>, and "
    '<code>README.md</code> leads to them.</p><p>Here are the <a href="/docs">HTTP reference</a>, the <a '
    'href="/problems">problems</a> and the <a href="/">console</a>; <code>pairmark --help</code> explains the commands.'
    "</p></div>"
)


class GuideQuery(QueryModel):
    """What the site's own links ask with: all of it is for the browser, none of it changes the answer."""

    v: str | None = Field(None, max_length=64, description="the version of a style or script")
    q: str | None = Field(None, max_length=400, description="what the site's search looks for")
    highlight: str | None = Field(None, max_length=400, description="words to mark on the page")
    check_keywords: str | None = Field(None, max_length=16, description="sent by the site's search form")
    area: str | None = Field(None, max_length=32, description="sent by the site's search form")


@router.get("/guide/{file:path}", response_class=HTMLResponse)
@needs("open")
async def show_guide(request: Request, file: str, query: Annotated[GuideQuery, Query()]) -> Response:
    """A page of the documentation, or what it is made with."""
    del query
    if not (GUIDE / "index.html").exists():
        if "text/html" in request.headers.get("accept", ""):
            return html_page("Guide", _ABSENT, status=404)
        raise UnknownAddress("this installation holds no guide: in a checkout, `make docs` builds it")
    answer = await _files().get_response(file or "index.html", request.scope)
    answer.headers["content-security-policy"] = GUIDE_POLICY
    return answer


@router.get("/guide", response_class=HTMLResponse)
@needs("open")
async def guide() -> Response:
    """The first page, whose links are relative to the folder."""
    return RedirectResponse("/guide/", status_code=308)


@cache
def _files() -> StaticFiles:
    return StaticFiles(directory=GUIDE, html=True)


problems = APIRouter(tags=["problems"], route_class=GuardedRoute)


@problems.get("/problems", response_class=HTMLResponse)
@needs("open")
async def list_problems() -> HTMLResponse:
    """A page that lists every problem type of this service."""
    rows = "".join(
        f'<tr><th scope="row"><a href="/problems/{slug}">{slug}</a></th><td class="number">{page.status}</td>'
        f"<td>{escape(page.error.title)}</td></tr>"
        for slug, page in sorted(PAGES.items())
    )
    return html_page(
        "Problems",
        '<div class="head"><div><h1>Problems</h1><p>Errors are <code>application/problem+json</code>. '
        "Their <code>type</code> is one of these pages.</p></div></div>"
        '<div class="scroll" tabindex="0" role="region" aria-label="Problems"><table><thead><tr><th scope="col">Problem'
        '</th><th scope="col" class="number">Status</th><th scope="col">Meaning</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>",
    )


@problems.get("/problems/{slug}", response_class=HTMLResponse)
@needs("open")
async def show_problem(slug: str) -> HTMLResponse:
    """A page that explains the problem and how to fix it."""
    page = PAGES.get(slug)
    if page is None:
        raise UnknownAddress(f"there is no problem called {slug[:100]!r}; GET /problems lists them")
    parts = escape(page.fix).split("`")
    fix = "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))
    return html_page(
        page.error.title,
        f'<p class="crumbs"><a href="/problems">Problems</a> / {slug}</p>'
        f'<div class="head"><div><h1>{escape(page.error.title)}</h1><p>Status {page.status}</p></div></div>'
        f'<div class="card"><div class="title"><h2>How to fix it</h2></div><p>{fix}</p></div>',
    )


PAGE_POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"


def html_page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    """A page beside the console, without scripts; ``body`` is HTML."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)} · Pairmark</title><link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/static/console.css"></head><body><main class="alone"><a class="brand" href="/">'
        f'<img src="/static/icon.svg" alt="" width="24" height="24"> Pairmark</a>{body}</main></body></html>',
        headers={"content-security-policy": PAGE_POLICY},
        status_code=status,
    )
