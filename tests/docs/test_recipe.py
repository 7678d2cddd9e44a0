"""The recipe of a learner in CONTRIBUTING is one that works."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest


def test_the_recipe_of_a_learner_makes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    source = re.search(r"`pairmark/models/diagonal/estimator\.py`:\n\n```python\n(.*?)```", text, re.DOTALL)
    assert source is not None
    module = ModuleType("pairmark.models.diagonal.estimator")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source[1], module.__dict__)
    model = module.DIAGONAL.estimator()
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)).astype(np.float32), np.repeat(np.arange(5), 4)
    scores = model.fit(X, y).pair_score(X[:2], X[2:4])
    assert np.diag(model.score_against(X[:2], X[2:4])).tobytes() == scores.tobytes()
    assert model.top_k(X[:1], X, 1)[0].tolist() == [[0]]
    assert model.to_state()[0]["weights"].tobytes() == model.weights_.tobytes()
    model.fit_pairs(X[:10], X[10:], np.arange(10) % 2)
