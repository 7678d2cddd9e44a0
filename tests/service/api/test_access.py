"""Every route needs what it should, and an unnamed one needs the most."""

from __future__ import annotations

import pytest

from pairmark.service.api.access import host_name, is_loopback, need, shown_key


@pytest.mark.parametrize(
    ("method", "path", "needed"),
    [
        ("POST", "/similarity", "score"),
        ("POST", "/match", "score"),
        ("POST", "/explain", "score"),
        ("GET", "/healthz", "open"),
        ("GET", "/readyz", "open"),
        ("GET", "/static/console.css", "open"),
        ("GET", "/problems/invalid-input", "open"),
        ("GET", "/metrics", "metrics"),
        ("GET", "/", "any"),
        ("GET", "/models", "any"),
        ("GET", "/models/m/versions/1/roc.png", "any"),
        ("GET", "/models/m/versions/1/export", "train"),
        ("POST", "/datasets", "train"),
        ("DELETE", "/datasets/d", "train"),
        ("POST", "/jobs", "train"),
        ("POST", "/jobs/x/cancel", "any"),
        ("PUT", "/models/m/aliases/production", "train"),
        ("DELETE", "/models/m/versions/1", "admin"),
        ("POST", "/calibrations", "train"),
        ("PUT", "/galleries/g/items", "gallery"),
        ("GET", "/anything/else", "admin"),
        ("GET", "/modelsx", "admin"),
        ("GET", "/staticx", "admin"),
        ("GET", "", "admin"),
    ],
)
def test_need(method: str, path: str, needed: str) -> None:
    assert need(method, path) == needed


def test_keys_are_read_from_headers_and_for_reading_from_the_cookie() -> None:
    assert shown_key({b"authorization": b"Bearer abc"}, "POST") == "abc"
    assert shown_key({b"authorization": b"bearer  abc "}, "POST") == "abc"
    assert shown_key({b"authorization": b"Basic abc"}, "POST") == ""
    assert shown_key({b"x-api-key": b"abc"}, "POST") == "abc"
    cookie = {b"cookie": b"theme=dark; pairmark_key=abc"}
    assert shown_key(cookie, "GET") == "abc"
    assert shown_key(cookie, "POST") is None
    assert shown_key({}, "GET") is None


@pytest.mark.parametrize(
    ("header", "loopback"),
    [
        ("127.0.0.1:8000", True),
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("[::1]:8000", True),
        ("127.9.9.9", True),
        ("evil.example", False),
        ("localhost.evil.example:80", False),
        ("192.168.1.4:8000", False),
    ],
)
def test_hosts(header: str, loopback: bool) -> None:
    assert is_loopback(host_name(header)) is loopback
