"""What holds for every request: keys, bounds of heads, bodies and uploads, request ids, logs, and an honest end."""

import gzip
import io
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import psutil
import pytest

from tests.serving import PATIENCE_S, RunningServer, Serve, answered, ended, parquet, serving, until

BOUNDS = {
    "PAIRMARK_MAX_BODY_BYTES": "100000",
    "PAIRMARK_MAX_JSON_BYTES": "100000",
    "PAIRMARK_MAX_CONTROL_BYTES": "100000",
    "PAIRMARK_MAX_UPLOAD_BYTES": "300000",
    "PAIRMARK_MAX_BATCH_PAIRS": "50",
    "PAIRMARK_REQUEST_TIMEOUT_S": "1.5",
    "PAIRMARK_LOG_LEVEL": "DEBUG",
}
SECRET = 7.123456


@pytest.fixture(scope="module")
def bounded(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server without keys and with small bounds."""
    with serving(
        tmp_path_factory.mktemp("bounded"), new_database("sqlite"), process=True, **BOUNDS
    ) as server:
        # The first request imports what scores, which may take longer than a request may.
        while server.http.post("/similarity", json={"left": [1.0], "right": [1.0]}).status_code == 503:
            pass
        yield server


def head(length: int | None, path: str = "/similarity", *, kind: str = "application/json") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {kind}"]
    lines += ["Transfer-Encoding: chunked"] if length is None else [f"Content-Length: {length}"]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def heard(server: RunningServer, *parts: bytes) -> bytes:
    """Everything that the server answers to bytes until it closes, or has no place for more of them."""
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        answer = b""
        with suppress(ConnectionError):
            for part in parts:
                wire.sendall(part)
            while piece := wire.recv(65536):
                answer += piece
        return answer


def test_bodies_beyond_the_bound_are_refused(bounded: RunningServer) -> None:
    answer = answered(
        bounded.http.post(
            "/similarity", content=b" " * 100_001, headers={"content-type": "application/json"}
        ),
        413,
    )
    assert (answer.json()["type"], answer.json()["limit"]) == ("/problems/too-large", 100_000)
    # Declared, and never sent.
    assert heard(bounded, head(10**12)).startswith(b"HTTP/1.1 413")
    # Not declared, and sent until the bound.
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    assert heard(bounded, head(None), *[chunk] * 4).startswith(b"HTTP/1.1 413")
    assert heard(bounded, head(None, "/jobs"), *[chunk] * 4).startswith(b"HTTP/1.1 413")
    answered(
        bounded.http.post("/datasets", data={"name": "x"}, files={"file": ("x.csv", b"1," * 200_000)}), 413
    )
    assert bounded.http.get("/datasets").json()["items"] == []


def test_more_pairs_than_the_bound_are_refused(bounded: RunningServer) -> None:
    answer = answered(bounded.http.post("/similarity", json={"left": [[1.0]] * 51, "right": [1.0]}), 413)
    assert "51 pairs" in answer.json()["detail"]


def test_a_body_that_never_comes_is_given_up(bounded: RunningServer) -> None:
    form = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="x.csv"\r\n\r\na,b'
    for path, kind, begun in (
        ("/similarity", "application/json", b'{"left":'),
        ("/jobs", "application/json", b'{"learner":'),
        ("/datasets", "multipart/form-data; boundary=cut", form),
    ):
        started = time.monotonic()
        said = heard(bounded, head(5_000, path, kind=kind), begun)
        assert said.startswith(b"HTTP/1.1 408"), (path, said)
        assert b"/problems/request-timeout" in said
        assert time.monotonic() - started > 1.0


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/datasets", "multipart/form-data; boundary=cut"), ("/similarity", "application/json")],
)
def test_a_body_that_trickles_is_given_up(bounded: RunningServer, path: str, kind: str) -> None:
    """Each piece comes in time, and yet it would take for ever."""
    address, started = urlsplit(bounded.url), time.monotonic()
    with socket.create_connection((address.hostname, address.port), timeout=60) as wire:
        begun = b'--cut\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        wire.sendall(head(90_000, path, kind=kind) + begun)
        wire.settimeout(0.2)
        heard = b""
        while time.monotonic() - started < 60:
            try:
                wire.sendall(b"1,")
                piece = wire.recv(65536)
                if not piece:
                    break
                heard += piece
            except TimeoutError:
                pass
            except OSError:
                break
    assert heard.startswith(b"HTTP/1.1 408 "), heard


def test_request_ids_are_kept_when_they_are_fit(bounded: RunningServer) -> None:
    given = bounded.http.get("/healthz", headers={"x-request-id": "order-66.a_B"})
    assert given.headers["x-request-id"] == "order-66.a_B"
    for unfit in ("", "a" * 200, "two words", '"; drop'):
        made = bounded.http.get("/nowhere", headers={"x-request-id": unfit})
        assert made.headers["x-request-id"] != unfit
        assert made.json()["request_id"] == made.headers["x-request-id"]


def test_logs_hold_requests_and_no_vectors(bounded: RunningServer) -> None:
    bounded.http.post(
        "/similarity", json={"left": [SECRET], "right": [SECRET]}, headers={"x-request-id": "looked-for"}
    )
    bounded.http.post("/similarity", json={"left": [SECRET, "x"], "right": [SECRET]})
    until(lambda: "looked-for" in bounded.log.read_text(), "the request is logged")
    text = bounded.log.read_text()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    (line,) = [line for line in lines if line.get("request_id") == "looked-for"]
    assert (line["method"], line["route"], line["status"]) == ("POST", "/similarity", 404)
    assert line["problem"] == "unknown-model"
    assert str(SECRET) not in text
    assert not [line for line in lines if line["level"] == "error"]


def test_without_a_key_only_this_machine_is_served_and_no_foreign_page(bounded: RunningServer) -> None:
    def get(**headers: str) -> httpx.Response:
        return bounded.http.get("/models", headers=headers)

    assert get().status_code == 200
    own = urlsplit(bounded.url).netloc
    assert get(origin=f"http://{own}").status_code == 200
    for host in ("LOCALHOST:8000", "[::1]:8000", "127.9.9.9"):
        assert get(host=host).status_code == 200
    for site in ("none", "same-origin"):
        assert get(**{"sec-fetch-site": site}).status_code == 200
    hosts = ("evil.example", "localhost.evil.example:80", "192.168.1.4:8000")
    origins = ("http://evil.example", "null")
    sites = ("cross-site", "same-site")
    for headers in [
        *({"host": host} for host in hosts),
        *({"origin": origin} for origin in origins),
        *({"sec-fetch-site": site} for site in sites),
    ]:
        assert answered(get(**headers), 403).json()["type"] == "/problems/forbidden"
    for lines in (b"GET /models HTTP/1.0\r\n", b"GET /models HTTP/1.1\r\nHost:\r\nConnection: close\r\n"):
        assert heard(bounded, lines + b"\r\n").split(b" ")[1] in (b"403", b"400"), lines
    # A wrong key is wrong, even where none is needed.
    assert get(**{"x-api-key": "pm_wrong"}).status_code == 401


def test_it_stops_when_told_though_somebody_listens(serve: Serve) -> None:
    """An open event stream of a job that never runs must not hold a stop."""
    server = serve(process=True)
    server.upload("d", np.eye(8, dtype=np.float32), np.arange(8) // 2)
    request = {"learner": "similarity-forest", "dataset": "d", "model": "m"}
    job = server.http.post("/jobs", json=request).json()["id"]
    with server.http.stream("GET", f"/jobs/{job}/events") as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("retry")
        os.kill(server.process.pid, signal.SIGTERM)
        for _ in lines:
            pass
    assert server.process.wait(PATIENCE_S) == 0
    assert "timeout graceful shutdown exceeded" not in server.log.read_text()


def test_keys_have_rates_and_one_budget_of_probes_for_each_gallery(serve: Serve) -> None:
    server = serve(PAIRMARK_VERIFY_LIMIT="5", PAIRMARK_PROBE_LIMIT="12")
    rng = np.random.default_rng(0)
    server.upload("d", rng.normal(size=(80, 4)).astype(np.float32), np.repeat(np.arange(40), 2))
    server.train(learner="metric", dataset="d", model="m", params={"metric": "euclidean"})
    server.enroll("g", "m", [[at, 0.0, 0.0, 1.0] for at in range(3)])
    keys = [server.key("gallery", **rate)["key"] for rate in ({}, {}, {"rate": "2"})]

    def statuses(path: str, body: object, tries: int, key: str) -> list[int]:
        return [
            server.http.post(path, json=body, headers={"x-api-key": key}).status_code for _ in range(tries)
        ]

    def ask(path: str, body: object, key: str) -> httpx.Response:
        return server.http.post(path, json=body, headers={"x-api-key": key})

    verify = "/galleries/g/subjects/{}/verify?fpr=0.2"
    search = "/galleries/g/search"
    one, probe = [0.0, 0.0, 0.0, 1.0], {"probe": [0.0, 0.0, 0.0, 1.0]}
    assert [ask(verify.format("s0"), probe, keys[0]).status_code for _ in range(8)].count(429) == 3
    refused = ask(verify.format("s0"), probe, keys[0])
    assert refused.json()["type"] == "/problems/rate-limited"
    assert int(refused.headers["retry-after"]) == refused.json()["retry_after"] >= 1
    assert '"verifications";q=5;w=60' in refused.headers["ratelimit-policy"]
    assert '"verifications";r=0;t=' in refused.headers["ratelimit"]

    # Five of twelve probes are gone, and one comes back in 5 s.
    answer = answered(ask(verify.format("s1"), probe, keys[0]))
    assert '"probes";q=12;w=60' in answer.headers["ratelimit-policy"]
    assert 6 <= remaining_probes(answer) <= 9
    assert ask(search, {"queries": [one] * 11}, keys[0]).status_code == 429
    assert 1 <= remaining_probes(answered(ask(search, {"queries": [one] * 5}, keys[0]))) <= 5

    # Each way to ask takes from the same twelve: one query, a batch, another subject.
    for path, body in (
        (search, {"queries": one}),
        (search, {"queries": [one] * 2}),
        (verify.format("s2"), probe),
    ):
        while ask(search, {"queries": one}, keys[0]).status_code == 200:
            pass
        refused = answered(ask(path, body, keys[0]), 429)
        assert "12 probes of the gallery 'g' by this key in 60 s" in refused.json()["detail"]
        assert remaining_probes(refused) < 2
    assert answered(ask(search, {"queries": [one] * 13}, keys[0]), 413).json()["limit"] == 12
    # Another key, and another gallery, have probes of their own.
    assert ask(search, {"queries": [one] * 12}, keys[1]).status_code == 200
    answered(server.http.put("/galleries/h", json={"model": "m"}, headers={"x-api-key": keys[0]}), 201)
    assert ask("/galleries/h/search", {"queries": [one] * 12}, keys[0]).status_code == 200

    many = [server.http.get("/galleries", headers={"x-api-key": keys[2]}) for _ in range(60)]
    assert {answer.headers["ratelimit-policy"] for answer in many} == {'"requests";q=20;w=10'}
    assert {answer.status_code for answer in many} == {200, 429}
    assert "ratelimit" not in server.http.get("/healthz").headers


def remaining_probes(answer: httpx.Response) -> int:
    """What an answer says of the budget of probes."""
    (item,) = [item for item in answer.headers["ratelimit"].split(", ") if item.startswith('"probes"')]
    return int(item.split(";")[1].removeprefix("r="))


HOST = b"Host: 127.0.0.1\r\n"
BODY = b'{"left": [1.0], "right": [1.0], "model": "nowhere"}'


def test_a_request_names_one_host(plain_server: RunningServer) -> None:
    for second in (b"Host: 127.0.0.1\r\n", b"HOST: elsewhere.example\r\n", b"host:\r\n"):
        answer = heard(
            plain_server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + second + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 400 "), second
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert problem["type"] == "/problems/malformed-request"
        assert "2 Host headers" in problem["detail"]
    assert plain_server.http.get("/problems/malformed-request").status_code == 200
    # Other headers may come twice.
    twice = b"GET /healthz HTTP/1.1\r\nConnection: close\r\nAccept: a/b\r\nAccept: c/d\r\n" + HOST + b"\r\n"
    assert heard(plain_server, twice).startswith(b"HTTP/1.1 200 ")


def test_what_is_no_http_is_refused(plain_server: RunningServer) -> None:
    for request in (b"\x16\x03\x01\r\n", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n"):
        assert heard(plain_server, request).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    ("fields", "status", "problem"),
    [
        (b"", 400, "malformed-request"),
        (HOST + b"Transfer-Encoding: gzip, chunked\r\n", 501, "not-implemented"),
        (HOST + b"Expect: a-miracle\r\n", 417, "expectation-failed"),
    ],
)
def test_heads_that_cannot_be_followed(
    plain_server: RunningServer, fields: bytes, status: int, problem: str
) -> None:
    answer = heard(plain_server, b"POST /jobs HTTP/1.1\r\nConnection: close\r\n" + fields + b"\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["type"] == f"/problems/{problem}"


@pytest.mark.parametrize(
    "fields",
    [
        b"".join(b"X-%d: %b\r\n" % (number, b"x" * 1000) for number in range(1000)),
        b"X: " + b"x" * 1_000_000 + b"\r\n",
    ],
)
def test_heads_and_trailers_are_bounded(plain_server: RunningServer, fields: bytes) -> None:
    answer = heard(plain_server, b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + fields + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert plain_server.http.get(json.loads(answer.partition(b"\r\n\r\n")[2])["type"]).status_code == 200
    chunked = b"POST /similarity HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" + HOST
    body = b"\r\n%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
    assert b" 404 " in heard(plain_server, chunked + b"Connection: close\r\n" + body + b"X: y\r\n\r\n")
    # Nothing is answered: the connection ends.
    assert not heard(plain_server, chunked + body + fields)


@pytest.mark.parametrize("path", ["/similarity", "/jobs", "/datasets", "/login"])
def test_compressed_bodies_are_refused_in_words(plain_server: RunningServer, path: str) -> None:
    for encoding in ("gzip", "GZIP", "br", "identity, gzip"):
        answer = answered(
            plain_server.http.post(
                path,
                content=gzip.compress(BODY),
                headers={"content-encoding": encoding, "content-type": "application/json"},
            ),
            415,
        )
        assert answer.json()["type"] == "/problems/unsupported-media-type"
        assert encoding.lower() in answer.json()["detail"]
    twice = [("content-encoding", "gzip"), ("content-encoding", "identity")]
    answered(plain_server.http.post("/similarity", content=BODY, headers=twice), 415)
    answered(
        plain_server.http.post("/similarity", content=BODY, headers={"content-encoding": "identity"}), 404
    )


def test_every_page_has_the_same_headers(plain_server: RunningServer) -> None:
    for path in ("/", "/docs", "/problems", "/problems/forbidden", "/console/models", "/nowhere"):
        page = plain_server.http.get(path, headers={"accept": "text/html"})
        assert page.headers["x-content-type-options"] == "nosniff", path
        if page.headers["content-type"].startswith("text/html"):
            assert page.headers.get_list("referrer-policy") == ["same-origin"], path
            assert "frame-ancestors 'none'" in page.headers["content-security-policy"], path


MIB = 1024 * 1024
ROLES = {"name": "crafted", "label": "y"}


@pytest.fixture(scope="module")
def reading(
    new_database: Callable[..., str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """A server with a budget of time that tests can wait for."""
    limits = {"PAIRMARK_PARSE_TIMEOUT_S": "4", "PAIRMARK_MAX_UNPACKED_RATIO": "30"}
    with serving(
        tmp_path_factory.mktemp("crafted"), new_database("sqlite"), process=True, **limits
    ) as server:
        yield server


def refused_upload(server: RunningServer, filename: str, body: bytes) -> dict[str, Any]:
    answer = answered(server.http.post("/datasets", data=ROLES, files={"file": (filename, body)}), 413)
    return answer.json()


def test_a_packed_file_is_refused_by_what_it_becomes(reading: RunningServer) -> None:
    reported = refused_upload(reading, "x.csv.gz", gzip.compress(b"x,y\n" + b"0,1\n1,2\n" * 9_000_000, 6))
    assert reported["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"
    assert "PAIRMARK_MAX_UNPACKED_RATIO raises this" in str(reported["detail"])
    stream = io.BytesIO()
    np.savez_compressed(stream, X=np.zeros((70 * MIB // 64, 8)), y=np.arange(70 * MIB // 64) // 2)
    assert refused_upload(reading, "x.npz", stream.getvalue())["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"
    rows = parquet("SELECT 1 AS x, (i % 2) AS y FROM range(20_000_000) r(i)")
    assert refused_upload(reading, "x.parquet", rows)["setting"] == "PAIRMARK_MAX_UNPACKED_RATIO"


def fork_servers(server: RunningServer) -> list[psutil.Process]:
    """Processes that readers of uploads are forked from."""
    children = psutil.Process(server.process.pid).children(recursive=True)
    return [
        one
        for one in children
        if one.status() != psutil.STATUS_ZOMBIE
        and "pairmark.service.parser" in one.cmdline()
        and "pairmark.service.parser" not in one.parent().cmdline()
    ]


def stored(server: RunningServer, body: bytes) -> httpx.Response:
    return server.http.post("/datasets", data=ROLES, files={"file": ("x.csv", body)})


def test_a_reader_that_dies_takes_nothing_down(reading: RunningServer) -> None:
    """The next upload has a fork server again, should the one there is be killed."""
    # The first upload starts it, which is this one where the test runs alone.
    assert stored(reading, b"x,y\n1,a\n2,a\n3,b\n").status_code == 201
    (fork_server,) = fork_servers(reading)
    fork_server.kill()
    until(lambda: ended(fork_server.pid), "the fork server is gone")
    assert stored(reading, b"x,y\n1,a\n2,a\n4,b\n").status_code == 201
    assert httpx.get(f"{reading.url}/healthz", timeout=PATIENCE_S).status_code == 200
