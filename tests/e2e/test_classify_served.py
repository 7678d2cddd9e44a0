"""A classifier over HTTP, the client and the command line: labels by their names, probabilities, bulk bodies."""

from __future__ import annotations

import io

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
    many = answered(
        deployment.http.post("/classify", json={"model": "irises@shadow", "features": X.tolist()})
    )
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
    assert http.post("/classify", json=huge).status_code in (200, 422)
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
