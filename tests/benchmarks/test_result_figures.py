"""Figures in the docs are those of the result files, and a claim that does not hold is known or fails."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import common, tables
from benchmarks.__main__ import names, run_one
from benchmarks.common import Claim, Result

ROOT = Path(__file__).parents[2]
KEPT = sorted([*ROOT.glob("benchmarks/results/*.json"), *ROOT.glob("experiments/results/*.json")])
PAGE = """# A page

<!-- results: made
where kind = ours
name
seconds : .2f = CPU seconds
-->
| old | table |
<!-- end of results -->

Text | that | stays.
"""


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    result = {
        "benchmark": "made",
        "preset": "quick",
        "commit": "0123456789abcdef",
        "dirty": True,
        "rows": [
            {"kind": "ours", "name": "tree", "at": 1, "seconds": 1.23456},
            {"kind": "ours", "name": "tree", "at": 2, "seconds": None},
            {"kind": "theirs", "name": "other", "at": 1, "seconds": 2.0},
        ],
        "claims": [
            {"what": "faster", "goal": "at most 2", "measured": 3.0, "holds": False},
            {"what": "lighter", "goal": "at most 2", "measured": 1.0, "holds": True},
        ],
    }
    (tmp_path / "made.json").write_text(json.dumps(result))
    monkeypatch.setattr(tables, "RESULTS", (tmp_path,))
    return result


def test_a_table_is_made_from_its_result_file_and_made_again_is_the_same(made: dict[str, Any]) -> None:
    page = tables.rendered(PAGE, "page")
    assert "| name | CPU seconds |\n|---|---|\n| tree | 1.23 |\n| tree |  |\n" in page
    assert "other" not in page
    assert "old" not in page
    assert "quick preset, commit 0123456789, with changes" in page
    assert page.endswith("Text | that | stays.\n")
    assert tables.rendered(page, "page") == page


def test_columns_stand_side_by_side_and_claims_say_what_does_not_hold(made: dict[str, Any]) -> None:
    beside = tables.Table.parse("kind\nacross at show seconds : .1f").render(made)
    assert beside.splitlines()[0] == "| kind | 1 | 2 |"
    assert "| ours | 1.2 |  |" in beside
    missed = tables.Table.parse("claims").render(made)
    assert missed.startswith("1 of 2 claims hold; these do not:\n\n| claim |")
    assert "| faster | at most 2 | 3 | **no** |" in missed
    assert "lighter" not in missed
    elsewhere = tables.Table.parse("claims").render(made, "all.md#claims")
    assert elsewhere == "1 of 2 claims hold, [1 not](all.md#claims)."
    assert "| lighter | at most 2 | 1 | yes |" in tables.Table.parse("claims all").render(made)


def test_a_page_lists_every_claim_that_does_not_hold(made: dict[str, Any]) -> None:
    page = tables.rendered("<!-- misses -->\nold\n<!-- end of misses -->\n", "page")
    assert "| `made` | faster | at most 2 | 3 |\n" in page
    assert "lighter" not in page
    assert "old" not in page
    assert tables.rendered(page, "page") == page


def test_a_column_that_is_not_there_is_named(made: dict[str, Any]) -> None:
    with pytest.raises(SystemExit, match=r"page: table of made: no column 'speed'; there are: kind, name"):
        tables.rendered(PAGE.replace("seconds :", "speed :"), "page")


@pytest.mark.parametrize("kept", KEPT, ids=lambda path: path.stem)
def test_what_does_not_hold_in_kept_results_is_on_the_list(kept: Path) -> None:
    result = json.loads(kept.read_text())
    claims = [Claim(**claim) for claim in result["claims"]]
    assert [claim.what for claim in common.new_misses(result["benchmark"], claims)] == []


def test_the_list_names_benchmarks_that_there_are() -> None:
    assert set(tomllib.loads(common.KNOWN_MISSES.read_text())) <= {
        *names("benchmarks"),
        *names("experiments"),
    }


@pytest.mark.parametrize(("listed", "good"), [("", False), ('[made]\n"fast*" = "why"\n', True)])
def test_a_new_miss_fails_the_run(
    listed: str,
    good: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:

    missed = Claim(what="faster than before", goal="at most 2", measured=3.0, holds=False)
    module = SimpleNamespace(run=lambda preset: Result(rows=[{"a": 1}], claims=[missed]))
    monkeypatch.setitem(sys.modules, "benchmarks.made", module)
    monkeypatch.setattr("benchmarks.__main__.write", lambda *given: tmp_path / "made.json")
    (tmp_path / "known.toml").write_text(listed)
    monkeypatch.setattr(common, "KNOWN_MISSES", tmp_path / "known.toml")
    assert run_one("benchmarks", "made", "quick") is good
    assert "NOT HELD" in capsys.readouterr().out
