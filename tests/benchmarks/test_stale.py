"""Which result files are older than what they measure."""

from __future__ import annotations

from pathlib import Path

from benchmarks import stale, tables


def test_a_benchmark_measures_the_modules_that_it_imports_and_those_they_import() -> None:
    modules = {
        path.relative_to(tables.ROOT) for path in stale.imported(tables.ROOT / "benchmarks" / "coverage.py")
    }
    assert Path("benchmarks/coverage.py") in modules
    assert Path("pairmark/models/calibration/calibration.py") in modules
    assert Path("pairmark/models/calibration/bounds.py") in modules  # imported by the one before


def test_a_commit_that_is_not_there_is_told_from_one_without_changes() -> None:
    assert stale.changed_since("0" * 40) is None
    assert stale.changed_since("") is None
    assert stale.changed_since("HEAD") == frozenset()
