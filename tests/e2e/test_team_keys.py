"""Keys for teams: scopes on resources, decisions without scores, expiry, rotation, last use, over HTTP and CLI."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from pairmark.client import Client
from tests.serving import RunningServer, answered, problem, serving

RAW = "application/octet-stream"

SMALL = {"n_estimators": 20, "n_pairs": 2_000, "random_state": 0}
CUSTOMERS = [
    {
        "who": f"p{row // 2}",
        "name": f"name{row // 2}",
        "town": f"town{row // 2 % 9}",
        "age": 20.0 + row // 2 % 31,
    }
    for row in range(320)
]


@pytest.fixture(scope="module")
def deployment(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """Two models of vectors, one of records, two galleries, and an admin key, over PostgreSQL."""
    with serving(tmp_path_factory.mktemp("teams"), new_database("postgresql")) as server:
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(60), 4)
        X = (rng.normal(size=(60, 4))[y] + 0.2 * rng.normal(size=(240, 4))).astype(np.float32)
        for name in ("people", "cars"):
            server.upload(name, X, y)
            server.train(learner="metric", dataset=name, model=name, params={"metric": "euclidean"})
            server.enroll(name, name, X[:12:4])
        file = server.home / "customers.csv"
        file.write_text(
            "who,name,town,age\n"
            + "".join(f"{one['who']},{one['name']},{one['town']},{one['age']}\n" for one in CUSTOMERS)
        )
        server.cli("datasets", "add", "customers", str(file), "--column", "who:identity")
        server.train(dataset="customers", model="customers", params=SMALL, promote=True)
        server.facts.update(X=X, admin=server.key("admin")["key"])
        yield server


def made(deployment: RunningServer, *scopes: str, **more: Any) -> dict[str, Any]:
    return answered(
        deployment.http.post(
            "/keys",
            json={"name": " ".join(scopes), "scopes": scopes, **more},
            headers={"x-api-key": deployment.facts["admin"]},
        ),
        201,
    ).json()


class As:
    """Requests with a key."""

    def __init__(self, deployment: RunningServer, key: str) -> None:
        self._http, self._key = deployment.http, {"x-api-key": key}

    def __call__(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self._http.request(method, path, headers={**self._key, **more.pop("headers", {})}, **more)

    def status(self, method: str, path: str, **more: Any) -> int:
        return self(method, path, **more).status_code


def test_a_scope_on_one_model(deployment: RunningServer) -> None:
    ask = As(deployment, made(deployment, "score:people")["key"])
    pair = {"left": deployment.facts["X"][0].tolist(), "right": deployment.facts["X"][1].tolist()}
    # Without a model, the only one that the key may use is meant.
    assert ask("POST", "/similarity", json=pair).json()["model"]["name"] == "people"
    assert ask.status("POST", "/similarity", json={**pair, "model": "people:1"}) == 200
    for other in ("cars", "cars:1", "cars@production", "nobody"):
        assert ask.status("POST", "/similarity", json={**pair, "model": other}) == 403, other
        assert ask.status("POST", "/match?fpr=0.2", json={**pair, "model": other}) == 403, other
    raw = np.array([pair["left"], pair["right"]], "<f4").tobytes()
    assert ask.status("POST", "/similarity?model=cars", content=raw, headers={"content-type": RAW}) == 403
    assert [one["name"] for one in ask("GET", "/models").json()["items"]] == ["people"]
    assert ask("GET", "/datasets").json()["items"] == []
    assert ask("GET", "/jobs").json()["items"] == []


def test_whoever_only_scores_is_not_told_what_a_model_came_from(deployment: RunningServer) -> None:
    score = As(deployment, made(deployment, "score")["key"])
    one = As(deployment, made(deployment, "decide:people")["key"])
    train = As(deployment, made(deployment, "train:people")["key"])
    every = As(deployment, deployment.facts["admin"])
    base = "/models/people/versions/1"
    whole = every("GET", base).json()
    assert train("GET", base).json() == whole
    for ask in (score, one):
        shown = ask("GET", base).json()
        lineage = shown["lineage"]
        assert (lineage["dataset"], lineage["dataset_sha256"], lineage["job"]) == (None, None, None)
        assert set(lineage) == {"dataset", "dataset_sha256", "job", "code_version", "artefact_sha256"}
        reported = json.dumps([shown, ask("GET", "/models").json(), ask("GET", f"{base}/report").json()])
        for secret in (whole["lineage"]["dataset_sha256"], whole["lineage"]["job"], 'people:1"'):
            assert secret not in reported, secret
        assert ask.status("GET", f"{base}/errors") == 403
        assert ask.status("GET", f"{base}/export") == 403
        assert ask.status("GET", "/calibrations") == 403
    assert {"cars", "people"} <= {entry["name"] for entry in score("GET", "/models").json()["items"]}
    own, other = (
        every("GET", f"/models/{name}/versions/1").json()["calibration_id"] for name in ("people", "cars")
    )
    assert score("GET", f"{base}/report").json()["version"]["lineage"] == score("GET", base).json()["lineage"]
    assert score("GET", f"/calibrations/{own}").json()["dataset_sha256"] is None
    assert train("GET", f"/calibrations/{own}").json()["dataset_sha256"] is not None
    for ask in (one, train, As(deployment, made(deployment, "gallery:people")["key"])):
        assert ask.status("GET", f"/calibrations/{other}") == 404
    scores = {"name": "theirs", "scores": [0.1, 0.2, 0.8, 0.9] * 50, "same": [0, 0, 1, 1] * 50}
    elsewhere = every("POST", "/calibrations", json=scores).json()["id"]
    assert score.status("GET", f"/calibrations/{elsewhere}") == 200
    assert one.status("GET", f"/calibrations/{elsewhere}") == 404


def test_records_that_lack_columns_are_decided_without_their_threshold(deployment: RunningServer) -> None:
    every = As(deployment, deployment.facts["admin"])
    ask = As(deployment, made(deployment, "decide:customers")["key"])
    assert every.status("PUT", "/models/customers/policy", json={"rates": [0.2]}) == 200
    left, right = ({name: one[name] for name in ("name", "town", "age")} for one in CUSTOMERS[:2])
    part = {name: right[name] for name in ("name", "town")}
    url, pairs = "/match?fpr=0.2", {"model": "customers", "left": left, "right": [right, part]}
    scored = every("POST", url, json=pairs).json()["matches"]
    assert scored[1]["compared"] == ["name", "town"]
    decided = ask("POST", url, json=pairs)
    assert decided.json()["matches"] == [{"match": one["match"]} for one in scored]
    assert '"threshold"' not in decided.text
    # What helps to ask again is told.
    assert every.status("PUT", "/models/customers/policy", json={"rates": [0.2], "missing": "refuse"}) == 200
    refused = ask("POST", url, json=pairs).json()["matches"][1]
    assert refused == {"match": False, "reason": "too-little-to-compare", "missing": ["age"]}


def test_decisions_without_scores(deployment: RunningServer) -> None:
    key = made(deployment, "decide:people", "gallery:people:read")["key"]
    ask = As(deployment, key)
    every = As(deployment, deployment.facts["admin"])
    assert every.status("PUT", "/models/people/policy", json={"rates": [0.2, 0.3, 1e-5]}) == 200
    X = deployment.facts["X"]
    pairs = {"model": "people", "left": X[:100].tolist(), "right": X[1:101].tolist()}
    decided = ask("POST", "/match?fpr=0.2", json=pairs).json()
    scored = every("POST", "/match?fpr=0.2", json=pairs).json()
    assert [set(one) for one in decided["matches"]] == [{"match"}] * 100
    assert [one["match"] for one in decided["matches"]] == [one["match"] for one in scored["matches"]]
    assert all("score" in one for one in scored["matches"])
    with Client(deployment.url, api_key=key) as client:
        result = client.match(X[:100], X[1:101], fpr=0.2, model="people")
    assert result.matches.tolist() == [one["match"] for one in decided["matches"]]
    assert np.isnan(result.scores).all()
    body = X[:2].tobytes()
    headers = {"content-type": RAW, "accept": RAW}
    assert len(ask("POST", "/match?fpr=0.2&model=people", content=body, headers=headers).content) == 1
    for path in ("/similarity", "/explain", "/embed"):
        assert ask.status("POST", path, json=pairs) == 403, path
    search = {"queries": X[0].tolist(), "k": 2, "fpr": 0.2}
    found = ask("POST", "/galleries/people/search", json=search).json()
    assert found["results"][0][0]["id"] == "i0"
    verified = ask(
        "POST", "/galleries/people/subjects/s0/verify?fpr=0.2", json={"probe": X[0].tolist()}
    ).json()
    assert verified["match"] is True
    assert "score" not in json.dumps([found["results"], {**verified, "operating_point": None}])


def test_no_series_of_questions_brackets_a_score(deployment: RunningServer) -> None:
    """Whatever a key that may only decide asks, it learns decisions at the listed rates and nothing else."""
    ask = As(deployment, made(deployment, "decide:people", "gallery:people:read")["key"])
    every = As(deployment, deployment.facts["admin"])
    assert every.status("PUT", "/models/people/policy", json={"rates": [0.2, 0.3, 1e-5]}) == 200
    X = deployment.facts["X"]
    pair = {"model": "people", "left": X[0].tolist(), "right": X[1].tolist()}
    raw = {"content": X[:2].tobytes(), "headers": {"content-type": RAW, "accept": RAW}}
    low, high = 0.0, 1.0
    for _ in range(40):
        rate = (low + high) / 2
        assert ask.status("POST", f"/match?fpr={rate!r}", json=pair) == 403
        low = rate
    # Each of these moves the threshold at a listed rate, too.
    for more in (
        "&method=estimate",
        "&method=bootstrap",
        "&confidence=0.9",
        "&simultaneous=true",
        "&fnr=0.123",
        f"&calibration={every('GET', '/models/people/versions/1').json()['calibration_id']}",
    ):
        assert ask.status("POST", f"/match?fpr=0.2{more}", json=pair) == 403, more
        assert ask.status("POST", f"/match?fpr=0.2&model=people{more}", **raw) == 403, more
    assert ask.status("POST", "/match?decision=best-f1", json=pair) == 403
    search = {"queries": X[0].tolist(), "k": 3}
    # Nor the order of what is found where no rate decides.
    for rates in ({}, {"fpr": 0.21}, {"fpir": 0.21}, {"fpr": 0.2, "confidence": 0.9}):
        assert ask.status("POST", "/galleries/people/search", json={**search, **rates}) == 403, rates
    probe = {"probe": X[0].tolist()}
    for query in ("fpr=0.21", "fpr=0.2&method=estimate", "fpr=0.2&confidence=0.9"):
        assert ask.status("POST", f"/galleries/people/subjects/s0/verify?{query}", json=probe) == 403, query
    base = "/models/people/versions/1"
    for path in ("roc", "pr", "operating-point?fpr=0.2", "report", "inputs", "roc.svg"):
        assert ask.status("GET", f"{base}/{path}") == 403, path
    decided = ask("POST", "/match?fpr=0.2", **raw)
    answers = [
        ask("POST", "/match?fpr=0.2", json=pair).text,
        ask("POST", "/galleries/people/subjects/s0/verify?fpr=0.2", json=probe).text,
        ask("POST", "/galleries/people/search", json={**search, "fpr": 0.2}).text,
        ask("GET", base).text,
        " ".join(decided.headers),
    ]
    assert decided.status_code == 200
    for answer in answers:
        # A sentence may speak of thresholds; no field or header holds one.
        assert re.search(r'threshold[\w-]*("?:| [a-z]|$)', answer.replace("above the threshold", "")) is None
        assert '"score' not in answer
        assert "problems/" not in answer
    # Nor does one request of very many pairs along a line.
    line = {**raw, "content": np.linspace(X[0], X[1], 20_002, dtype="<f4").tobytes()}
    problem(ask("POST", "/match?fpr=0.2&model=people", **line), 413, "too-large")
    assert every.status("POST", "/match?fpr=0.2&model=people", **line) == 200
    assert "0.2, 0.3" in ask("POST", "/match?fpr=0.5", json=pair).json()["detail"]
    # Nor does a rate that the calibration does not support.
    for path, body in (
        ("/match?fpr=1e-5", pair),
        ("/galleries/people/subjects/s0/verify?fpr=1e-5", probe),
        ("/galleries/people/search", {**search, "fpr": 1e-5}),
    ):
        unsupported = ask("POST", path, json=body)
        assert unsupported.json()["type"] == "/problems/insufficient-calibration-data"
        assert "alternatives" not in unsupported.json()
        assert "alternatives" in every("POST", path, json=body).json()
    # Nor a search at a rate of the whole search, whether its calibration supports that or not.
    new = np.random.default_rng(1).normal(size=(60, 4)).astype(np.float32)
    deployment.upload("strangers", np.repeat(new, 2, axis=0), np.repeat(np.arange(60), 2))
    answered(every("POST", "/galleries/people/calibrations", json={"dataset": "strangers"}), 201)
    for fpir, status in ((0.2, 200), (1e-5, 422)):
        found, seen = (
            one("POST", "/galleries/people/search", json={**search, "fpir": fpir}) for one in (ask, every)
        )
        assert (found.status_code, seen.status_code) == (status, status)
        assert re.search(r'threshold[\w-]*"|"score|alternatives', found.text) is None, found.text
        assert status == 422 or '"threshold"' in seen.text
    # By default they are rates of every size.
    assert every.status("PUT", "/models/people/policy", json={"rates": None}) == 200
    assert "0.1, 0.03, 0.01" in ask("POST", "/match?fpr=0.2", json=pair).json()["detail"]
    for wrong in ([], [0], [1.5], "0.1"):
        assert every.status("PUT", "/models/people/policy", json={"rates": wrong}) == 422, wrong


def test_a_gallery_that_may_only_be_read(deployment: RunningServer) -> None:
    read = As(deployment, made(deployment, "gallery:people:read")["key"])
    write = As(deployment, made(deployment, "gallery:people")["key"])
    vector = deployment.facts["X"][0].tolist()
    item = {"items": [{"id": "new", "subject": "new", "vector": vector}]}
    assert [one["name"] for one in read("GET", "/galleries").json()["items"]] == ["people"]
    for ask, method, path, body, status in (
        (read, "POST", "people/search", {"queries": vector}, 200),
        (read, "POST", "cars/search", {"queries": vector}, 403),
        (read, "PUT", "people/items", item, 403),
        (read, "DELETE", "people/subjects/s0", None, 403),
        (write, "PUT", "people/items", item, 200),
        (write, "PUT", "cars/items", item, 403),
        (write, "DELETE", "people/subjects/new", None, 200),
    ):
        assert ask.status(method, f"/galleries/{path}", json=body) == status, (method, path)


def test_training_one_model_and_importing(deployment: RunningServer) -> None:
    train = As(deployment, made(deployment, "train:people")["key"])
    request = {"learner": "metric", "dataset": "people", "model": "people"}
    for change in ({"model": "cars"}, {"dataset": "cars"}, {"unlabelled": "cars"}):
        assert train.status("POST", "/jobs", json={**request, **change}) == 403, change
    for tables in (["cars"], ["people", "people", "cars"]):
        assert train.status("POST", "/links", json={"tables": tables}) == 403, tables
    assert {one["name"] for one in train("GET", "/datasets").json()["items"]} == {"people"}
    assert {one["model"] for one in train("GET", "/jobs").json()["items"]} == {"people"}
    every = As(deployment, deployment.facts["admin"])
    (other,) = [one["id"] for one in every("GET", "/jobs").json()["items"] if one["model"] == "cars"]
    for method, path, body, status in (
        ("GET", f"/jobs/{other}", None, 404),
        ("POST", f"/jobs/{other}/cancel", None, 404),
        ("PUT", "/models/people/aliases/staging", {"version": 1}, 200),
        ("POST", "/models/people/versions/1/calibrations", {"dataset": "cars"}, 403),
    ):
        assert train.status(method, path, json=body) == status, path
    files = {"file": ("m.zip", answered(train("GET", "/models/people/versions/1/export")).content)}
    bring = As(deployment, made(deployment, "import:brought")["key"])
    for ask, name, status in (
        (train, {"name": "people"}, 403),  # import is its own scope
        (bring, {}, 403),  # the file names another model
        (bring, {"name": "people"}, 403),
        (bring, {"name": "brought"}, 201),
    ):
        assert ask.status("POST", "/models", data=name, files=files) == status, name


def test_keys_are_made_rotated_used_and_revoked_over_http(deployment: RunningServer) -> None:
    admin = As(deployment, deployment.facts["admin"])
    one = made(deployment, "score", expires_in_days=30)
    assert one["expires_at"] is not None
    assert As(deployment, one["key"]).status("GET", "/models") == 200
    turned = answered(admin("POST", f"/keys/{one['id']}/rotate", json={"overlap_hours": 1}), 201)
    assert turned.headers["cache-control"] == "no-store"
    new = turned.json()
    assert new["replaces"] == one["id"]
    assert [As(deployment, key).status("GET", "/models") for key in (one["key"], new["key"])] == [200, 200]
    assert admin.status("DELETE", f"/keys/{new['id']}") == 204
    assert As(deployment, new["key"]).status("GET", "/models") == 401
    assert admin.status("POST", f"/keys/{new['id']}/rotate", json={}) == 409
    assert admin.status("DELETE", "/keys/nobody") == 404
    for wrong in ({"scopes": ["root"]}, {"scopes": []}, {"expires_in_days": -1}, {"surprise": 1}):
        assert admin.status("POST", "/keys", json={"name": "x", "scopes": ["score"], **wrong}) == 422, wrong
    listed = admin("GET", "/keys?limit=500").json()["items"]
    assert new["key"] not in json.dumps(listed)
    assert {entry["id"] for entry in listed} >= {one["id"], new["id"]}
    slow = As(deployment, made(deployment, "score", rate=0.5)["key"])
    assert [slow.status("GET", "/models") for _ in range(8)].count(429) >= 2
    entries = admin("GET", "/audit?resource=key").json()["items"]
    assert {entry["action"] for entry in entries} >= {"key.create", "key.rotate", "key.revoke"}


def test_a_key_that_was_let_in_often_is_refused_once_it_is_expired_or_revoked(
    deployment: RunningServer,
) -> None:
    # What a key may do is remembered for routes that name nothing in their address.
    pair = {"model": "people", "left": [0.0] * 4, "right": [1.0] * 4}
    admin = As(deployment, deployment.facts["admin"])

    def status(**headers: str) -> int:
        return deployment.http.post(
            "/similarity", json=pair, headers={k.replace("_", "-"): v for k, v in headers.items()}
        ).status_code

    short = made(deployment, "score", expires_in_days=1)
    assert status(x_api_key=short["key"]) == 200
    now = time.time()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: now + 2 * 86_400)
        assert status(x_api_key=short["key"]) == 401
        assert "has expired" in As(deployment, short["key"])("GET", "/models").json()["detail"]
    kept, decides = made(deployment, "score:people"), made(deployment, "decide:people")
    assert [status(authorization=f"Bearer {kept['key']}") for _ in range(3)] == [200] * 3
    # The same text in the other header is no key, and one header does not stand in for the other.
    assert status(x_api_key=f"Bearer {kept['key']}") == 401
    assert status(authorization=kept["key"]) == 401
    assert status(x_api_key="", authorization=f"Bearer {kept['key']}") == 401
    assert status(x_api_key=decides["key"]) == 403
    other = {**pair, "model": "cars"}
    assert (
        deployment.http.post("/similarity", json=other, headers={"x-api-key": kept["key"]}).status_code == 403
    )
    assert admin("DELETE", f"/keys/{kept['id']}").status_code == 204
    assert status(authorization=f"Bearer {kept['key']}") == 401
