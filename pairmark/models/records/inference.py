"""Types of columns from their cells, with what speaks for each and what people should look at."""

import datetime
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, get_args

from pydantic import ValidationError

from pairmark.models.core.inputs import describe_counts, is_absent, is_placeholder
from pairmark.models.records.compare.normal import fold_cell, iso_date
from pairmark.models.records.recognition import century_turn, month_first, recognize_kind
from pairmark.models.records.schema import (
    COMPARED,
    DATE_FORMATS,
    DECIMAL_COMMA,
    FALSE,
    RESERVED,
    ROW_ID,
    STRINGS,
    THOUSANDS,
    TRUE,
    VERBATIM,
    DateFormat,
    FieldType,
    RecordColumn,
    RecordError,
    Schema,
    boolean_of,
    date_of,
    is_unit,
    key_of,
    measured_of,
    number_of,
    place_of,
)

_MOSTLY = 0.8
"""Share of cells from which on the others look like mistakes, not like another type."""
_EXAMPLES = 3
_ID_NAMES = re.compile(
    r"(?:.*[_ .-])?(?:id|uid|uuid|guid|key)|row|index|file(?:[_ .-]?name)?|path|unnamed\.\d+|__index_level_\d+__",
    re.IGNORECASE,
)
_ROW_IDS = frozenset({"id", "rowid", "recid", "recordid"})
_ROW_LABEL = re.compile(r"([A-Za-z]+[-_/# ]?)\d+")
_IDENTITY_NAMES = frozenset(
    {"identity", "entity", "entity_id", "identity_id", "cluster", "cluster_id", "person_id"}
)
_GROUP_NAMES = frozenset({"group", "group_id"})
_GARBLED = re.compile("\ufffd|\u00c3[\u0080-\u00bf]|\u00e2\u20ac")
_CODE_WIDTH = 6
_MOST_CATEGORIES = 100
_NUMBERED = 20
"""Rows from which on a rising column looks like a count of them."""
_MOST_FREQUENT = 10
"""Values that are more frequent than a word that may be a name, such as Null, where it is kept as one."""


@dataclass(frozen=True, kw_only=True)
class ColumnNotes:
    """What a column was taken for and why.

    Attributes
    ----------
    column : its name, type and format.
    reason : what speaks for the type. examples : some of its cells.
    warnings : what to look at, with row numbers from 1.
    missing, distinct : how many cells are missing, and how many distinct ones there are.
    placeholders : words such as ``N/A`` among the missing, and how often each occurs.
    """

    column: RecordColumn
    reason: str
    examples: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missing: int = 0
    placeholders: Mapping[str, int] = field(default_factory=dict)
    distinct: int = 0


@dataclass(frozen=True, kw_only=True)
class Inference:
    """A schema, and how it came about, column by column."""

    schema: Schema
    notes: tuple[ColumnNotes, ...]


class _Cells:
    """Distinct cells of a column that are not missing.

    Attributes
    ----------
    n, missing : how many cells there are, and how many of them are missing.
    first : the row of the first of each, from 1. counts : how often each occurs.
    placeholders : the cells among the missing that are words such as ``N/A``, and how often each occurs.
    typed : what all are where they are no texts, such as ``number``; None where they are texts, or several things.
    warnings : what people should look at.
    """

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name, self.n = name, len(values)
        self.warnings: list[str] = []
        first: dict[str, int] = {}
        self.counts: Counter[str] = Counter()
        kinds = set()
        for row, value in enumerate(values, start=1):
            if not is_absent(value):
                cell, kind = (value, "text") if isinstance(value, str) else _read_value(value)
                kinds.add(kind)
                self.counts[cell] += 1
                first.setdefault(cell, row)
        self.typed = None if len(kinds) != 1 or kinds == {"text"} else kinds.pop()
        placeholders = (cell for cell in first if self.typed is None and is_placeholder(cell))
        self.placeholders = {cell: self.counts[cell] for cell in placeholders}
        self.missing = self.n - self.counts.total() + sum(self.placeholders.values())
        self.first = {cell: row for cell, row in first.items() if cell not in self.placeholders}

    @property
    def unique(self) -> bool:
        """Whether every row has a cell of its own; an id may well be called ``.`` or ``NA``."""
        return len(self.counts) == self.n

    @cached_property
    def numbers(self) -> list[float]:
        """The distinct cells that are numbers."""
        numbers = (number_of(cell) for cell in self.first)
        return [number for number in numbers if number is not None]

    @property
    def steps(self) -> list[float]:
        """From each distinct number to the next; empty where there are few, or cells that are no numbers."""
        n = len(self.first)
        return [b - a for a, b in pairwise(self.numbers)] if len(self.numbers) == n >= _NUMBERED else []


