"""Reviews over HTTP, the client, the command line and the console, with keys, after a kill."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from pairmark.client import Client
from tests.serving import PATIENCE_S, RunningServer, answered, serving, until


@pytest.fixture(scope="module")
def deployment(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A model that keeps its decisions, and a gallery."""
    with serving(tmp_path_factory.mktemp("reviews"), new_database("sqlite")) as server:
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(60), 4)
        X = (rng.normal(size=(60, 4))[y] + 0.2 * rng.normal(size=(240, 4))).astype(np.float32)
        server.upload("people", X, y)
        keeping(server, "people")
        assert server.http.put("/galleries/people", json={"model": "people"}).status_code == 201
        items = [{"id": f"i{at}", "subject": f"s{at}", "vector": X[4 * at].tolist()} for at in range(40)]
        assert server.http.put("/galleries/people/items", json={"items": items}).status_code == 200
        server.facts.update(X=X)
        yield server


def keeping(server: RunningServer, model: str) -> str:
    """A model that keeps its decisions, with both sides. Tests that count them have one of their own."""
    server.train(learner="metric", dataset="people", model=model, params={"metric": "euclidean"})
    assert server.http.put(f"/models/{model}/policy", json={"reviews": {"sides": True}}).status_code == 200
    return model


def matched(server: RunningServer, n: int, **more: Any) -> httpx.Response:
    X = server.facts["X"]
    return server.http.post(
        "/match?fpr=0.2&confidence=0.9",
        json={"model": "people", "left": X[:n].tolist(), "right": X[:n].tolist(), **more},
    )


def population(server: RunningServer, n: int, source: dict[str, str], **asked: Any) -> dict[str, Any]:
    """A review of decisions, once ``n`` of them are written."""

    def review() -> dict[str, Any] | None:
        made = server.http.post("/reviews", json={"source": source, **asked}).json()
        return made if made.get("population", 0) >= n else None

    return until(review, f"{n} decisions are kept")


def test_served_decisions_are_kept_judged_and_bounded(deployment: RunningServer) -> None:
    n, model = 40, keeping(deployment, "counted")
    refs = [[f"a{at}", f"b{at}"] for at in range(n)]
    assert matched(deployment, n, model=model, refs=refs).status_code == 200
    review = population(deployment, n, {"model": model})
    http = deployment.http
    items = http.get(f"/reviews/{review['id']}/next?n=100").json()["items"]
    item = items[0]
    place = int(item["refs"][0][1:])
    assert item["refs"] == [f"a{place}", f"b{place}"]
    assert item["left"] == pytest.approx(deployment.facts["X"][place].tolist())
    with Client(deployment.url) as client:
        while items := client.pairs_to_judge(review["id"], 20):
            now = client.judge(review["id"], [{"item": one["item"], "same": True} for one in items])
        assert (now.wrong, now.enough) == (0, True)
        assert now.bound <= 0.02
        assert now.judged == n
        assert client.review(review["id"]).judged == n
        outcomes = {"model": model, "outcomes": [{"left": "a1", "right": "b1", "same": False}]}
        assert client.request("POST", "/outcomes", json=outcomes).json()["contradicted"] == 1
        assert client.erase_refs(model, ["a1"])["decisions"] == 1
    assert json.loads(deployment.cli("review", review["id"], "--json").stdout)["statement"] == now.statement
    page = answered(http.get(f"/console/reviews/{review['id']}", headers={"Accept": "text/html"}))
    assert now.statement in page.text
    assert review["id"] in http.get("/console/reviews", headers={"Accept": "text/html"}).text


def test_searches_and_verifications_are_kept_and_erased(deployment: RunningServer) -> None:
    http, X = deployment.http, deployment.facts["X"]
    found = answered(
        http.post(
            "/galleries/people/search",
            json={
                "queries": X[:160:4].tolist(),
                "k": 1,
                "fpr": 0.2,
                "confidence": 0.9,
                "refs": [f"q{at}" for at in range(40)],
            },
        )
    )
    hits = sum(map(len, found.json()["results"]))
    answer = http.post(
        "/galleries/people/subjects/s3/verify?fpr=0.2&confidence=0.9",
        json={"probe": X[12].tolist(), "refs": ["probe"]},
    )
    assert answer.json()["match"] is True
    review = population(deployment, hits + 1, {"gallery": "people"})
    assert review["population"] == hits + 1
    assert http.delete("/galleries/people/subjects/s3").status_code == 200
    items = http.get(f"/reviews/{review['id']}/next?n=100").json()["items"]
    assert items
    for item in items:
        assert item["refs"][1] != "i3"
        assert item["refs"][0] == f"q{item['refs'][1][1:]}"


