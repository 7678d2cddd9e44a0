"""Which form of an answer a client wants, as `Accept` says it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from pairmark.service.api.calls import JSON, Call, media
from pairmark.service.api.problems import NotAcceptable


def raw(accept: str) -> bool:
    """Whether raw bytes are given."""
    return media(cast(Call, SimpleNamespace(fields={b"accept": accept.encode()})))[1]


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("Application/JSON", False),
        ("application/octet-stream", True),
        ("application/octet-stream, application/json", False),
        ("application/octet-stream; q=0.5, */*;q=0.1", True),
        ("text/html, application/octet-stream", True),
    ],
)
def test_raw_bytes_are_given_to_who_takes_no_json(accept: str, wanted: bool) -> None:
    assert raw(accept) is wanted


def test_nothing_else_is_given() -> None:
    with pytest.raises(NotAcceptable, match="application/octet-stream"):
        raw("text/html")


def test_a_body_without_a_type_is_json() -> None:
    call: Any = SimpleNamespace(fields={})
    assert media(call) == (JSON, False)
