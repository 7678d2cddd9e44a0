"""Reference pages made from the code: HTTP, command line, settings, errors and metrics.

They are written into ``docs/reference`` when the site is built, and are not committed.
"""

import json
import re
from pathlib import Path
from typing import Any

from docs import python_pages
from docs.markdown import block, table


def write(folder: Path) -> None:
    """Write every generated page; unchanged ones keep their time, so that a second build is quick."""
    folder.mkdir(exist_ok=True)
    pages = {
        "http": http_page(),
        "command-line": command_line_page(),
        "settings": settings_page(),
        "errors": errors_page(),
        "metrics": metrics_page(),
        "learners": learners_page(),
        **python_pages.pages(),
    }
    for left_over in {*(folder / "python").glob("*.md")} - {folder / f"{name}.md" for name in pages}:
        left_over.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def http_page() -> str:
    """Every endpoint, from the OpenAPI document."""
    from pairmark.service.app import create_app
    from pairmark.service.settings import Settings

    document = create_app(Settings(), warm=False).openapi()
    lines = [
        "# HTTP API",
        "",
        "A running service shows the same at `/docs`, where every request can be tried, and as OpenAPI at "
        "`/openapi.json`. Errors are described in [Errors](errors.md).",
    ]
    groups: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            tag = operation.get("tags", ["other"])[0]
            groups.setdefault(tag, []).append((method.upper(), path, operation))
    shown: set[str] = set()
    for tag, operations_of in groups.items():
        lines += ["", f"## {tag.capitalize()}"]
        for method, path, operation in operations_of:
            lines += ["", f"### `{method} {path}`", "", operation.get("summary", "")]
            if operation.get("description"):
                lines += ["", operation["description"]]
            parameters = [
                (
                    f"`{one['name']}`<br>{one['in']}, {_type(one.get('schema', {}))}",
                    one.get("description", ""),
                )
                for one in operation.get("parameters", [])
            ]
            if parameters:
                lines += ["", *table(("parameter", "meaning"), parameters)]
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                shape = _linked(content["schema"])
                lines += ["", f"Body: `{media}`" + ("" if shape == "string" else f", {shape}")]
                if "example" in content:
                    lines += block(_json(content["example"]), "json")
            answers = [
                (
                    f"`{status}`",
                    answer.get("description", "").replace("Successful Response", "").strip() or "done",
                    _media(answer),
                )
                for status, answer in operation["responses"].items()
                if not status.startswith(("4", "5"))
            ]
            lines += ["", *table(("status", "meaning", "body"), answers)]
            for answer in operation["responses"].values():
                content = answer.get("content", {}).get("application/json", {})
                if "example" in content:
                    text = _json(content["example"])
                    # Several operations give the same answer: the first shows it, the others name its schema.
                    lines += block("" if text in shown else text, "json")
                    shown.add(text)
    lines += ["", "## Schemas"]
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        lines += ["", f"### {name}", "", schema.get("description", "").strip()]
        needed = schema.get("required", [])
        fields = [
            (
                f"`{field}`<br>{_type(shape)}{', required' if field in needed else ''}",
                shape.get("description", ""),
            )
            for field, shape in schema.get("properties", {}).items()
        ]
        if fields:
            lines += ["", *table(("field", "meaning"), fields)]
    return "\n".join(lines) + "\n"


def _json(value: Any) -> str:
    """JSON for people: plain lists stay on one line."""
    return re.sub(r"\[[^\[\]{}]*\]", lambda one: re.sub(r"\s+", " ", one[0]), json.dumps(value, indent=2))


