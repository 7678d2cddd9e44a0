"""A classifier over HTTP, the client and the command line: labels by their names, probabilities, bulk bodies."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark.client import Client
from tests.serving import RunningServer

RAW, NPZ = "application/octet-stream", "application/x-npz"
NAMES = ["setosa", "vérsicolor", "virginica"]
X, codes = load_iris(return_X_y=True)
X = X.astype(np.float32)
y = np.array(NAMES)[codes]


@pytest.fixture(scope="module")
def deployment(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with a classifier of irises, in production nowhere."""
    digits_deployment.upload("irises", X, y)
    job = digits_deployment.train(
        learner="rsbl", dataset="irises", model="irises", params={"depth": 2, "k_max": 3}, promote="shadow"
    )
    assert job["state"] == "succeeded", job
    return digits_deployment


def test_points_are_labelled_by_name(deployment: RunningServer) -> None:
    many = deployment.http.post("/classify", json={"model": "irises@shadow", "features": X.tolist()})
    assert many.status_code == 200, many.text
    reported = many.json()
    assert reported["model"] == {"name": "irises", "version": 1, "kind": "rsbl"}
    assert np.mean(np.array(reported["labels"]) == y) > 0.9
    for label, chances in zip(reported["labels"], reported["probabilities"], strict=True):
        assert set(chances) == set(NAMES)
        assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
        assert max(chances, key=chances.__getitem__) == label
    one = deployment.http.post("/classify", json={"model": "irises:1", "features": X[3].tolist()}).json()
    assert one["labels"] == reported["labels"][3:4]
    sparse = {"indices": [0, 1, 2, 3], "values": X[3].tolist()}
    assert deployment.http.post("/classify", json={"model": "irises:1", "features": sparse}).json() == one


def test_bulk_bodies_give_what_json_gives(deployment: RunningServer) -> None:
    plain = deployment.http.post("/classify", json={"model": "irises:1", "features": X.tolist()}).json()
    stream = io.BytesIO()
    np.savez(stream, features=X)
    packed = deployment.http.post(
        "/classify?model=irises:1", content=stream.getvalue(), headers={"content-type": NPZ}
    )
    assert packed.json() == plain
    raw = deployment.http.post(
        "/classify?model=irises:1", content=X.tobytes(), headers={"content-type": RAW, "accept": RAW}
    )
    assert raw.status_code == 200, raw.text
    names = json.loads(raw.headers["x-pairmark-labels"])
    probabilities = np.frombuffer(raw.content, dtype="<f4").reshape(
        -1, int(raw.headers["x-pairmark-dimension"])
    )
    assert sorted(names) == sorted(NAMES)
    assert [names[at] for at in probabilities.argmax(axis=1)] == plain["labels"]
    expected = [[chances[name] for name in names] for chances in plain["probabilities"]]
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)


def test_the_same_model_embeds_compares_and_decides(deployment: RunningServer) -> None:
    http = deployment.http
    vectors = http.post("/embed", json={"model": "irises:1", "features": X[:9].tolist()}).json()["vectors"]
    unit = np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = {"model": "irises:1", "left": X[:4].tolist(), "right": X[4:8].tolist()}
    scores = http.post("/similarity", json=pairs).json()["scores"]
    np.testing.assert_allclose(scores, (unit[:4] * unit[4:8]).sum(axis=1), atol=1e-5)
    reported = http.post(
        "/match?fpr=0.3", json={**pairs, "left": X[0].tolist(), "right": X[1].tolist()}
    ).json()
    threshold = np.float32(reported["operating_point"]["threshold"])
    assert [one["match"] for one in reported["matches"]] == [
        np.float32(one["score"]) > threshold for one in reported["matches"]
    ]


def test_held_out_accuracy_is_reported_with_intervals(deployment: RunningServer) -> None:
    version = deployment.http.get("/models/irises/versions/1").json()
    assert version["capabilities"] == ["classify", "embed", "match", "search", "similarity"]
    assert sorted(version["facts"]["class_names"]) == sorted(NAMES)
    found = version["metrics"]["classification"]
    for name in ("accuracy", "balanced_accuracy"):
        low, high = found[name]["interval"]
        assert 0.8 < found[name]["value"] <= 1
        assert low <= found[name]["value"] <= high
        assert low < high
    assert found["n_rows"] == version["facts"]["parts"]["test_rows"]
    assert found["constant_accuracy"] < 0.6
    learners = {one["kind"]: one for one in deployment.http.get("/learners").json()["items"]}
    assert "classify" in learners["rsbl"]["capabilities"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"features": [[1.0]] * 3}, "features"),
        ({"features": []}, "features"),
        ({"features": [[1, 2], [3]]}, "features[1]"),
        ({"features": [[1, "2"]]}, "features[0][1]"),
        ({}, "features"),
        ({"features": [1.0] * 4, "top": 1}, "top"),
    ],
)
def test_bad_points_name_the_field(deployment: RunningServer, body: dict, field: str) -> None:
    answer = deployment.http.post("/classify", json={"model": "irises:1", **body})
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field


