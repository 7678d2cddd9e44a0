"""The Python client against a served deployment, and how it takes trouble."""

import asyncio
import io
import socket
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import numpy as np
import pytest
from scipy.sparse import csr_array

from pairmark.client import (
    AsyncClient,
    Busy,
    Client,
    ClientError,
    Conflict,
    Denied,
    InsufficientCalibration,
    InvalidInput,
    NotFound,
    Problem,
    TimedOut,
    Unreachable,
)
from pairmark.client.transport import RAW_FROM
from tests.serving import RunningServer, Serve, csv_table

pytestmark = [
    # On a busy machine a job waits longer for the worker than a client waits to tell of it.
    pytest.mark.filterwarnings("ignore:job [0-9a-f]+.*:UserWarning"),
]


@pytest.fixture(scope="module")
def client(digits_deployment: RunningServer):
    with Client(digits_deployment.url) as client:
        yield client


@pytest.fixture(scope="module")
def digits(digits_deployment: RunningServer) -> np.ndarray:
    return digits_deployment.facts["X"]


def test_scores_are_equal_however_they_travel(client: Client, digits: np.ndarray) -> None:
    left, right = digits[:40], digits[40:80]
    raw = client.similarity(left, right, model="digits")
    assert (raw.dtype, raw.shape) == (np.float32, (40,))
    assert left.size + right.size >= RAW_FROM
    as_json = client.similarity(left.tolist(), right.tolist(), model="digits")
    as_sparse = client.similarity(csr_array(left), csr_array(right), model="digits")
    np.testing.assert_array_equal(raw, as_json)
    np.testing.assert_array_equal(raw, as_sparse)
    np.testing.assert_array_equal(raw, client.similarity(right, left, model="digits"))


@pytest.mark.parametrize("many", [3, 100])
def test_one_meets_many(client: Client, digits: np.ndarray, many: int) -> None:
    one, others = digits[0], digits[1 : 1 + many]
    expected = client.similarity(np.repeat(one[None, :], many, axis=0), others, model="digits")
    np.testing.assert_array_equal(client.similarity(one, others, model="digits"), expected)
    np.testing.assert_array_equal(client.similarity(others, one, model="digits"), expected)


@pytest.mark.parametrize("many", [3, 100])
def test_matches_are_scores_above_the_threshold(client: Client, digits: np.ndarray, many: int) -> None:
    found = client.match(digits[:many], digits[many : 2 * many], fpr=0.1, model="digits")
    assert (found.operating_point["fpr"], found.operating_point["protocol"]) == (0.1, "closed-set")
    threshold = np.float32(found.operating_point["threshold"])
    np.testing.assert_array_equal(found.matches, found.scores > threshold)
    np.testing.assert_array_equal(
        found.scores, client.similarity(digits[:many], digits[many : 2 * many], model="digits")
    )
    by_its_id = {"fpr": 0.1, "calibration": found.operating_point["calibration_id"]}
    np.testing.assert_array_equal(client.match(scores=found.scores, **by_its_id).matches, found.matches)
    with pytest.raises(InvalidInput, match="refs"):
        client.match(scores=[0.5], refs=[["a", "b"]], **by_its_id)


def test_what_the_data_cannot_support_is_an_exception(client: Client, digits: np.ndarray) -> None:
    with pytest.raises(InsufficientCalibration) as refused:
        client.match(digits[0], digits[1], fpr=1e-9, model="digits")
    assert refused.value.slug == "insufficient-calibration-data"
    assert set(refused.value.facts["smallest_fpr"]) == {"finite-sample", "bootstrap"}
    assert "required_units" in refused.value.facts


def test_errors_are_a_tree(client: Client, digits: np.ndarray) -> None:
    with pytest.raises(NotFound) as unknown:
        client.similarity(digits[0], digits[1], model="nobody")
    assert (unknown.value.status, unknown.value.slug) == (404, "unknown-model")
    with pytest.raises(InvalidInput, match="expects 64"):
        client.similarity([1.0, 2.0], [1.0, 2.0], model="digits")
    with pytest.raises(InvalidInput, match="left"):
        client.similarity([float("nan")] * 64, [0.0] * 64, model="digits")
    with pytest.raises(Conflict):
        client.delete_version("digits", 1)
    assert InsufficientCalibration.__mro__[1:4] == (InvalidInput, Problem, ClientError)


