"""Log likelihood ratios and decisions by costs, against a running service: HTTP, client and command line."""

from __future__ import annotations

import httpx
import numpy as np

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
