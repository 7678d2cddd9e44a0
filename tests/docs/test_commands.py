"""Every `pairmark` command in the README and the docs exists, with the options that are shown."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from pairmark.service.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?:console|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def shown(page: Path) -> list[str]:
    """Command lines of a page's shell blocks, continued lines joined."""
    blocks = FENCE.findall(page.read_text())
    lines = [
        line.strip().removeprefix("$ ")
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
    ]
    return [line for line in lines if line.startswith("pairmark ")]


COMMANDS = [
    pytest.param(line, id=f"{page.relative_to(ROOT)}: {line}")
    for page in PAGES
    if "_build" not in page.parts
    for line in shown(page)
]


@cache
def commands() -> Any:
    return typer.main.get_command(app)


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 20


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_can_be_typed_as_shown(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    for stop in ("&", "|", ">", "&&", ";"):
        words = words[: words.index(stop)] if stop in words else words
    command: Any = commands()
    while words and hasattr(command, "commands"):
        if words[0].startswith("-"):
            words = words[1:]
            continue
        assert words[0] in command.commands, f"{line}: there is no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in options, f"{line}: {word} is no option; there are {sorted(options)}"