def infer(table: Mapping[str, Sequence[Any]], overrides: Mapping[str, str] | None = None) -> Inference:
    """Types of the columns of a table.

    Parameters
    ----------
    table : from column to cells, strings or typed values, of one length; None for missing.
    overrides : from column to its type, or ``date:DD/MM/YYYY``; the others are inferred.

    Raises
    ------
    RecordError
        For reserved and unknown names, types that do not exist, and dates whose format is not one throughout.
    """
    overrides = dict(overrides or {})
    problems = [
        (name, f"is a reserved name ({', '.join(sorted(RESERVED))}): rename it")
        for name in table
        if name in RESERVED and overrides.get(name) != "ignore"
    ]
    if ROW_ID in table and overrides.get(ROW_ID) not in ("id", "ignore"):
        problems.append((ROW_ID, "is a reserved name: rename it"))
    spelled: dict[str, str] = {}
    for name in table:
        if overrides.get(name) == "ignore":
            continue
        alike = spelled.setdefault(key_of(name) or name, name)
        if alike != name:
            problems.append(
                (name, f"is spelled like {alike!r}, as columns of tables are matched: rename or leave out one of them")
            )  # fmt: skip
    in_table = ", ".join(list(table)[:20])
    problems += [(name, f"is not in the table: {in_table}") for name in overrides if name not in table]
    if problems:
        raise RecordError([{"row": None, "column": name, "detail": detail} for name, detail in problems])
    notes = notes_of(table, overrides)
    try:
        return Inference(schema=Schema(columns=tuple(each.column for each in notes)), notes=notes)
    except ValidationError as error:
        detail = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise RecordError([{"row": None, "column": in_table, "detail": detail}]) from None


def notes_of(table: Mapping[str, Sequence[Any]], overrides: Mapping[str, str]) -> tuple[ColumnNotes, ...]:
    """What each column is taken for, whatever they make together; those with a reserved name are passed over."""
    has_id = any(kind == "id" for kind in overrides.values())
    # A column that is called ID names rows before any number of an insurance or an account.
    named = next((name for name in table if key_of(name) in _ROW_IDS and name not in overrides), None)
    notes = []
    for name, values in table.items():
        if name in RESERVED:
            continue
        cells = _Cells(name, values)
        if name in overrides:
            column, reason = _override_column(cells, overrides[name])
        else:
            column, reason = _infer_column(cells, has_id or (named is not None and name != named))
            has_id |= column.type == "id"
        column = _treat_placeholders(cells, column, declared=name in overrides)
        _look(cells, column)
        notes.append(
            ColumnNotes(
                column=column, reason=reason, examples=tuple(_cut_cell(cell) for cell in list(cells.first)[:_EXAMPLES]),
                warnings=tuple(cells.warnings), missing=cells.missing, placeholders=cells.placeholders,
                distinct=len(cells.first),
            )
        )  # fmt: skip
    return tuple(notes)


def _treat_placeholders(cells: _Cells, column: RecordColumn, *, declared: bool) -> RecordColumn:
    """The column as one whose placeholders are values, where it was declared or hardly has any: somebody may be called
    Null. Either is told."""
    placeholders = cells.placeholders
    if not placeholders or column.type not in COMPARED:
        return column
    more_frequent = sum(n > max(placeholders.values()) for n in cells.counts.values())
    is_value = column.type in STRINGS and (
        declared or (more_frequent >= _MOST_FREQUENT and all(cell.strip().isalpha() for cell in placeholders))
    )
    if column.type == "date" and declared:
        is_value = column.format is not None and all(
            date_of(cell, column.format) is not None for cell in placeholders
        )
    if is_value:
        cells.warnings.append(
            f"{describe_counts(placeholders)}: cells that often stand for no value are kept as values; empty those "
            "that are none"
        )
        cells.missing -= sum(placeholders.values())
        cells.placeholders = {}
        return column.model_copy(update={"verbatim": True})
    cells.warnings.append(
        f"{describe_counts(placeholders)}: taken as missing. To keep them as values, give the column's type "
        f"(--column {column.name}:{column.type})"
    )
    return column


def _read_value(value: Any) -> tuple[str, str]:
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return str(bool(value)).lower(), "boolean"
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat(), "date"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)), "place"
    return str(value), "number"


