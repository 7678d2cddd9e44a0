"""What the columns of a table are: a type for each, which every record is held against, and what one cell becomes.

Of a cell nothing is coerced: what does not fit its column's type is refused.
"""

import datetime
import math
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pairmark.models.core.inputs import cells_missing, is_absent, is_placeholder

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
TURN = 69
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
            year += 1900 if year >= TURN else 2000
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


FieldType = Literal[
    "number", "category", "text", "name", "date", "place", "boolean",
    "phone", "email", "web", "company", "street", "postcode", "list",
    "id", "identity", "classes", "group", "time", "ignore",
]  # fmt: skip
TYPES: tuple[str, ...] = get_args(FieldType)
STRINGS = frozenset(
    {"text", "name", "category", "phone", "email", "web", "company", "street", "postcode", "list"}
)
INFERRED = frozenset({"text", "name", "category", "number"})
"""Types of which cells and names of columns may say more."""
TEXTS = STRINGS - {"category"}
COMPARED = STRINGS | {"number", "date", "place", "boolean"}
"""Types whose cells a record brings; columns of the other types say what a row is, and no model reads them."""
RESERVED = frozenset({"samples", "indices", "values"})
"""Names that say in a request what a value is, so that no column may have them."""
ROW_ID = "__id__"
"""What the column of ids is called where a stored table is written; no other column may be."""
MAX_COLUMNS = 1_000
VERBATIM = "verbatim"
"""Ends a declared type where cells such as ``N/A`` are values."""
_SHOWN, _MOST_PROBLEMS = 5, 100
"""Cells that an error names, and that are looked for: what is refused costs no more than what is read."""

EVERY_FITS: Mapping[str, Callable[[str], Any]] = {}

Records = NDArray[np.object_]
"""(n, d) cells of the compared columns in the schema's order: float, str, (latitude, longitude), or None for
missing."""


class RecordError(ValueError):
    """Records do not fit their schema.

    Attributes
    ----------
    problems : ``{"row", "column", "detail"}`` of each, rows from 1; ``row`` is None where no row is at fault.
    """

    def __init__(self, problems: Sequence[Mapping[str, Any]]) -> None:
        self.problems = [dict(problem) for problem in problems]
        more = ["and further cells"] if len(self.problems) > _SHOWN else []
        rows = ("" if each["row"] is None else f"row {each['row']}, " for each in self.problems)
        lines = [
            f"{row}column {each['column']!r}: {each['detail']}"
            for row, each in zip(rows, self.problems[:_SHOWN], strict=False)
        ]
        super().__init__("; ".join(lines + more))


