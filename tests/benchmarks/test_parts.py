"""Finished parts of a long benchmark, kept for a run that goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import common
from benchmarks.common import Parts


def never() -> int:
    raise AssertionError("made again")


def test_a_run_that_was_cut_goes_on_unless_the_code_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "pairmark/models/kernels.py"
    code.parent.mkdir(parents=True)
    code.write_text("STEPS = 1\n")
    monkeypatch.setattr(common, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(common, "ROOT", tmp_path)
    assert Parts("slow", "full").get("first", lambda: [np.float64(1.5), np.arange(2)])[0] == 1.5
    again = Parts("slow", "full")
    assert again.get("first", never) == [1.5, [0, 1]]
    with pytest.raises(TypeError, match="not JSON"):
        again.get("second", object)
    assert Parts("slow", "full").get("first", never) == [1.5, [0, 1]]
    assert Parts("slow", "quick").get("first", lambda: 2) == 2
    code.write_text("STEPS = 2\n")
    last = Parts("slow", "quick")
    assert last.get("first", lambda: 3) == 3
    last.forget()
    assert list(common.RESULTS.iterdir()) == []
