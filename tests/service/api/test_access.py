"""Whose key a request shows, and whether it comes from this machine."""

from __future__ import annotations

import pytest

from pairmark.service.api.access import host_name, is_loopback, shown_key


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
