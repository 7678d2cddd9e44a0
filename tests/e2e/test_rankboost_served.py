"""Kernels of sparse rows over HTTP: svmlight in, pivots from unlabelled rows, sparse JSON and columns never seen."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from sklearn.datasets import dump_svmlight_file

from tests.serving import RunningServer

WIDTH = 3_000


def texts(n: int, seed: int) -> tuple[csr_array, np.ndarray]:
    """Rows as texts make them: few of many columns, some of them telling one of two topics."""
    rng = np.random.default_rng(seed)
    noise = random_array((n, WIDTH), density=0.01, format="csr", rng=rng, dtype=np.float32).toarray()  # type: ignore[attr-defined]
    y = rng.integers(0, 2, n)
    telling = rng.random((n, 40)) < np.where(y[:, None] == (np.arange(40) % 2), 0.35, 0.05)
    noise[:, 100:140] = np.where(telling, 1.0, 0.0)
    noise[0, WIDTH - 1] = 1.0  # svmlight tells no width but the last column's
    return csr_array(noise.round(3)), y


def sparse(rows: csr_array, at: int) -> dict:
    part = slice(rows.indptr[at], rows.indptr[at + 1])
    return {"indices": rows.indices[part].tolist(), "values": rows.data[part].astype(float).tolist()}


def upload(deployment: RunningServer, name: str, rows: csr_array, y: np.ndarray) -> None:
    stream = io.BytesIO()
    dump_svmlight_file(rows, y, stream, zero_based=False)
    stream.seek(0)
    roles = {"name": name, **({"classes": "target"} if y.any() else {})}
    answer = deployment.http.post("/datasets", data=roles, files={"file": (f"{name}.svm", stream)})
    assert answer.status_code == 201, answer.text
    assert answer.json()["sparse"], answer.json()


@pytest.fixture(scope="module")
def deployment(digits_deployment: RunningServer) -> RunningServer:
    """The shared deployment with both kernels, in production nowhere."""
    rows, y = texts(900, 0)
    upload(digits_deployment, "texts", rows, y)
    upload(digits_deployment, "more-texts", texts(1_500, 1)[0], np.zeros(1_500))
    params = {
        "rankboost-kernel": {"n_estimators": 60, "n_pivots": 1_200, "n_components": 20},
        "aligned-kernel": {"n_iter": 3, "learning_rate": 1.0, "psd": False},
    }
    for learner, given in params.items():
        job = digits_deployment.train(
            learner=learner, dataset="texts", unlabelled="more-texts", model=learner, params=given, promote="shadow"
        )  # fmt: skip
        assert job["state"] == "succeeded", job
    return digits_deployment


@pytest.mark.parametrize("model", ["rankboost-kernel", "aligned-kernel"])
def test_sparse_vectors_are_scored_decided_and_embedded(deployment: RunningServer, model: str) -> None:
    http = deployment.http
    rows, y = texts(60, 2)
    left, right = [sparse(rows, at) for at in range(30)], [sparse(rows, at) for at in range(30, 60)]
    body = {"model": f"{model}@shadow", "left": left, "right": right}
    scores = http.post("/similarity", json=body).json()["scores"]
    swapped = http.post("/similarity", json={**body, "left": right, "right": left}).json()["scores"]
    assert scores == swapped
    dense = {"left": rows[:30].toarray().tolist(), "right": rows[30:].toarray().tolist()}
    assert http.post("/similarity", json={**body, **dense}).json()["scores"] == scores
    same = y[:30] == y[30:]
    assert np.mean(np.array(scores)[same]) > np.mean(np.array(scores)[~same])
    reported = http.post("/match?fpr=0.2", json=body)
    assert reported.status_code == 200, reported.text
    threshold = np.float32(reported.json()["operating_point"]["threshold"])
    assert [one["match"] for one in reported.json()["matches"]] == (np.float32(scores) > threshold).tolist()
    vectors = http.post("/embed", json={"model": f"{model}:1", "features": left}).json()["vectors"]
    assert np.array(vectors).shape == (30, 20 if model == "rankboost-kernel" else 100)
    one = http.post("/embed", json={"model": f"{model}:1", "features": left[3]}).json()["vectors"]
    assert one == vectors[3:4]
    empty = {"indices": [], "values": []}
    assert http.post("/similarity", json={**body, "left": empty, "right": empty}).status_code == 200


def test_columns_never_seen_are_ignored_and_counted(deployment: RunningServer) -> None:
    http = deployment.http
    row = sparse(texts(3, 5)[0], 1)
    newer = {"indices": [*row["indices"], WIDTH, 10**9], "values": [*row["values"], 1.0, 2.0]}

    def counted() -> float:
        found = re.search(r"^pairmark_unknown_columns_total (\S+)", http.get("/metrics").text, re.M)
        assert found is not None
        return float(found[1])

    before = counted()
    body = {"model": "rankboost-kernel@shadow", "left": row, "right": row}
    assert (
        http.post("/similarity", json={**body, "left": newer}).json()
        == http.post("/similarity", json=body).json()
    )
    assert counted() == before + 2
    for indices, said in (([-1], "is not in 0 to"), ([5, 5], "occurs twice"), ([WIDTH, WIDTH], "twice")):
        wrong = {"indices": indices, "values": [1.0] * len(indices)}
        refused = http.post("/similarity", json={**body, "left": wrong})
        assert refused.status_code == 422
        assert said in refused.json()["detail"] or "is not in" in refused.json()["detail"]
