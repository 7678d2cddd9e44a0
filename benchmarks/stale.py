"""Result files that are older than the code they measure: ``python -m benchmarks.stale`` lists them.

A file is older where a module that its benchmark imports, itself or through others, has changed since the commit that
was run. It may still be true: a comment is a change too. So the list is for those who decide what to measure again, and
fails nothing.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks.tables import RESULTS, ROOT


def main() -> int:
    """Print the list."""
    outdated = older_results()
    for line in outdated:
        print(line)
    if outdated:
        print(f"{len(outdated)} result files are older than code they measure")
    return 0


def older_results() -> list[str]:
    """A line for each result file: its name, the commit that was run, and how many of its modules changed since."""
    lines = []
    for folder in RESULTS:
        for file in sorted(folder.glob("*.json")):
            if ".part" in file.name:
                continue
            commit = json.loads(file.read_text(encoding="utf-8")).get("commit") or ""
            script = folder.parent / file.with_suffix(".py").name
            changed = changed_since(commit)
            if changed is None:
                lines.append(f"{file.stem}: commit {commit[:10] or 'not kept'} is not in this clone")
            elif modules := imported(script) & changed:
                lines.append(f"{file.stem}: {len(modules)} of its modules changed since {commit[:10]}")
    return lines


@cache
def changed_since(commit: str) -> frozenset[Path] | None:
    """Files that differ from a commit's; None where the commit is not there."""
    command = ["git", "diff", "--name-only", commit, "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not commit or done.returncode:
        return None
    return frozenset(ROOT / name for name in done.stdout.splitlines())


def imported(script: Path) -> set[Path]:
    """The modules of this checkout that a script runs, itself included."""
    reached: set[Path] = set()
    waiting = [script] if script.is_file() else []
    while waiting:
        file = waiting.pop()
        if file not in reached:
            reached.add(file)
            waiting += _imports(file)
    return reached


@cache
def _imports(file: Path) -> tuple[Path, ...]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    places = (ROOT / name.replace(".", "/") for name in sorted(names))
    both = ((place.with_suffix(".py"), place / "__init__.py") for place in places)
    return tuple(path for pair in both for path in pair if path.is_file())


if __name__ == "__main__":
    sys.exit(main())
