"""A disk without space: every kind of write is refused with 507 or done, and works again when there is space."""

import io
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import numpy as np
import pytest

from tests.serving import RunningServer, Serve

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of another process need Linux"),
]
WIDTH = 8


@contextmanager
def files_of_at_most(server: RunningServer, size: int) -> Iterator[None]:
    """Writes of the service past ``size`` bytes of any file fail, as on a disk without space."""
    before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)


def writes(http: httpx.Client, word: str, export: bytes) -> dict[str, httpx.Response]:
    """Everything that stores something, once."""
    X = np.random.default_rng(0).normal(size=(400, WIDTH)).astype(np.float32)
    csv = "label,x\n" + "".join(f"p{at // 2},{at}\n" for at in range(4_000))
    scores = {"name": word, "scores": X[:, 0].tolist(), "same": [int(one) for one in X[:, 0] > 0]}
    bulk = io.BytesIO()
    np.savez(bulk, ids=[f"{word}{at}" for at in range(len(X))], vectors=X)
    asked: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", "/datasets", {"data": {"name": word, "label": "label"}, "files": {"file": ("d.csv", csv)}}),
        ("POST", "/datasets/inspect", {"data": {"label": "label"}, "files": {"file": ("d.csv", csv)}}),
        ("POST", "/models", {"data": {"name": word}, "files": {"file": ("m.zip", export)}}),
        ("GET", "/models/people/versions/1/export", {}),
        ("PUT", "/galleries/people/items", {"json": {"items": [{"id": word, "vector": X[0].tolist()}]}}),
        ("PUT", "/galleries/people/items?id=id", {
            "content": bulk.getvalue(), "headers": {"content-type": "application/x-npz"}}),
        ("DELETE", "/galleries/people/subjects/s1", {}),
        ("POST", "/calibrations", {"json": scores}),
        ("POST", "/models/people/versions/1/calibrations", {"json": {"dataset": "people"}}),
        ("PUT", f"/models/people/aliases/{word}", {"json": {"version": 1}}),
        ("POST", "/keys", {"json": {"name": word, "scopes": ["admin"]}}),
    ]  # fmt: skip
    answers = {}
    for method, path, more in asked:
        answers[f"{method} {path}"] = answer = http.request(method, path, **more)
        if path == "/keys" and answer.is_success:
            http.headers["x-api-key"] = answer.json()["key"]
    return answers


def test_every_write_on_a_full_disk_is_refused_in_words(serve: Serve) -> None:
    server = serve(process=True, job_thread=True)
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(100), 4)
    server.upload("people", rng.normal(size=(100, WIDTH))[y] + 0.3 * rng.normal(size=(400, WIDTH)), y)
    server.train(learner="metric", dataset="people", model="people")
    assert server.http.put("/galleries/people", json={"model": "people"}).is_success
    export = server.http.get("/models/people/versions/1/export").content
    refused: set[str] = set()
    for size in (0, 4_000):
        with files_of_at_most(server, size):
            for what, answer in writes(server.http, f"w{size}", export).items():
                assert answer.status_code < 500 or answer.status_code in (503, 507), (what, answer.text)
                if answer.status_code == 507:
                    refused.add(what.removesuffix(f"w{size}"))
                    assert "space" in answer.text or "file system failed" in answer.text
        after = writes(server.http, f"again{size}", export)
        bad = {what: answer.text for what, answer in after.items() if answer.status_code >= 500}
        assert not bad, bad
    assert {"POST /calibrations", "POST /models/people/versions/1/calibrations"} <= refused
    assert {"PUT /galleries/people/items?id=id", "POST /models"} <= refused
