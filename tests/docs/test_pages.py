"""What the README and the docs show is true: names, commands, figures, Python that explains learners."""

import json
import os
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import typer

from benchmarks import common, tables
from docs import figures
from pairmark.models.calibration.guarantees import AMPLE_MULTIPLE, units_needed
from pairmark.models.calibration.operating_point import GUARANTEES, Guarantee
from pairmark.models.registry import learner_specs
from pairmark.service.api.problems import PAGES as PROBLEMS
from pairmark.service.cli import app
from pairmark.service.settings import Settings
from tests.docs import blocks
from tests.serving import ROOT

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
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]
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


MEASURED = (
    "docs/benchmarks.md",
    "docs/experiments.md",
    "docs/how-to/choose-a-learner.md",
)
"""Pages whose figures are all measured: none of them stands outside a generated table."""
NOT_PROSE = re.compile(
    r"<!-- results:.*?<!-- end of results -->|<!-- misses -->.*?<!-- end of misses -->"
    r"|```.*?```|`[^`]*`|\]\([^)]*\)|<!--.*?-->",
    re.DOTALL,
)


def test_the_readme_states_what_the_result_files_hold() -> None:
    found = figures.PLACE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    # The commit that brought a file is not known before it is made.
    named = re.compile(r"(?<=`, )[0-9a-f]*(?=\))")
    assert named.sub("", found[0]) == named.sub("", figures.figures()), "run: python -m docs.figures"


@pytest.mark.parametrize("page", MEASURED)
def test_measured_figures_stand_in_generated_tables_only(page: str) -> None:
    prose = NOT_PROSE.sub(" ", (ROOT / page).read_text(encoding="utf-8"))
    assert re.findall(r"(?<![\w.])\d*\.\d+(?![\w.])", prose) == [], (
        "generate a table: see benchmarks/tables.py"
    )


def test_every_table_is_from_a_result_file() -> None:
    for page in tables.pages():
        for block in tables.BLOCK.finditer(page.read_text(encoding="utf-8")):
            assert tables.read(block["name"])["preset"], (page, block["name"])


def test_every_result_file_names_the_commit_that_was_run() -> None:
    files = [
        file
        for folder in tables.RESULTS
        for file in sorted(folder.glob("*.json"))
        if ".part" not in file.name
    ]
    assert files
    of = {file.name: json.loads(file.read_text(encoding="utf-8")) for file in files}
    unnamed = [
        name for name, kept in of.items() if not re.fullmatch("[0-9a-f]{40}", kept.get("commit") or "")
    ]
    assert unnamed == []
    assert [name for name, kept in of.items() if kept["dirty"]] == []


def test_claims_that_do_not_hold_are_known() -> None:
    for folder in tables.RESULTS:
        for file in sorted(folder.glob("*.json")):
            result = json.loads(file.read_text(encoding="utf-8"))
            claims = [common.Claim(**claim) for claim in result.get("claims", [])]
            assert [claim.what for claim in common.new_misses(result["benchmark"], claims)] == [], file.name


def test_the_docs_say_of_each_guarantee_what_the_api_says() -> None:
    page = (ROOT / "docs" / "explanation" / "guarantee.md").read_text(encoding="utf-8")
    assert [name for name, holds in GUARANTEES.items() if f"| `{name}` | {holds} |" not in page] == []
    assert set(GUARANTEES) == set(get_args(Guarantee))


def test_the_planning_tables_are_what_plan_says() -> None:
    open_set, closed_set = (ROOT / "docs" / "planning.md").read_text().split("## Closed-set")
    row = re.compile(r"^\| ([\d.]+) % \| (\d+) % \|(.*)\|$", re.MULTILINE)
    n_rows = 0
    for text, classes in ((open_set, None), (closed_set, 10)):
        for fpr, confidence, rest in row.findall(text):
            reported = [int(cell.replace(",", "")) for cell in rest.split("|")]
            share = 1.0 if classes is None else 1 - 1 / classes
            needed = units_needed(float(fpr) / 100, int(confidence) / 100, different_share=share)
            least, bootstrap = needed["finite-sample"], needed["bootstrap"]
            comfortable = [] if classes else [AMPLE_MULTIPLE * least]
            assert reported == [least, *comfortable, bootstrap], (fpr, confidence, classes)
            n_rows += 1
    assert n_rows == 12


def test_every_picture_stands_on_a_page() -> None:
    shown = {name for page in PAGES for name in re.findall(r"pictures/([\w-]+\.\w+)\)", page.read_text())}
    assert shown == {path.name for path in (ROOT / "docs" / "pictures").iterdir()}


EXPLAINED = (
    "explanation/papers",
    "ghost",
    "plda",
    "rsbl",
    "similarity-auto",
    "similarity-forests",
)
RUN_WITH_A_SERVICE = ("rankboost",)
"""By `tests/e2e/test_serve.py`, on texts of its own."""


def reader_data() -> dict[str, Any]:
    """What the pages take as given: rows of 20 people, two each since the race costs, and pairs of them."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 2)
    X = rng.normal(size=(20, 5))[y] + 0.3 * rng.normal(size=(40, 5))
    Y = np.argsort(np.argsort(-X[:, :3], axis=1), axis=1).astype(float)
    return {"X": X, "y": y, "Y": Y, "X_new": X[:6], "A": X[:5], "B": X[5:10], "left": X[:5], "right": X[5:10]}


@pytest.mark.nightly
@pytest.mark.parametrize("page", EXPLAINED)
def test_what_the_page_shows_in_python_runs(page: str, tmp_path: Path) -> None:
    shown = [block for block in blocks.blocks(ROOT / "docs" / f"{page}.md") if block.language == "python"]
    assert shown
    scope = reader_data()
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for block in shown:
            exec(compile(block.code, f"{page}.md, line {block.line}", "exec"), scope)  # the page's own words
    finally:
        os.chdir(before)


def test_every_block_is_run_or_says_why_not() -> None:
    """`test_blocks.py` runs how-to pages, tutorials and the README; pages made of docstrings are run with these."""
    for page in PAGES[1:]:
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        if not name.startswith(("how-to/", "tutorials/", "reference/python/")):
            languages = {block.language for block in blocks.blocks(page)}
            assert languages <= ({"python"} if name in EXPLAINED + RUN_WITH_A_SERVICE else set()), name
