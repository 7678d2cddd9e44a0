"""``python -m tests.golden.surface``: write down what users see of this version, as `test_surface.py` compares it.

- ``learners.json``: `GET /learners`; ``openapi.json``: the OpenAPI document;
- ``help.txt``: ``--help`` of every command;
- ``signatures.txt``: public Python names with their parameters and defaults.

A change of these files is a change for users: CHANGELOG says which.
"""

import inspect
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.serving import PATIENCE_S

FOLDER = Path(__file__).parent / "surface"


def learners() -> str:
    """Every kind with the JSON Schema of its parameters."""
    from pairmark.service.app import create_app, embedded_transport
    from pairmark.service.db import open_database
    from pairmark.service.settings import Settings

    with tempfile.TemporaryDirectory() as home:
        settings = Settings(home=Path(home))
        with open_database(settings) as database:
            database.upgrade()
        with (
            embedded_transport(create_app(settings, warm=False)) as transport,
            httpx.Client(transport=transport, base_url="http://127.0.0.1", timeout=PATIENCE_S) as client,
        ):
            listed = client.get("/learners").json()["items"]
    return json.dumps(listed, indent=1) + "\n"


def openapi() -> str:
    """The OpenAPI document."""
    from pairmark.service.app import create_app
    from pairmark.service.settings import Settings

    return json.dumps(create_app(Settings(), warm=False).openapi(), indent=1) + "\n"


def help_texts() -> str:
    """What every command prints for ``--help``."""
    import typer
    from typer.testing import CliRunner

    from pairmark.service.cli import app

    plain = {
        "COLUMNS": "120",
        "TERMINAL_WIDTH": "120",
        "NO_COLOR": "1",
        "TERM": "dumb",
        "_TYPER_FORCE_DISABLE_TERMINAL": "1",
    }

    def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield words
        for name, child in sorted(getattr(command, "commands", {}).items()):
            yield from commands(child, (*words, name))

    texts = []
    for words in commands(typer.main.get_command(app), ()):
        shown = CliRunner().invoke(app, [*words, "--help"], env=plain, prog_name="pairmark", color=False)
        assert shown.exit_code == 0, shown.output
        rows = [row.rstrip() for row in shown.output.strip("\n").splitlines()]
        texts.append("\n".join([" ".join(("$ pairmark", *words, "--help")), *rows]))
    return "\n\n".join(texts) + "\n"


def signatures() -> str:
    """Public names with parameters and defaults; annotations are left to the type checker."""
    import pairmark
    import pairmark.client

    lines = []
    for module in (pairmark, pairmark.client):
        for name in sorted(module.__all__):
            public = getattr(module, name)
            lines.append(f"{module.__name__}.{name}{_arguments(public)}")
            if inspect.isclass(public):
                for member, value in inspect.getmembers_static(public):
                    function = getattr(value, "__func__", value)
                    ours = str(getattr(function, "__module__", "")).startswith("pairmark.")
                    if ours and callable(function) and not member.startswith("_"):
                        lines.append(f"  .{member}{_arguments(function)}")
    return "\n".join(lines) + "\n"


def _arguments(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(inspect.Signature(bare))


FILES = {
    "learners.json": learners,
    "openapi.json": openapi,
    "help.txt": help_texts,
    "signatures.txt": signatures,
}

if __name__ == "__main__":
    for name, make in FILES.items():
        (FOLDER / name).write_text(make())
