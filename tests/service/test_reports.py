"""What training found out: hardest errors by row, the leaderboard, all in one report."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.service.training.splitting import split
from pairmark.service.training.trainer import Trainer
from tests.service.conftest import people


@pytest.fixture
def noisy(deployment):
    """A version whose held-out pairs are hard to tell apart."""
    rng = np.random.default_rng(0)
    X, y = people(60, 6)
    deployment.upload("noisy", X + rng.normal(size=X.shape).astype(np.float32) * 2.5, y)
    deployment.train(dataset="noisy", model="noisy", learner="metric", params={"metric": "euclidean"})
    return deployment


def test_the_hardest_pairs_are_those_of_brute_force(noisy):
    dataset = noisy.datasets.get("noisy")
    job = noisy.queue.submit(
        noisy.request(dataset="noisy", model="noisy", learner="metric", params={"metric": "euclidean"})
    )
    claim = noisy.queue.leases.claim("test", job_id=job.id)
    loaded = Trainer(noisy.db, noisy.blobs, noisy.settings)._load(claim)
    test = split(loaded).parts.test
    X = np.asarray(noisy.datasets.load(dataset.id).X, dtype=np.float64)
    scores = -np.linalg.norm(X[test.left] - X[test.right], axis=1)
    point = noisy.store.calibrations.load(noisy.store.version("noisy", 1).calibration_id)[0].operating_point(
        0.3
    )
    wrong = {
        "false-match": np.sort(scores[~test.same & (scores > point.threshold)])[::-1],
        "false-non-match": np.sort(scores[test.same & (scores <= point.threshold)]),
    }
    for kind, expected in wrong.items():
        found = noisy.store.reports.errors("noisy", 1, kind=kind, fpr=0.3)
        assert found.dataset == "noisy:1"
        assert found.threshold == point.threshold
        assert found.of == int((test.same == (kind == "false-non-match")).sum())
        shown = [item.score for item in found.items]
        np.testing.assert_allclose(shown, expected[: len(shown)], rtol=1e-5)
        assert len(shown) == min(expected.size, 200)
        assert found.more == (expected.size > 200)
        for item in found.items:
            assert item.score == pytest.approx(-np.linalg.norm(X[item.left] - X[item.right]), rel=1e-5)
