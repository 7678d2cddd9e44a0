"""Scores and decisions over HTTP, from a server and a model trained through its own queue."""

import io
import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import RunningServer, answered

RAW = "application/octet-stream"


@pytest.fixture(scope="module")
def rows(digits_deployment: RunningServer) -> np.ndarray:
    return digits_deployment.facts["X"]


def similarity(server: RunningServer, **body: Any) -> httpx.Response:
    return server.http.post("/similarity", json=body)


def test_scores_are_symmetric_float32_and_name_their_version(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    left, right = rows[:40].tolist(), rows[40:80].tolist()
    forward = similarity(digits_deployment, left=left, right=right).json()
    backward = similarity(digits_deployment, left=right, right=left, model="digits:1").json()
    assert forward["model"] == {"name": "digits", "version": 1, "kind": "similarity-forest"}
    assert forward["scores"] == backward["scores"]
    assert forward["scores"] == np.array(forward["scores"], np.float32).astype(float).tolist()
    same = similarity(digits_deployment, left=left[0], right=left).json()["scores"]
    # A learned score need not put a vector itself first of all, but it must see the likeness.
    assert same[0] > np.quantile(same, 0.8)
    assert same == similarity(digits_deployment, left=left, right=left[0]).json()["scores"]
    assert similarity(digits_deployment, left=left[0], right=left[3]).json()["scores"] == same[3:4]


def test_every_form_of_the_same_vectors_scores_alike(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = digits_deployment.http
    left, right = rows[:300], rows[300:600]
    spoken = similarity(digits_deployment, left=left.tolist(), right=right.tolist()).json()["scores"]
    sparse = [
        {"indices": np.flatnonzero(row).tolist(), "values": row[np.flatnonzero(row)].tolist()} for row in left
    ]
    assert similarity(digits_deployment, left=sparse, right=right.tolist()).json()["scores"] == spoken
    body = left.tobytes() + right.tobytes()
    raw = http.post(
        "/similarity?dim=64&model=digits", content=body, headers={"content-type": RAW, "accept": RAW}
    )
    assert raw.headers["content-type"] == RAW
    assert json.loads(raw.headers["x-pairmark-model"])["version"] == 1
    assert np.frombuffer(raw.content, "<f4").tolist() == spoken
    stream = io.BytesIO()
    np.savez_compressed(stream, left=left.astype(np.float64), right=right)
    packed = http.post(
        "/similarity", content=stream.getvalue(), headers={"content-type": "application/x-npz"}
    )
    assert packed.json()["scores"] == spoken
    one = http.post(
        "/similarity?n_left=1", content=left[:1].tobytes() + right.tobytes(), headers={"content-type": RAW}
    )
    assert (
        one.json()["scores"]
        == similarity(digits_deployment, left=left[0].tolist(), right=right.tolist()).json()["scores"]
    )
    pieces = http.post(
        "/similarity",
        content=(body[i : i + 5000] for i in range(0, len(body), 5000)),
        headers={"content-type": RAW},
    )
    assert pieces.json()["scores"] == spoken


def test_a_match_is_a_score_above_the_threshold(digits_deployment: RunningServer, rows: np.ndarray) -> None:
    http = digits_deployment.http
    left, right = rows[:500], rows[500:1000]
    body = {"left": left.tolist(), "right": right.tolist()}
    answer = http.post("/match?fpr=0.1&confidence=0.9", json=body).json()
    scores = similarity(digits_deployment, **body).json()["scores"]
    point = answer["operating_point"]
    threshold = np.float32(point["threshold"])
    assert [one["score"] for one in answer["matches"]] == scores
    expected = (np.array(scores, np.float32) > threshold).tolist()
    assert [one["match"] for one in answer["matches"]] == expected
    assert any(expected)
    assert not all(expected)
    assert (point["fpr"], point["confidence"]) == (0.1, 0.9)
    assert point["fpr_upper_bound"] <= 0.1
    assert point["method"] in ("finite-sample", "bootstrap")
    assert point["protocol"] == "closed-set"
    # A pair exactly at the threshold does not match.
    calibration = point["calibration_id"]
    at = http.post(
        f"/match?fpr=0.1&confidence=0.9&calibration={calibration}",
        json={"scores": [float(threshold), float(np.nextafter(threshold, np.float32(np.inf)))]},
    ).json()
    assert [one["match"] for one in at["matches"]] == [False, True]
    assert (at["operating_point"], at["model"]["version"]) == (point, 1)
    raw = http.post(
        "/match?fpr=0.1&confidence=0.9",
        content=left.tobytes() + right.tobytes(),
        headers={"content-type": RAW, "accept": RAW},
    )
    assert np.frombuffer(raw.content, np.uint8).astype(bool).tolist() == expected
    assert np.float32(raw.headers["x-pairmark-threshold"]) == threshold
    assert raw.headers["x-pairmark-calibration-id"] == calibration


@pytest.mark.parametrize("fpr", ["0", "1", "-1", "abc", "nan", "inf", "", "1e400", "1_0", "0x1", "2"])
def test_rates_that_are_none(digits_deployment: RunningServer, rows: np.ndarray, fpr: str) -> None:
    body = {"left": rows[0].tolist(), "right": rows[1].tolist()}
    answer = answered(digits_deployment.http.post("/match", params={"fpr": fpr}, json=body), 422)
    assert answer.json()["field"] == "fpr"


@pytest.mark.parametrize(
    ("left", "field"),
    [
        ("[1, NaN]", "left[1]"),
        ("[1, Infinity]", "left[1]"),
        ("[1, 1e400]", "left[1]"),
        ('[1, "2"]', "left[1]"),
        ("[true, 2]", "left[0]"),
        ("[]", "left"),
        ("[[1, 2], [1, 2, 3]]", "left[1]"),
        ("[[1, 2], [3, NaN]]", "left[1][1]"),
        ("[1, 2]", "left"),
        ('{"indices": [64], "values": [1]}', "left.indices[0]"),
    ],
)
@pytest.mark.parametrize("path", ["/similarity", "/match?fpr=0.1", "/explain"])
def test_bad_vectors_name_the_field(
    digits_deployment: RunningServer, rows: np.ndarray, path: str, left: str, field: str
) -> None:
    body = f'{{"left": {left}, "right": {json.dumps(rows[0].tolist())}}}'
    answer = answered(
        digits_deployment.http.post(path, content=body, headers={"content-type": "application/json"}), 422
    )
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (problem["type"], problem["field"]) == ("/problems/invalid-input", field)
    assert "expected" in problem["detail"] or "expects" in problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"]


@pytest.mark.parametrize(
    ("model", "status", "slug"),
    [
        ("nobody", 404, "unknown-model"),
        ("digits:99", 404, "unknown-model"),
        ("digits@staging", 404, "unknown-model"),
        ("digits:1@production", 404, "unknown-model"),
        ("digits:", 404, "unknown-model"),
        ("digits:0", 404, "unknown-model"),
        ("digits:-1", 404, "unknown-model"),
        ("digits:\uff11", 404, "unknown-model"),
        ("digits@", 404, "unknown-model"),
        ("@", 404, "unknown-model"),
        ("", 404, "unknown-model"),
        ("\u0000", 404, "unknown-model"),
    ],
)
def test_models_that_are_not_there(
    digits_deployment: RunningServer, rows: np.ndarray, model: str, status: int, slug: str
) -> None:
    answer = similarity(digits_deployment, model=model, left=rows[0].tolist(), right=rows[1].tolist())
    assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{slug}")


def test_media_types_that_are_not_read_or_written(digits_deployment: RunningServer, rows: np.ndarray) -> None:
    http = digits_deployment.http
    body = json.dumps({"left": rows[0].tolist(), "right": rows[1].tolist()})
    answered(
        http.post("/similarity", content=body, headers={"content-type": "application/x-www-form-urlencoded"}),
        415,
    )
    answered(
        http.post(
            "/similarity", content=body, headers={"content-type": "application/json", "accept": "image/png"}
        ),
        406,
    )
    for content in (b"", b"123", b"\x00" * 65):
        answered(http.post("/similarity", content=content, headers={"content-type": RAW}), 422)
    assert http.post("/similarity?dimm=3", content=body).status_code == 422
    assert http.get("/similarity").status_code == 405
    named = json.dumps({"model": "digits", "left": rows[0].tolist(), "right": rows[1].tolist()})
    json_type = {"content-type": "application/json"}
    assert http.post("/similarity?model=digits", content=named, headers=json_type).status_code == 200
    assert http.post("/similarity?model=digits:1", content=body, headers=json_type).status_code == 200
    assert http.post("/similarity?model=nobody", content=body, headers=json_type).status_code == 404
    assert http.post("/similarity?model=digits:1", content=named, headers=json_type).status_code == 422


def test_an_explanation_tells_the_score_it_explains(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    body = {"left": rows[0].tolist(), "right": rows[1].tolist()}
    reported = digits_deployment.http.post("/explain", json=body).json()
    assert reported["score"] == similarity(digits_deployment, **body).json()["scores"][0]
    assert reported["explanation"]["features"]
    answered(
        digits_deployment.http.post("/explain", json={"left": rows[:2].tolist(), "right": rows[1].tolist()}),
        422,
    )


def test_scores_made_elsewhere_are_decided_with_a_calibration(digits_deployment: RunningServer) -> None:
    http = digits_deployment.http
    random = np.random.default_rng(0)
    people = np.arange(150)
    left = np.concatenate([people, people])
    right = np.concatenate([people, np.roll(people, 1)])
    same = left == right
    request = {
        "name": "elsewhere",
        "scores": (random.normal(size=300) + 4 * same).tolist(),
        "same": same.astype(int).tolist(),
        "left_unit": left.tolist(),
        "right_unit": right.tolist(),
    }
    made = answered(http.post("/calibrations", json=request), 201)
    identity = made.json()["id"]
    assert http.get(made.headers["location"]).json()["id"] == identity
    answer = http.post(f"/match?fpr=0.1&calibration={identity}", json={"scores": [-9.0, 9.0]}).json()
    assert [one["match"] for one in answer["matches"]] == [False, True]
    assert (answer["model"], answer["operating_point"]["calibration_id"]) == (None, identity)
    assert http.post("/match?fpr=0.1", json={"scores": [1.0]}).json()["field"] == "calibration"
    other = http.post(
        f"/match?fpr=0.1&calibration={identity}", json={"left": [0.0] * 64, "right": [1.0] * 64}
    )
    assert (other.status_code, other.json()["field"]) == (422, "calibration")
    assert "made of scores that are sent as 'scores', not for" in other.json()["detail"]
    unknown = answered(http.post("/match?fpr=0.1&calibration=nope", json={"scores": [1.0]}), 404)
    assert unknown.json()["type"] == "/problems/unknown-calibration"


def test_auto_is_asymptotic_only_where_a_policy_allows_it(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = digits_deployment.http
    body = {"left": rows[0].tolist(), "right": rows[1].tolist()}
    # Generated requests to the shared deployment may have set a policy.
    http.put("/models/digits/policy", json={"allow_asymptotic": None})
    others = http.post("/match?fpr=0.0000001", json=body).json()["alternatives"]
    assert (set(others), others["estimate"]["guarantee"]) == ({"bootstrap", "estimate"}, "none")
    estimated = http.post("/match?fpr=0.01&method=estimate", json=body).json()["operating_point"]
    assert estimated["guarantee"] == "none"
    assert not {"method", "confidence", "fpr_upper_bound"} & set(estimated)
    rate = next(
        (
            fpr
            for fpr in np.geomspace(0.2, 1e-4, 40)
            if http.post(f"/match?fpr={fpr}", json=body).status_code == 422
            and http.post(f"/match?fpr={fpr}&method=bootstrap", json=body).status_code == 200
        ),
        None,
    )
    assert rate is not None, "bootstrap answers nothing that finite-sample refuses"
    name = "digits"
    assert http.get(f"/models/{name}").json()["policy"]["allow_asymptotic"] is None
    answered(http.put(f"/models/{name}/policy", json={"allow_asymptotic": True}))
    try:
        point = http.post(f"/match?fpr={rate}", json=body).json()["operating_point"]
        assert (point["method"], point["guarantee"]) == ("bootstrap", "asymptotic")
        answered(http.post(f"/match?fpr={rate}&method=finite-sample", json=body), 422)
    finally:
        http.put(f"/models/{name}/policy", json={"allow_asymptotic": None})
    assert http.post(f"/match?fpr={rate}", json=body).status_code == 422
    assert http.put("/models/nobody/policy", json={"allow_asymptotic": True}).status_code == 404
    assert http.put(f"/models/{name}/policy", json={"allow": True}).status_code == 422


def test_match_review_different_over_http(digits_deployment: RunningServer, rows: np.ndarray) -> None:
    http = digits_deployment.http
    body = {"left": rows[:60].tolist(), "right": rows[60:120].tolist()}
    answer = answered(http.post("/match?fpr=0.2&fnr=0.3&confidence=0.9", json=body))
    point = answer.json()["operating_point"]
    low, high = np.float32(point["fnr_threshold"]), np.float32(point["threshold"])
    assert low <= high
    for one in answer.json()["matches"]:
        score = np.float32(one["score"])
        expected = "match" if score > high else "different" if score <= low else "review"
        assert (one["decision"], one["match"]) == (expected, expected == "match")
    raw = http.post(
        "/match?fpr=0.2&fnr=0.3&confidence=0.9",
        content=rows[:120].astype(np.float32).tobytes(),
        headers={"content-type": RAW, "accept": RAW},
    )
    names = ["different", "match", "review"]
    said = [names[one] for one in np.frombuffer(raw.content, np.uint8)]
    assert said == [one["decision"] for one in answer.json()["matches"]]
    assert http.post("/match?fpr=0.3&simultaneous=true", json=body).json()["operating_point"]["simultaneous"]
    assert http.post("/match?fpr=0.2&fnr=2", json=body).status_code == 422
    assert http.post("/match?fpr=0.2&fnr=0.3&method=estimate", json=body).status_code == 422


def test_rows_unlike_those_who_calibrated_never_match(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = digits_deployment.http
    left = np.concatenate([rows[:1], 0 * rows[:1], 255 * rows[:1], np.full_like(rows[:1], 7)])
    body = {"left": left.tolist(), "right": left.tolist()}
    answer = http.post("/match?fpr=0.02", json=body).json()
    assert [entry.get("reason") for entry in answer["matches"]] == [None, *["unlike-calibration"] * 3]
    assert [entry["match"] for entry in answer["matches"]] == [True, False, False, False]
    assert answer["matches"][1]["unlike"] == ["left", "right"]
    assert answer["operating_point"]["assumes"][0]["status"] == "monitored"
    # What is nowhere near a match is still not called different.
    three_way = http.post("/match?fpr=0.02&fnr=0.2", json=body).json()
    assert [entry["decision"] for entry in three_way["matches"]] == ["match", *["review"] * 3]
    raw = http.post(
        "/match?fpr=0.02&dim=64",
        content=np.concatenate([left, left]).astype("<f4").tobytes(),
        headers={"content-type": "application/octet-stream", "accept": "application/octet-stream"},
    )
    assert list(raw.content) == [1, 3, 3, 3]
    scores = http.post("/similarity?detail=true", json=body).json()
    assert [entry["pair"] for entry in scores["unlike"]] == [1, 2, 3]


@pytest.mark.parametrize(
    ("accept", "given"),
    [
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("Application/JSON", "application/json"),
        (f"{RAW}, application/json", "application/json"),
        (f"{RAW}; q=0.5, */*;q=0.1", RAW),
        (f"text/html, {RAW}", RAW),
        ("text/html", None),
    ],
)
def test_raw_bytes_are_given_to_who_takes_no_json(
    digits_deployment: RunningServer, rows: np.ndarray, accept: str, given: str | None
) -> None:
    body = {"left": rows[0].tolist(), "right": rows[1].tolist(), "model": "digits"}
    answer = digits_deployment.http.post("/similarity", json=body, headers={"accept": accept})
    if given is None:
        assert (answer.status_code, answer.json()["type"]) == (406, "/problems/not-acceptable")
    else:
        assert (answer.status_code, answer.headers["content-type"]) == (200, given)
