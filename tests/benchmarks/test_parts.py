"""Finished parts of a long benchmark, kept for a run that goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import common
from benchmarks.common import Parts


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place of the test's own, with a learner's code beside the benchmarks."""
    benchmarks = tmp_path / "benchmarks"
    for name in ("benchmarks", "pairmark/models/family"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pairmark/models/family/kernels.py").write_text("STEPS = 1\n")
    monkeypatch.setattr(common, "RESULTS", benchmarks / "results")
    monkeypatch.setattr(common, "__file__", str(benchmarks / "common.py"))
    return tmp_path


def made(value: Any) -> Callable[[], Any]:
    return lambda: value


def never() -> Any:
    raise AssertionError("made again")


def kept() -> list[str]:
    return sorted(file.name for file in common.RESULTS.iterdir())


def test_a_run_that_was_cut_goes_on_with_what_it_had() -> None:
    parts = Parts("slow", "full")
    assert parts.get("first", made({"auc": 0.5})) == {"auc": 0.5}
    assert parts.get("second", made([np.float64(1.5), np.arange(2)]))[0] == 1.5
    with pytest.raises(KeyboardInterrupt):
        parts.get("third", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    again = Parts("slow", "full")
    assert again.get("first", never) == {"auc": 0.5}
    assert again.get("second", never) == [1.5, [0, 1]]
    assert again.get("third", made(3)) == 3
    assert Parts("other", "full").get("first", made("its own")) == "its own"
    again.forget()
    assert kept() == ["other.part.json"]
    again.forget()
    assert Parts("slow", "full").get("first", made("anew")) == "anew"


def test_parts_of_another_question_or_of_other_code_are_forgotten(folder: Path) -> None:
    Parts("slow", "quick").get("first", made(1))
    assert Parts("slow", "full").get("first", made(2)) == 2
    assert Parts("slow", "full").get("first", never) == 2
    code = folder / "pairmark/models/family/kernels.py"
    code.write_text("STEPS = 2\n")
    assert Parts("slow", "full").get("first", made(3)) == 3
    code.with_name("state.py").write_text("LINES = 3\n")
    assert Parts("slow", "full").get("first", made(4)) == 4
    code.with_name("notes.txt").write_text("not code")
    assert Parts("slow", "full").get("first", never) == 4


def test_parts_of_named_folders_do_not_depend_on_the_others(folder: Path) -> None:
    (folder / "pairmark/models/other").mkdir()
    Parts("slow", "full", ("pairmark/models/family",)).get("first", made(1))
    (folder / "pairmark/models/other/estimator.py").write_text("DEPTH = 1\n")
    assert Parts("slow", "full", ("pairmark/models/family",)).get("first", never) == 1
    (folder / "pairmark/models/family/kernels.py").write_text("STEPS = 2\n")
    assert Parts("slow", "full", ("pairmark/models/family",)).get("first", made(2)) == 2


def test_a_part_that_cannot_be_written_costs_none_that_was() -> None:
    parts = Parts("slow", "full")
    parts.get("first", made(1))
    with pytest.raises(TypeError, match="object is not JSON"):
        parts.get("second", made(object()))
    assert kept() == ["slow.part.json"]
    assert json.loads((common.RESULTS / "slow.part.json").read_text())["parts"] == {"first": 1}
    assert Parts("slow", "full").get("first", never) == 1


def test_a_cut_while_writing_leaves_the_whole_parts_before(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts("slow", "full")
    parts.get("first", made(1))
    written = Path.write_text

    def cut(self: Path, text: str) -> int:
        written(self, text[: len(text) // 2])
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", cut)
        with pytest.raises(OSError, match="no space left"):
            parts.get("second", made(2))
    # The half that was written stands beside, and is written over by the next one.
    assert kept() == ["slow.part.json", "slow.part.tmp"]
    again = Parts("slow", "full")
    assert [again.get("first", never), again.get("second", made(2))] == [1, 2]
    assert kept() == ["slow.part.json"]


def test_parts_of_code_that_is_not_there_are_refused() -> None:
    with pytest.raises(FileNotFoundError, match="holds no code"):
        Parts("slow", "full", ("models",))