def parts_of(request: str) -> tuple[Any, str, bool]:
    """A declared type, its date format or nothing, and whether cells such as ``N/A`` are values."""
    kind, *parts = request.split(":")
    return kind, ":".join(part for part in parts if part != VERBATIM), VERBATIM in parts


def _override_column(cells: _Cells, request: str) -> tuple[RecordColumn, str]:
    kind, form, verbatim = parts_of(request)
    if kind not in get_args(FieldType) or (
        form and kind != "date" and not (kind == "number" and is_unit(form))
    ):
        detail = f"has type {request!r}; expected one of {', '.join(get_args(FieldType))}, or date:FORMAT"
        raise RecordError([{"row": None, "column": cells.name, "detail": detail}])
    measured = _infer_measured(cells) if kind == "number" and not form else None
    if measured is not None:
        return measured[0].model_copy(update={"verbatim": verbatim}), "as given"
    if kind != "date":
        if kind == "boolean" and cells.typed is None:
            _take_misfits_as_missing(cells, kind, [cell for cell in cells.first if boolean_of(cell) is None])
        return RecordColumn(name=cells.name, type=kind, verbatim=verbatim, unit=form or None), "as given"
    if form:
        if form not in DATE_FORMATS:
            detail = f"has date format {form!r}; expected {', '.join(DATE_FORMATS)}"
            raise RecordError([{"row": None, "column": cells.name, "detail": detail}])
        best, misfits = form, [cell for cell in cells.first if date_of(cell, form) is None]
    else:
        best, misfits = _date_format(cells.first)
    if misfits:
        day = _day_reader(list(cells.first), best)
        _take_misfits_as_missing(cells, kind, [cell for cell in misfits if day(cell) is None])
    if form:
        return RecordColumn(name=cells.name, type="date", format=best), "as given"
    _warn_of_order(cells, best)
    return RecordColumn(name=cells.name, type="date", format=best), f"as given, {best}"


_UNFIT = {"date": "dates", "boolean": "true or false"}


def other_readings(
    table: Mapping[str, Sequence[Any]], schema: Schema, names: Iterable[str]
) -> dict[str, Callable[[str], float | None]]:
    """How columns that were declared read texts that do not fit: dates in any usual writing, and None, a missing cell,
    for what is none. Numbers have no other reading."""
    readings: dict[str, Callable[[str], float | None]] = {}
    for column in schema.fields:
        if column.name in names and column.type == "boolean":
            readings[column.name] = lambda _: None
        elif column.name in names and column.format is not None:
            texts = [cell for cell in table[column.name] if isinstance(cell, str)]
            readings[column.name] = _day_reader(texts, column.format)
    return readings


def _day_reader(cells: Sequence[str], form: str) -> Callable[[str], float | None]:
    is_month, turn = form.startswith("MM") or month_first(cells), century_turn(cells)

    def day_of(cell: str) -> float | None:
        plain = fold_cell(cell)
        day = plain and iso_date(plain, is_month, turn)
        return date_of(day, "YYYY-MM-DD") if day else None

    return day_of


def _take_misfits_as_missing(cells: _Cells, kind: str, misfits: Sequence[str]) -> None:
    """Tell of cells that do not fit a declared kind; refuse a column of which most do not."""
    if not misfits:
        return
    first, n = misfits[0], sum(cells.counts[cell] for cell in misfits)
    said = f"{n} of {cells.n - cells.missing} cells are not {_UNFIT[kind]}"
    if 2 * len(misfits) > len(cells.first):
        how = f", in one of the formats {', '.join(DATE_FORMATS)}" if kind == "date" else ""
        detail = (
            f"is {_cut_cell(first)!r}; expected {_UNFIT[kind]}{how}: {said}, so give the column another type, text say"
        )  # fmt: skip
        raise RecordError([{"row": cells.first[first], "column": cells.name, "detail": detail}])
    cells.warnings.append(f"{said}, and taken as missing: {_rows_of(cells, misfits)}")
    cells.missing += n


def _rows_of(cells: _Cells, some: Sequence[str]) -> str:
    """The first few of some cells with their rows."""
    return ", ".join(f"row {cells.first[cell]}: {_cut_cell(cell)!r}" for cell in some[:_EXAMPLES])