class RecordColumn(BaseModel):
    """A column: its name, its type and, of dates, the format of its cells.

    Attributes
    ----------
    unit : what stands beside its numbers, see `measured_of`; cells without one are numbers too.
    verbatim : whether cells such as ``N/A`` are values, as of somebody called Null.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1, max_length=512)
    type: FieldType
    format: DateFormat | None = None
    verbatim: bool = False
    unit: str | None = Field(None, max_length=8)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.name in RESERVED:
            raise ValueError(
                f"column {self.name!r} has a reserved name ({', '.join(sorted(RESERVED))}): rename the column"
            )
        if self.type == "date" and self.format is None:
            raise ValueError(f"column {self.name!r} is a date without a format: {', '.join(DATE_FORMATS)}")
        if self.type != "date" and self.format is not None:
            raise ValueError(f"column {self.name!r} has a date format, but its type is {self.type}")
        return self

    def cell(self, value: Any, *, strict: bool = False) -> Any:
        """A cell as models read it; None for a missing one.

        Parameters
        ----------
        value : a string, or a typed value.
        strict : whether the value is JSON: a number is then no string, though a number in quotes is a number, as in
            files.

        Raises
        ------
        UnfitCell
            Saying what was expected of a cell of this type.
        ValueError
            Where no type takes it.
        """
        if is_absent(value):
            return None
        is_text = isinstance(value, str)
        if is_text and len(value) > MAX_CELL:
            raise ValueError(f"has {len(value)} characters; expected at most {MAX_CELL}")
        if is_text and "\x00" in value:
            raise ValueError(NUL)
        stands_for_nothing, form = is_text and is_placeholder(value), self.format or self.unit
        take: Callable[[Any, Any, bool], Any] = _TAKEN.get(self.type, _text)
        cell = None if stands_for_nothing and not self.verbatim else take(value, form, strict)
        if cell is None and not stands_for_nothing:
            expected = EXPECTED.get(self.type, "text, in quotes").format(form=form)
            raise UnfitCell(f"is {excerpt(value)}; expected {expected}")
        return cell


class Schema(BaseModel):
    """The columns of a table, in its order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: tuple[RecordColumn, ...] = Field(min_length=1, max_length=MAX_COLUMNS)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = sorted(column.name for column in self.columns)
        repeated = next((name for name, following in pairwise(names) if name == following), None)
        if repeated is not None:
            raise ValueError(f"column {repeated!r} is there twice: rename one of them")
        if not any(column.type in COMPARED for column in self.columns):
            raise ValueError(
                "no column is left to compare: every one is an id, left out, empty, or has one value in all rows; "
                f"expected one of type {', '.join(sorted(COMPARED))}"
            )
        return self

    @cached_property
    def fields(self) -> tuple[RecordColumn, ...]:
        return tuple(column for column in self.columns if column.type in COMPARED)

    def of_type(self, kind: FieldType) -> list[str]:
        return [column.name for column in self.columns if column.type == kind]

    @property
    def no_cell(self) -> str:
        """What is said of a record without any cell."""
        names = [column.name for column in self.fields]
        more = "" if len(names) <= 20 else f" and {len(names) - 20} more"
        return (
            "has no cell, so there is nothing to compare; expected a value in at least one of "
            f"{', '.join(names[:20])}{more}"
        )

    def empty_rows(self, cells: Records) -> NDArray[np.int64]:
        """Numbers of the records without any cell."""
        return np.flatnonzero(cells_missing(cells).all(axis=1))

    def read(
        self, table: Mapping[str, Sequence[Any]], otherwise: Mapping[str, Callable[[str], Any]] = EVERY_FITS
    ) -> Records:
        """Cells of a table, as a file gives them: strings, or typed values.

        Parameters
        ----------
        otherwise : of some columns, how texts are read that do not fit, see `inference.other_readings`.

        Raises
        ------
        RecordError
            Naming row and column of each cell that is not of its column's type, and columns that are missing.
        """
        absent = [column.name for column in self.fields if column.name not in table]
        if absent:
            problems = [{"row": None, "column": name, "detail": "is not in the table"} for name in absent]
            raise RecordError(problems)
        return self._filled(table, len(next(iter(table.values()))), [], strict=False, otherwise=otherwise)

    def _filled(
        self,
        table: Mapping[str, Sequence[Any]],
        n: int,
        problems: list[dict[str, Any]],
        *,
        strict: bool,
        otherwise: Mapping[str, Callable[[str], Any]] = EVERY_FITS,
    ) -> Records:
        """Cells of a table's columns, each different text read once; what does not fit is added to ``problems``."""
        cells = np.empty((n, len(self.fields)), dtype=object)
        for place, column in enumerate(self.fields):
            texts: dict[str, Any] = {}
            for row, value in enumerate(table[column.name]):
                if len(problems) > _MOST_PROBLEMS:
                    break
                is_text = type(value) is str
                try:
                    cell = texts[value] if is_text and value in texts else column.cell(value, strict=strict)
                except ValueError as error:
                    if column.name not in otherwise or not (is_text and isinstance(error, UnfitCell)):
                        problems.append({"row": row + 1, "column": column.name, "detail": str(error)})
                        continue
                    cell = otherwise[column.name](value)
                cells[row, place] = cell
                if is_text:
                    texts[value] = cell
        if problems:
            raise RecordError(sorted(problems, key=lambda problem: (problem["row"], problem["column"])))
        return cells

    def records(self, values: Sequence[Any], where: str = "records", *, strict: bool = True) -> Records:
        """Records as a request brings them, ``{"column": value}`` each; a missing column is a missing cell.

        Columns that models do not read, such as an id, may be there. Not ``strict``: texts are read as those of a file.

        Raises
        ------
        RecordError
            Naming the column that the schema does not have, or whose value is of another type.
        """
        problems: list[dict[str, Any]] = []
        table: dict[str, list[Any]] = {column.name: [None] * len(values) for column in self.fields}
        unread = {column.name for column in self.columns} - table.keys()
        for row, record in enumerate(values):
            if len(problems) > _MOST_PROBLEMS:
                break
            if not isinstance(record, Mapping):
                detail = f"is {excerpt(record)}; expected an object from column to value"
                problems.append({"row": row + 1, "column": where, "detail": detail})
                continue
            for name, value in record.items():
                if name in table:
                    table[name][row] = value
                elif name not in unread:
                    detail = f"is none of the model's columns: {', '.join(list(table)[:20])}"
                    problems.append({"row": row + 1, "column": str(name)[:100], "detail": detail})
                elif isinstance(value, str) and "\x00" in value:
                    problems.append({"row": row + 1, "column": name, "detail": NUL})
        return self._filled(table, len(values), problems, strict=strict)

    def values(self, cells: Records) -> Iterator[dict[str, Any]]:
        """Records as JSON shows them; missing cells are left out. `records` takes them back."""
        for row in cells:
            yield {
                column.name: json_cell(value, column)
                for column, value in zip(self.fields, row, strict=True)
                if value is not None
            }


def key_of(name: str) -> str:
    """A name as columns of two tables are matched by: without case, spaces and marks."""
    return "".join(char for char in name.casefold() if char.isalnum())


def is_plain(schema: Schema) -> bool:
    """Whether it is the schema of a matrix of numbers without names."""
    return all(
        column.name == f"x{at}" and column.type == "number" for at, column in enumerate(schema.columns)
    )


def sample_cells(schema: Schema, n: int) -> Records:
    """Made-up cells that differ from row to row, to compile kernels with."""
    makers: dict[str, Callable[[int], Any]] = {
        "number": float,
        "boolean": lambda row: float(row % 2),
        "date": float,
        "place": lambda row: (float(row), 0.0),
        **dict.fromkeys(STRINGS, lambda row: f"word{row} x{row}1 other"),
    }
    cells = np.empty((n, len(schema.fields)), dtype=object)
    for row, at in np.ndindex(cells.shape):
        cells[row, at] = makers[schema.fields[at].type](row)
    return cells


def json_cell(value: Any, column: RecordColumn) -> Any:
    if column.type == "date":
        moment = np.datetime64(0, "s") + np.timedelta64(round(value * 86_400), "s")
        return str(moment.astype("datetime64[D]")) if value == int(value) else str(moment)
    return {"boolean": bool, "place": list}.get(column.type, lambda cell: cell)(value)


def schema_of_model(estimator: Any) -> Schema | None:
    """The columns of the records that a fitted learner takes; None for one that takes vectors."""
    schema: Schema | None = estimator.schema_ if estimator.encoder_ is None else estimator.encoder_.schema
    return schema
