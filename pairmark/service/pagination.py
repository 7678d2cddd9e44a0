"""Pages of lists, and the opaque cursors between them."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import Session

from pairmark.schemas.base import Page
from pairmark.service.errors import InvalidInput

MAX_LIMIT = 500
R = TypeVar("R")
P = TypeVar("P", bound=Page[Any])


def page_of(
    kind: type[P],
    rows: Sequence[R],
    limit: int,
    mark: Callable[[R], tuple[Any, ...]],
    make: Callable[[R], Any],
) -> P:
    """The first ``limit`` rows, of which one more was read if there is one; ``mark``: what tells a row's place."""
    next_cursor = encode_cursor(*mark(rows[limit - 1])) if len(rows) > limit else None
    return kind(items=[make(row) for row in rows[:limit]], next_cursor=next_cursor)


def read_page(
    session: Session,
    query: Select[*tuple[Any, ...]],
    order: Sequence[Any],
    limit: int,
    cursor: str | None,
    *,
    newest_first: bool = False,
) -> tuple[list[Any], str | None]:
    """A page of what a query selects, and the cursor of the next one, None after the last.

    Parameters
    ----------
    order : columns that are never NULL and that together tell each row from the others; ``newest_first``: descending.

    Returns
    -------
    rows : of a query of one thing its values, of others tuples.
    """
    mark = start_of(limit, cursor, *(column.type.python_type for column in order))
    if mark is not None:
        place, start = tuple_(*order), mark if len(order) > 1 else (mark,)
        query = query.where(place < start if newest_first else place > start)
    directed = [column.desc() if newest_first else column for column in order]
    # One more than is shown says whether there is a next page; the order's own columns come last.
    marked_rows = session.execute(query.add_columns(*order).order_by(*directed).limit(limit + 1)).all()
    following = encode_cursor(*marked_rows[limit - 1][-len(order) :]) if len(marked_rows) > limit else None
    rows = [row[: -len(order)] for row in marked_rows[:limit]]
    return [row[0] if len(row) == 1 else row for row in rows], following


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


def start_of(limit: int, cursor: str | None, *kinds: type) -> Any:
    """Where a page starts: the mark of the cursor (its value, where it is one), None for the first page."""
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput(f"limit is {limit}; expected 1 to {MAX_LIMIT}", field="limit")
    mark = None if cursor is None else decode_cursor(cursor, *kinds)
    return mark[0] if mark is not None and len(kinds) == 1 else mark