def _infer_column(cells: _Cells, has_id: bool) -> tuple[RecordColumn, str]:
    name, distinct = cells.name, cells.first
    if not distinct:
        cells.warnings.append("every cell is missing: the column is ignored")
        return RecordColumn(name=name, type="ignore"), "no cell has a value"
    if len(distinct) == 1 and cells.missing == 0 and cells.n > 1:
        cells.warnings.append(f"every cell is {_cut_cell(next(iter(distinct)))!r}: the column is ignored")
        return RecordColumn(name=name, type="ignore"), "one value everywhere"
    may_be_id = not has_id and cells.unique and cells.n > 1
    is_repeated = len(distinct) < cells.n - cells.missing
    rules: tuple[tuple[FieldType, str, bool], ...] = (
        ("group", "its name", name.lower() in _GROUP_NAMES),
        ("identity", "its name, and values that repeat", name.lower() in _IDENTITY_NAMES and is_repeated),
        ("id", "its name, and a value of its own in every row", may_be_id and is_id_name(name)),
        ("id", "it numbers the rows", may_be_id and set(cells.steps) == {1.0}),
        ("id", "a number behind the same letters, of its own in every row", may_be_id and _are_row_labels(cells)),
    )  # fmt: skip
    for type_, reason, is_fit in rules:
        if is_fit:
            return RecordColumn(name=name, type=type_), reason
    for infer_one in (_boolean, _date, _recognize_column, _infer_measured, _number, _decimal_comma, _place):
        choice = infer_one(cells)
        if choice is not None:
            return choice
    return _string(cells)


def is_id_name(name: str) -> bool:
    """Whether a column's name says that it identifies: ``row_id``, ``CustomerID``, ``guid``."""
    return _ID_NAMES.fullmatch(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)) is not None


def _are_row_labels(cells: _Cells) -> bool:
    """Whether all of enough cells are such as ``INV-000123``."""
    letters = {match and match[1] for match in (_ROW_LABEL.fullmatch(cell.strip()) for cell in cells.first)}
    return cells.n >= _NUMBERED and len(letters) == 1 and letters != {None}


def _boolean(cells: _Cells) -> tuple[RecordColumn, str] | None:
    words = {cell.strip().lower() for cell in cells.first}
    if words <= TRUE | FALSE and words & TRUE and words & FALSE:
        return RecordColumn(name=cells.name, type="boolean"), "two values, yes and no"
    return None


def _recognize_column(cells: _Cells) -> tuple[RecordColumn, str] | None:
    recognized = None if _place(cells) else recognize_kind(cells.name, cells.first, cells.n - cells.missing)
    return recognized and (
        RecordColumn.model_validate({"name": cells.name, "type": recognized[0]}),
        recognized[1],
    )


def _infer_measured(cells: _Cells) -> tuple[RecordColumn, str] | None:
    if len(cells.numbers) == len(cells.first):
        return None
    measured = {cell: measured_of(cell) for cell in cells.first if number_of(cell) is None}
    units = {each and each[1] for each in measured.values()} - {THOUSANDS} or {THOUSANDS}
    unit = units.pop()
    if unit is None or units:
        return None
    cells.warnings.append(
        f"{len(measured)} of {len(cells.first)} distinct cells are numbers with {_cut_cell(unit)!r}: "
        f"{_rows_of(cells, [*measured][:1])}. They are read as numbers; give the column as text if they are none"
    )
    return RecordColumn(name=cells.name, type="number", unit=unit), f"numbers with {unit!r}"


def _number(cells: _Cells) -> tuple[RecordColumn, str] | None:
    misfits = [cell for cell in cells.first if number_of(cell) is None]
    if misfits:
        if len(misfits) <= (1 - _MOSTLY) * len(cells.first):
            _warn_of_misfits(cells, misfits, "numbers", "number to compare numbers")
        return None
    texts = [cell.strip() for cell in cells.first]
    if cells.typed != "number":
        zero_led = next((text for text in texts if re.fullmatch(r"0\d+", text)), None)
        if zero_led is not None:
            return RecordColumn(
                name=cells.name, type="text"
            ), f"digits with leading zeros, {zero_led}: a code"
        widths = {len(text) if text.isdigit() else 0 for text in texts}
        if len(widths) == 1 and widths.pop() >= _CODE_WIDTH and len(texts) > 1:
            return RecordColumn(name=cells.name, type="text"), "whole numbers of one length: a code"
    return RecordColumn(name=cells.name, type="number"), "all cells are numbers"


def _date(cells: _Cells) -> tuple[RecordColumn, str] | None:
    if len(cells.numbers) == len(cells.first) and not any(len(cell.strip()) == 8 for cell in cells.first):
        # Of numbers only those of eight digits can be dates; trying each format takes long.
        return None
    best, misfits = _date_format(cells.first)
    if len(misfits) > (1 - _MOSTLY) * len(cells.first):
        return None
    if misfits:
        _warn_of_misfits(cells, misfits, f"dates as {best}", f"date:{best} to compare dates")
        return None
    _warn_of_order(cells, best)
    return RecordColumn(name=cells.name, type="date", format=best), f"all cells are dates, {best}"


