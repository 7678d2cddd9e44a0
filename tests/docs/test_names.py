"""Names that the pages write as code are names of the code: settings, metrics, problems, options, learners."""

import re
from pathlib import Path

import pytest

from pairmark.models.registry import learner_specs
from pairmark.service.api.problems import PAGES as PROBLEMS
from pairmark.service.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts),
]
SOURCE = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in (
        "pairmark",
        "deploy",
        "benchmarks",
        "experiments",
        "tests/e2e",
        "docker-compose.yml",
        "setup.py",
    )
    for path in ([ROOT / folder] if (ROOT / folder).is_file() else sorted((ROOT / folder).rglob("*.*")))
    if "results" not in path.parts and path.suffix in (".py", ".yml", ".yaml", ".json", ".service", ".html")
)
HELP = (ROOT / "tests" / "golden" / "surface" / "help.txt").read_text(encoding="utf-8")


def code(page: Path) -> str:
    """What a page writes as code, in lines and in blocks."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", page.read_text(encoding="utf-8"), re.DOTALL))


def names(pattern: str) -> list[tuple[str, str]]:
    """(page, name) of all names of a form."""
    return sorted(
        {(str(page.relative_to(ROOT)), name) for page in PAGES for name in re.findall(pattern, code(page))}
    )


def test_settings_are_settings() -> None:
    fields = {f"PAIRMARK_{name.upper()}" for name in Settings.model_fields}
    wrong = [
        (page, name)
        for page, name in names(r"\bPAIRMARK_[A-Z0-9_]*[A-Z0-9]\b")
        # Some are read before there are settings, or by the image and the tests.
        if name not in fields and not re.search(rf"\b{name}\b", SOURCE + (ROOT / "Makefile").read_text())
    ]
    assert wrong == []


def test_metrics_are_exported() -> None:
    found = names(r"\bpairmark_[a-z0-9_]+[a-z0-9]\b")
    assert found
    bare = [
        (page, re.sub(r"_(total|bucket|count|sum)$", "", name.removeprefix("pairmark_")))
        for page, name in found
    ]
    assert [one for one in bare if not re.search(rf"\b(pairmark_)?{one[1]}(_total)?\b", SOURCE)] == []


def test_problems_have_pages() -> None:
    found = names(r"/problems/([a-z-]+)")
    assert found
    assert [one for one in found if one[1] not in PROBLEMS] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_are_options(page: Path) -> None:
    # Only of lines that speak of our own command, or of an option alone.
    lines = re.findall(r"`(?:pairmark [^`\n]*|--[a-z][^`\n]*)`", page.read_text(encoding="utf-8"))
    options = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)}
    assert sorted(option for option in options if not re.search(rf"{option}(?![\w-])", HELP + SOURCE)) == []


def test_learners_are_learners() -> None:
    kinds = {spec.kind for spec in learner_specs()}
    found = names(r"--learner ([a-z-]+)") + names(r'"(?:learner|kind)": "([a-z-]+)"')
    assert found
    # In bodies of the generated page, which tests hold against their schemas, a kind may be another thing's.
    assert [one for one in found if one[1] not in kinds and one[0] != "docs/reference/http.md"] == []
