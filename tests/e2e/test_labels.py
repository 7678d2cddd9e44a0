"""Labels over HTTP: classes of rows and rankings, embeddings, bulk bodies, and inputs that are watched."""

import io
import re
import time
from typing import Any

import httpx
import numpy as np
import pytest
from sklearn.datasets import load_iris

from experiments._synthetic_rankings import sample_mallows, with_ties
from pairmark.client import Client
from pairmark.client import InvalidInput as Refused
from tests.serving import RunningServer, answered

RAW, NPZ = "application/octet-stream", "application/x-npz"
NAMES = ["setosa", "vérsicolor", "virginica"]
X, codes = load_iris(return_X_y=True)
X = X.astype(np.float32)
y = np.array(NAMES)[codes]


@pytest.fixture(scope="module")
def deployment(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with a classifier of irises, in production nowhere."""
    digits_deployment.upload("irises", X, y)
    digits_deployment.train(
        learner="rsbl", dataset="irises", model="irises", params={"depth": 2, "k_max": 3}, promote="shadow"
    )
    return digits_deployment


def test_points_are_labelled_by_name(deployment: RunningServer) -> None:
    reported = answered(
        deployment.http.post("/classify", json={"model": "irises@shadow", "features": X.tolist()})
    ).json()
    assert reported["model"] == {"name": "irises", "version": 1, "kind": "rsbl"}
    assert np.mean(np.array(reported["labels"]) == y) > 0.9
    for label, chances in zip(reported["labels"], reported["probabilities"], strict=True):
        assert (set(chances), sum(chances.values())) == (set(NAMES), pytest.approx(1, abs=1e-5))
        assert max(chances, key=chances.__getitem__) == label
    one = deployment.http.post("/classify", json={"model": "irises:1", "features": X[3].tolist()}).json()
    assert one["labels"] == reported["labels"][3:4]
    sparse = {"indices": [0, 1, 2, 3], "values": X[3].tolist()}
    assert deployment.http.post("/classify", json={"model": "irises:1", "features": sparse}).json() == one


def test_bulk_bodies_give_what_json_gives(deployment: RunningServer) -> None:
    plain = deployment.http.post("/classify", json={"model": "irises:1", "features": X.tolist()}).json()
    stream = io.BytesIO()
    np.savez(stream, features=X)
    packed = deployment.http.post(
        "/classify?model=irises:1", content=stream.getvalue(), headers={"content-type": NPZ}
    )
    assert packed.json() == plain
    raw = deployment.http.post("/classify?model=irises:1", content=X.tobytes(), headers={"content-type": RAW})
    assert raw.json() == plain


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"features": [[1.0]] * 3}, "features"),
        ({"features": []}, "features"),
        ({"features": [[1, 2], [3]]}, "features[1]"),
        ({"features": [[1, "2"]]}, "features[0][1]"),
        ({}, "features"),
        ({"features": [1.0] * 4, "top": 1}, "top"),
    ],
)
def test_bad_points_name_the_field(deployment: RunningServer, body: dict, field: str) -> None:
    answer = answered(deployment.http.post("/classify", json={"model": "irises:1", **body}), 422)
    assert answer.json()["field"] == field


def test_what_cannot_be_served_is_said(deployment: RunningServer) -> None:
    http = deployment.http
    forest = answered(http.post("/classify", json={"model": "digits", "features": [0.0] * 64}), 422)
    assert forest.json()["type"] == "/problems/model-not-capable"
    assert http.post("/classify", json={"features": [0.0] * 4}).status_code == 404
    huge = {"model": "irises:1", "features": [[3e38, -3e38, 1.0, 0.0]]}
    (chances,) = answered(http.post("/classify", json=huge)).json()["probabilities"]
    assert sum(chances.values()) == pytest.approx(1, abs=1e-5)
    assert http.post("/classify?model=x", json={"features": [0.0] * 4}).json()["field"] == "query"
    ragged = http.post("/classify?model=irises:1", content=b"123", headers={"content-type": RAW})
    assert ragged.json()["field"] == "body"
    stream = io.BytesIO()
    np.savez(stream, left=X)
    wrong = http.post("/classify?model=irises:1", content=stream.getvalue(), headers={"content-type": NPZ})
    assert wrong.json()["field"] == "features"
    assert http.get("/classify").status_code == 405


def test_client_classifies(deployment: RunningServer) -> None:
    with Client(deployment.url) as client:
        reported = client.classify(X[::50], model="irises:1")
    assert reported["labels"] == [NAMES[0], NAMES[1], NAMES[2]]


@pytest.fixture(scope="module")
def metric(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with a metric under the name ``live``, in production nowhere."""
    digits_deployment.train(
        learner="metric", dataset="digits", model="live", params={"metric": "euclidean"}, promote="shadow"
    )
    return digits_deployment


def sparse(row: np.ndarray) -> dict:
    at = np.flatnonzero(row)
    return {"indices": at.tolist(), "values": row[at].tolist()}


def test_embeddings_are_given_as_json_and_raw(metric: RunningServer) -> None:
    X, http = metric.facts["X"], metric.http
    many = answered(http.post("/embed", json={"model": "live@shadow", "features": X[:5].tolist()}))
    assert many.json()["model"] == {"name": "live", "version": 1, "kind": "metric"}
    assert many.json()["vectors"] == X[:5].tolist()
    one = http.post("/embed", json={"model": "live:1", "features": sparse(X[0])})
    assert one.json()["vectors"] == X[:1].tolist()
    raw = http.post(
        "/embed?model=live@shadow", content=X[:7].tobytes(), headers={"content-type": RAW, "accept": RAW}
    )
    assert (raw.headers["x-pairmark-dimension"], raw.content) == ("64", X[:7].tobytes())


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


def test_inputs_are_counted_and_held_against_calibration(metric: RunningServer) -> None:
    X, http = metric.facts["X"], metric.http

    def ask(left: np.ndarray, right: np.ndarray) -> dict:
        sides = {"left": left.tolist(), "right": right.tolist()}
        return answered(http.post("/match?fpr=0.3", json={"model": "live@shadow", **sides})).json()

    rng = np.random.default_rng(0)
    i, j = rng.integers(0, len(X), (2, 400))
    before = sum(series(metric, "pairmark_inputs_rows_total").values())
    for at in range(0, 400, 10):
        reported = ask(X[i[at : at + 10]], X[j[at : at + 10]])
    assert "warnings" not in reported
    assert sum(series(metric, "pairmark_inputs_rows_total").values()) == before + 800
    assert series(metric, "pairmark_inputs_unlike_total")[""] < 20
    assert series(metric, "pairmark_inputs_moved") == {"": 0}
    ask(0 * X[:5], X[:5])
    seen = http.get("/models/live/versions/1/inputs").json()
    assert seen["unlike"] >= 5
    assert (seen["today"], seen["moved"]) == ({"all": seen["rows"], "unlike": seen["unlike"]}, None)
    # A darker camera: no row says it, all of them do.
    deadline = time.monotonic() + 120
    while "warnings" not in reported and time.monotonic() < deadline:
        eight = rng.integers(0, len(X), 8)
        reported = ask(X[eight] * rng.uniform(0.75, 0.8), X[eight[::-1]])
    assert [warning["code"] for warning in reported["warnings"]] == ["inputs-moved"]
    point = reported["operating_point"]
    assert point["guarantee"] == "none"
    assert not {"method", "confidence", "fpr_upper_bound"} & set(point)
    assert "inputs have moved" in point["meaning"]
    assert series(metric, "pairmark_inputs_moved") == {"": 1}
    assert http.get("/models/live/versions/1/inputs").json()["moved"]
    actions = [entry["action"] for entry in http.get("/audit?limit=50").json()["items"]]
    assert actions.count("inputs.moved") == 1


LABELS = ["a", "b", "c", "d", "e"]
FEATURES = [f"A{i + 1}" for i in range(4)]


@pytest.fixture(scope="module")
def ranker(digits_deployment: RunningServer) -> tuple[RunningServer, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    scores = np.stack([X[:, 0], X[:, 1], -X[:, 0], -X[:, 1], 0 * X[:, 0]], axis=1)
    positions = np.argsort(np.argsort(-scores, axis=1), axis=1).astype(float)
    rankings = with_ties(sample_mallows(positions, 3.0, random_state=1), 0.9, random_state=2)
    lines = [",".join([*FEATURES, "ranking"])]
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
            server,
            **{f"x.{name}": repr(value) for name, value in zip(FEATURES, X[row].tolist(), strict=True)},
        ).json()
        assert one == named == {**batch, "rankings": [batch["rankings"][row]]}
    point = dict(reversed(list(zip(FEATURES, X[3].tolist(), strict=True))))
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
        assert problem["expected_features"] == FEATURES


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
        named = client.rank_labels(dict(zip(FEATURES, X[1].tolist(), strict=True)), top=2)
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