def command_line_page() -> str:
    """Every command with its options."""
    import typer

    from pairmark.service.cli import app

    root: Any = typer.main.get_command(app)
    lines = [
        "# Command line",
        "",
        "`--json` gives machine-readable output. Exit codes: 0 done, 1 failed, 2 usage.",
    ]

    def visit(command: Any, words: str) -> None:
        children = getattr(command, "commands", None)
        if children:
            for name in sorted(children):
                visit(children[name], f"{words} {name}")
            return
        lines.extend(["", f"## `{words}`", "", (command.help or "").strip()])
        options = []
        for one in command.params:
            if getattr(one, "hidden", False) or one.name == "help":
                continue
            name = (
                ", ".join(one.opts)
                if one.param_type_name == "option"
                else str(one.metavar or one.name).upper()
            )
            default = "" if one.default is None or callable(one.default) else str(one.default)
            shown = "required" if one.required else f"default `{default}`" if default else ""
            options.append((f"`{name}`{shown and '<br>' + shown}", getattr(one, "help", "") or ""))
        if options:
            lines.extend(["", *table(("argument or option", "meaning"), options)])

    visit(root, "pairmark")
    return "\n".join(lines) + "\n"


def settings_page() -> str:
    """Every setting, from the model that reads them."""
    from pairmark.service.settings import Settings

    rows = []
    for name, field in Settings.model_fields.items():
        default = field.get_default(call_default_factory=True)
        # A variable is a word that cannot be broken: the default goes below it, so that a phone shows the meaning.
        shown = f"<br>default `{default}`" if default not in (None, "") else ""
        rows.append((f"`PAIRMARK_{name.upper()}`{shown}", field.description or ""))
    lines = [
        "# Settings",
        "",
        "Set them as environment variables before you start `pairmark serve`, `pairmark worker` or another command.",
        "",
        *table(("variable", "meaning"), rows),
    ]
    return "\n".join(lines) + "\n"


def errors_page() -> str:
    """Every problem type, as the service serves it at /problems."""
    from pairmark.service.api.problems import PAGES

    lines = [
        "# Errors",
        "",
        "Errors are `application/problem+json` (RFC 9457). `type` is `/problems/SLUG`: the service serves that page. "
        "`detail` says what was expected; some problems carry more fields.",
    ]
    for slug, page in sorted(PAGES.items()):
        lines += ["", f"## {slug}", "", f"Status {page.status}. {page.error.title}.", "", page.fix.strip()]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every metric of /metrics."""
    import prometheus_client

    import pairmark.service.api.metrics  # noqa: F401, it registers them

    families = prometheus_client.REGISTRY.collect()
    rows = [
        (f"`{one.name}`", one.type, one.documentation) for one in families if one.name.startswith("pairmark")
    ]
    lines = [
        "# Metrics",
        "",
        "`GET /metrics`, in the Prometheus text format.",
        "",
        *table(("metric", "type", "meaning"), sorted(rows)),
    ]
    return "\n".join(lines) + "\n"


def learners_page() -> str:
    """Every learner and its parameters."""
    from pairmark.models.registry import learner_specs

    lines = [
        "# Learners",
        "",
        "What `GET /learners` lists. Parameters are those of `params` in a job, and of the Python class.",
    ]
    for spec in learner_specs():
        schema = spec.params.model_json_schema()
        name = spec.estimator.__name__
        lines += [
            "",
            f"## `{spec.kind}`",
            "",
            f"{spec.title}. Python: [`{name}`](python/{name}.md). Serves: {', '.join(sorted(spec.capabilities))}.",
        ]
        rows = [
            (
                f"`{parameter}`<br>{_type(shape)}, default `{json.dumps(shape.get('default'))}`",
                shape.get("description", ""),
            )
            for parameter, shape in schema.get("properties", {}).items()
        ]
        lines += ["", *table(("parameter", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[key]))
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {})) or 'any'}"
    return str(schema.get("type", "any"))


def _linked(schema: dict[str, Any]) -> str:
    """Its type, schemas with the address of their table."""
    return re.sub(r"\b[A-Z]\w+", lambda name: f"[{name[0]}](#{name[0].lower()})", _type(schema))


def _media(answer: dict[str, Any]) -> str:
    return ", ".join(
        f"`{media}` {_linked(content['schema'])}" for media, content in answer.get("content", {}).items()
    )
