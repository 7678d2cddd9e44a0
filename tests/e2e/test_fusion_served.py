"""A fused model over HTTP, Python and CLI: trained by names, served as one. Its jobs are tested on PostgreSQL."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pairmark.client import Client
from tests.serving import RunningServer

pytestmark = pytest.mark.database("sqlite")

PLDA = {"marginals": "raw", "length_norm": False, "shrink_within": 0.1, "shrink_between": 0.1}


@pytest.fixture(scope="module")
def fused(digits_deployment: RunningServer) -> RunningServer:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(80), 4)
    X = (1.5 * rng.normal(size=(80, 5))[y] + rng.normal(size=(y.size, 5))).astype(np.float32)
    digits_deployment.upload("fused-people", X, y)
    for learner, params in (("plda", PLDA), ("metric", {"metric": "euclidean"})):
        job = digits_deployment.train(
            learner=learner, dataset="fused-people", model=f"part-{learner}", params=params, promote="shadow"
        )
        assert job["state"] == "succeeded", job
    job = digits_deployment.train(
        learner="fusion",
        dataset="fused-people",
        model="fused",
        params={"models": ["part-plda@shadow", "part-metric:1"], "keep": "always"},
        promote=False,
    )
    assert job["state"] == "succeeded", job
    digits_deployment.facts["people"] = X
    return digits_deployment


def test_it_scores_decides_explains_and_takes_samples(fused: RunningServer) -> None:
    X, http = fused.facts["people"], fused.http
    body = {"model": "fused:1", "left": X[:3].tolist(), "right": X[3:6].tolist()}
    scores = http.post("/similarity", json=body).json()
    assert scores["model"]["kind"] == "fusion"
    matched = http.post("/match?fpr=0.3&confidence=0.8", json=body)
    assert matched.status_code == 200, matched.text
    assert matched.json()["operating_point"]["guarantee"] == "finite-sample"
    one = {"model": "fused:1", "left": X[0].tolist(), "right": X[1].tolist()}
    reported = http.post("/explain", json=one).json()
    parts = reported["explanation"]["models"]
    total = reported["explanation"]["intercept"] + sum(part["contribution"] for part in parts)
    assert reported["score"] == pytest.approx(total, rel=1e-5)
    assert {part["version"] for part in parts} <= {"part-plda:1", "part-metric:1"}
    own = http.post("/similarity?log_lr=true&lr_method=own", json=body).json()
    assert own["log_lr"] == pytest.approx(np.clip(own["scores"], min(own["log_lr"]), max(own["log_lr"])))
    sets = {"model": "fused:1", "left": {"samples": X[:3].tolist()}, "right": {"samples": X[3:4].tolist()}}
    several = http.post("/match?fpr=0.4&confidence=0.8", json=sets)
    assert several.status_code == 200, several.text
    with Client(fused.url) as client:
        found = client.similarity(X[:3], X[3:6], model="fused:1")
    assert found.tolist() == pytest.approx(scores["scores"])


def test_a_gallery_searches_with_it(fused: RunningServer) -> None:
    X, http = fused.facts["people"], fused.http
    assert http.put("/galleries/fused", json={"model": "fused:1"}).status_code == 201
    items = [{"id": f"i{at}", "subject": f"s{at // 4}", "vector": X[at].tolist()} for at in range(40)]
    assert http.put("/galleries/fused/items", json={"items": items}).status_code == 200
    found = http.post("/galleries/fused/search", json={"queries": [X[41].tolist()], "k": 40}).json()[
        "results"
    ][0]
    body = {"model": "fused:1", "left": X[41].tolist(), "right": X[:40].tolist()}
    scores = http.post("/similarity", json=body).json()["scores"]
    best = sorted(range(40), key=lambda at: (-scores[at], f"i{at}"))
    assert [(one["id"], one["score"]) for one in found] == [(f"i{at}", scores[at]) for at in best]
    grouped = {"queries": [X[41].tolist()], "k": 3, "group_by": "subject"}
    assert len(http.post("/galleries/fused/search", json=grouped).json()["results"][0]) == 3


def test_the_command_line_and_the_client_name_versions_too(fused: RunningServer) -> None:
    models = json.dumps(["part-plda:1", {"learner": "metric", "params": {"metric": "cosine"}}])
    reported = fused.cli(
        "train", "--learner", "fusion", "--dataset", "fused-people", "--model", "fused-cli",
        "--param", f"models={models}", "--promote", "shadow", "--json",
    )  # fmt: skip
    assert reported.returncode == 0, reported.stderr
    shown = fused.http.get("/models/fused-cli/versions/1").json()
    assert [one["version"] for one in shown["facts"]["fusion"]["models"]] == ["part-plda:1", None]
    refused = fused.http.post(
        "/jobs",
        json={
            "learner": "fusion", "dataset": "fused-people", "model": "fused",
            "params": {"models": ["part-plda:1", "nobody:1"]},
        },
    )  # fmt: skip
    assert refused.status_code == 404
    assert refused.json()["type"] == "/problems/unknown-model"


def test_scores_of_several_systems_decide_together(digits_deployment: RunningServer) -> None:
    rng = np.random.default_rng(4)
    person = np.repeat(np.arange(240), 2)
    left, right = np.triu_indices(person.size, 1)
    kept = (person[left] == person[right]) | (rng.random(left.size) < 0.1)
    left, right = left[kept], right[kept]
    same = person[left] == person[right]
    scores = rng.normal(size=(same.size, 3)) + same[:, None] * np.array([2.0, 2.0, -1.0])
    units = {"left_unit": person[left].tolist(), "right_unit": person[right].tolist()}
    with Client(digits_deployment.url) as client:
        made = client.calibrate_scores("systems", scores.tolist(), same.astype(int).tolist(), **units)
        reported = client.match(scores=scores[:50].tolist(), fpr=0.1, calibration=made.id)
        alone = client.calibrate_scores(
            "one-system", scores[:, 0].tolist(), same.astype(int).tolist(), **units
        )
        first = client.match(scores=scores[:1, 0].tolist(), fpr=0.1, calibration=alone.id)
    kept_weights = made.summary["combined"]["weights"]
    assert kept_weights[2] == 0
    assert min(kept_weights[:2]) > 1
    assert made.summary["n_units"] == 120
    expected = scores[:50].astype(np.float32).astype(np.float64) @ kept_weights
    np.testing.assert_allclose(
        reported.scores, expected + made.summary["combined"]["intercept"], rtol=1e-5, atol=1e-5
    )
    assert reported.operating_point.tpr > first.operating_point.tpr
    for given, calibration, words in [
        ([0.1, 0.2], made.id, "a list of 3 a pair"),
        ([[0.1, 0.2]], made.id, "a list of 3 a pair"),
        ([[0.1, 0.2]], alone.id, "one number per pair"),
        ([[0.1, 0.2], [0.1]], made.id, "different lengths"),
        ([[0.1, 0.2], 0.1], made.id, "scores"),
        ([[0.1, None, 0.2]], made.id, "scores[0][1]"),
    ]:
        answer = digits_deployment.http.post(
            f"/match?fpr=0.1&calibration={calibration}", json={"scores": given}
        )
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
    few = {"left_unit": [0, 0, 1, 2], "right_unit": [0, 1, 1, 3]}
    for body, words in [
        ({"scores": [[1, 2], [0, 1], [2, 1], [0, 0]], "same": [1, 0, 1, 0], **few}, "half of the units"),
        ({"scores": [[1], [0]], "same": [1, 0]}, "lists of 2 to 16"),
        ({"scores": [[1, 2], [0]], "same": [1, 0]}, "equally long"),
    ]:
        answer = digits_deployment.http.post("/calibrations", json={"name": "bad", **body})
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
