"""Subjects of several samples over HTTP, both clients and the command line, on both databases."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.client import AsyncClient, Client
from tests.serving import RunningServer, answered, npz, problem, serving

N, ROWS, D = 240, 8, 6
NPZ = "application/x-npz"


def people(seed: int, n: int = N, rows: int = ROWS) -> np.ndarray:
    """(n, rows, d) samples of n people."""
    random = np.random.default_rng(seed)
    return (random.normal(size=(n, 1, D)) + 0.6 * random.normal(size=(n, rows, D))).astype(np.float32)


@pytest.fixture(scope="module")
def deployment(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    home = tmp_path_factory.mktemp("subjects")
    with serving(home, new_database("sqlite"), PAIRMARK_MAX_SUBJECT_SAMPLES="20") as server:
        server.upload("people", people(0).reshape(-1, D), np.repeat(np.arange(N), ROWS))
        for model, learner, params in (
            ("voices", "plda", {"marginals": "raw", "shrink_within": 0.1, "shrink_between": 0.1}),
            ("faces", "metric", {}),
        ):
            server.train(learner=learner, dataset="people", model=model, params=params, promote=True)
        yield server


@pytest.fixture(scope="module")
def strangers() -> np.ndarray:
    return people(1, n=12, rows=12)


def subject(samples: np.ndarray) -> dict[str, Any]:
    return {"samples": samples.tolist()}


def test_every_form_of_a_subject_scores_alike(
    deployment: RunningServer, strangers: np.ndarray, tmp_path: Path
) -> None:
    left, right = strangers[:4, :5], strangers[4:8, :2]
    body = {
        "model": "voices",
        "left": [subject(one) for one in left],
        "right": [subject(one) for one in right],
    }
    spoken = deployment.http.post("/similarity", json=body).json()
    assert spoken["aggregation"] == "plda"
    scores = spoken["scores"]
    assert len(scores) == 4
    turned = {"model": "voices", "left": body["right"], "right": body["left"]}
    assert deployment.http.post("/similarity", json=turned).json()["scores"] == scores
    sparse = [
        {"samples": [{"indices": list(range(D)), "values": row.tolist()} for row in one]} for one in left
    ]
    assert deployment.http.post("/similarity", json={**body, "left": sparse}).json()["scores"] == scores
    sides = [{"samples": one} for one in left], [{"samples": one} for one in right]
    with Client(deployment.url) as client:
        assert client.similarity(*sides, model="voices").tolist() == scores
        many = [[one for one in side for _ in range(40)] for side in sides]
        assert client.similarity(*many, model="voices").tolist() == np.repeat(scores, 40).tolist()

    async def ask() -> np.ndarray:
        async with AsyncClient(deployment.url) as client:
            return await client.similarity(*sides, model="voices", aggregation="plda")

    assert asyncio.run(ask()).tolist() == scores
    files = []
    for name, side in (("left", left), ("right", right)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps([subject(one) for one in side]))
        files.append(str(file))
    command = deployment.cli("similarity", *files, "--model", "voices", "--url", deployment.url, "--json")
    assert str(scores[0])[:6] in command.stdout
    decided = deployment.cli("match", *files, "--fpr", "0.1", "--model", "voices", "--url", deployment.url)
    assert ["samples", "5,", "2"] in [line.split() for line in decided.stdout.splitlines()]


def test_the_whole_decision_is_calibrated_for_its_numbers_of_samples(
    deployment: RunningServer, strangers: np.ndarray
) -> None:
    body = {
        "model": "voices",
        "left": [subject(strangers[at, :5]) for at in (0, 1)],
        "right": [subject(strangers[at, 5:7]) for at in (0, 2)],
    }
    answer = deployment.http.post("/match?fpr=0.1", json=body).json()
    point = answer["operating_point"]
    assert (point["samples"], point["aggregation"], point["guarantee"]) == ([5, 2], "plda", "finite-sample")
    assert point["n_units"] == 60
    assert [one["match"] for one in answer["matches"]] == [
        one["score"] > point["threshold"] for one in answer["matches"]
    ]
    assert answer["matches"][0]["match"]
    turned = {"model": "voices", "left": body["right"], "right": body["left"]}
    assert deployment.http.post("/match?fpr=0.1", json=turned).json()["operating_point"] == point
    plain = deployment.http.post(
        "/match?fpr=0.1",
        json={"model": "voices", "left": strangers[0, 0].tolist(), "right": strangers[0, 1].tolist()},
    ).json()["operating_point"]
    assert "samples" not in plain
    assert deployment.http.get("/models/voices/versions/1/operating-point?fpr=0.1").json() == plain
    assert plain["calibration_id"] != point["calibration_id"]
    assert plain["tpr"] < point["tpr"]
    stored = deployment.http.get(f"/calibrations/{point['calibration_id']}").json()
    assert (stored["summary"]["samples"], stored["summary"]["parent"]) == ([5, 2], plain["calibration_id"])
    # Named, it answers for its own class and for no other.
    named = f"/match?fpr=0.1&calibration={point['calibration_id']}"
    assert deployment.http.post(named, json=body).json()["operating_point"] == point
    other = {"model": "voices", "left": subject(strangers[0, :3]), "right": subject(strangers[0, 3:4])}
    assert (
        "thresholds do not carry over"
        in problem(deployment.http.post(named, json=other), 422, "invalid-input")["detail"]
    )
    single = {"model": "voices", "left": strangers[0, 0].tolist(), "right": strangers[1, 0].tolist()}
    assert (
        "single vectors" in problem(deployment.http.post(named, json=single), 422, "invalid-input")["detail"]
    )
    best = deployment.http.post("/match?fpr=0.1&aggregation=best", json=body).json()["operating_point"]
    assert best["aggregation"] == "best"
    assert best["threshold"] != point["threshold"]


def test_what_is_wrong_is_named(deployment: RunningServer, strangers: np.ndarray) -> None:
    def ask(left: Any, right: Any = None, path: str = "/similarity", model: str = "voices") -> dict[str, Any]:
        given = strangers[1, 0].tolist() if right is None else right
        answer = deployment.http.post(path, json={"model": model, "left": left, "right": given})
        return problem(answer, 422, "invalid-input")

    row = strangers[0, 0].tolist()
    for left, field in (
        ({"samples": []}, "left.samples"),
        ([{"samples": [row]}, {"samples": []}], "left[1].samples"),
        ({"samples": row}, "left.samples[0]"),
        ({"samples": [row, row[:3]]}, "left.samples[1]"),
        ([{"samples": [row]}, {"samples": [row[:3]]}], "left[1].samples[0]"),
        ({"samples": [row, None]}, "left.samples[1]"),
        ({"samples": [[*row[:-1], "x"]]}, "left.samples[0][5]"),
        ({"samples": [row], "counts": 1}, "left.counts"),
        ([{"samples": [row]}, row], "left[1]"),
    ):
        assert ask(left)["field"] == field, left
    assert ask({"samples": [row[:3]]})["expected_dimension"] == D
    assert ask({"samples": [row] * 21})["limit"] == 20
    assert ask([{"samples": [row]}] * 2, [{"samples": [row] * 2}] * 3)["field"] == "right"
    mixed = ask([{"samples": [row]}, {"samples": [row] * 2}], path="/match?fpr=0.1")
    assert "fixed numbers of samples" in mixed["detail"]


def enrol(deployment: RunningServer, name: str, model: str, samples: np.ndarray, first: int = 0) -> None:
    assert deployment.http.put(f"/galleries/{name}", json={"model": model}).status_code in (200, 201)
    n, k, width = samples.shape
    body = npz(
        ids=np.array([f"s{first + at:03}-{number}" for at in range(n) for number in range(k)]),
        vectors=samples.reshape(-1, width),
        subjects=np.array([f"s{first + at:03}" for at in range(n) for _ in range(k)]),
    )
    made = deployment.http.put(f"/galleries/{name}/items", content=body, headers={"content-type": NPZ})
    assert made.json()["upserted"] == n * k


def test_verification_decides_about_the_whole_subject(
    deployment: RunningServer, strangers: np.ndarray
) -> None:
    enrol(deployment, "known", "voices", strangers[:3, :4])
    enrol(deployment, "known", "voices", strangers[3:4, :10], first=3)
    probe = strangers[1, 11]
    answer = deployment.http.post(
        "/galleries/known/subjects/s001/verify?fpr=0.1", json={"probe": probe.tolist()}
    ).json()
    assert (answer["aggregation"], answer["operating_point"]["samples"]) == ("plda", [4, 1])
    assert answer["fpr_upper_bound"] == answer["operating_point"]["fpr_upper_bound"]
    assert "warning" not in answer
    decided = deployment.http.post(
        "/match?fpr=0.1", json={"model": "voices", "left": subject(strangers[1, :4]), "right": probe.tolist()}
    ).json()
    assert answer["score"] == decided["matches"][0]["score"]
    assert answer["match"] == decided["matches"][0]["match"]
    assert answer["operating_point"] == decided["operating_point"]
    twice = deployment.http.post(
        "/galleries/known/subjects/s001/verify?fpr=0.1", json={"probe": subject(strangers[1, 10:12])}
    ).json()
    assert twice["operating_point"]["samples"] == [4, 2]
    # Nobody who was held out has ten samples: the best of ten comparisons decides, as is said.
    many = deployment.http.post(
        "/galleries/known/subjects/s003/verify?fpr=0.1", json={"probe": probe.tolist()}
    ).json()
    assert "aggregation" not in many
    assert many["fpr_upper_bound"] == pytest.approx(min(1, 10 * many["operating_point"]["fpr_upper_bound"]))
    assert "best of 10 comparisons" in many["warning"]
    answer = deployment.http.post(
        "/galleries/known/subjects/s003/verify?fpr=0.1&aggregation=plda", json={"probe": probe.tolist()}
    )
    problem(answer, 422, "insufficient-calibration-data")
    wrong = deployment.http.post(
        "/galleries/known/subjects/s001/verify?fpr=0.1", json={"probe": [probe.tolist()] * 2}
    )
    assert "expected one" in problem(wrong, 422, "invalid-input")["detail"]


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
    assert json.loads(deployment.cli("similarity", left, right, *at, "--json").stdout)["scores"] == scores
    reported = json.loads(deployment.cli("match", left, right, "--fpr", "0.1", *at, "--json").stdout)
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
    assert (ways[-1]["fpr"], ways[-1]["units"]) == (0.0001, problem["required_units"]["finite-sample"])
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
