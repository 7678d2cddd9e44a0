"""Datasets, jobs, models, aliases, calibrations, pictures, the audit log and metrics over HTTP."""

import io
import json
import zipfile
from typing import Any

import httpx
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from tests.serving import RunningServer, Serve, answered, problem

SMALL = {"n_estimators": 2, "n_pairs": 2_000, "max_depth": 3, "random_state": 0}


def blobs(seed: int = 0, people: int = 8, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = np.repeat(np.arange(people), rows)
    return (random.normal(size=(people, 5))[y] + 0.3 * random.normal(size=(len(y), 5))).astype(np.float32), y


def pages(http: httpx.Client, path: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    for _ in range(100):
        answer = answered(http.get(path, params={"limit": limit, **({"cursor": cursor} if cursor else {})}))
        found += answer.json()["items"]
        assert len(answer.json()["items"]) <= limit
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return found
    raise AssertionError("the pages never end")


def test_a_job_is_queued_once_and_told_as_it_goes(digits_deployment: RunningServer) -> None:
    http = digits_deployment.http
    X, y = blobs()
    digits_deployment.upload("told", X, y)
    request = {
        "learner": "similarity-forest",
        "dataset": "told",
        "model": "told",
        "params": SMALL,
        "promote": False,
    }
    first = answered(http.post("/jobs", json=request, headers={"idempotency-key": "told-1"}), 202)
    job = first.json()["id"]
    assert first.headers["location"] == f"/jobs/{job}"
    assert http.post("/jobs", json=request, headers={"idempotency-key": "told-1"}).json()["id"] == job
    other = http.post("/jobs", json={**request, "model": "other"}, headers={"idempotency-key": "told-1"})
    problem(other, 409, "conflict")
    events = follow(http, job)
    names = [name for _, name, _ in events]
    assert names[-1] == "done"
    assert "progress" in names
    numbers = [number for number, _, _ in events]
    assert numbers == sorted(set(numbers))
    # Who lost the connection resumes where it was.
    assert follow(http, job, after=numbers[1]) == events[2:]
    assert follow(http, job, after=numbers[-1]) == []
    reported = http.get(f"/jobs/{job}").json()
    assert (reported["state"], reported["progress"], reported["version"]) == ("succeeded", 1.0, 1)
    assert [one["outcome"] for one in reported["attempts"]] == ["succeeded"]
    assert job in [one["id"] for one in pages(http, "/jobs", 1)]
    assert http.post(f"/jobs/{job}/cancel").json()["state"] == "succeeded"
    problem(http.get("/jobs/nope"), 404, "unknown-job")
    problem(http.get("/jobs/nope/events"), 404, "unknown-job")
    # Not promoted: its plain name means nothing yet, its version is served.
    body = {"left": [0.0] * 5, "right": [0.0] * 5}
    problem(http.post("/similarity", json={**body, "model": "told"}), 404, "unknown-model")
    assert http.post("/similarity", json={**body, "model": "told:1"}).status_code == 200


def follow(http: httpx.Client, job: str, after: int | None = None) -> list[tuple[int, str, dict[str, Any]]]:
    headers = {} if after is None else {"last-event-id": str(after)}
    found = []
    with http.stream("GET", f"/jobs/{job}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        block: dict[str, str] = {}
        for line in stream.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                block[name] = value
            elif "event" in block:
                found.append((int(block["id"]), block["event"], json.loads(block["data"])))
                block = {}
    return found


def test_a_version_tells_where_it_came_from(digits_deployment: RunningServer) -> None:
    http = digits_deployment.http
    version = http.get("/models/digits/versions/1").json()
    assert (version["kind"], version["params"]["n_estimators"]) == ("similarity-forest", 8)
    assert version["lineage"]["dataset_sha256"] == http.get("/datasets/digits").json()["sha256"]
    assert version["lineage"]["job"] == digits_deployment.facts["job"]["id"]
    assert "digits" in [one["name"] for one in pages(http, "/models", 1)]
    at = "/models/digits/versions/1"
    board = http.get(f"{at}/leaderboard").json()
    assert {one["role"] for one in board["items"]} == {"model", "baseline"}
    wrong = http.get(f"{at}/errors", params={"kind": "false-match", "fpr": 0.2, "limit": 3}).json()
    assert [one["score"] > wrong["threshold"] for one in wrong["items"]] == [True] * 3
    pair = {"model": "digits", "left": [0.0] * 64, "right": [1.0] * 64}
    problem(http.post("/match?decision=best-f1", json=pair), 422, "model-not-capable")
    for path, status, slug in (
        (f"{at}/pr", 422, "model-not-capable"),
        (f"{at}/errors?kind=wrong", 422, "invalid-input"),
        (f"{at}/errors?fpr=1e-7", 422, "insufficient-calibration-data"),
        (f"{at}/tree?tree=8", 422, "invalid-input"),
        ("/models/digits/versions/7/tree", 404, "unknown-model"),
        ("/models/digits/versions/2", 404, "unknown-model"),
        ("/models/nobody", 404, "unknown-model"),
    ):
        problem(http.get(path), status, slug)
    report = http.get(f"{at}/report").json()
    assert (report["version"]["kind"], report["leaderboard"]) == ("similarity-forest", board)
    assert report["columns"] == []
    page = http.get(f"{at}/report", headers={"Accept": "text/html,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for forbidden in ("<script", "<link", "http:", "https:", 'src="/'):
        assert forbidden not in page.text
    for picture, kind, beginning in (
        ("roc.svg", "image/svg+xml", b"<?xml"),
        ("roc.png", "image/png", b"\x89PNG"),
    ):
        drawn = http.get(f"{at}/{picture}")
        assert (drawn.headers["content-type"], drawn.content[: len(beginning)]) == (kind, beginning)
    assert http.get(f"{at}/tree").json()["n_trees"] == 8
    assert http.get(f"{at}/tree?tree=7").json()["tree"] == 7
    calibration = http.get(f"/calibrations/{version['calibration_id']}").json()
    assert calibration["model"] == "digits"
    assert calibration["summary"]["smallest_fpr"]


def test_versions_are_promoted_rolled_back_moved_and_deleted(serve: Serve) -> None:
    server = serve(kind="postgresql")
    http = server.http
    X, y = blobs()
    server.upload("people", X, y)
    request = {"learner": "similarity-tree", "dataset": "people", "model": "people"}
    params = {name: value for name, value in SMALL.items() if name != "n_estimators"}
    body = {"left": X[0].tolist(), "right": X[1].tolist()}

    def served() -> int:
        return answered(http.post("/match?fpr=0.2", json=body)).json()["model"]["version"]

    problem(http.post("/match?fpr=0.2", json=body), 404, "unknown-model")
    for version in (1, 2):
        params["random_state"] = version
        assert server.train(**request, params=params, promote=True)["version"] == version
        assert served() == version
    etag = http.get("/models/people/aliases/production").headers["etag"]
    answered(http.put("/models/people/aliases/production", json={"version": 1}, headers={"if-match": etag}))
    assert served() == 1
    for stale in (etag, "W/x"):
        problem(
            http.put("/models/people/aliases/production", json={"version": 2}, headers={"if-match": stale}),
            412,
            "precondition-failed",
        )
    now = http.get("/models/people/aliases/production").headers["etag"]
    either = {"if-match": f'"9", {now}'}
    assert (
        http.put("/models/people/aliases/production", json={"version": 1}, headers=either).status_code == 200
    )
    history = pages(http, "/models/people/aliases/production/history", 1)
    assert [one["version"] for one in history] == [1, 2, 1]
    assert history[0]["by"] == "loopback"
    problem(http.delete("/models/people/versions/1"), 409, "conflict")
    # Out and in again: the same scores under another name.
    exported = http.get("/models/people/versions/2/export")
    assert exported.headers["content-type"] == "application/zip"
    assert zipfile.is_zipfile(io.BytesIO(exported.content))
    answered(
        http.post(
            "/models",
            data={"name": "copy", "promote": "production"},
            files={"file": ("m.zip", exported.content)},
        ),
        201,
    )
    scores = [
        http.post("/similarity", json={**body, "model": model}).json()["scores"]
        for model in ("people:2", "copy")
    ]
    assert scores[0] == scores[1]
    assert set(problem(http.post("/similarity", json=body), 422, "ambiguous-model")["models"]) == {
        "copy",
        "people",
    }
    assert http.delete("/models/people/versions/2").status_code == 204
    problem(http.post("/similarity", json={**body, "model": "people:2"}), 404, "unknown-model")
    overlapping = http.post("/models/people/versions/1/calibrations", json={"dataset": "people"})
    problem(overlapping, 422, "calibration-overlap")
    server.upload("others", *blobs(seed=1))
    made = answered(http.post("/models/people/versions/1/calibrations", json={"dataset": "others"}), 201)
    chosen = http.post(f"/match?fpr=0.3&calibration={made.json()['id']}", json={**body, "model": "people"})
    assert chosen.json()["operating_point"]["calibration_id"] == made.json()["id"]
    foreign = http.post(f"/match?fpr=0.3&calibration={made.json()['id']}", json={**body, "model": "copy"})
    problem(foreign, 422, "invalid-input")


def test_changes_are_told_with_the_ids_of_their_requests(digits_deployment):
    http = digits_deployment.http
    headers = {"x-request-id": "audited-1"}
    X = digits_deployment.facts["X"]
    assert http.put("/galleries/audited", json={"model": "digits"}, headers=headers).status_code == 201
    items = [{"id": f"i{at}", "subject": "s", "vector": row.tolist()} for at, row in enumerate(X[:3])]
    assert http.put("/galleries/audited/items", json={"items": items}, headers=headers).status_code == 200
    assert http.delete("/galleries/audited/subjects/s", headers=headers).status_code == 200
    assert http.delete("/galleries/audited", headers=headers).status_code == 204
    page = http.get("/audit", params={"resource": "gallery:audited"}).json()
    reported = [(entry["action"], entry["before"], entry["after"]) for entry in reversed(page["items"])]
    assert reported == [
        ("gallery.create", None, {"model": "digits:1"}),
        ("gallery.upsert", None, {"items": 3}),
        ("gallery.erase", {"items": 3}, None),
        ("gallery.delete", {"model": "digits:1", "items": 0}, None),
    ]
    assert {entry["request_id"] for entry in page["items"]} == {"audited-1"}
    assert {entry["actor"] for entry in page["items"]} == {"loopback"}
    lines = [
        json.loads(line) for line in digits_deployment.log.read_text().splitlines() if "audited-1" in line
    ]
    assert lines


def scraped(http):
    """Samples by name and labels."""
    reported = {}
    for family in text_string_to_metric_families(http.get("/metrics").text):
        for sample in family.samples:
            reported[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return reported


def test_the_deployment_is_told_in_metrics(digits_deployment):
    http = digits_deployment.http
    http.put("/galleries/counted", json={"model": "digits"})
    vectors = digits_deployment.facts["X"][:7]
    items = [{"id": f"i{at}", "vector": row.tolist()} for at, row in enumerate(vectors)]
    http.put("/galleries/counted/items", json={"items": items})
    http.get("/models")
    reported = scraped(http)
    assert (reported["pairmark_database_up", ()], reported["pairmark_workers", ()]) == (1, 1)
    assert reported["pairmark_queue_oldest_seconds", ()] == 0
    assert reported["pairmark_jobs", (("state", "succeeded"),)] >= 1
    assert reported["pairmark_gallery_items", (("gallery", "counted"),)] == 7
    assert reported["pairmark_gallery_items_all", ()] >= 7
    assert 0 < reported["pairmark_calibration_age_seconds", (("model", "digits"),)] < 3600
    assert reported["pairmark_disk_free_bytes", (("place", "home"),)] > 0
    assert http.delete("/galleries/counted").status_code == 204


def test_refused_keys_are_counted(digits_deployment):
    wrong = {"authorization": "Bearer pm_000000000000_" + "x" * 43}
    assert digits_deployment.http.get("/models", headers=wrong).status_code == 401
    reported = scraped(digits_deployment.http)
    assert reported["pairmark_auth_failures_total", (("reason", "unauthenticated"),)] >= 1
