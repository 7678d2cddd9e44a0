"""`pairmark similarity` and `match` against a running service."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from tests.serving import RunningServer, answered


def text(row: np.ndarray) -> str:
    return ",".join(str(value) for value in row)


def table(file: Path, rows: np.ndarray) -> str:
    file.write_text(
        ",".join(f"x{at}" for at in range(rows.shape[1])) + "\n" + "\n".join(map(text, rows)) + "\n"
    )
    return str(file)


def test_points_and_files_are_scored_and_decided(digits_deployment: RunningServer, tmp_path: Path) -> None:
    deployment, X = digits_deployment, digits_deployment.facts["X"]
    at = ("--model", "digits:1", "--url", deployment.url)
    left, right = table(tmp_path / "left.csv", X[:3]), table(tmp_path / "right.csv", X[3:6])
    expected = deployment.http.post(
        "/match?fpr=0.1", json={"model": "digits:1", "left": X[:3].tolist(), "right": X[3:6].tolist()}
    ).json()
    scores = [one["score"] for one in expected["matches"]]
    scored = deployment.cli("similarity", left, right, *at, "--json")
    assert json.loads(scored.stdout)["scores"] == scores
    decided = deployment.cli("match", left, right, "--fpr", "0.1", *at, "--json")
    reported = json.loads(decided.stdout)
    assert reported["model"] == expected["model"]
    assert reported["operating_point"] == expected["operating_point"]
    words = ["match" if one["match"] else "different" for one in expected["matches"]]
    assert reported["pairs"] == [
        {"score": score, "decision": word} for score, word in zip(scores, words, strict=True)
    ]
    three = deployment.cli("match", left, right, "--fpr", "0.2", "--fnr", "0.3", *at)
    assert "fnr upper bound" in three.stdout
    far = deployment.cli("match", text(100 * X[0]), text(X[1]), "--fpr", "0.1", *at)
    assert "unlike-calibration" in far.stdout
    guess = deployment.cli("match", text(X[0]), text(X[1]), "--fpr", "0.001", "--method", "estimate", *at)
    assert "Nothing is guaranteed: the threshold is an estimate" in guess.stdout


def test_a_refusal_says_the_same_ways_out_over_http_and_on_the_command_line(
    digits_deployment: RunningServer,
) -> None:
    deployment, X = digits_deployment, digits_deployment.facts["X"]
    body = {"model": "digits:1", "left": X[0].tolist(), "right": X[1].tolist()}
    problem = deployment.http.post("/match?fpr=0.0001", json=body).json()
    ways = problem["ways"]
    # First what is to be had at once, last what it takes to get the rate; each with the rate that it gives.
    assert ways[0]["command"] == f"fpr={ways[0]['fpr']:g}"
    answered(deployment.http.post(f"/match?{ways[0]['command']}", json=body))
    assert ways[-1]["fpr"] == 0.0001
    assert ways[-1]["units"] == problem["required_units"]["finite-sample"]
    assert all(way["fpr"] < ways[0]["fpr"] for way in ways[1:])
    at = ("--model", "digits:1", "--url", deployment.url)
    refused = deployment.cli("match", text(X[0]), text(X[1]), "--fpr", "0.0001", *at, ends=1)
    commands = [(way["command"] or "").replace("fpr=", "--fpr ") for way in ways]
    lines = [
        f"  {way['text']}" + (f" ({command})" if command else "")
        for way, command in zip(ways, commands, strict=True)
    ]
    assert refused.stderr.splitlines() == [
        f"error: {problem['detail']}",
        "ways out:",
        *lines,
        *refused.stderr.splitlines()[len(lines) + 2 :],
    ]
    assert "alternatives" not in refused.stderr
