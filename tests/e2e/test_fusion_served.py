"""A fused model over HTTP, Python and CLI, on both databases: trained by names, served as one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pairmark.client import Client
from tests.serving import RunningServer

PLDA = {"marginals": "raw", "length_norm": False, "shrink_within": 0.1, "shrink_between": 0.1}


@pytest.fixture(scope="module")
def fused(digits_house: RunningServer) -> RunningServer:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(80), 4)
    X = (1.5 * rng.normal(size=(80, 5))[y] + rng.normal(size=(y.size, 5))).astype(np.float32)
    digits_house.upload("fused-people", X, y)
    for learner, params in (("plda", PLDA), ("metric", {"metric": "euclidean"})):
        job = digits_house.train(
            learner=learner, dataset="fused-people", model=f"part-{learner}", params=params, promote="shadow"
        )
        assert job["state"] == "succeeded", job
    job = digits_house.train(
        learner="fusion",
        dataset="fused-people",
        model="fused",
        params={"models": ["part-plda@shadow", "part-metric:1"], "keep": "always"},
        promote=False,
    )
    assert job["state"] == "succeeded", job
    digits_house.facts["people"] = X
    return digits_house


def test_it_scores_decides_explains_and_takes_samples(fused: RunningServer) -> None:
    X, http = fused.facts["people"], fused.http
    body = {"model": "fused:1", "left": X[:3].tolist(), "right": X[3:6].tolist()}
    scores = http.post("/similarity", json=body).json()
    assert scores["model"]["kind"] == "fusion"
    matched = http.post("/match?fpr=0.3&confidence=0.8", json=body)
    assert matched.status_code == 200, matched.text
    assert matched.json()["operating_point"]["guarantee"] == "finite-sample"
    one = {"model": "fused:1", "left": X[0].tolist(), "right": X[1].tolist()}
    told = http.post("/explain", json=one).json()
    parts = told["explanation"]["models"]
    total = told["explanation"]["intercept"] + sum(part["contribution"] for part in parts)
    assert told["score"] == pytest.approx(total, rel=1e-5)
    assert {part["version"] for part in parts} <= {"part-plda:1", "part-metric:1"}
    own = http.post("/similarity?log_lr=true&lr_method=own", json=body).json()
    assert own["log_lr"] == pytest.approx(np.clip(own["scores"], min(own["log_lr"]), max(own["log_lr"])))
    sets = {"model": "fused:1", "left": {"samples": X[:3].tolist()}, "right": {"samples": X[3:4].tolist()}}
    several = http.post("/match?fpr=0.4&confidence=0.8", json=sets)
    assert several.status_code == 200, several.text
    assert Client(fused.url).similarity(X[:3], X[3:6], model="fused:1").tolist() == pytest.approx(
        scores["scores"]
    )


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
    told = fused.cli(
        "train", "--learner", "fusion", "--dataset", "fused-people", "--model", "fused-cli",
        "--param", f"models={models}", "--promote", "shadow", "--json",
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
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
