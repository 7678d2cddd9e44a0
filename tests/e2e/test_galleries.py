"""Galleries over HTTP: enrol, search, verify, identify, erase; bad input; several workers that see one truth."""

import json
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import RunningServer, answered, npz, problem

NPZ = "application/x-npz"


@pytest.fixture(scope="module")
def rows(digits_deployment: RunningServer) -> np.ndarray:
    return digits_deployment.facts["X"]


def make(deployment: RunningServer, name: str, model: str = "digits") -> httpx.Client:
    answer = deployment.http.put(f"/galleries/{name}", json={"model": model})
    assert answer.status_code in (200, 201), answer.text
    return deployment.http


def items(rows: np.ndarray, start: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "items": [{"id": f"d{start + at:04}", "vector": row.tolist(), **more} for at, row in enumerate(rows)]
    }


def test_a_search_is_what_scoring_every_item_gives(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = make(digits_deployment, "exact")
    made = http.put(
        "/galleries/exact/items",
        content=npz(ids=np.array([f"d{at:04}" for at in range(600)]), vectors=rows[:600]),
        headers={"content-type": NPZ},
    )
    assert made.json() == {"upserted": 600, "errors": [], "n_errors": 0}
    answer = http.post("/galleries/exact/search", json={"queries": rows[700:704].tolist(), "k": 10}).json()
    assert answer["model"] == {"name": "digits", "version": 1, "kind": "similarity-forest"}
    for query, hits in zip(rows[700:704], answer["results"], strict=True):
        scores = http.post(
            "/similarity", json={"left": query.tolist(), "right": rows[:600].tolist(), "model": "digits"}
        ).json()["scores"]
        order = sorted(range(600), key=lambda at: (-scores[at], at))[:10]
        assert [hit["id"] for hit in hits] == [f"d{at:04}" for at in order]
        assert [hit["score"] for hit in hits] == [scores[at] for at in order]
    reported = http.get("/galleries/exact").json()
    assert (reported["items"], reported["dimension"]) == (600, 64)
    assert "exact" in {entry["name"] for entry in http.get("/galleries").json()["items"]}


def test_items_are_listed_read_replaced_and_erased(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = make(digits_deployment, "kept")
    body = items(rows[:5], subject="anna", metadata={"site": "north", "year": 2024})
    body["items"][0]["id"] = "a/b ü?"
    assert http.put("/galleries/kept/items", json=body).json()["upserted"] == 5
    found = http.get("/galleries/kept/items/a%2Fb%20%C3%BC%3F").json()
    assert found["vector"] == rows[0].tolist()
    assert (found["id"], found["subject"], found["metadata"]) == (
        "a/b ü?",
        "anna",
        {"site": "north", "year": 2024},
    )
    page = http.get("/galleries/kept/items?limit=2").json()
    assert [entry["id"] for entry in page["items"]] == ["a/b ü?", "d0001"]
    assert "vector" not in page["items"][0] or page["items"][0]["vector"] is None
    rest = http.get(f"/galleries/kept/items?limit=4&vectors=1&cursor={page['next_cursor']}").json()
    assert [entry["id"] for entry in rest["items"]] == ["d0002", "d0003", "d0004"]
    assert (rest["items"][0]["vector"], rest["next_cursor"]) == (rows[2].tolist(), None)
    http.put("/galleries/kept/items", json=items(rows[9:10], 1, subject="ben"))
    assert http.get("/galleries/kept/items/d0001").json()["vector"] == rows[9].tolist()
    assert [one["id"] for one in http.get("/galleries/kept/items?subject=ben").json()["items"]] == ["d0001"]
    receipt = http.delete("/galleries/kept/items/a%2Fb%20%C3%BC%3F").json()
    assert (receipt["items"], receipt["id"]) == (1, "a/b ü?")
    problem(http.delete("/galleries/kept/items/a%2Fb%20%C3%BC%3F"), 404, "unknown-item")
    problem(http.get("/galleries/kept/items/nobody"), 404, "unknown-item")
    receipt = http.delete("/galleries/kept/subjects/anna").json()
    assert (receipt["items"], receipt["subject"]) == (3, "anna")
    assert http.delete("/galleries/kept/subjects/anna").json()["items"] == 0
    hits = http.post("/galleries/kept/search", json={"queries": rows[9].tolist(), "k": 9}).json()["results"][
        0
    ]
    assert [(hit["id"], hit["subject"]) for hit in hits] == [("d0001", "ben")]
    assert http.delete("/galleries/kept").status_code == 204
    problem(http.get("/galleries/kept"), 404, "unknown-gallery")


def test_csv_and_parquet(digits_deployment: RunningServer, rows: np.ndarray, tmp_path) -> None:
    import duckdb

    http = make(digits_deployment, "forms")
    header = "id,subject,site," + ",".join(f"f{at}" for at in range(64))
    lines = [
        f"c{at},s{at},{'n' if at % 2 else ''}," + ",".join(map(repr, rows[at].tolist())) for at in range(20)
    ]
    lines[7] = lines[7].rsplit(",", 1)[0] + ",oops"
    answer = http.put(
        "/galleries/forms/items?metadata=site",
        content="\n".join([header, *lines]),
        headers={"content-type": "text/csv"},
    ).json()
    assert answer["upserted"] == 19
    assert [(one["row"], one["id"]) for one in answer["errors"]] == [(7, "c7")]
    assert http.get("/galleries/forms/items/c3").json()["metadata"] == {"site": "n"}
    assert http.get("/galleries/forms/items/c4").json()["metadata"] is None
    table = tmp_path / "items.parquet"
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t (id VARCHAR, vector FLOAT[])")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?)", [(f"p{at}", rows[at].tolist()) for at in range(5)]
        )
        connection.execute(f"COPY t TO '{table}' (FORMAT PARQUET)")
    answer = http.put(
        "/galleries/forms/items",
        content=table.read_bytes(),
        headers={"content-type": "application/vnd.apache.parquet"},
    )
    assert answer.json()["upserted"] == 5, answer.text
    for name in ("p2", "c2"):
        assert http.get(f"/galleries/forms/items/{name}").json()["vector"] == rows[2].tolist()


def test_rows_that_cannot_be_stored_are_told_and_the_rest_is_stored(
    digits_deployment: RunningServer, rows: np.ndarray
) -> None:
    http = make(digits_deployment, "errors")
    good = rows[0].tolist()
    body = [
        {"id": "ok", "vector": good},
        {"id": "short", "vector": good[:-1]},
        {"id": "ok", "vector": good},
        {"id": "x" * 10_000, "vector": good},
        {"id": "", "vector": good},
        {"id": "huge", "vector": [1e39, *good[1:]]},
        {"id": "text", "vector": ["1", *good[1:]]},
        {"id": "bomb", "vector": good, "metadata": {"a": "b" * 5_000}},
        {"id": "deep", "vector": good, "metadata": {"a": {"b": 1}}},
        {"id": "fields", "vector": good, "metadata": {f"f{at}": 1 for at in range(65)}},
        {"id": "extra", "vector": good, "colour": 1},
        "nothing",
        {"vector": good},
        {"id": "ctl\n", "vector": good},
        {"id": 17, "vector": good},
    ]
    no_json = json.dumps({"items": [*body, {"id": "nan", "vector": [float("nan"), *good[1:]]}]})
    assert (
        "NaN" in problem(http.put("/galleries/errors/items", content=no_json), 422, "invalid-input")["detail"]
    )
    reported = answered(http.put("/galleries/errors/items", json={"items": body})).json()
    assert reported["upserted"] == 2
    assert [one["row"] for one in reported["errors"]] == list(range(1, 14))
    assert "63 numbers" in reported["errors"][0]["detail"]
    assert [one["id"] for one in http.get("/galleries/errors/items").json()["items"]] == ["17", "ok"]
    refused = problem(
        http.put("/galleries/errors/items", json={"items": [{"id": "a", "vector": [1.0]}]}),
        422,
        "invalid-input",
    )
    assert (refused["field"], refused["errors"][0]["row"]) == ("items[0]", 0)
    for wrong in ({}, {"items": []}, {"items": 3}, [1], {"items": [{}], "more": 1}):
        problem(http.put("/galleries/errors/items", json=wrong), 422, "invalid-input")
    ids = np.array(["a", "b"])
    for kind, content, status in (
        (NPZ, npz(ids=ids, vectors=rows[:2, :10]), 422),
        (NPZ, npz(ids=ids, vectors=rows[:3]), 422),
        (NPZ, npz(vectors=rows[:2]), 422),
        (NPZ, npz(ids=ids, vectors=rows[:2], more=ids), 422),
        (NPZ, b"PK nonsense", 422),
        ("application/octet-stream", b"123", 415),
        ("text/csv", b"", 422),
        ("text/csv", b"id,a\n1,2\n", 422),
        ("application/vnd.apache.parquet", b"PAR1", 422),
        ("image/png", b"", 415),
    ):
        answer = http.put("/galleries/errors/items", content=content, headers={"content-type": kind})
        assert answer.status_code == status, (kind, answer.text)


def test_searches_that_make_no_sense(digits_deployment: RunningServer, rows: np.ndarray) -> None:
    http = make(digits_deployment, "sense")
    query = rows[0].tolist()
    assert http.post("/galleries/sense/search", json={"queries": query, "k": 5}).json()["results"] == [[]]
    http.put("/galleries/sense/items", json=items(rows[:3]))
    assert (
        len(http.post("/galleries/sense/search", json={"queries": query, "k": 10**6}).json()["results"][0])
        == 3
    )
    for body, field in (
        ({"queries": query, "k": 0}, "k"),
        ({"queries": query, "k": -1}, "k"),
        ({"queries": []}, "queries"),
        ({"queries": query[:5]}, "queries"),
        ({"k": 5}, "queries"),
        ({"queries": query, "group_by": "site"}, "group_by"),
        ({"queries": query, "fpr": 0.1, "fpir": 0.1}, "fpr"),
        ({"queries": query, "fpir": 0}, "fpir"),
        ({"queries": query, "colour": 1}, "colour"),
    ):
        answer = http.post("/galleries/sense/search", json=body)
        assert problem(answer, 422, "invalid-input")["field"] == field, body
    answer = http.post("/galleries/sense/search", content='{"queries": [[NaN' + ", 0" * 63 + "]]}")
    assert problem(answer, 422, "invalid-input")["field"] == "queries[0][0]"
    problem(http.post("/galleries/nowhere/search", json={"queries": query}), 404, "unknown-gallery")
    problem(
        http.post("/galleries/sense/search", json={"queries": query, "fpir": 0.1}), 404, "unknown-calibration"
    )
    problem(http.put("/galleries/none", json={"model": "nobody"}), 404, "unknown-model")
    assert http.put("/galleries/b%20d", json={"model": "digits"}).status_code == 422
    assert http.get("/galleries/sense/search").status_code == 405


def test_verify_compares_all_of_a_subjects_items(digits_deployment: RunningServer, rows: np.ndarray) -> None:
    http, y = make(digits_deployment, "verified"), digits_deployment.facts["y"]
    ones = np.flatnonzero(y == 1)[:5]
    http.put(
        "/galleries/verified/items",
        json={"items": [{"id": f"o{at}", "subject": "a/b", "vector": rows[at].tolist()} for at in ones]},
    )
    probe = rows[np.flatnonzero(y == 1)[6]]
    reported = http.post(
        "/galleries/verified/subjects/a%2Fb/verify?fpr=0.1", json={"probe": probe.tolist()}
    ).json()
    scores = http.post(
        "/similarity", json={"left": probe.tolist(), "right": rows[ones].tolist(), "model": "digits"}
    ).json()["scores"]
    assert (reported["score"], reported["id"]) == (max(scores), f"o{ones[int(np.argmax(scores))]}")
    assert reported["match"] == (reported["score"] > reported["operating_point"]["threshold"])
    assert (reported["items"], reported["subject"]) == (5, "a/b")
    assert reported["fpr_upper_bound"] == pytest.approx(
        min(1, 5 * reported["operating_point"]["fpr_upper_bound"])
    )
    problem(
        http.post("/galleries/verified/subjects/zoe/verify?fpr=0.1", json={"probe": probe.tolist()}),
        404,
        "unknown-item",
    )
    problem(
        http.post("/galleries/verified/subjects/a%2Fb/verify", json={"probe": probe.tolist()}),
        422,
        "invalid-input",
    )
    hits = http.post("/galleries/verified/search", json={"queries": probe.tolist(), "fpr": 0.1}).json()
    assert all(
        hit["match"] and hit["score"] > hits["operating_point"]["threshold"] for hit in hits["results"][0]
    )
    assert "fpir" in hits["warning"]


def test_identification_at_a_rate_of_the_whole_search(digits_deployment: RunningServer) -> None:
    deployment = digits_deployment
    rng = np.random.default_rng(3)
    centres = (rng.normal(size=(260, 64)) * 3).astype(np.float32)

    def samples(people: range) -> np.ndarray:
        return (centres[list(people)] + rng.normal(size=(len(people), 64)) * 0.3).astype(np.float32)

    X = np.concatenate([samples(range(200, 260)) for _ in range(4)])
    deployment.upload("strangers-train", X, np.tile(np.arange(60), 4))
    deployment.train(
        learner="metric",
        dataset="strangers-train",
        model="near",
        params={"metric": "euclidean"},
        promote="shadow",
    )
    http = make(deployment, "people", "near@shadow")
    body = {
        "items": [
            {"id": f"p{at}", "subject": f"p{at}", "vector": row.tolist()}
            for at, row in enumerate(samples(range(100)))
        ]
    }
    assert http.put("/galleries/people/items", json=body).json()["upserted"] == 100
    whose = np.array([f"p{at}" for at in range(50, 200)])
    deployment.upload("probes", np.tile(samples(range(50, 200)), (2, 1)), np.tile(whose, 2))
    made = answered(http.post("/galleries/people/calibrations", json={"dataset": "probes"}), 201)
    reported = made.json()
    assert (reported["n_probes"], reported["n_mated"], reported["gallery_size"], reported["stale"]) == (
        100,
        50,
        100,
        False,
    )
    assert http.get(made.headers["location"]).json() == reported
    queries = [*samples(range(10)).tolist(), *(rng.normal(size=(5, 64)) * 3).tolist()]
    found = http.post("/galleries/people/search", json={"queries": queries, "k": 3, "fpir": 0.1}).json()
    assert found["operating_point"]["calibration_id"] == reported["id"]
    assert found["operating_point"]["fpir_upper_bound"] <= 0.1
    assert found["operating_point"]["guarantee"] == "finite-sample"
    assert found["operating_point"]["meaning"].startswith(
        "With 95 % confidence, at most 10 % of searches for new people"
    )
    subject = http.post("/galleries/people/search", json={"queries": {"samples": queries}})
    assert "queries is a subject of several samples" in problem(subject, 422, "invalid-input")["detail"]
    assert [hits[0]["id"] for hits in found["results"][:10]] == [f"p{at}" for at in range(10)]
    assert found["results"][10:] == [[]] * 5
    # What is unlike the people who calibrated is enrolled and told, and matches nobody at a rate.
    blank = {"id": "blank", "subject": "blank", "vector": [0.0] * 64}
    enrolled = http.put("/galleries/people/items", json={"items": [blank]}).json()
    assert enrolled["upserted"] == 1
    assert "unlike-calibration" in enrolled["errors"][0]["detail"]
    blanks = {"queries": [[0.0] * 64, queries[0]], "k": 1}
    unlike = http.post("/galleries/people/search", json={**blanks, "fpir": 0.1}).json()
    assert [[hit["id"] for hit in hits] for hits in unlike["results"]] == [[], ["p0"]]
    assert (unlike["reasons"], unlike["unlike_items"]) == (["unlike-calibration", None], 1)
    assert unlike["operating_point"]["assumes"][0]["status"] == "monitored"
    nearest = http.post("/galleries/people/search", json=blanks).json()
    assert nearest["results"][0][0]["id"] == "blank"
    assert "reasons" not in nearest
    assert http.delete("/galleries/people/items/blank").status_code == 200
    floor = problem(
        http.post("/galleries/people/search", json={"queries": queries, "fpir": 0.001}),
        422,
        "insufficient-calibration-data",
    )
    assert floor["smallest_fpir" if "smallest_fpir" in floor else "smallest_fpr"]["finite-sample"] > 0.001
    http.put("/galleries/people/items", json=items(samples(range(100, 115)), 0))
    grown = http.post("/galleries/people/search", json={"queries": queries, "fpir": 0.1}).json()[
        "operating_point"
    ]
    assert (grown["calibration_id"], grown["gallery_size"], grown["n_probes"]) == (reported["id"], 115, 100)
    deployment.upload("narrow", np.ones((4, 1), dtype=np.float32), np.array(["q", "r", "q", "r"]))
    narrow = http.post("/galleries/people/calibrations", json={"dataset": "narrow"})
    assert "the gallery's vectors have 64" in problem(narrow, 422, "invalid-input")["detail"]
    problem(http.post("/galleries/people/calibrations", json={}), 422, "invalid-input")
    # A version that searches a gallery stays.
    problem(http.delete("/models/near/versions/1"), 409, "conflict")
