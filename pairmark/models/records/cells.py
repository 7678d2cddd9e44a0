"""One cell: what its column's type takes, and what it becomes. Nothing is coerced: what does not fit is refused."""

import datetime
import math
import re
import unicodedata
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal, get_args

from pairmark.models.core.inputs import is_absent, is_placeholder

DateFormat = Literal[
    "YYYY-MM-DD",
    "YYYY/MM/DD",
    "YYYYMMDD",
    "DD/MM/YYYY",
    "MM/DD/YYYY",
    "DD.MM.YYYY",
    "DD-MM-YYYY",
    "MM-DD-YYYY",
    "DD-Mon-YYYY",
    "DD-Mon-YY",
    "DD/MM/YY",
    "MM/DD/YY",
]
DATE_FORMATS: tuple[DateFormat, ...] = get_args(DateFormat)
MAX_CELL = 32_768
"""Characters of a cell."""
TRUE = frozenset({"true", "yes", "t", "y", "1", "ja", "j", "oui", "si", "sì", "sí", "tak"})
FALSE = frozenset({"false", "no", "f", "n", "0", "nein", "non", "nie"})

NUL = "holds the character NUL (0), which no database keeps; expected text without it"

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?")
_PLACE = re.compile(r"\(?\s*([+-]?\d{1,2}(?:\.\d+)?)\s*[,; ]\s*([+-]?\d{1,3}(?:\.\d+)?)\s*\)?")
_TIME = re.compile(r"(.{10})[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")
_EPOCH = datetime.date(1970, 1, 1).toordinal()


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CENTURY_TURNS = 69
"""Two-digit years from here on are of the 1900s, others of the 2000s, as POSIX has it."""
BEFORE = "[$€£¥₽₹₺]|usd|eur|gbp|chf|pln|sek|nok|dkk|czk|huf"
AFTER = "|".join(
    [
        "%",
        BEFORE,
        "z[łl]|k[čc]|kr|kg|mg|g|lbs?|oz|km|cm|mm|mi|m|ft|in|ml|l",
        "tb|gb|mb|ghz|mhz|kw|w|v|mah|hrs?|h|min|sec|s",
    ]
)
_MEASURED = re.compile(
    rf"(?P<before>{BEFORE})?\s*(?P<amount>[+-]?(?:\d{{1,3}}(?:,\d{{3}})+|\d+)(?:\.\d+)?)\s*(?P<after>{AFTER})?",
    re.IGNORECASE,
)
DECIMAL_COMMA = re.compile(r"[-+]?\d+(?:[. ]\d{3})*,(?:\d{1,2}|\d{4,})(?!\d)")
"""A number as half of Europe writes it; it also looks like a place of whole degrees."""
_CLOCK = re.compile(r"(?:(\d{1,3}):)?(\d{1,3}):([0-5]\d)")
CLOCK, THOUSANDS = "m:ss", ","


def measured_of(cell: str) -> tuple[float, str] | None:
    """A number and the unit beside it, such as ``8.10 %`` or ``$ 1.29``; None for anything else.

    Of ``1,000`` the unit is `THOUSANDS`; ``6:30`` and ``1:06:30`` are seconds, or minutes, of `CLOCK`.
    """
    text = cell.strip()
    if clock := _CLOCK.fullmatch(text):
        hours, minutes, seconds = (float(part or 0) for part in clock.groups())
        return 3600 * hours + 60 * minutes + seconds, CLOCK
    parts = _MEASURED.fullmatch(text)
    if not parts or (parts["before"] and parts["after"]):
        return None
    unit = parts["before"] or parts["after"] or (THOUSANDS if "," in parts["amount"] else "")
    return (float(parts["amount"].replace(",", "")), unit.lower()) if unit else None


def is_unit(text: str) -> bool:
    """Whether `measured_of` may find it beside a number."""
    return text in (CLOCK, THOUSANDS) or measured_of(f"1 {text}") is not None


class UnfitCell(ValueError):
    """A cell is not of its column's kind."""


def _date_pattern(form: str) -> re.Pattern[str]:
    parts = {"YYYY": r"(?P<y>\d{4})", "YY": r"(?P<y>\d{2})", "MM": r"(?P<m>\d{1,2})", "DD": r"(?P<d>\d{1,2})",
             "Mon": rf"(?P<m>{'|'.join(_MONTHS)})"}  # fmt: skip
    if form == "YYYYMMDD":
        parts |= {"MM": r"(?P<m>\d{2})", "DD": r"(?P<d>\d{2})"}
    pattern = re.escape(form)
    for part, expression in parts.items():
        pattern = pattern.replace(part, expression)
    return re.compile(pattern, re.IGNORECASE)


_DATES = {form: _date_pattern(form) for form in DATE_FORMATS}


