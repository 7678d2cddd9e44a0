"""Whose key a request shows, and whether it comes from this machine."""

from __future__ import annotations

import pytest

from pairmark.service.api.access import check_csrf, shown_key, shown_session
from pairmark.service.errors import Forbidden
from pairmark.service.keys import ActiveSession


def test_keys_are_read_from_headers_and_sessions_from_the_cookie() -> None:
    assert shown_key({b"authorization": b"Bearer abc"}) == "abc"
    assert shown_key({b"authorization": b"bearer  abc "}) == "abc"
    assert shown_key({b"authorization": b"Basic abc"}) == ""
    assert shown_key({b"x-api-key": b"abc"}) == "abc"
    cookie = {b"cookie": b"theme=dark; pairmark_session=abc; pairmark_key=pm_old"}
    assert shown_key(cookie) is None
    assert shown_session(cookie) == "abc"
    assert shown_session({b"cookie": b"pairmark_key=pm_old"}) is None
    assert shown_session({}) is None


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, True),
        ({b"x-csrf-token": b"wrong"}, True),
        ({b"x-csrf-token": b"token"}, False),
        ({b"x-csrf-token": b"token", b"origin": b"http://here", b"host": b"here"}, False),
        ({b"x-csrf-token": b"token", b"origin": b"http://evil", b"host": b"here"}, True),
        ({b"x-csrf-token": b"token", b"sec-fetch-site": b"same-site"}, True),
        ({b"x-csrf-token": b"t\xe9"}, True),
    ],
)
def test_changes_in_a_session_need_its_token(headers: dict[bytes, bytes], refused: bool) -> None:
    session = ActiveSession(key_id="k", csrf="token", expires_at=0.0)
    check_csrf(session, headers, "GET")
    if refused:
        with pytest.raises(Forbidden):
            check_csrf(session, headers, "DELETE")
    else:
        check_csrf(session, headers, "DELETE")
