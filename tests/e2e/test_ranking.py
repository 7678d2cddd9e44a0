"""Rankings of labels over HTTP, from a server whose ranker was trained by its own queue from a CSV."""

import io
from typing import Any

import httpx
import numpy as np
import pytest

from experiments._synthetic_rankings import sample_mallows, with_ties
from pairmark.client import Client
from pairmark.client import InvalidInput as Refused
from tests.serving import RunningServer, answered

LABELS = ["a", "b", "c", "d", "e"]
NAMES = [f"A{i + 1}" for i in range(4)]


@pytest.fixture(scope="module")
def ranker(digits_deployment: RunningServer) -> tuple[RunningServer, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    scores = np.stack([X[:, 0], X[:, 1], -X[:, 0], -X[:, 1], 0 * X[:, 0]], axis=1)
    positions = np.argsort(np.argsort(-scores, axis=1), axis=1).astype(float)
    rankings = with_ties(sample_mallows(positions, 3.0, random_state=1), 0.9, random_state=2)
    lines = [",".join([*NAMES, "ranking"])]
    for x, row in zip(X, rankings, strict=True):
        places = sorted(set(row))
        text = ">".join(
            "=".join(n for n, at in zip(LABELS, row, strict=True) if at == place) for place in places
        )
        lines.append(",".join([*(repr(float(value)) for value in x), text]))
    file = io.BytesIO("\n".join(lines).encode())
    answered(
        digits_deployment.http.post(
            "/datasets", data={"name": "orders", "ranking": "ranking"}, files={"file": ("orders.csv", file)}
        ),
        201,
    )
    digits_deployment.train(
        learner="label-ranking-forest",
        dataset="orders",
        model="orders",
        params={"n_estimators": 20, "random_state": 0},
    )
    return digits_deployment, X


def get(server: RunningServer, **query: Any) -> httpx.Response:
    return server.http.get("/rank-labels", params={"model": "orders", **query})


def test_a_ranking_by_position_by_name_and_in_batches_is_the_same(
    ranker: tuple[RunningServer, np.ndarray],
) -> None:
    server, X = ranker
    batch = server.http.post("/rank-labels", json={"model": "orders", "features": X.tolist()}).json()
    assert batch["model"] == {"name": "orders", "version": 1, "kind": "label-ranking-forest"}
    assert len(batch["rankings"]) == len(X)
    for row in (0, 7):
        one = get(server, features=",".join(map(repr, X[row].tolist()))).json()
        named = get(
            server, **{f"x.{name}": repr(value) for name, value in zip(NAMES, X[row].tolist(), strict=True)}
        ).json()
        assert one == named == {**batch, "rankings": [batch["rankings"][row]]}
    point = dict(reversed(list(zip(NAMES, X[3].tolist(), strict=True))))
    for features in (point, [point], X[3].tolist()):
        reported = server.http.post("/rank-labels", json={"features": features}).json()
        assert reported["rankings"] == [batch["rankings"][3]]
    ranking = batch["rankings"][0]
    assert sorted(ranking["labels"]) == LABELS
    assert [ranking["positions"][label] for label in ranking["labels"]] == [0, 1, 2, 3, 4]
    scores = [ranking["scores"][label] for label in ranking["labels"]]
    assert scores == sorted(scores, reverse=True)
    first = [ranking["labels"][0] for ranking in batch["rankings"]]
    best = np.stack([X[:, 0], X[:, 1], -X[:, 0], -X[:, 1], 0 * X[:, 0]], axis=1).argmax(axis=1)
    assert np.mean([LABELS[at] == label for at, label in zip(best, first, strict=True)]) > 0.7


def test_top(ranker: tuple[RunningServer, np.ndarray]) -> None:
    server, X = ranker
    features = ",".join(map(repr, X[5].tolist()))
    whole = get(server, features=features).json()["rankings"][0]
    top = get(server, features=features, top=2).json()["rankings"][0]
    assert top["labels"] == whole["labels"][:2]
    assert set(top["positions"]) == set(top["scores"]) == set(top["labels"])
    assert get(server, features=features, top=99).json()["rankings"][0] == whole


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ({}, "features", "missing"),
        ({"features": "1,2,3"}, "features", "expects 4: A1, A2, A3, A4"),
        ({"features": "1,2,3,x"}, "features[3]", "finite number"),
        ({"features": "1,2,3,nan"}, "features[3]", "finite number"),
        ({"features": "1,2,3,1e99"}, "features[3]", "finite number"),
        ({"features": ""}, "features", "missing"),
        ({"x.A1": "1", "x.A2": "1", "x.A3": "1"}, "features.A4", "needs A4"),
        ({"x.A1": "1", "x.A2": "1", "x.A3": "1", "x.B": "1"}, "features.B", "no feature 'B'"),
        ({"x.A1": "big"}, "x.A1", "finite number"),
        ({"features": "1,2,3,4", "x.A1": "1"}, "features", "one of the two"),
        ({"features": "1,2,3,4", "top": "0"}, "top", "greater than or equal to 1"),
        ({"features": "1,2,3,4", "colour": "red"}, "colour", "not a query parameter"),
    ],
)
def test_a_wrong_query_is_refused_by_name(
    ranker: tuple[RunningServer, np.ndarray], query: dict[str, str], field: str, said: str
) -> None:
    answer = get(ranker[0], **query)
    problem = answer.json()
    assert answer.status_code == 422, problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["field"] == field
    assert said in problem["detail"]
    if field.startswith("features."):
        assert problem["expected_features"] == NAMES


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "features"),
        ({"features": []}, "features"),
        ({"features": [[]]}, "features[0]"),
        ({"features": [[1, 2, 3, 4], [1, 2]]}, "features[1]"),
        ({"features": [[1, 2, 3, "4"]]}, "features[0][3]"),
        ({"features": [[1, 2, 3, 1e99]]}, "features[0][3]"),
        ({"features": [{"A1": 1, "A2": 1, "A3": 1, "A4": None}]}, "features[0].A4"),
        ({"features": [{"A1": 1}, {"A2": 1}]}, "features[0].A2"),
        ({"features": [[1, 2, 3, 4], {"A1": 1}]}, "features[1]"),
        ({"features": "1,2,3,4"}, "features"),
        ({"features": [1, 2, 3, 4], "top": 0}, "top"),
        ({"features": [1, 2, 3, 4], "colour": 1}, "colour"),
    ],
)
def test_a_wrong_body_is_refused_by_name(
    ranker: tuple[RunningServer, np.ndarray], body: dict[str, Any], field: str
) -> None:
    answer = answered(ranker[0].http.post("/rank-labels", json={"model": "orders", **body}), 422)
    assert answer.json()["field"] == field


