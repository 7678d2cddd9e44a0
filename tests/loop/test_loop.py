"""The test loop itself: quick runs what a change reaches, runs leave nothing behind, orders can be repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tidy
from tests.docs.test_blocks import LOCKING, PAGES
from tests.imports import RELATED, ROOT, affected_tests, imports_of
from tests.mutants.catalogue import MUTANTS


def test_a_change_reaches_the_tests_that_import_it_nearest_first() -> None:
    reached = affected_tests(["pairmark/models/calibration/bounds.py"])
    assert reached[0] == "tests/models/test_bounds.py"
    assert "tests/models/test_coverage.py" in reached
    assert not any(name.startswith("tests/browser") for name in reached)
    assert "tests/models/test_bounds.py" not in affected_tests(["pairmark/service/cli/keys.py"])
    assert affected_tests(["tests/models/test_bounds.py"]) == ["tests/models/test_bounds.py"]
    assert "tests/e2e/test_wheel.py" in affected_tests(["pyproject.toml"])
    assert affected_tests(["LICENSE"]) == []


def test_a_handler_reaches_the_tests_that_send_it_requests() -> None:
    assert affected_tests(["pairmark/service/api/galleries.py"])[0] == "tests/e2e/test_galleries.py"
    assert affected_tests(["pairmark/service/api/scoring.py"])[0] == "tests/e2e/test_scoring.py"
    for place, tests in RELATED.items():
        assert all((ROOT / one).exists() for one in (place, *tests)), place


def test_a_page_reaches_what_reads_it_and_what_follows_it() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = [path.relative_to(ROOT).as_posix() for path in pages if "_build" not in path.parts]
    followed = {name: [test for test in affected_tests([name]) if "::" in test] for name in named}
    assert followed["docs/how-to/galleries.md"] == [
        "tests/docs/test_blocks.py::test_the_page_does_what_it_shows[galleries]"
    ]
    assert followed["README.md"] == ["tests/docs/test_blocks.py::test_the_readme_does_what_it_shows"]
    assert all("tests/docs/test_commands.py" in affected_tests([name]) for name in named)
    assert "tests/docs/test_contributing.py" in affected_tests(["CONTRIBUTING.md"])
    script = affected_tests(["docs/examples/people.py"])
    assert script == ["tests/docs/test_examples.py::test_the_script_prints_what_the_tutorial_shows[people]"]
    # The names that are followed are pytest's.
    wanted = {
        test.partition("[")[2].rstrip("]") for tests in followed.values() for test in tests if "[" in test
    }
    assert wanted == {page.stem for page in PAGES}
    assert all("that_locks" in test for name in LOCKING for test in followed[f"docs/how-to/{name}.md"][-1:])


def test_a_name_passed_on_by_a_package_leads_to_where_it_is_made() -> None:
    found = imports_of(Path("tests/models/test_identification.py"))
    assert Path("pairmark/models/calibration/operating_point.py") in found
    assert Path("pairmark/models/__init__.py") not in found


FAILING = """
import os
def test_failing(tmp_path):
    print("\\nREADY", os.environ["TMPDIR"], tmp_path, flush=True)
    assert False
"""
ENDLESS = """
import os, tempfile, time
def test_endless(tmp_path):
    (tmp_path / "large").write_bytes(bytes(1000))
    tempfile.mkdtemp()
    print("\\nREADY", os.environ["TMPDIR"], tmp_path, flush=True)
    time.sleep(600)
"""
PATIENCE_S = 240.0
PLACES = {tidy.HERE, tidy.quick_place()}


def start(folder: Path, source: str, **environment: str) -> subprocess.Popen[str]:
    (folder / "test_it.py").write_text(source)
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("TMPDIR", "PAIRMARK_TEST_SEED", "PYTEST_ADDOPTS")
    }
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-s",
            "-p",
            "tests.tidy",
            "-p",
            "no:cacheprovider",
            "test_it.py",
        ],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
        stdout=subprocess.PIPE,
        text=True,
        # A run in the background may ignore interrupts, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def folders_of(process: subprocess.Popen[str]) -> set[Path]:
    """The run's temporary folders, once its test has begun; other runs may be under way beside it."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("READY "):
            named = [Path(one) for one in line.split()[1:]]
            return {up for one in named for up in [one, *one.parents] if up.name.startswith(tidy.PREFIX)}
    raise AssertionError("the run ended before its test began")


def test_a_killed_run_is_swept_by_the_next_and_a_live_one_is_not(tmp_path: Path) -> None:
    process = start(tmp_path, ENDLESS)
    mine = folders_of(process)
    assert [large for folder in mine for large in folder.rglob("large")]
    assert not mine & {swept for place in PLACES for swept in tidy.sweep(place)}
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + PATIENCE_S
    while any(folder.exists() for folder in mine) and time.monotonic() < deadline:
        for place in PLACES:
            tidy.sweep(place)
    assert not any(folder.exists() for folder in mine)


@pytest.mark.parametrize(
    ("source", "end"), [(FAILING, None), (ENDLESS, signal.SIGINT)], ids=["fails", "interrupted"]
)
def test_a_run_that_ends_or_is_interrupted_leaves_nothing(
    tmp_path: Path, source: str, end: signal.Signals | None
) -> None:
    process = start(tmp_path, source)
    mine = folders_of(process)
    assert {folder.parent for folder in mine} == set(PLACES)
    if end is not None:
        process.send_signal(end)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert not any(folder.exists() for folder in mine)


def test_an_order_is_random_and_can_be_repeated(tmp_path: Path) -> None:
    source = "".join(f"def test_{number}(): print('ran {number}')\n" for number in range(8))

    def order(seed: str) -> list[str]:
        process = start(tmp_path, source, PAIRMARK_TEST_SEED=seed)
        said, _ = process.communicate(timeout=PATIENCE_S)
        return [line.split()[1].rstrip(".") for line in said.splitlines() if "ran " in line]

    first, again, other = order("1"), order("1"), order("2")
    assert first == again != other
    assert sorted(other) == [str(number) for number in range(8)]


def test_the_run_with_checked_bounds_reaches_every_kernel() -> None:
    listed = subprocess.run(
        ["make", "-s", "-f", "-", "listed"],
        input="include Makefile\nlisted:\n\t@echo $(KERNEL_TESTS)\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = listed.stdout.split()
    assert len(named) > 10
    for kernel in sorted((ROOT / "pairmark" / "models").glob("*/kernels/*.py")):
        if kernel.name != "__init__.py":
            reached = affected_tests([str(kernel.relative_to(ROOT))])
            assert any(test.startswith(place) for test in reached for place in named), kernel


def test_every_mutant_applies_to_the_code_as_it_is_and_names_tests_that_exist() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    for mutant in MUTANTS:
        texts: dict[str, str] = {}
        for edit in mutant.edits:
            text = texts.setdefault(edit.file, (ROOT / edit.file).read_text())
            assert text.count(edit.old) == 1, f"{mutant.name}: update its text in {edit.file}"
            texts[edit.file] = text.replace(edit.old, edit.new)
            if edit.file.endswith(".py"):
                compile(texts[edit.file], edit.file, "exec")
        for test in mutant.tests:
            file, _, name = test.partition("[")[0].partition("::")
            assert not name or f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text(), (
                f"{mutant.name}: there is no test {test}"
            )
