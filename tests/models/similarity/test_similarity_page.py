"""The page on similarity trees and forests: its Python runs as written."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pairmark

PAGE = Path(__file__).parents[3] / "docs" / "similarity-forests.md"


@pytest.mark.nightly
def test_the_page_leads_from_rows_to_saved_forests_and_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) == 2
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 8)
    X = rng.standard_normal((20, 5))[y] + 0.5 * rng.standard_normal((160, 5))
    names: dict[str, Any] = {"X": X, "y": y}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    forest, tree = names["forest"], names["tree"]
    assert pairmark.load(Path("people.model")).pair_score(X, X[::-1]).tobytes() == (
        forest.pair_score(X[::-1], X).tobytes()
    )
    assert {"fpr", "tpr"} <= set(names["cells"][0])
    assert 0.5 < tree.auc_ <= 1
