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


class Times:
    """When rows were taken, as they come; NaN where a cell is empty."""

    def __init__(self) -> None:
        self._dates: bool | None = None
        self._values: list[float] = []

    def add(self, values: Sequence[Any], first_row: int) -> None:
        """Take the next rows' values; `InvalidInput` names the first that is no number or date, or of another kind."""
        for offset, value in enumerate(values):
            text = "" if value is None else str(value).strip()
            if not text or text.lower() == "nan":
                self._values.append(math.nan)
                continue
            number = _number(text)
            days = _days(text) if number is None else None
            if number is None and days is None:
                raise _refused(
                    first_row + offset,
                    text,
                    "a finite number, or a date such as 2026-01-31 or 2026-01-31T12:00",
                )
            is_date = number is None
            if self._dates not in (None, is_date):
                raise _refused(
                    first_row + offset,
                    text,
                    "a date" if self._dates else "a number" + ", as in the rows before",
                )
            self._dates = is_date
            time = days if number is None else number
            assert time is not None
            self._values.append(time)

    def finish(self) -> tuple[NDArray[np.float64], str]:
        """(n,) times, and their unit: days, or empty for numbers as the file has them."""
        return np.array(self._values, dtype=np.float64), DAYS if self._dates else ""


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


def _refused(row: int, text: str, layout: str) -> InvalidInput:
    return InvalidInput(
        f"row {row + 1}: the time is {text[:50]!r}; expected {layout}", field="time", row=row + 1
    )
