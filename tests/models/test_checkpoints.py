"""A fit that was stopped goes on at the next tree, to the very model it would have been."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_iris

from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.core.checkpoints import keeping
from pairmark.models.core.progress import listening

X, y = load_iris(return_X_y=True)
PARAMS: dict[str, Any] = {"n_estimators": 6, "n_pairs": 400, "max_depth": 2}


def stop_after(trees: int) -> Any:
    def stop(fraction: float, stage: str) -> None:
        if stage == f"growing trees: {trees} of 6":
            raise InterruptedError

    return stop


@pytest.mark.parametrize("seed", [3, None])
def test_a_stopped_fit_goes_on_at_the_next_tree(tmp_path: Path, seed: int | None) -> None:
    def forest(**more: Any) -> SimilarityForest:
        return SimilarityForest(random_state=seed, **{**PARAMS, **more})

    with keeping(tmp_path), listening(stop_after(4)), pytest.raises(InterruptedError):
        forest().fit(X, y)
    parts = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("tree-*.npz")}
    assert len(parts) == 4
    with keeping(tmp_path):
        resumed = forest().fit(X, y)
        again = forest(n_jobs=2).fit(X, y)
    assert len(list(tmp_path.rglob("tree-*.npz"))) == 6
    # What was grown before is not grown again.
    assert all(file.stat().st_mtime_ns == time for file, time in parts.items())
    assert resumed.pair_score(X, X[::-1]).tobytes() == again.pair_score(X, X[::-1]).tobytes()
    if seed is not None:
        assert resumed.pair_score(X, X[::-1]).tobytes() == forest().fit(X, y).pair_score(X, X[::-1]).tobytes()
        with keeping(tmp_path):
            forest().fit(X[:-1], y[:-1])
            forest(max_depth=3).fit(X, y)
        assert len(list(tmp_path.rglob("tree-*.npz"))) == 18


def test_a_part_cut_short_is_made_again(tmp_path: Path) -> None:
    with keeping(tmp_path):
        first = SimilarityTree(n_pairs=400, random_state=0).fit(X, y)
        (kept,) = tmp_path.rglob("tree-*.npz")
        kept.write_bytes(kept.read_bytes()[:100])
        second = SimilarityTree(n_pairs=400, random_state=0).fit(X, y)
    assert first.pair_score(X, X[::-1]).tobytes() == second.pair_score(X, X[::-1]).tobytes()
    assert not list(tmp_path.rglob(".*"))
