"""What was warmed compiles nothing more when it is used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pairmark.models.registry import save, spec_of
from tests.serving import ROOT

SEARCHERS = (
    "similarity-forest",
    *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("metric", "plda", "similarity-tree")),
)
USED = """
import gc, sys
import numpy as np
from numba.core.dispatcher import Dispatcher
import pairmark
from pairmark.models.registry import spec_of
from pairmark.models.warmup import warm_loaded

def compiled():
    own = [one for one in gc.get_objects() if isinstance(one, Dispatcher)]
    return {one.py_func.__qualname__: len(one.overloads) for one in own}

model = pairmark.load(sys.argv[1])
warm_loaded(model, spec_of(sys.argv[2]).capabilities)
before = compiled()
assert sum(before.values()), "nothing was compiled: the kernels moved"
X = np.random.default_rng(1).standard_normal((300, 8)).astype(np.float32)
model.pair_score(X[:1], X[1:2])
model.top_k(X[:1], model.index(X), 5, allowed=np.arange(300) % 2 == 0, above=np.float32(-1e9))
model.top_k(X[:3], model.index(np.tile(X, (40, 1))), 5)
model.top_k(X[:3], model.index(np.tile(X, (40, 1)) + np.random.default_rng(2).normal(size=(12_000, 8))), 5)
new = {name: n for name, n in compiled().items() if n > before.get(name, 0)}
assert not new, f"compiled in a request: {sorted(new)}"
"""


@pytest.mark.parametrize("kind", SEARCHERS)
def test_a_search_after_warming_compiles_nothing(kind: str, tmp_path) -> None:
    spec = spec_of(kind)
    few = {name: 20 for name in ("n_estimators", "depth") if name in spec.params.model_fields}
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(20), 4)
    X = (rng.standard_normal((20, 8))[y] + 0.3 * rng.standard_normal((80, 8))).astype(np.float32)
    save(spec.estimator(**{**spec.params().model_dump(), **few}).fit(X, y), tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", USED, str(tmp_path / "model"), kind],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
