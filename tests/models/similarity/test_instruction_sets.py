"""Scores are the same to the last bit on every processor."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pairmark
from pairmark.models import MetricSimilarity, Plda, SimilarityForest
from tests.serving import ROOT

ANSWERS = """
import hashlib, sys
import numpy as np
import pytest
import pairmark

rows, queries = np.load(sys.argv[1]), np.load(sys.argv[2])
for path in sys.argv[3:]:
    model = pairmark.load(path)
    answers = [model.pair_score(queries[:300], rows[:300]), *model.top_k(queries[:3], model.index(rows), 10)]
    print(hashlib.sha256(b"".join(np.ascontiguousarray(one).tobytes() for one in answers)).hexdigest())
"""
CPU = "nehalem" if platform.machine() == "x86_64" else "generic"


def answers(environment: dict[str, str], *arguments: str) -> list[str]:
    command = [sys.executable, "-c", ANSWERS, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.nightly
def test_scores_and_searches_are_the_same_to_the_bit_without_wide_vectors_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(40), 5)
    X = (rng.standard_normal((40, 12))[y] + 0.6 * rng.standard_normal((200, 12))).astype(np.float32)
    rows = (X[rng.integers(0, 200, 9_000)] + 0.3 * rng.standard_normal((9_000, 12))).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    np.save(tmp_path / "queries.npy", rows[::30] + np.float32(0.1))
    models: dict[str, Any] = {
        "rank": SimilarityForest(n_estimators=30, aggregation="rank", n_pairs=4_000, random_state=0),
        "log-odds": SimilarityForest(n_estimators=30, n_pairs=4_000, random_state=0),
        "plda": Plda(),
        "metric": MetricSimilarity(whiten=True),
    }
    for name, model in models.items():
        pairmark.save(model.fit(X, y), tmp_path / name)
    arguments = [str(tmp_path / name) for name in ("rows.npy", "queries.npy", *models)]
    here = answers({}, *arguments)
    assert len(set(here)) == len(models)
    assert answers({"NUMBA_CPU_NAME": CPU, "NUMBA_CPU_FEATURES": ""}, *arguments) == here
