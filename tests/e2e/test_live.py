"""What is counted of live scores, over HTTP."""

from __future__ import annotations

import re
import time

import numpy as np
from serving import RunningServer


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


def test_live_scores_are_counted_and_held_against_calibration(digits_house: RunningServer) -> None:
    X = digits_house.facts["X"]
    job = digits_house.train(
        learner="metric", dataset="digits", model="live", params={"metric": "euclidean"}, promote="shadow"
    )
    assert job["state"] == "succeeded", job
    http = digits_house.http

    def ask(left: np.ndarray, right: np.ndarray, path: str = "/match?fpr=0.1") -> dict:
        answer = http.post(
            path, json={"model": "live@shadow", "left": left.tolist(), "right": right.tolist()}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(X), (2, 4_000))
    # Counting starts with the first score, as soon as the calibration is read.
    deadline = time.monotonic() + 30
    while not series(digits_house, "pairmark_live_scores_total") and time.monotonic() < deadline:
        ask(X[:1], X[1:2], "/similarity")
        time.sleep(0.05)
    before = sum(series(digits_house, "pairmark_live_scores_total").values())
    matched = 0
    for at in range(0, 4_000, 1_000):
        told = ask(X[i[at : at + 1_000]], X[j[at : at + 1_000]])
        matched += sum(one["match"] for one in told["matches"])
    single = ask(X[0], X[1])
    matched += single["matches"][0]["match"]
    assert sum(series(digits_house, "pairmark_live_scores_total").values()) == before + 4_001
    assert series(digits_house, "pairmark_live_decided_total") == {"0.1": 4_001}
    assert series(digits_house, "pairmark_live_matched_total") == {"0.1": matched}
    assert series(digits_house, "pairmark_live_alarm") == {"": 0}
    assert set(series(digits_house, "pairmark_live_windows_total")) == {"calm"}
    expected = series(digits_house, "pairmark_live_expected_share")
    assert all(0 <= share <= 1 for share in expected.values())
    assert {key.rpartition(",")[2] for key in expected} == {"same", "different"}
    # Vectors on another scale: far apart as no pair of calibration was.
    for at in range(0, 3_000, 1_000):
        ask(5 * X[i[at : at + 1_000]], -5 * X[j[at : at + 1_000]])
    assert series(digits_house, "pairmark_live_alarm") == {"": 1}
    assert (
        series(digits_house, "pairmark_live_distance")[""] > series(digits_house, "pairmark_live_limit")[""]
    )
    page = http.get("/", headers={"Accept": "text/html"}).text
    assert "The newest scores are not those it was calibrated on" in page
    assert "matched at 10 %" in page
