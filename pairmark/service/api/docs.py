"""Pages beside the console: the OpenAPI document and its page, `/guide`, and what problems mean."""

import gzip
import threading
from html import escape
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from fastapi import APIRouter, FastAPI, Path, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from pairmark.service.api.problems import PAGES, Problem, UnknownAddress
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.errors import UnsupportedRate

DESCRIPTION: Final = """\
Pairmark learns similarity from your own labelled vectors and answers "same" or "different" at the false positive
rate you ask for, with a stated guarantee, or refuses when the data cannot support it.

A model is named `name` (its production version), `name@alias` or `name:version`. Errors are
`application/problem+json`; their `type` is a page of this service that says how to fix them.
"""


_BUILDING: Final = threading.Lock()
"""Threads that have FastAPI build the document side by side fail."""


def document(app: FastAPI) -> dict[str, Any]:
    """The document, built once, by whoever asks first; the others wait for it."""
    with _BUILDING:
        app.openapi_schema = app.openapi_schema or _built(app)
        return app.openapi_schema


def _built(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title,
        version=app.version,
        description=DESCRIPTION,
        routes=app.routes,
        separate_input_output_schemas=False,
    )
    components: dict[str, Any] = schema["components"]
    components["schemas"]["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for operations in schema["paths"].values():
        for operation in operations.values():
            _add_examples(schema, operation)
    return schema


def _add_examples(document: dict[str, Any], operation: dict[str, Any]) -> None:
    """Give an example of each body in JSON."""
    for body in (operation.get("requestBody", {}), *operation["responses"].values()):
        json = body.get("content", {}).get("application/json")
        if json and json["schema"]:
            json["example"] = example_of(document, json["schema"])


router = APIRouter(include_in_schema=False, route_class=GuardedRoute)


@router.get("/openapi.json")
@needs("any")
def openapi_document(request: Request) -> Response:
    """The OpenAPI document, packed for those who can unpack it: `/docs` reads it at each visit."""
    answer = JSONResponse(request.app.openapi(), headers={"Vary": "Accept-Encoding"})
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        answer.body = gzip.compress(answer.body)
        answer.headers.update({"Content-Encoding": "gzip", "Content-Length": str(len(answer.body))})
    return answer


def with_code(text: str) -> Any:
    """Text whose words between backticks are set as code, and whose numbers keep their percent signs."""
    from markupsafe import Markup, escape

    parts = str(escape(text)).replace(" %", "\u00a0%").split("`")
    return Markup("".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts)))


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


GUIDE: Final = FilePath(__file__).parent.parent / "guide"
"""The documentation site of this very version, where the installation holds it: the service mounts it at `/guide`."""


@router.get("/guide", response_class=HTMLResponse)
@needs("open")
async def guide() -> Response:
    """The first page, whose links are relative to the folder."""
    return RedirectResponse("/guide/", status_code=308)


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
async def show_problem(
    slug: Annotated[str, Path(description="the last part of the problem's `type`")],
) -> HTMLResponse:
    """A page that explains the problem and how to fix it."""
    page = PAGES.get(slug)
    if page is None:
        raise UnknownAddress(f"there is no problem called {slug[:100]!r}; GET /problems lists them")
    few_people = slug == UnsupportedRate.slug and GUIDE.is_dir()
    ways = '<p><a href="/guide/how-to/few-people.html">Work with few people</a></p>' if few_people else ""
    return html_page(
        page.error.title,
        f'<p class="crumbs"><a href="/problems">Problems</a> / {slug}</p>'
        f'<div class="head"><div><h1>{escape(page.error.title)}</h1><p>Status {page.status}</p></div></div>'
        f'<div class="card"><div class="title"><h2>How to fix it</h2></div><p>{with_code(page.fix)}</p>{ways}</div>',
    )


PAGE_POLICY = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"


def html_page(title: str, body: str) -> HTMLResponse:
    """A page beside the console, without scripts; ``body`` is HTML."""
    return HTMLResponse(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<title>{escape(title)} · Pairmark</title><link rel="icon" href="/static/icon.svg" type="image/svg+xml">'
        '<link rel="stylesheet" href="/static/console.css"></head><body><main class="alone"><a class="brand" href="/">'
        f'<img src="/static/icon.svg" alt="" width="24" height="24"> Pairmark</a>{body}</main></body></html>',
        headers={"content-security-policy": PAGE_POLICY},
    )
