"""Runs the code blocks of a Markdown page in order, in one folder, and compares what they print.

A block of ``bash`` holds commands. A block of ``console`` holds commands after ``$``. The blocks of ``python`` are one
script. A ``json`` or ``text`` block directly after one of them is its output: ``...`` stands for anything, and numbers
may differ by a tenth, since other processors round otherwise. A block after ``<!-- not run: REASON -->`` is left out.
"""

import json
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FENCE = re.compile(
    r"(?P<skip>^ *<!-- not run: (?P<reason>[^>]+) -->\n)?^(?P<indent> *)```(?P<language>[a-z]+)\n(?P<body>.*?)^ *```",
    re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
STARTED = ("pairmark serve", "pip install", ". .venv/bin/activate")
"""Commands of which the tests run the effect: a server that is there, a package that is installed."""
SCRIPT = """
import json, sys
scope = {"__name__": "__main__"}
for line in sys.stdin:
    exec(compile(json.loads(line), "block", "exec"), scope)
    print("\\n" + chr(0), flush=True)
"""
"""Runs block after block, and says when each has ended."""
TOLERANCE = 0.1


@dataclass(frozen=True, kw_only=True)
class Block:
    """Code, and the output shown for it, if any."""

    language: str
    code: str
    output: str | None
    output_language: str
    line: int


def blocks(page: Path) -> list[Block]:
    """What is run of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    made = []
    for at, one in enumerate(found):
        language, code = one["language"], textwrap.dedent(one["body"])
        if one["skip"] or language not in ("bash", "console", "python"):
            continue
        shown = None
        after = found[at + 1] if at + 1 < len(found) else None
        if (
            after is not None
            and after["language"] in ("json", "text")
            and not text[one.end() : after.start()].strip()
        ):
            shown = textwrap.dedent(after["body"])
        if language == "console":
            lines = code.splitlines()
            rest = [line for line in lines if not line.startswith("$ ")]
            code = "\n".join(line[2:] for line in lines if line.startswith("$ "))
            shown = "\n".join(rest) if any(line.strip() for line in rest) else shown
        made.append(
            Block(
                language=language,
                code=code,
                output=shown,
                output_language="text" if after is None else after["language"],
                line=text[: one.start()].count("\n") + 1,
            )
        )
    return made


def run(page: Path, folder: Path, url: str, environment: dict[str, str]) -> None:
    """Run a page's blocks in ``folder`` against the service at ``url``; AssertionError says which block failed."""
    (folder / ".exports").unlink(missing_ok=True)
    surroundings = {**os.environ, **environment, "PAIRMARK_URL": url, "COLUMNS": "240"}
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=surroundings,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with script:
        for block in blocks(page):
            code = block.code.replace("http://127.0.0.1:8000", url).replace("http://localhost:8000", url)
            code = code.replace("localhost:8000", url.removeprefix("http://"))
            printed = (
                _python(script, code) if block.language == "python" else _shell(code, folder, surroundings)
            )
            place = f"{page.name}, line {block.line}"
            assert printed is not None, f"{place} failed:\n{code}"
            if block.output is not None:
                if block.output_language == "json":
                    differs = _json_differs(json.loads(block.output), json.loads(printed), "")
                else:
                    differs = _text_differs(block.output, printed)
                assert differs is None, f"{place}: {differs}\nprinted:\n{printed}"


def _python(script: subprocess.Popen[str], code: str) -> str | None:
    """What the next block of a page's script prints; None if it fails, and the error is on stderr."""
    assert script.stdout is not None
    script.stdin.write(json.dumps(code) + "\n")
    script.stdin.flush()
    printed = []
    for line in script.stdout:
        if line == "\0\n":
            return "".join(printed)
        printed.append(line)
    return None


def _shell(code: str, folder: Path, environment: dict[str, str]) -> str | None:
    """What commands print; None if one fails, and the error is on stderr."""
    lines = [line for line in code.splitlines() if not line.strip().startswith(STARTED)]
    # What a block sets is there in the next one, as in a reader's shell.
    whole = "\n".join(["set -a", "[ ! -f .exports ] || . ./.exports", *lines, "export -p > .exports"])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", whole],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=560,
    )
    print(done.stderr, file=sys.stderr)
    return done.stdout if done.returncode == 0 else None


def _json_differs(shown: Any, printed: Any, at: str) -> str | None:
    """Where two documents differ; a member ``"..."`` allows members that are not shown."""
    if isinstance(shown, dict) and isinstance(printed, dict):
        names = set(shown) - {"..."}
        if missing := names - set(printed):
            return f"{at or 'the answer'} has no {sorted(missing)}"
        if "..." not in shown and set(printed) - names:
            return f"{at or 'the answer'} has also {sorted(set(printed) - names)}"
        found = (_json_differs(shown[name], printed[name], f"{at}.{name}") for name in names)
        return next((one for one in found if one), None)
    if isinstance(shown, list) and isinstance(printed, list) and len(shown) == len(printed):
        pairs = enumerate(zip(shown, printed, strict=True))
        found = (_json_differs(one, other, f"{at}[{number}]") for number, (one, other) in pairs)
        return next((one for one in found if one), None)
    if shown == "...":
        return None
    if isinstance(shown, int | float) and isinstance(printed, int | float) and not isinstance(shown, bool):
        return None if _close(float(shown), float(printed)) else f"{at}: shown {shown}, printed {printed}"
    return None if shown == printed else f"{at}: shown {shown!r}, printed {printed!r}"


def _text_differs(shown: str, printed: str) -> str | None:
    """The first shown line that is not printed, in order."""
    lines = [line for line in (" ".join(one.split()) for one in printed.splitlines()) if line]
    at, anywhere = 0, True
    for one in shown.splitlines():
        line = " ".join(one.split())
        if line in ("", "..."):
            anywhere = True
            continue
        while anywhere and at < len(lines) and not _line_fits(line, lines[at]):
            at += 1
        if at >= len(lines) or not _line_fits(line, lines[at]):
            return f"shown but not printed: {line!r}"
        at, anywhere = at + 1, False
    return None


def _line_fits(shown: str, printed: str) -> bool:
    pattern, numbers, last = [], [], 0
    for found in re.finditer(rf"\.\.\.|─+|{NUMBER.pattern}", shown):
        pattern.append(re.escape(shown[last : found.start()]))
        last = found.end()
        if found[0] == "...":
            pattern.append(".*?")
        elif found[0].startswith("─"):
            pattern.append("─+")
        else:
            pattern.append(f"({NUMBER.pattern})")
            numbers.append(_number(found[0]))
    matched = re.fullmatch("".join([*pattern, re.escape(shown[last:])]), printed)
    return matched is not None and all(
        _close(one, _number(other)) for one, other in zip(numbers, matched.groups(), strict=True)
    )


def _number(text: str) -> float:
    return float(text.replace(",", "").rstrip("."))


def _close(shown: float, printed: float) -> bool:
    return abs(shown - printed) <= max(TOLERANCE * abs(shown), 0.01)
