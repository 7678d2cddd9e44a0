"""Scores of several systems, weighed and calibrated together, over HTTP and the client."""

from __future__ import annotations

import numpy as np

from pairmark.client import Client
from tests.serving import RunningServer


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
        ([[0.1, 0.2], [0.1]], made.id, "scores[1] has 1 numbers"),
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
        ({"scores": [[1, 2], [0]], "same": [1, 0]}, "lists of the same length"),
    ]:
        answer = digits_deployment.http.post("/calibrations", json={"name": "bad", **body})
        assert answer.status_code == 422, answer.text
        assert words in answer.json()["detail"]
