"""The column that says when each row was taken: numbers, or dates and times in ISO 8601."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.errors import InvalidInput

DAYS = "days"
_DAY_S = 86_400.0


def read_times(values: Sequence[Any]) -> tuple[NDArray[np.float64], str]:
    """(n,) times, NaN where a cell is empty, and their unit: days, or empty for numbers as the file has them.

    `InvalidInput` names the first that is no number or date, or of another kind than the first.
    """
    texts = ["" if value is None else str(value).strip() for value in values]
    told = [row for row, text in enumerate(texts) if text and text.lower() != "nan"]
    is_date = bool(told) and _number(texts[told[0]]) is None
    times = np.full(len(texts), np.nan)
    for row in told:
        time = (_days if is_date else _number)(texts[row])
        if time is None:
            expected = "a date such as 2026-01-31 or 2026-01-31T12:00" if is_date else "a finite number"
            raise InvalidInput(
                f"row {row + 1}: the time is {texts[row][:50]!r}; expected {expected}",
                field="time",
                row=row + 1,
            )
        times[row] = time
    return times, DAYS if is_date else ""


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _days(text: str) -> float | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    try:
        return moment.timestamp() / _DAY_S
    except (OverflowError, ValueError):
        return None