def test_what_cannot_be_served_is_said(deployment: RunningServer) -> None:
    http = deployment.http
    forest = http.post("/classify", json={"model": "digits", "features": [0.0] * 64})
    assert forest.status_code == 422
    assert forest.json()["type"] == "/problems/model-not-capable"
    assert http.post("/classify", json={"features": [0.0] * 4}).status_code == 404
    huge = {"model": "irises:1", "features": [[3e38, -3e38, 1.0, 0.0]]}
    assert http.post("/classify", json=huge).status_code in (200, 422)
    assert http.post("/classify?model=x", json={"features": [0.0] * 4}).json()["field"] == "query"
    ragged = http.post("/classify?model=irises:1", content=b"123", headers={"content-type": RAW})
    assert ragged.json()["field"] == "body"
    stream = io.BytesIO()
    np.savez(stream, left=X)
    wrong = http.post("/classify?model=irises:1", content=stream.getvalue(), headers={"content-type": NPZ})
    assert wrong.json()["field"] == "features"
    assert http.get("/classify").status_code == 405


def test_client_and_command_line_classify(deployment: RunningServer, tmp_path) -> None:
    with Client(deployment.url) as client:
        reported = client.classify(X[::50], model="irises:1")
    assert reported["labels"] == [NAMES[0], NAMES[1], NAMES[2]]
    file = tmp_path / "points.csv"
    file.write_text("x0,x1,x2,x3\n" + "\n".join(",".join(map(str, row)) for row in X[::50]) + "\n")
    done = deployment.cli(
        "classify", "--file", str(file), "--model", "irises:1", "--url", deployment.url, "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["labels"] == reported["labels"]
    one = deployment.cli("classify", "5.1,3.5,1.4,0.2", "--model", "irises:1", "--url", deployment.url)
    assert one.stdout.startswith("setosa "), one.stdout + one.stderr


def test_a_file_of_points_is_asked_about_once_and_may_order_its_columns_its_own_way(
    deployment: RunningServer, tmp_path
) -> None:
    named = ["sepal length", "sepal width", "petal length", "petal width"]
    lines = [[*row, name] for row, name in zip(X.tolist(), np.array(NAMES)[codes], strict=True)]
    table = "\n".join(",".join(map(str, line)) for line in [[*named, "kind"], *lines])
    answer = deployment.http.post(
        "/datasets",
        data={"name": "named-irises", "classes": "kind"},
        files={"file": ("named.csv", table.encode())},
    )
    assert answer.status_code == 201, answer.text
    job = deployment.train(
        learner="rsbl",
        dataset="named-irises",
        model="named-irises",
        params={"depth": 1, "k_max": 2},
        promote="shadow",
    )
    assert job["state"] == "succeeded", job
    with Client(deployment.url) as client:
        reported = client.classify(X[::25], model="named-irises@shadow")

    def asked() -> float:
        lines = deployment.http.get("/metrics").text.splitlines()
        counted = 'pairmark_requests_total{method="POST",route="/classify"'
        return sum(float(line.split()[-1]) for line in lines if line.startswith(counted))

    file = tmp_path / "points.csv"
    for order, requests in (([0, 1, 2, 3], 1), ([3, 0, 2, 1], 2)):
        rows = [",".join(named[at] for at in order)] + [",".join(map(str, row[order])) for row in X[::25]]
        file.write_text("\n".join(rows) + "\n")
        before = asked()
        done = deployment.cli(
            "classify",
            "--file",
            str(file),
            "--model",
            "named-irises@shadow",
            "--url",
            deployment.url,
            "--json",
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == reported
        assert asked() - before == requests
    file.write_text("a,b,c,d\n1,2,3,4\n")
    done = deployment.cli(
        "classify", "--file", str(file), "--model", "named-irises@shadow", "--url", deployment.url
    )
    assert done.returncode == 2
    assert "does not hold the model's features" in done.stderr


def test_a_classifier_moves_house_with_the_names_of_its_classes(deployment: RunningServer) -> None:
    http = deployment.http
    exported = http.get("/models/irises/versions/1/export").content
    answer = http.post("/models", files={"file": ("irises.zip", exported)}, data={"name": "moved-irises"})
    assert answer.status_code == 201, answer.text
    asked = {"features": X[::30].tolist()}
    here = http.post("/classify", json={"model": "irises:1", **asked}).json()
    there = http.post("/classify", json={"model": "moved-irises:1", **asked}).json()
    assert (there["labels"], there["probabilities"]) == (here["labels"], here["probabilities"])


def test_classes_of_listed_pairs_have_no_names_to_answer_with(deployment: RunningServer) -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(0, len(X), (2, 600))
    points, listed = io.BytesIO(), io.StringIO("left,right,same\n")
    np.savez(points, X=X)
    points.seek(0)
    listed.seek(0, io.SEEK_END)
    for i, j in zip(left.tolist(), right.tolist(), strict=True):
        if i != j:
            listed.write(f"{i},{j},{int(y[i] == y[j])}\n")
    files = {"file": ("points.npz", points), "pairs": ("pairs.csv", listed.getvalue().encode())}
    answer = deployment.http.post("/datasets", data={"name": "iris-pairs"}, files=files)
    assert answer.status_code == 201, answer.text
    job = deployment.train(
        learner="rsbl",
        dataset="iris-pairs",
        model="iris-pairs",
        params={"depth": 1, "k_max": 2},
        evaluation={"protocol": "closed-set"},
        promote="shadow",
    )
    assert job["state"] == "succeeded", job
    version = deployment.http.get("/models/iris-pairs/versions/1").json()
    assert version["capabilities"] == ["embed", "match", "search", "similarity"]
    refused = deployment.http.post("/classify", json={"model": "iris-pairs:1", "features": X[0].tolist()})
    assert refused.status_code == 422
    assert refused.json()["type"] == "/problems/model-not-capable"
