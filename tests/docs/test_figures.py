"""Measured figures in the README and the docs come from result files."""

import json
import re
from typing import get_args

import pytest

from benchmarks import common, tables
from docs import figures
from pairmark.models.calibration.guarantees import AMPLE_MULTIPLE, units_needed
from pairmark.models.calibration.operating_point import GUARANTEES, Guarantee
from tests.serving import ROOT

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
    assert found is not None
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


PICTURES = ROOT / "docs" / "pictures"


def test_every_picture_stands_on_a_page() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    shown = {name for page in pages for name in re.findall(r"pictures/([\w-]+\.\w+)\)", page.read_text())}
    assert shown == {path.name for path in PICTURES.iterdir()}
