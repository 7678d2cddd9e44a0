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
        ("application/octet-stream, application/json", True),
        ("application/json, application/octet-stream;q=0.9", False),
        ("application/octet-stream;q=0, application/json", False),
        ("application/octet-stream; q=0.5, */*;q=0.1", True),
        ("application/octet-stream;q=zero", True),
        ("text/html, application/octet-stream", True),
    ],
)
def test_the_form_that_is_wanted_more_is_given(accept: str, wanted: bool) -> None:
    assert raw(accept) is wanted


@pytest.mark.parametrize(
    "accept", ["text/html", "application/json;q=0", "application/octet-stream;q=0.0", "*/*;q=0"]
)
def test_nothing_else_is_given(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/octet-stream"):
        raw(accept)


def test_a_body_without_a_type_is_json() -> None:
    call: Any = SimpleNamespace(fields={})
    assert media(call) == (JSON, False)
