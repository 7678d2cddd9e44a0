"""``make quick``: the tests that a change reaches, nearest first, while the time lasts.

What imports what is read from the sources. Tests that talk to a server import little of it: of these, and of pages of
the docs, `RELATED` names some.
"""

import ast
import os
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUDGET_S = 75.0
"""Seconds after which no further test starts; the one under way ends."""
MOST_FILES = 25
RELATED = {
    "pairmark/service/api": ("tests/service/api", "tests/e2e/test_scoring.py", "tests/e2e/test_resources.py"),
    "pairmark/service/galleries": ("tests/e2e/test_galleries.py",),
    "pairmark/service/console": ("tests/service/test_console.py",),
    "pairmark/client": ("tests/service/test_client.py",),
    "pairmark/migrations": ("tests/service/test_db.py", "tests/upgrade"),
    "pyproject.toml": ("tests/e2e/test_wheel.py",),
    "docs": ("tests/docs/test_pages.py",),
    "README.md": ("tests/docs/test_pages.py", "tests/docs/test_blocks.py"),
}
SERVED = ("tests/e2e", "tests/browser", "tests/faults")
"""Tests that mostly talk to a server: only what they import themselves runs them."""


class Budget:
    """Keeps the order that files were given in, and ends the run when its time is up."""

    def __init__(self) -> None:
        self.started = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Undo the shuffling of files: near ones come first."""
        given = {name: at for at, name in enumerate(config.args)}
        items.sort(key=lambda item: given.get(os.path.relpath(item.path, ROOT), len(given)))

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Stop before a test that would start late."""
        if time.monotonic() - self.started > BUDGET_S:
            pytest.exit(f"passed so far; {BUDGET_S:g} s are over: make test runs the rest", returncode=0)


def changed_files() -> set[str]:
    """Files that differ from the common ancestor with main, committed or not, and new ones."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    base = git("merge-base", "HEAD", "main") or "HEAD"
    listed = git("diff", "--name-only", base), git("ls-files", "--others", "--exclude-standard")
    return {name for text in listed for name in text.splitlines()}


def importers() -> dict[str, set[str]]:
    """For each module, the files that import it or a name from it, anywhere in them."""
    found = defaultdict(set)
    for folder in ("pairmark", "tests", "benchmarks", "experiments"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_bytes())):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                for module in modules:
                    found[module].add(file.relative_to(ROOT).as_posix())
    return found


def module_of(file: str) -> str:
    """The name that a file is imported by."""
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def reached_tests(changed: set[str]) -> list[str]:
    """Files of tests that a change reaches, nearest first."""
    imported_by, distance = importers(), dict.fromkeys(sorted(changed), 0)
    for prefix, tests in RELATED.items():
        if any(file.startswith(prefix) for file in changed):
            files = [
                file for test in tests for file in sorted(ROOT.glob(f"{test}/**/test_*.py")) or [ROOT / test]
            ]
            distance |= {file.relative_to(ROOT).as_posix(): 1 for file in files}
    waiting = [*distance]
    for file in waiting:
        new = sorted(imported_by[module_of(file)] - distance.keys())
        distance |= dict.fromkeys(new, distance[file] + 1)
        waiting += new
    found = [
        file
        for file, far in distance.items()
        if Path(file).name.startswith("test_")
        and (ROOT / file).is_file()
        and (far <= 1 or not file.startswith(SERVED))
    ]
    return sorted(found, key=lambda file: (distance[file], (ROOT / file).stat().st_size))


def main(arguments: list[str]) -> int:
    """Run them; further arguments go to pytest."""
    changed = changed_files()
    tests = reached_tests(changed)
    print(f"{len(changed)} files differ from main and reach {len(tests)} test files", flush=True)
    if not tests and not arguments:
        return 0
    return int(
        pytest.main(["-q", "-x", "-m", "not nightly", *tests[:MOST_FILES], *arguments], plugins=[Budget()])
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
