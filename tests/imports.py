"""Which tests a change touches: who imports what in this checkout, read from the sources without running them."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELATED = {
    "pairmark/service/console": ("tests/service/test_console.py",),
    "pairmark/client": ("tests/service/test_client.py",),
    "pairmark/service/api/templates": ("tests/service/api",),
    "pairmark/service/api/points.py": ("tests/e2e/test_classify_served.py", "tests/e2e/test_ranking.py"),
    **{
        f"pairmark/service/api/{handler}.py": (f"tests/e2e/test_{tests}.py",)
        for handler, tests in {
            "audit": "audit_served",
            "calibrations": "scoring",
            "datasets": "resources",
            "decisions": "scoring",
            "edge": "edge",
            "evidence": "evidence_served",
            "galleries": "galleries",
            "jobs": "resources",
            "keys": "team_keys",
            "learners": "resources",
            "models": "resources",
            "scoring": "scoring",
            "search": "galleries",
        }.items()
    },
    "pairmark/migrations": ("tests/service/test_db.py", "tests/golden"),
    "pyproject.toml": ("tests/e2e/test_wheel.py",),
    "deploy/client": ("tests/e2e/test_wheel.py",),
    "setup.py": ("tests/e2e/test_wheel.py",),
    "benchmarks": ("tests/benchmarks",),
    "experiments": ("tests/benchmarks",),
}
"""Files that no test imports, or that only requests reach -> the tests that read, run or ask them."""
SERVED = ("tests/e2e", "tests/browser", "tests/faults")
"""Tests that mostly talk to a server: only what they import themselves runs them."""
OF_PAGES = ("tests/docs/test_commands.py", "tests/docs/test_figures.py")
BLOCKS = "tests/docs/test_blocks.py"


def tests_of_page(name: str) -> list[str]:
    """What reads or follows a page of the docs, quick tests first; of those that follow pages, this page's alone."""
    file = Path(name)
    if file.suffix in (".py", ".txt") and file.parent == Path("docs/examples"):
        return [f"tests/docs/test_examples.py::test_the_script_prints_what_the_tutorial_shows[{file.stem}]"]
    if file.suffix != ".md" or file.parts[0] not in ("docs", "README.md", "CONTRIBUTING.md"):
        return []
    if name == "CONTRIBUTING.md":
        return [*OF_PAGES, "tests/docs/test_contributing.py"]
    if name == "README.md":
        return [*OF_PAGES, f"{BLOCKS}::test_the_readme_does_what_it_shows"]
    if name in ("docs/how-to/keys.md", "docs/how-to/tenants.md"):
        return [*OF_PAGES, f"{BLOCKS}::test_the_page_that_locks_the_service_does_what_it_shows[{file.stem}]"]
    if file.parent.name in ("how-to", "tutorials"):
        return [*OF_PAGES, f"{BLOCKS}::test_the_page_does_what_it_shows[{file.stem}]"]
    return list(OF_PAGES)


@cache
def file_of(module: str) -> Path | None:
    """The file of a module of this checkout, relative to it."""
    path = module.replace(".", "/")
    places = [path, f"tests/{path}"]
    for found in (f"{place}{end}" for place in places for end in (".py", "/__init__.py")):
        if (ROOT / found).is_file():
            return Path(found)
    return None


@cache
def import_statements(file: Path) -> list[ast.Import | ast.ImportFrom]:
    """Every import of a file, within functions too."""
    tree = ast.walk(ast.parse((ROOT / file).read_bytes()))
    return [node for node in tree if isinstance(node, (ast.Import, ast.ImportFrom))]


def imports_of(file: Path) -> set[Path]:
    """Files that a file imports anywhere in it; a name that a package only passes on leads to where it is made."""
    found: set[Path] = set()
    beside = file.parent
    for node in import_statements(file):
        if isinstance(node, ast.Import):
            targets = [(alias.name, None) for alias in node.names]
        elif node.module and not node.level:
            targets = [(node.module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in targets:
            own = file_of(f"{module}.{name}") if name else None
            target = own or made_at(module, name) or file_of(module)
            if target is None and (ROOT / beside / f"{module}.py").is_file():
                target = beside / f"{module}.py"
            if target is not None:
                found.add(target)
    return found - {file}


def made_at(module: str, name: str | None) -> Path | None:
    """Where a name comes from that a package's ``__init__``, or its ``public`` module, imports."""
    package = file_of(module)
    if package is None or package.name not in ("__init__.py", "public.py") or name is None:
        return None
    for node in import_statements(package):
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        for alias in node.names:
            if alias.name == name:
                return made_at(node.module, name) or file_of(node.module)
            if alias.name == "*" and (origin := made_at(node.module, name)):
                return origin
    return None


@cache
def importers_of_files() -> dict[Path, set[Path]]:
    """For each file of the checkout, those that import it; a conftest is imported by the tests beside and below it."""
    sources = [
        file.relative_to(ROOT)
        for folder in ("pairmark", "tests", "benchmarks", "experiments")
        for file in (ROOT / folder).rglob("*.py")
    ]
    importers: dict[Path, set[Path]] = defaultdict(set)
    for file in sources:
        for target in imports_of(file):
            importers[target].add(file)
        if is_test(file):
            for folder in file.parents:
                if (ROOT / folder / "conftest.py").is_file() and file.name != "conftest.py":
                    importers[folder / "conftest.py"].add(file)
    return importers


def affected_tests(changed: Iterable[str]) -> list[str]:
    """Tests that a change reaches, nearest first: files, and of those that follow pages of the docs the page's alone.

    Parameters
    ----------
    changed : paths relative to the checkout.
    """
    changed, importers = list(changed), importers_of_files()
    distance = {Path(one): 0 for one in changed}
    for one in changed:
        for prefix, tests in RELATED.items():
            if one.startswith(prefix):
                for test in tests:
                    place = ROOT / test
                    files = [place] if place.is_file() else sorted(place.rglob("test_*.py"))
                    distance |= {file.relative_to(ROOT): 1 for file in files}
    waiting = deque(sorted(distance))
    while waiting:
        file = waiting.popleft()
        for importer in sorted(importers.get(file, ())):
            if importer not in distance:
                # Every service test shares its conftest, which says little of what it is about.
                distance[importer] = distance[file] + (4 if file.name == "conftest.py" else 1)
                waiting.append(importer)
    names = {Path(one).stem for one in changed}
    reached = [
        # Of equal distance, tests named after the file come first, and then small ones.
        (far, not any(name in file.stem for name in names), (ROOT / file).stat().st_size, str(file))
        for file, far in distance.items()
        if is_test(file) and (ROOT / file).is_file() and (far <= 1 or not str(file).startswith(SERVED))
    ]
    of_pages = [test for one in changed for test in tests_of_page(one)]
    return list(dict.fromkeys([*of_pages, *(name for *_, name in sorted(reached))]))


def is_test(file: Path) -> bool:
    """Whether pytest collects the file."""
    return file.parts[0] == "tests" and file.name.startswith("test_") and file.suffix == ".py"