def test_what_would_be_read_of_a_file_has_its_members(client: Client) -> None:
    table = csv_table({"x": [at * 0.37 % 1 for at in range(60)], "who": [f"w{at // 2}" for at in range(60)]})
    seen = client.inspect_dataset(io.BytesIO(table), format="csv", identity="who")
    assert (seen.rows, seen.features, seen.n_labels, seen.problem) == (60, 1, 30, None)
    assert [column.name for column in seen.columns] == ["x", "who"]


def test_a_dataset_and_a_training_from_arrays(client: Client, digits_deployment: RunningServer) -> None:
    X, y = digits_deployment.facts["X"], digits_deployment.facts["y"]
    sent: list[float] = []
    added = client.add_dataset(
        "from-arrays", X=X[:600], y=y[:600], classes="y", progress=lambda share, _: sent.append(share)
    )
    assert (added["rows"], added["features"], added["n_labels"]) == (600, 64, 10)
    assert sent[-1] == 1.0
    shares: list[float] = []

    job = client.train(
        "similarity-forest",
        "from-arrays",
        "mine",
        params={"n_estimators": 2, "n_pairs": 1000, "random_state": 0},
        promote=False,
        progress=lambda share, _: shares.append(share),
    )
    assert job["state"] == "succeeded"
    assert (shares, shares[-1]) == (sorted(shares), 1.0)
    assert client.version("mine", job["version"])["aliases"] == []
    assert client.promote("mine", job["version"], "mine-only")["version"] == job["version"]
    assert {"digits", "mine"} <= {model["name"] for model in client.models()}


def test_keys_are_sent_and_missed(serve: Serve) -> None:
    deployment = serve()
    with Client(deployment.url, api_key=deployment.key("score")["key"]) as client:
        assert client.models() == []
        with pytest.raises(Denied) as refused:
            client.add_dataset("x", X=np.eye(3))
        assert refused.value.status == 403
    with Client(deployment.url, api_key="") as client, pytest.raises(Denied) as refused:
        client.models()
    assert refused.value.status == 401


def test_nobody_there() -> None:
    with (
        Client("http://127.0.0.1:9", patience=0) as client,
        pytest.raises(Unreachable, match="does not answer") as raised,
    ):
        client.models()
    # One sentence: not what a library went through.
    assert len(traceback.format_exception(raised.value)) < 12
    assert "httpcore" not in "".join(traceback.format_exception(raised.value))
    for wrong in ("ftp://localhost", "http://"):
        with pytest.raises(ValueError, match="http://HOST:PORT"):
            Client(wrong)
    with Client("localhost:9") as client:
        assert client.url == "http://localhost:9"


def test_a_service_that_starts_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [httpx.ConnectError("refused"), httpx.Response(200, json={"items": []})]

    def starting(request: httpx.Request) -> httpx.Response:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    transport = httpx.MockTransport(starting)
    with Client("http://localhost:9", transport=transport) as client:
        assert client.models() == []
    assert [record.getMessage() for record in caplog.records if record.name == "pairmark.client"] == [
        "http://localhost:9 does not answer yet: waiting up to 60 s for it to start"
    ]
    # Another machine's is not.
    answers[:] = [httpx.ConnectError("refused")]
    with Client("http://192.0.2.1", transport=transport) as client, pytest.raises(Unreachable):
        client.models()


