"""Heads that HTTP allows and this service does not follow: other protocols, several hosts, compressed bodies."""

from __future__ import annotations

import gzip
import json
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from tests.serving import RunningServer, answered

HOST = b"Host: 127.0.0.1\r\n"
BODY = b'{"left": [1.0], "right": [1.0], "model": "nowhere"}'


@pytest.fixture
def server(plain_server: RunningServer) -> RunningServer:
    return plain_server


def heard(server: RunningServer, *parts: bytes) -> bytes:
    """Everything that the server answers to bytes until it closes."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=15) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            wire.sendall(part)
        answer = b""
        while piece := wire.recv(65536):
            answer += piece
        return answer


def test_a_request_names_one_host(server: RunningServer) -> None:
    for second in (b"Host: 127.0.0.1\r\n", b"HOST: elsewhere.example\r\n", b"host:\r\n"):
        answer = heard(server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + second + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 400 "), second
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert problem["type"] == "/problems/malformed-request"
        assert "2 Host headers" in problem["detail"]
    assert server.http.get("/problems/malformed-request").status_code == 200
    # Other headers may come twice.
    twice = b"GET /healthz HTTP/1.1\r\nConnection: close\r\nAccept: a/b\r\nAccept: c/d\r\n" + HOST + b"\r\n"
    assert heard(server, twice).startswith(b"HTTP/1.1 200 ")


def test_what_is_no_http_is_refused(server: RunningServer) -> None:
    for request in (b"\x16\x03\x01\r\n", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"):
        assert heard(server, request).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        (b"", 400, "malformed-request"),
        (HOST + b"Transfer-Encoding: gzip, chunked\r\n", 501, "not-implemented"),
        (HOST + b"Expect: a-miracle\r\n", 417, "expectation-failed"),
    ],
)
def test_heads_that_cannot_be_followed(
    server: RunningServer, fields: bytes, status: int, problem: str
) -> None:
    answer = heard(server, b"POST /jobs HTTP/1.1\r\nConnection: close\r\n" + fields + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == f"/problems/{problem}"


@pytest.mark.parametrize(
    "fields",
    [
        b"".join(b"X-%d: %b\r\n" % (number, b"x" * 1000) for number in range(1000)),
        b"X: " + b"x" * 1_000_000 + b"\r\n",
    ],
)
def test_heads_and_trailers_are_bounded(server: RunningServer, fields: bytes) -> None:
    answer = heard(server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + fields + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    problem = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert server.http.get(problem["type"]).status_code == 200
    chunked = b"POST /similarity HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST
    body = b"\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    assert b" 404 " in heard(server, chunked + b"Connection: close\r\n" + body + b"X: y\r\n\r\n")
    # Nothing is answered: the connection ends.
    with suppress(ConnectionError):
        assert not heard(server, chunked + body + fields)


@pytest.mark.parametrize("path", ["/similarity", "/jobs", "/datasets", "/login"])
def test_compressed_bodies_are_refused_in_words(server: RunningServer, path: str) -> None:
    for encoding in ("gzip", "GZIP", "br", "identity, gzip"):
        answer = answered(
            server.http.post(
                path,
                content=gzip.compress(BODY),
                headers={"content-encoding": encoding, "content-type": "application/json"},
            ),
            415,
        )
        assert answer.json()["type"] == "/problems/unsupported-media-type"
        assert encoding.lower() in answer.json()["detail"]
    twice = [("content-encoding", "gzip"), ("content-encoding", "identity")]
    answered(server.http.post("/similarity", content=BODY, headers=twice), 415)
    answered(server.http.post("/similarity", content=BODY, headers={"content-encoding": "identity"}), 404)


def test_every_page_has_the_same_headers(server: RunningServer) -> None:
    for path in ("/", "/docs", "/problems", "/problems/forbidden", "/console/models", "/nowhere"):
        page = server.http.get(path, headers={"accept": "text/html"})
        assert page.headers["x-content-type-options"] == "nosniff", path
        if page.headers["content-type"].startswith("text/html"):
            assert page.headers.get_list("referrer-policy") == ["same-origin"], path
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"], path
