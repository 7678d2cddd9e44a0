"""Log likelihood ratios and decisions by costs, against a running service: HTTP, client and command line."""

from __future__ import annotations

import math

import httpx
import numpy as np
import pytest

from tests.serving import RunningServer


def bodies(deployment: RunningServer) -> dict[str, object]:
    X = deployment.facts["X"]
    return {"model": "digits:1", "left": X[:4].tolist(), "right": X[4:8].tolist()}


def refused(answer: httpx.Response, field: str, words: str) -> None:
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"] == "/problems/invalid-input"
    assert answer.json().get("field", field) == field
    assert words in answer.json()["detail"]


def test_evidence_stands_beside_scores_and_rises_with_them(digits_deployment: RunningServer) -> None:
    http, body = digits_deployment.http, bodies(digits_deployment)
    plain = http.post("/similarity", json=body).json()
    assert "log_lr" not in plain
    for method in ("logistic", "pav"):
        reported = http.post(f"/similarity?log_lr=true&lr_method={method}", json=body).json()
        assert reported["scores"] == plain["scores"]
        order = np.argsort(reported["scores"])
        assert (np.diff(np.array(reported["log_lr"])[order]) >= 0).all()
        version = http.get("/models/digits/versions/1").json()
        assert reported["calibration_id"] == version["calibration_id"]
        assert reported["lr_method"] == method
        matched = http.post(f"/match?fpr=0.2&log_lr=true&lr_method={method}", json=body).json()
        assert [one["log_lr"] for one in matched["matches"]] == reported["log_lr"]
        assert "operating_point" in matched
    refused(
        http.post("/similarity?log_lr=true&lr_method=own", json=body), "lr_method", "not a log-likelihood"
    )
    refused(http.post("/similarity?log_lr=true&lr_method=best", json=body), "lr_method", "logistic")
    raw = {"Accept": "application/octet-stream"}
    for path in ("/similarity?log_lr=true", "/match?fpr=0.2&log_lr=1", "/match?prior=0.5"):
        assert http.post(path, json=body, headers=raw).status_code == 406


def test_costs_decide_apart_from_rates(digits_deployment: RunningServer) -> None:
    http, body = digits_deployment.http, bodies(digits_deployment)
    worth = http.post("/similarity?log_lr=true", json=body).json()["log_lr"]
    for prior, ratio in ((0.5, 1.0), (0.01, 10.0), (0.9, 0.1)):
        reported = http.post(f"/match?prior={prior}&cost_ratio={ratio}", json=body).json()
        assert "matches" not in reported
        assert "operating_point" not in reported
        limit = math.log(ratio) - math.log(prior / (1 - prior))
        assert reported["bayes"]["log_lr_threshold"] == pytest.approx(limit)
        assert reported["bayes"]["guarantee"] == "none"
        for one, value in zip(reported["decisions"], worth, strict=True):
            assert one["log_lr"] == value
            assert one["same"] == (value > limit)
            assert one["posterior"] == pytest.approx(1 / (1 + math.exp(-value) * (1 - prior) / prior))
    assert http.post("/match?prior=0.5", json=body).json()["bayes"]["cost_ratio"] == 1.0
    for promise in (
        "fpr=0.01",
        "fnr=0.1",
        "confidence=0.9",
        "method=auto",
        "simultaneous=true",
        "detail=true",
    ):
        name = promise.partition("=")[0]
        refused(http.post(f"/match?prior=0.5&{promise}", json=body), name, "cannot be combined")
    refused(http.post("/match?cost_ratio=2&fpr=0.1", json=body), "prior", "cost_ratio goes with prior")
    refused(http.post("/match", json=body), "fpr", "fpr is missing")
    for wrong in ("prior=0", "prior=1", "prior=nan", "prior=0.5&cost_ratio=0", "prior=0.5&cost_ratio=inf"):
        assert http.post(f"/match?{wrong}", json=body).status_code == 422
