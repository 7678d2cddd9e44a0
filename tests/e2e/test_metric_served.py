"""A metric over HTTP: scored dense and sparse, embedded, described in detail, and watched while it serves."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest

from tests.serving import RunningServer, answered

RAW = "application/octet-stream"


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
    assert raw.headers["x-pairmark-dimension"] == "64"
    assert raw.content == X[:7].tobytes()


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
    assert seen["today"] == {"all": seen["rows"], "unlike": seen["unlike"]}
    assert seen["moved"] is None
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
