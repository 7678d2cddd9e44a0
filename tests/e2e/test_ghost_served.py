"""GHOST over HTTP: trained by a job, compares, decides, labels, embeds; says which of it a model cannot."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from tests.serving import RunningServer

NAMES = ["setosa", "versicolor", "virginica"]
X, codes = load_iris(return_X_y=True)
X = X.astype(np.float32)
y = np.array(NAMES)[codes]


@pytest.fixture(scope="module")
def deployment(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with two models of irises, in production nowhere."""
    digits_deployment.upload("flowers", X, y)
    for model, params in (
        ("ghost", {"random_state": 1}),
        (
            "ghost-graph",
            {
                "order": 3,
                "graph": "knn",
                "cluster_metric": True,
                "meta_features": ["features", "cosine", "path", "hub", "perimeter"],
                "tau": 0.0,
                "random_state": 1,
            },
        ),
    ):
        job = digits_deployment.train(
            learner="ghost", dataset="flowers", model=model, params=params, promote="shadow"
        )
        assert job["state"] == "succeeded", job
    return digits_deployment


@pytest.mark.parametrize("model", ["ghost", "ghost-graph"])
def test_compares_decides_and_labels(deployment: RunningServer, model: str) -> None:
    http, ref = deployment.http, f"{model}@shadow"
    pairs = {"model": ref, "left": X[:60:10].tolist(), "right": X[55:115:10].tolist()}
    reported = http.post("/similarity", json=pairs)
    assert reported.status_code == 200, reported.text
    scores = reported.json()["scores"]
    back = http.post("/similarity", json={**pairs, "left": pairs["right"], "right": pairs["left"]}).json()
    assert back["scores"] == scores
    same = http.post("/similarity", json={**pairs, "right": X[1:61:10].tolist()}).json()["scores"]
    assert np.mean(same) > np.mean(scores)
    answer = http.post("/match?fpr=0.5", json=pairs)
    assert answer.status_code == 200, answer.text
    matched = answer.json()
    threshold = np.float32(matched["operating_point"]["threshold"])
    assert [one["match"] for one in matched["matches"]] == [
        np.float32(one["score"]) > threshold for one in matched["matches"]
    ]
    labelled = http.post("/classify", json={"model": ref, "features": X.tolist()}).json()
    assert np.mean(np.array(labelled["labels"]) == y) > 0.9
    for chances in labelled["probabilities"]:
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    explained = http.post("/explain", json={**pairs, "left": X[0].tolist(), "right": X[60].tolist()}).json()
    parts = explained["explanation"]
    total = sum(part["contribution"] for part in parts["contributions"]) + parts["rest"]
    assert total == pytest.approx(explained["score"], rel=1e-4)