def test_judged_pairs_become_a_dataset_that_trains_and_calibrates_nothing(
    deployment: RunningServer,
) -> None:
    http, X = deployment.http, deployment.facts["X"]
    model = keeping(deployment, "judged")
    # No row is in two pairs: they would be of one part of a split, which might then hold pairs of one kind only.
    left, right = X[::2], X[[at + 1 if at % 4 else (at + 9) % 240 for at in range(0, 240, 2)]]
    refs = [[f"l{at}", f"r{at}"] for at in range(120)]
    body = {"model": model, "left": left.tolist(), "right": right.tolist(), "refs": refs}
    assert http.post("/match?fpr=0.2&confidence=0.9", json=body).status_code == 200
    review = population(deployment, 120, {"model": model}, question="missed-matches", at_most=0.001)
    path = f"/reviews/{review['id']}"
    assert http.post(f"{path}/dataset", json={"name": "judged"}).status_code == 422, "nothing is judged yet"
    while items := http.get(f"{path}/next?n=100").json()["items"]:
        outcomes = [{"item": item["item"], "same": int(item["refs"][0][1:]) // 2 % 2 == 0} for item in items]
        assert http.post(f"{path}/outcomes", json={"outcomes": outcomes}).status_code == 200
    facts = answered(http.post(f"{path}/dataset", json={"name": "judged"}), 201).json()
    assert (facts["chosen"], facts["features"]) == (True, 4)
    assert facts["n_pairs"] == facts["rows"] / 2 > 40
    refused = answered(http.post(f"/models/{model}/versions/1/calibrations", json={"dataset": "judged"}), 422)
    assert "calibrate nothing" in refused.json()["detail"]
    deployment.train(learner="metric", dataset="judged", model="again", params={"metric": "euclidean"})
    told = [{"left": f"r{at}", "right": f"l{at}", "same": at % 2 == 0} for at in range(20)]
    lines = ["left,right,same", *(f"{one['left']},{one['right']},{one['same']}" for one in told)]
    as_file = {"file": ("told.csv", "\n".join(lines))}
    assert http.post("/outcomes", data={"model": model}, files=as_file).json()["stored"] == 20
    elsewhere = http.post("/outcomes/dataset", json={"model": model, "name": "complaints"}).json()
    assert (elsewhere["chosen"], elsewhere["n_pairs"], elsewhere["n_same_pairs"]) == (True, 20, 10)
    assert http.delete(path).status_code == 204
    assert http.get(path).status_code == 404


def test_what_was_acknowledged_survives_a_kill_and_keys_open_only_their_model(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    home, database = tmp_path_factory.mktemp("killed"), new_database("sqlite")
    refs = [[f"a{at}", f"b{at}"] for at in range(30)]
    with serving(home, database, process=True) as server:
        review = server.http.post("/reviews", json={"source": {"refs": refs}}).json()["id"]
        taken = server.http.get(f"/reviews/{review}/next?n=5&by=ada").json()["items"]
        said = [{"item": one["item"], "same": True, "by": "ada"} for one in taken[:3]]
        assert server.http.post(f"/reviews/{review}/outcomes", json={"outcomes": said}).status_code == 200
        server.process.kill()
    with serving(home, database, process=True) as server:
        http = server.http
        assert http.get(f"/reviews/{review}").json()["judged"] == 3
        others = {one["item"] for one in http.get(f"/reviews/{review}/next?n=20&by=bob").json()["items"]}
        assert not others & {one["item"] for one in taken}, "nobody judges a pair twice unasked"
        again = http.get(f"/reviews/{review}/next?n=2&by=ada").json()["items"]
        assert [one["item"] for one in again] == [one["item"] for one in taken[3:]]
        keys = {scope: server.key(scope)["key"] for scope in ("admin", "train:people", "score")}
        status = {}
        for scope, key in keys.items():
            with httpx.Client(
                base_url=str(http.base_url), headers={"x-api-key": key}, timeout=PATIENCE_S
            ) as asking:
                answers = [
                    asking.get(f"/reviews/{review}"),
                    asking.get(f"/reviews/{review}/next"),
                    asking.post("/reviews", json={"source": {"refs": refs}}),
                    asking.post("/reviews", json={"source": {"model": "cars"}}),
                ]
                status[scope] = [one.status_code for one in answers]
                listed = asking.get("/reviews")
                assert listed.status_code == 403 or bool(listed.json()["items"]) == (scope == "admin")
        # A list that names no model takes the right to all of them.
        assert status["train:people"] == status["score"] == [403, 403, 403, 403]
        assert status["admin"] == [200, 200, 201, 404]
