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


@pytest.mark.parametrize("model", ["ghost", "ghost-graph"])
def test_galleries_are_searched_exactly(deployment: RunningServer, model: str) -> None:
    http, name = deployment.http, f"of-{model}"
    assert http.put(f"/galleries/{name}", json={"model": f"{model}:1"}).status_code in (200, 201)
    items = [{"id": f"row-{at}", "subject": str(y[at]), "vector": X[at].tolist()} for at in range(0, 150, 3)]
    put = http.put(f"/galleries/{name}/items", json={"items": items})
    assert put.json()["upserted"] == 50, put.text
    probes = X[1::30].tolist()
    found = http.post(f"/galleries/{name}/search", json={"queries": probes, "k": 7}).json()["results"]
    for probe, hits in zip(probes, found, strict=True):
        pairs = {"model": f"{model}:1", "left": probe, "right": [item["vector"] for item in items]}
        scores = np.array(http.post("/similarity", json=pairs).json()["scores"], dtype=np.float32)
        best = sorted(range(50), key=lambda at, scores=scores: (-scores[at], items[at]["id"]))[:7]
        assert [hit["id"] for hit in hits] == [items[at]["id"] for at in best]
        assert [np.float32(hit["score"]) for hit in hits] == scores[best].tolist()


def test_coordinates_where_there_are_any(deployment: RunningServer) -> None:
    http = deployment.http
    points = X[:4].tolist()
    vectors = np.array(
        http.post("/embed", json={"model": "ghost:1", "features": points}).json()["vectors"], dtype=np.float64
    )
    scores = http.post("/similarity", json={"model": "ghost:1", "left": points[:1], "right": points}).json()
    np.testing.assert_allclose(
        np.abs(vectors - vectors[0]).sum(axis=1), -np.array(scores["scores"]), atol=1e-4
    )
    refused = http.post("/embed", json={"model": "ghost-graph:1", "features": points})
    assert refused.status_code == 422
    assert refused.json()["type"] == "/problems/model-not-capable"


def test_the_model_page_tells_what_was_selected(deployment: RunningServer) -> None:
    version = deployment.http.get("/models/ghost/versions/1").json()
    assert version["capabilities"] == ["classify", "embed", "match", "search", "similarity"]
    weights = version["facts"]["weights"]
    assert weights
    assert all(entry["weight"] > 0 for entry in weights)
    assert weights == sorted(weights, key=lambda entry: -entry["weight"])
    graph = deployment.http.get("/models/ghost-graph/versions/1").json()
    assert "embed" not in graph["capabilities"]
    assert graph["facts"]["strategy"] in ("center", "average", "knn", "minimum", "maximum")


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"meta_features": ["path"]}, "needs a graph"),
        ({"meta_features": ["no-such"]}, "known: features"),
        ({"order": 9}, "order"),
    ],
)
def test_bad_parameters_are_told(deployment: RunningServer, params: dict, said: str) -> None:
    answer = deployment.http.post(
        "/jobs", json={"learner": "ghost", "dataset": "flowers", "model": "never", "params": params}
    )
    if answer.status_code == 202:
        job = deployment.finished(answer.json()["id"])
        assert job["state"] == "failed"
        assert said in str(job["error"]), job
    else:
        assert answer.status_code == 422
        assert said in answer.text
