"""Opaque cursors for paging through lists."""

from __future__ import annotations

import base64
import binascii
import json
import math
from typing import Any

from pairmark.service.errors import InvalidInput

MAX_LIMIT = 500


def encode_cursor(*mark: str | int | float) -> str:
    """The mark after which the next page starts, as an opaque word."""
    return base64.urlsafe_b64encode(json.dumps(mark, separators=(",", ":")).encode()).decode().rstrip("=")


def decode_cursor(cursor: str, *kinds: type) -> tuple[Any, ...]:
    """What `encode_cursor` was given, checked to be of these kinds, or `InvalidInput`."""
    try:
        mark = json.loads(base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4)))
        fits = (
            isinstance(mark, list)
            and len(mark) == len(kinds)
            and all(type(value) is kind for value, kind in zip(mark, kinds, strict=True))
            and all(
                abs(value) < 2**63 and math.isfinite(value) for value in mark if not isinstance(value, str)
            )
            and all(value.isascii() and value.isprintable() for value in mark if isinstance(value, str))
        )
    except (ValueError, binascii.Error, RecursionError):
        fits = False
    if not fits:
        raise InvalidInput("cursor: expected the next_cursor of an earlier page, unchanged", field="cursor")
    return tuple(mark)


def checked_limit(limit: int) -> int:
    """The limit, or `InvalidInput` beyond its bounds."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit is {limit}; expected 1 to {MAX_LIMIT}", field="limit")
    return limit