def number_of(cell: str) -> float | None:
    """A decimal number; None for anything else, thousands separators, infinities and units included."""
    text = cell.strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def date_of(cell: str, form: DateFormat) -> float | None:
    """Days since 1970-01-01 (with a fraction where a time follows); None for anything else."""
    text, share = cell.strip(), 0.0
    with_time = _TIME.fullmatch(text)
    if with_time:
        hour, minute, second = (int(part or 0) for part in with_time.groups()[1:])
        if hour > 23 or minute > 59 or second > 60:
            return None
        text, share = with_time[1], (3600 * hour + 60 * minute + second) / 86_400
    parts = _DATES[form].fullmatch(text)
    if not parts:
        return None
    try:
        year, name = int(parts["y"]), parts["m"].lower()
        if len(parts["y"]) == 2:
            year += 1900 if year >= _CENTURY_TURNS else 2000
        month = _MONTHS.index(name) + 1 if name in _MONTHS else int(name)
        return datetime.date(year, month, int(parts["d"])).toordinal() - _EPOCH + share
    except ValueError:
        return None


def place_of(cell: str) -> tuple[float, float] | None:
    """Latitude and longitude in degrees, ``52.1, 4.3``; None for anything else."""
    parts = _PLACE.fullmatch(cell.strip())
    return None if not parts else _on_globe(float(parts[1]), float(parts[2]))


def boolean_of(cell: str) -> float | None:
    """1 or 0; None for anything else."""
    word = cell.strip().lower()
    return 1.0 if word in TRUE else 0.0 if word in FALSE else None


def canonical(
    value: Any, kind: str, form: str | None = None, *, strict: bool = False, verbatim: bool = False
) -> Any:
    """A cell as models read it; None for a missing one.

    Parameters
    ----------
    value : a string, or a typed value. form : of a date its format, of a number its unit.
    strict : whether the value is JSON: a number is then no string, though a number in quotes is a number, as in files.
    verbatim : whether a placeholder, such as ``N/A``, is a value where the type takes it.

    Raises
    ------
    UnfitCell
        Saying what was expected of a cell of this kind.
    ValueError
        Where no kind takes it.
    """
    if is_absent(value):
        return None
    is_text = isinstance(value, str)
    if is_text and len(value) > MAX_CELL:
        raise ValueError(f"has {len(value)} characters; expected at most {MAX_CELL}")
    if is_text and "\x00" in value:
        raise ValueError(NUL)
    stands_for_nothing = is_text and is_placeholder(value)
    take: Callable[[Any, Any, bool], Any] = _TAKEN.get(kind, _text)
    cell = None if stands_for_nothing and not verbatim else take(value, form, strict)
    if cell is None and not stands_for_nothing:
        raise UnfitCell(
            f"is {excerpt(value)}; expected {EXPECTED.get(kind, 'text, in quotes').format(form=form)}"
        )
    return cell


def excerpt(value: Any) -> str:
    """A value as messages show it."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


EXPECTED = {
    "number": "a number, such as 12.5",
    "boolean": "true or false",
    "date": "a date, {form}",
    "place": "latitude and longitude in degrees, such as [52.1, 4.3]",
}
"""What a cell of each type is, for messages."""


def _number(value: Any, form: Any, strict: bool) -> float | None:
    if isinstance(value, str):
        measured = measured_of(value) if form else None
        if measured is not None and measured[1] in (form, THOUSANDS):
            return measured[0]
        return number_of(value)
    if isinstance(value, bool):
        return None
    # Numbers of NumPy and Decimal come from typed files.
    if not isinstance(value, (int, float, Decimal)) and not hasattr(value, "dtype"):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _boolean(value: Any, form: Any, strict: bool) -> float | None:
    if isinstance(value, str):
        return None if strict else boolean_of(value)
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b":
        return float(value)
    return float(value) if not strict and value in (0, 1) else None


def _date(value: Any, form: Any, strict: bool) -> float | None:
    if isinstance(value, str):
        day = date_of(value, form or "YYYY-MM-DD")
        # The one format that nobody can misread is welcome in any request.
        return date_of(value, "YYYY-MM-DD") if day is None and strict else day
    if isinstance(value, datetime.datetime):
        return value.toordinal() - _EPOCH + (3600 * value.hour + 60 * value.minute + value.second) / 86_400
    return value.toordinal() - _EPOCH if isinstance(value, datetime.date) else None


def _place(value: Any, form: Any, strict: bool) -> tuple[float, float] | None:
    if isinstance(value, str):
        return None if strict else place_of(value)
    if isinstance(value, (list, tuple)) and len(value) == 2:
        latitude, longitude = (_number(part, None, True) for part in value)
        return None if latitude is None or longitude is None else _on_globe(latitude, longitude)
    return None


def _text(value: Any, form: Any, strict: bool) -> str | None:
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if strict or isinstance(value, (list, tuple, dict)):
        return None
    # A typed file's number whose column is said to be text: written as it would be in a CSV.
    return str(value)


def _on_globe(latitude: float, longitude: float) -> tuple[float, float] | None:
    return (latitude, longitude) if abs(latitude) <= 90 and abs(longitude) <= 180 else None


_TAKEN: dict[str, Callable[[Any, Any, bool], Any]] = {
    "number": _number,
    "boolean": _boolean,
    "date": _date,
    "place": _place,
}