def _decimal_comma(cells: _Cells) -> tuple[RecordColumn, str] | None:
    texts = [cell.strip() for cell in cells.first]
    commas = sum(DECIMAL_COMMA.fullmatch(text) is not None for text in texts)
    if not commas or not all(DECIMAL_COMMA.fullmatch(text) or text.isdigit() for text in texts):
        return None
    cells.warnings.append(
        f"{commas} of {len(texts)} distinct cells look like numbers with a decimal comma: "
        f"{_rows_of(cells, [cell for cell in cells.first if ',' in cell][:1])}. The column is read as text; write a "
        "decimal point and give it as number to compare numbers, or as place if it holds latitude and longitude"
    )
    return RecordColumn(name=cells.name, type="text"), "numbers with a decimal comma"


def _place(cells: _Cells) -> tuple[RecordColumn, str] | None:
    if all(place_of(cell) is not None and re.search(r"[,;]", cell) for cell in cells.first):
        return RecordColumn(name=cells.name, type="place"), "latitude and longitude"
    return None


def _string(cells: _Cells) -> tuple[RecordColumn, str]:
    n, distinct = cells.n - cells.missing, cells.first
    words = sum(len(cell.split()) for cell in distinct) / len(distinct)
    if len(distinct) <= min(_MOST_CATEGORIES, n / 4) and words <= 4:
        return RecordColumn(name=cells.name, type="category"), f"{len(distinct)} distinct values in {n} cells"
    letters = sum(all(not char.isdigit() for char in cell) for cell in distinct)
    if words <= 3 and letters >= 0.9 * len(distinct):
        return RecordColumn(name=cells.name, type="name"), f"few words without digits, {words:.1f} a cell"
    return RecordColumn(name=cells.name, type="text"), f"free text, {words:.1f} words a cell"


def _date_format(cells: Collection[str]) -> tuple[DateFormat, list[str]]:
    """The format that most cells have, and the cells that have not."""
    misfits = {form: [cell for cell in cells if not _plausible_date(cell, form)] for form in DATE_FORMATS}
    best = min(misfits, key=lambda form: len(misfits[form]))
    return best, misfits[best]


def _plausible_date(cell: str, form: DateFormat) -> bool:
    day = date_of(cell, form)
    # Eight digits are a date only if they are one of these centuries.
    return day is not None and (form != "YYYYMMDD" or -80_000 < day < 50_000)


def _warn_of_order(cells: _Cells, form: DateFormat) -> None:
    if not re.search("YYYY", form):
        cells.warnings.append(
            "years have two digits: 69 to 99 are read as 1969 to 1999, others as 2000 to 2068"
        )
    swapped: Any = form.replace("DD", "?").replace("MM", "DD").replace("?", "MM")
    if swapped in DATE_FORMATS and all(date_of(cell, swapped) is not None for cell in cells.first):
        cells.warnings.append(
            f"every cell reads as {swapped} too: it is taken as {form}; say date:{swapped} if it is not"
        )


def _warn_of_misfits(cells: _Cells, misfits: Sequence[str], what: str, use: str) -> None:
    cells.warnings.append(
        f"{len(misfits)} of {len(cells.first)} distinct cells are no {what}: {_rows_of(cells, misfits)}. The column is "
        f"read as text; mend the cells and give it as {use}"
    )


def _look(cells: _Cells, column: RecordColumn) -> None:
    """Warn of cells that look broken, with their rows."""
    if column.type in ("ignore", "id"):
        if column.type == "id" and not cells.unique:
            cells.warnings.append("ids repeat or are missing: pairs cannot name their rows by it")
        return
    if is_id_name(column.name) or (cells.unique and _are_row_labels(cells)):
        cells.warnings.append(
            "looks like an id, and is compared. If it says nothing of who a row is, give it as id or ignore "
            f"(--column {column.name}:ignore)"
        )
    garbled = [row for cell, row in cells.first.items() if _GARBLED.search(cell)]
    if garbled:
        cells.warnings.append(
            f"{len(garbled)} distinct cells hold characters of a wrong encoding: row "
            + ", ".join(map(str, garbled[:_EXAMPLES]))
        )


def _cut_cell(cell: str) -> str:
    return cell if len(cell) <= 60 else cell[:57] + "..."