def test_client(ranker: tuple[RunningServer, np.ndarray]) -> None:
    server, X = ranker
    with Client(server.url) as client:
        batch = client.rank_labels(X[:3], model="orders")
        named = client.rank_labels(dict(zip(NAMES, X[1].tolist(), strict=True)), top=2)
        assert named["rankings"][0]["labels"] == batch["rankings"][1]["labels"][:2]
        with pytest.raises(Refused) as refusal:
            client.rank_labels({"A1": 1.0})
        assert refusal.value.facts["missing"] == ["A2", "A3", "A4"]


def test_rankings_of_people_with_categories_and_missing_cells(digits_deployment: RunningServer) -> None:
    """The table names where people live; the request does by JSON and by query."""
    likes = {"north": "a>b>c", "south": "c>b>a", "": "b>a>c"}
    rng = np.random.default_rng(0)
    lines = ["age,region,ranking"]
    for region in rng.choice(list(likes), 240):
        age = "" if region and rng.random() < 0.1 else str(rng.integers(18, 80))
        lines.append(f"{age},{region},{likes[region]}")
    http = digits_deployment.http
    file = io.BytesIO("\n".join(lines).encode())
    answered(
        http.post(
            "/datasets", data={"name": "regions", "ranking": "ranking"}, files={"file": ("regions.csv", file)}
        ),
        201,
    )
    digits_deployment.train(
        learner="label-ranking-forest",
        dataset="regions",
        model="regions",
        params={"n_estimators": 10, "random_state": 0},
        promote=False,
    )
    rows = [{"region": "north", "age": 30}, {"region": "south", "age": None}, {"age": 44}]
    sent = http.post("/rank-labels", json={"model": "regions:1", "features": rows})
    assert [one["labels"] for one in sent.json()["rankings"]] == [list("abc"), list("cba"), list("bac")]
    asked = get(digits_deployment, model="regions:1", **{"x.region": "north", "x.age": "30"})
    assert asked.json()["rankings"] == sent.json()["rankings"][:1]
    assert "warnings" not in sent.json()
    rows[1]["region"] = "East"
    [warning] = http.post("/rank-labels", json={"model": "regions:1", "features": rows}).json()["warnings"]
    assert warning["code"] == "unseen-category"
    assert "column 'region': training did not have 'East'" in warning["detail"]
    refused = get(digits_deployment, model="regions:1", **{"x.region": "north", "x.age": "old"})
    assert (refused.status_code, refused.json()["field"]) == (422, "x.age")
