"""Classifiers and metrics over HTTP: labels, embeddings, bulk bodies, and inputs that are watched."""

import io
import re
import time

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pairmark.client import Client
from tests.serving import RunningServer, answered

RAW, NPZ = "application/octet-stream", "application/x-npz"
NAMES = ["setosa", "vérsicolor", "virginica"]
X, codes = load_iris(return_X_y=True)
X = X.astype(np.float32)
y = np.array(NAMES)[codes]


@pytest.fixture(scope="module")
def deployment(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with a classifier of irises, in production nowhere."""
    digits_deployment.upload("irises", X, y)
    digits_deployment.train(
        learner="rsbl", dataset="irises", model="irises", params={"depth": 2, "k_max": 3}, promote="shadow"
    )
    return digits_deployment


def test_points_are_labelled_by_name(deployment: RunningServer) -> None:
    reported = answered(
        deployment.http.post("/classify", json={"model": "irises@shadow", "features": X.tolist()})
    ).json()
    assert reported["model"] == {"name": "irises", "version": 1, "kind": "rsbl"}
    assert np.mean(np.array(reported["labels"]) == y) > 0.9
    for label, chances in zip(reported["labels"], reported["probabilities"], strict=True):
        assert (set(chances), sum(chances.values())) == (set(NAMES), pytest.approx(1, abs=1e-5))
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
    raw = deployment.http.post("/classify?model=irises:1", content=X.tobytes(), headers={"content-type": RAW})
    assert raw.json() == plain


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
    answer = answered(deployment.http.post("/classify", json={"model": "irises:1", **body}), 422)
    assert answer.json()["field"] == field


def test_what_cannot_be_served_is_said(deployment: RunningServer) -> None:
    http = deployment.http
    forest = answered(http.post("/classify", json={"model": "digits", "features": [0.0] * 64}), 422)
    assert forest.json()["type"] == "/problems/model-not-capable"
    assert http.post("/classify", json={"features": [0.0] * 4}).status_code == 404
    huge = {"model": "irises:1", "features": [[3e38, -3e38, 1.0, 0.0]]}
    (chances,) = answered(http.post("/classify", json=huge)).json()["probabilities"]
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    assert http.post("/classify?model=x", json={"features": [0.0] * 4}).json()["field"] == "query"
    ragged = http.post("/classify?model=irises:1", content=b"123", headers={"content-type": RAW})
    assert ragged.json()["field"] == "body"
    stream = io.BytesIO()
    np.savez(stream, left=X)
    wrong = http.post("/classify?model=irises:1", content=stream.getvalue(), headers={"content-type": NPZ})
    assert wrong.json()["field"] == "features"
    assert http.get("/classify").status_code == 405


def test_client_classifies(deployment: RunningServer) -> None:
    with Client(deployment.url) as client:
        reported = client.classify(X[::50], model="irises:1")
    assert reported["labels"] == [NAMES[0], NAMES[1], NAMES[2]]


@pytest.fixture(scope="module")
def metric(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with a metric under the name ``live``, in production nowhere."""
    digits_deployment.train(
        learner="metric", dataset="digits", model="live", params={"metric": "euclidean"}, promote="shadow"
    )
    return digits_deployment


def sparse(row: np.ndarray) -> dict:
    at = np.flatnonzero(row)
    return {"indices": at.tolist(), "values": row[at].tolist()}


def test_embeddings_are_given_as_json_and_raw(metric: RunningServer) -> None:
    X, http = metric.facts["X"], metric.http
    many = answered(http.post("/embed", json={"model": "live@shadow", "features": X[:5].tolist()}))
    assert many.json()["model"] == {"name": "live", "version": 1, "kind": "metric"}
    assert many.json()["vectors"] == X[:5].tolist()
    one = http.post("/embed", json={"model": "live:1", "features": sparse(X[0])})
    assert one.json()["vectors"] == X[:1].tolist()
    raw = http.post(
        "/embed?model=live@shadow", content=X[:7].tobytes(), headers={"content-type": RAW, "accept": RAW}
    )
    assert (raw.headers["x-pairmark-dimension"], raw.content) == ("64", X[:7].tobytes())


def series(server: RunningServer, name: str) -> dict[str, float]:
    """Samples of a metric of the model ``live``, by their other labels."""
    found = {}
    for line in server.http.get("/metrics").text.splitlines():
        matched = re.fullmatch(rf"{name}{{(.*)}} (\S+)", line)
        if matched and 'model="live"' in matched[1]:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', matched[1]))
            del labels["model"], labels["version"]
            found[",".join(labels.values())] = float(matched[2])
    return found


def test_inputs_are_counted_and_held_against_calibration(metric: RunningServer) -> None:
    X, http = metric.facts["X"], metric.http

    def ask(left: np.ndarray, right: np.ndarray) -> dict:
        sides = {"left": left.tolist(), "right": right.tolist()}
        return answered(http.post("/match?fpr=0.3", json={"model": "live@shadow", **sides})).json()

    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(X), (2, 400))
    before = sum(series(metric, "pairmark_inputs_rows_total").values())
    for at in range(0, 400, 10):
        reported = ask(X[i[at : at + 10]], X[j[at : at + 10]])
    assert "warnings" not in reported
    assert sum(series(metric, "pairmark_inputs_rows_total").values()) == before + 800
    assert series(metric, "pairmark_inputs_unlike_total")[""] < 20
    assert series(metric, "pairmark_inputs_moved") == {"": 0}
    ask(0 * X[:5], X[:5])
    seen = http.get("/models/live/versions/1/inputs").json()
    assert seen["unlike"] >= 5
    assert (seen["today"], seen["moved"]) == ({"all": seen["rows"], "unlike": seen["unlike"]}, None)
    # A darker camera: no row says it, all of them do.
    deadline = time.monotonic() + 30
    while "warnings" not in reported and time.monotonic() < deadline:
        eight = rng.integers(0, len(X), 8)
        reported = ask(X[eight] * rng.uniform(0.75, 0.8), X[eight[::-1]])
    assert [warning["code"] for warning in reported["warnings"]] == ["inputs-moved"]
    point = reported["operating_point"]
    assert point["guarantee"] == "none"
    assert not {"method", "confidence", "fpr_upper_bound"} & set(point)
    assert "inputs have moved" in point["meaning"]
    assert series(metric, "pairmark_inputs_moved") == {"": 1}
    assert http.get("/models/live/versions/1/inputs").json()["moved"]
    actions = [entry["action"] for entry in http.get("/audit?limit=50").json()["items"]]
    assert actions.count("inputs.moved") == 1
