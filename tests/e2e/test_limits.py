"""Connections and requests that take what they should not: half heads, trickled bodies, crowds, foreign pages."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from tests.serving import RunningServer, Serve, serving

BOUNDS = {
    "PAIRMARK_REQUEST_TIMEOUT_S": "2",
    "PAIRMARK_MIN_UPLOAD_BYTES_PER_S": "100000",
    "PAIRMARK_LOG_LEVEL": "DEBUG",
}


@pytest.fixture(scope="module")
def guarded(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with short patience."""
    with serving(tmp_path_factory.mktemp("guarded"), new_database("sqlite"), **BOUNDS) as server:
        yield server


def connect(server: RunningServer) -> socket.socket:
    address = urlsplit(server.url)
    return socket.create_connection((address.hostname, address.port), timeout=15)


def heard(wire: socket.socket) -> bytes:
    """Everything until the server closes."""
    reported = b""
    try:
        while piece := wire.recv(65536):
            reported += piece
    except ConnectionError:
        pass
    return reported


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/datasets", "multipart/form-data; boundary=cut"),
        ("/similarity", "application/json"),
    ],
)
def test_a_body_that_trickles_is_given_up(guarded: RunningServer, path: str, kind: str) -> None:
    """Each piece comes in time, and yet it would take for ever."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: 1000000\r\n\r\n"
    )
    with connect(guarded) as wire:
        started = time.monotonic()
        wire.sendall(
            head.encode() + b'--cut\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        )
        wire.settimeout(0.2)
        reported = b""
        while time.monotonic() - started < 12:
            try:
                wire.sendall(b"1,")
                piece = wire.recv(65536)
                if not piece:
                    break
                reported += piece
            except TimeoutError:
                pass
            except OSError:
                break
        assert time.monotonic() - started < 10
        assert reported.startswith(b"HTTP/1.1 408 "), reported


def test_without_a_key_requests_need_a_host_and_no_foreign_page(guarded: RunningServer) -> None:
    for headers, status in (
        ({}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
    ):
        assert guarded.http.get("/models", headers=headers).status_code == status, headers
    for lines in (b"GET /models HTTP/1.0\r\n", b"GET /models HTTP/1.1\r\nHost:\r\nConnection: close\r\n"):
        with connect(guarded) as wire:
            wire.sendall(lines + b"\r\n")
            answer = heard(wire)
        assert answer.split(b" ")[1] in (b"403", b"400"), answer


def test_keys_have_rates_and_one_budget_of_probes_for_each_gallery(serve: Serve) -> None:
    server = serve(PAIRMARK_VERIFY_LIMIT="5", PAIRMARK_PROBE_LIMIT="12")
    rng = np.random.default_rng(0)
    server.upload("d", rng.normal(size=(80, 4)).astype(np.float32), np.repeat(np.arange(40), 2))
    job = server.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
    assert job["state"] == "succeeded", job
    assert server.http.put("/galleries/g", json={"model": "m"}).status_code == 201
    items = [{"id": f"i{at}", "subject": f"s{at}", "vector": [at, 0.0, 0.0, 1.0]} for at in range(3)]
    assert server.http.put("/galleries/g/items", json={"items": items}).status_code == 200
    keys = [
        json.loads(server.cli("keys", "create", "--scope", "gallery", *rate, "--json").stdout)["key"]
        for rate in ((), (), ("--rate", "2"))
    ]

    def statuses(path: str, body: object, tries: int, key: str) -> list[int]:
        return [
            server.http.post(path, json=body, headers={"x-api-key": key}).status_code for _ in range(tries)
        ]

    def ask(path: str, body: object, key: str) -> httpx.Response:
        return server.http.post(path, json=body, headers={"x-api-key": key})

    verify = "/galleries/g/subjects/{}/verify?fpr=0.2"
    search = "/galleries/g/search"
    one, probe = [0.0, 0.0, 0.0, 1.0], {"probe": [0.0, 0.0, 0.0, 1.0]}
    verified = [ask(verify.format("s0"), probe, keys[0]).status_code for _ in range(8)]
    assert verified.count(429) == 3
    refused = ask(verify.format("s0"), probe, keys[0])
    assert refused.json()["type"] == "/problems/rate-limited"
    assert int(refused.headers["retry-after"]) == refused.json()["retry_after"] >= 1
    assert '"verifications";q=5;w=60' in refused.headers["ratelimit-policy"]
    assert '"verifications";r=0;t=' in refused.headers["ratelimit"]

    # Five of twelve probes are gone, and one comes back in 5 s.
    answer = ask(verify.format("s1"), probe, keys[0])
    assert answer.status_code == 200
    assert '"probes";q=12;w=60' in answer.headers["ratelimit-policy"]
    assert 6 <= remaining_probes(answer) <= 9
    assert ask(search, {"queries": [one] * 11}, keys[0]).status_code == 429
    answer = ask(search, {"queries": [one] * 5}, keys[0])
    assert answer.status_code == 200
    assert 1 <= remaining_probes(answer) <= 5

    # Each way to ask takes from the same twelve: one query, a batch, another subject.
    for path, body in (
        (search, {"queries": one}),
        (search, {"queries": [one] * 2}),
        (verify.format("s2"), probe),
    ):
        while ask(search, {"queries": one}, keys[0]).status_code == 200:
            pass
        refused = ask(path, body, keys[0])
        assert refused.status_code == 429, path
        assert "12 probes of the gallery 'g' by this key in 60 s" in refused.json()["detail"]
        assert remaining_probes(refused) < 2
    never = ask(search, {"queries": [one] * 13}, keys[0])
    assert never.status_code == 413
    assert never.json()["limit"] == 12
    # Another key, and another gallery, have probes of their own.
    assert ask(search, {"queries": [one] * 12}, keys[1]).status_code == 200
    made = server.http.put("/galleries/h", json={"model": "m"}, headers={"x-api-key": keys[0]})
    assert made.status_code == 201
    assert ask("/galleries/h/search", {"queries": [one] * 12}, keys[0]).status_code == 200

    many = [server.http.get("/galleries", headers={"x-api-key": keys[2]}) for _ in range(60)]
    assert {answer.headers["ratelimit-policy"] for answer in many} == {'"requests";q=20;w=10'}
    assert {answer.status_code for answer in many} == {200, 429}
    assert "ratelimit" not in server.http.get("/healthz").headers


def remaining_probes(answer: httpx.Response) -> int:
    """What an answer says of the budget of probes."""
    (item,) = [item for item in answer.headers["ratelimit"].split(", ") if item.startswith('"probes"')]
    return int(item.split(";")[1].removeprefix("r="))
