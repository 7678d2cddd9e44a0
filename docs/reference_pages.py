"""Reference pages made from the code: HTTP, command line, settings, errors and metrics.

They are written into ``docs/reference`` when the site is built, and are not committed.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any


def write(folder: Path) -> None:
    """Write every generated page; unchanged ones keep their time, so that a second build is quick."""
    folder.mkdir(exist_ok=True)
    pages = {
        "http": http_page(),
        "command-line": command_line_page(),
        "settings": settings_page(),
        "limits": limits_page(),
        "errors": errors_page(),
        "metrics": metrics_page(),
        "learners": learners_page(),
        "python": python_page(),
        "code-map": code_map_page(),
    }
    for name, text in pages.items():
        path = folder / f"{name}.md"
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
                lines += ["", *_table(("parameter", "meaning"), parameters)]
            for media, content in operation.get("requestBody", {}).get("content", {}).items():
                shape = _type(content.get("schema", {}))
                lines += ["", f"Body: `{media}`" + ("" if shape == "string" else f", {shape}")]
            answers = [
                (
                    f"`{status}`",
                    answer.get("description", "").replace("Successful Response", "").strip() or "done",
                    _media(answer),
                )
                for status, answer in operation["responses"].items()
                if not status.startswith(("4", "5"))
            ]
            lines += ["", *_table(("status", "meaning", "body"), answers)]
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
            lines += ["", *_table(("field", "meaning"), fields)]
    return "\n".join(lines) + "\n"


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
            lines.extend(["", *_table(("argument or option", "meaning"), options)])

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
        *_table(("variable", "meaning"), rows),
    ]
    return "\n".join(lines) + "\n"


_LIMIT = re.compile(r"(max|min|tenant)_\w+|\w+_(limit|timeout_s|memory_bytes|threads)")
_CONSTANT = re.compile(r"_?(MAX|MOST|LONGEST)_[A-Z_]+")


def limits_page() -> str:
    """Every limit: the settings that are one, and the constants of the service that say what they bound."""
    from pairmark.service.settings import Settings

    settings = []
    for name, field in Settings.model_fields.items():
        if _LIMIT.fullmatch(name):
            default = field.get_default(call_default_factory=True)
            shown = "none" if default is None else f"{default:,}"
            settings.append((f"`PAIRMARK_{name.upper()}`<br>default {shown}", field.description or ""))
    lines = [
        "# Limits",
        "",
        "Everything that a client can send or start is bounded. A request beyond a limit is refused, and the answer "
        "names the limit: see [Errors](errors.md).",
        "",
        "## Settings",
        "",
        *_table(("variable", "bounds"), settings),
        "",
        "## Fixed",
        "",
        *_table(("limit", "where", "bounds"), _constants()),
    ]
    return "\n".join(lines) + "\n"


def _constants() -> list[tuple[str, str, str]]:
    """Numbers of the service that are called a limit and say, in the text below them, of what."""
    root = Path(__file__).parent.parent
    found = []
    for path in sorted((root / "pairmark" / "service").rglob("*.py")):
        body = ast.parse(path.read_text()).body
        for line, text in pairwise(body):
            target = line.targets[0] if isinstance(line, ast.Assign) else getattr(line, "target", None)
            name = getattr(target, "id", "")
            says = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            if not _CONSTANT.fullmatch(name) or not says:
                continue
            module = ".".join(path.relative_to(root).with_suffix("").parts)
            value = getattr(importlib.import_module(module), name)
            if isinstance(value, int | float):
                meaning = " ".join(str(text.value.value).split())
                found.append(
                    (
                        f"`{name.strip('_')}` {value:,}",
                        f"`{module.removeprefix('pairmark.service.')}`",
                        meaning,
                    )
                )
    return found


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
        *_table(("metric", "type", "meaning"), sorted(rows)),
    ]
    return "\n".join(lines) + "\n"


def learners_page() -> str:
    """Every learner and its parameters."""
    from pairmark.models.registry import LEARNERS

    lines = [
        "# Learners",
        "",
        "What `GET /learners` lists. Parameters are those of `params` in a job, and of the Python class.",
    ]
    for spec in LEARNERS:
        schema = spec.params.model_json_schema()
        lines += [
            "",
            f"## `{spec.kind}`",
            "",
            f"{spec.title}. Python: `{spec.estimator.__name__}`. Serves: {', '.join(sorted(spec.capabilities))}.",
        ]
        rows = [
            (
                f"`{name}`<br>{_type(shape)}, default `{json.dumps(shape.get('default'))}`",
                shape.get("description", ""),
            )
            for name, shape in schema.get("properties", {}).items()
        ]
        lines += ["", *_table(("parameter", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def python_page() -> str:
    """Every public name with its signature and docstring, and the methods that Pairmark defines."""
    import pairmark
    import pairmark.client
    from pairmark.models.registry import LEARNERS

    kinds = {spec.estimator.__name__: spec.kind for spec in LEARNERS}
    lines = [
        "# Python",
        "",
        "`from pairmark import ...` gives scikit-learn estimators and the statistics. `from pairmark.client import "
        "Client` talks to a running service.",
    ]
    named = [("pairmark", name, getattr(pairmark, name)) for name in sorted(pairmark.__all__)]
    named += [
        ("pairmark.client", name, one)
        for name, one in ((name, getattr(pairmark.client, name)) for name in sorted(pairmark.client.__all__))
        if not (inspect.isclass(one) and issubclass(one, Exception))
    ]
    for module, name, one in named:
        lines += [
            "",
            f"## {name}",
            "",
            *_block(f"from {module} import {name}", "python"),
            *_documented(name, one),
        ]
        if name in kinds:
            anchor = f"learners.md#{kinds[name]}"
            lines += ["", f"Every parameter with its default and meaning: [`{kinds[name]}`]({anchor})."]
        if inspect.isclass(one):
            for method in sorted(dir(one)):
                member = inspect.getattr_static(one, method)
                function = getattr(member, "__func__", member)
                ours = str(getattr(function, "__module__", "")).startswith("pairmark.")
                if ours and callable(function) and not method.startswith("_"):
                    lines += ["", f"### {name}.{method}", "", *_documented(method, function)]
    return "\n".join(lines) + "\n"


def code_map_page() -> str:
    """Every module of the repository with the first sentence of its docstring."""
    root = Path(__file__).parent.parent
    lines = ["# Code map", "", "Every module, by folder, with the first sentence of its docstring."]
    for folder in sorted({path.parent for path in (root / "pairmark").rglob("*.py")}):
        rows = []
        for path in sorted(folder.glob("*.py")):
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            sentence = " ".join(text.split("\n\n")[0].split())
            if sentence:
                rows.append((f"`{path.name}`", sentence))
        if rows:
            lines += ["", f"## {folder.relative_to(root)}", "", *_table(("module", "what it is for"), rows)]
    return "\n".join(lines) + "\n"


def _documented(name: str, one: Any) -> list[str]:
    signature = str(inspect.signature(one)) if callable(one) else ""
    # Annotations are strings, and a method's reader never passes itself.
    signature = re.sub(r"(: |-> )(['\"])(.*?)\2(?=[,)\s]|$)", r"\1\3", signature)
    signature = re.sub(r"^\((self|cls)(, )?", "(", signature)
    if inspect.isclass(one):
        signature = signature.removesuffix(" -> None")
    return ["", *_block(_wrapped(f"{name}{signature}"), "python"), *_prose(inspect.getdoc(one) or "")]


def _prose(text: str) -> list[str]:
    """A numpydoc docstring as Markdown: paragraphs, lists of what sections name, and code."""
    lines: list[str] = []
    section = ""
    for part in re.split(r"\n\n+", text):
        rows = part.splitlines()
        while len(rows) > 1 and set(rows[1]) == {"-"}:
            section, rows = rows[0], rows[2:]
            lines += ["", f"**{section}**"]
        if not rows:
            continue
        if section == "Examples" or rows[0].startswith((">>>", "    ")):
            code = [re.sub(r"\s*# doctest:.*", "", row) for row in rows]
            lines += _block(inspect.cleandoc("\n".join(["", *code])), "python" if ">>>" in part else "text")
        elif section:
            lines.append("")
            for row in rows:
                named, _, meaning = row.partition(" : ")
                if row.startswith(" "):
                    lines.append("  " + _escaped(row.strip()))
                elif meaning:
                    lines.append(f"- `{named.strip().replace('`', '')}`: {_escaped(meaning)}")
                else:
                    name = row.removesuffix(" :").strip()
                    is_code = re.fullmatch(r"[\w.*]+(, [\w.*]+)*", name) is not None
                    lines.append(f"- `{name}`" if is_code else f"- {_escaped(name)}")
        else:
            lines += ["", *(_escaped(row) for row in rows)]
    return lines


def _escaped(text: str) -> str:
    """Text whose code is Markdown's, and whose other signs mean themselves."""
    parts = re.split(r"(``.+?``|`[^`]+`)", text)
    return "".join(
        f"`{part.strip('`')}`" if at % 2 else re.sub(r"([\\*_<>\[\]$#~|])", r"\\\1", part)
        for at, part in enumerate(parts)
    )


def _wrapped(signature: str) -> str:
    head, _, rest = signature.partition("(")
    if len(signature) <= 100:
        return signature
    *arguments, last = _arguments(rest)
    last, closing, answer = last.rpartition(")")
    return f"{head}(\n    " + ",\n    ".join([*arguments, last]) + f",\n{closing}{answer}"


def _arguments(rest: str) -> list[str]:
    """The arguments of a signature, split at commas outside brackets."""
    parts, depth, last = [], 0, 0
    for at, sign in enumerate(rest):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(rest[last:at].strip())
            last = at + 1
    return [*parts, rest[last:].strip()]


def _block(text: str, language: str) -> list[str]:
    return ["", f"```{language}", *text.splitlines(), "```"] if text else []


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(head)
    said = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows]
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in said),
    ]


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
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


def _media(answer: dict[str, Any]) -> str:
    return ", ".join(
        f"`{media}` {_type(content.get('schema', {}))}"
        for media, content in answer.get("content", {}).items()
    )