def test_a_slow_service_is_told_from_a_dead_one_and_from_another() -> None:
    def slow(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    with Client("http://there", transport=httpx.MockTransport(slow)) as client:
        with pytest.raises(TimedOut, match="timeout="):
            client.models()
        with pytest.raises(ClientError, match="http://there"):
            client.export_version("m", 1, "never-written.zip")
    other = httpx.MockTransport(lambda request: httpx.Response(200, json=["not", "ours"]))
    with (
        Client("http://there", transport=other) as client,
        pytest.raises(ClientError, match="no JSON object"),
    ):
        client.model("m")


def test_scores_come_with_the_warnings_of_their_answer() -> None:
    told = {"code": "unseen-category", "detail": "column 'city': training did not have 'Graz'"}
    answer = httpx.Response(200, json={"scores": [0.5], "warnings": [told]})
    with (
        Client("http://there", transport=httpx.MockTransport(lambda request: answer)) as client,
        pytest.warns(UserWarning, match="did not have 'Graz'"),
    ):
        assert client.similarity({"city": "Graz"}, {"city": "Lyon"}).tolist() == [0.5]


def test_a_read_timeout_is_one(silent: str) -> None:
    with Client(silent, timeout=0.2) as client, pytest.raises(TimedOut):
        client.models()

    async def ask() -> None:
        async with AsyncClient(silent, timeout=0.2) as other:
            with pytest.raises(TimedOut):
                await other.models()

    asyncio.run(ask())


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a service that takes requests and does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class Grumpy(BaseHTTPRequestHandler):
    """Busy a few times, then well: stands for an overloaded service or a proxy before one."""

    busy_times = 2
    seen: list[str]

    def do_GET(self) -> None:
        type(self).seen.append(self.path)
        busy = len(self.seen) <= self.busy_times
        body = b"not json" if busy else b'{"items": [], "next_cursor": null}'
        self.send_response(429 if busy else 200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def grumpy():
    handler = type("Handler", (Grumpy,), {"seen": []})
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_busy_is_tried_again_a_bounded_number_of_times(grumpy) -> None:
    handler, url = grumpy
    with Client(url) as client:
        assert client.models() == []
    assert len(handler.seen) == 3
    handler.seen.clear()
    with Client(url, retries=1) as client, pytest.raises(Busy, match="not json"):
        client.models()
    assert len(handler.seen) == 2


def test_galleries_through_the_client(client: Client, digits: np.ndarray) -> None:
    reported: list[float] = []
    ids = [f"c/{at}" for at in range(30)]
    answer = client.upsert(
        "from-client",
        ids=ids,
        vectors=digits[:30],
        subjects=[f"s{at % 3}" if at % 3 else None for at in range(30)],
        model="digits",
        progress=lambda fraction, _: reported.append(fraction),
    )
    assert answer == {"upserted": 30, "errors": [], "n_errors": 0}
    assert reported == [1.0]
    more = [
        {"id": "extra", "vector": digits[40], "metadata": {"site": "n"}},
        {"id": "short", "vector": [1.0]},
    ]
    answer = client.upsert("from-client", more)
    assert (answer["upserted"], answer["n_errors"], answer["errors"][0]["row"]) == (1, 1, 1)
    scores = client.similarity(digits[50], digits[:30], model="digits")
    found = client.search("from-client", digits[50], k=31)["results"][0]
    by_id = {hit["id"]: np.float32(hit["score"]) for hit in found}
    assert len(found) == 31
    assert [by_id[name] for name in ids] == scores.tolist()
    assert [
        hit["id"] for hit in client.search("from-client", digits[50], filter={"site": "n"})["results"][0]
    ] == ["extra"]
    assert client.request("GET", "/galleries/from-client/items/c%2F3").json()["subject"] is None
    listed = client.pages("/galleries/from-client/items", subject="s1")
    assert [item["id"] for item in listed] == sorted(ids[1::3])
    assert client.verify("from-client", "s1", digits[1], fpr=0.2)["items"] == 10
    assert client.erase("from-client", id="c/3")["items"] == 1
    assert client.erase("from-client", subject="s1")["items"] == 10
    assert client.gallery("from-client")["items"] == 20
    client.delete_gallery("from-client")
    with pytest.raises(NotFound):
        client.gallery("from-client")


@pytest.mark.parametrize("many", [3, 100])
def test_the_asynchronous_client_answers_alike(client: Client, digits: np.ndarray, many: int) -> None:
    left, right = digits[:many], digits[many : 2 * many]

    async def ask() -> None:
        async with AsyncClient(client.url) as other:
            scores, found = await asyncio.gather(
                other.similarity(left, right, model="digits"),
                other.match(left, right, fpr=0.1, model="digits"),
            )
            np.testing.assert_array_equal(scores, client.similarity(left, right, model="digits"))
            here = client.match(left, right, fpr=0.1, model="digits")
            np.testing.assert_array_equal(found.matches, here.matches)
            assert found.operating_point == here.operating_point
            assert found.operating_point.threshold == here.operating_point["threshold"]
            with pytest.raises(InsufficientCalibration) as refused:
                await other.match(left, right, fpr=1e-9, model="digits")
            assert "smallest_fpr" in refused.value.facts
            assert [one.name for one in await other.models()] == [one.name for one in client.models()]
            assert await other.version("digits", 1) == client.version("digits", 1)

    asyncio.run(ask())


def test_the_asynchronous_client_waits_for_a_busy_service_and_misses_an_absent_one(grumpy) -> None:
    handler, url = grumpy

    async def ask() -> None:
        async with AsyncClient(url) as other:
            assert await other.models() == []
        async with AsyncClient("http://127.0.0.1:9", patience=0) as other:
            with pytest.raises(Unreachable, match="does not answer"):
                await other.models()

    asyncio.run(ask())
    assert len(handler.seen) == 3
