"""What the columns of a table are: a type for each, which every record is held against."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pairmark.models.core.inputs import cells_missing
from pairmark.models.records.cells import DATE_FORMATS, NUL, DateFormat, UnfitCell, canonical, excerpt

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
    unit : what stands beside its numbers, see `cells.measured_of`; cells without one are numbers too.
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
        """A cell as models read it, see `cells.canonical`."""
        return canonical(value, self.type, self.format or self.unit, strict=strict, verbatim=self.verbatim)


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
                f"no column is left to compare: expected one of type {', '.join(sorted(COMPARED))}"
            )
        return self

    @cached_property
    def fields(self) -> tuple[RecordColumn, ...]:
        return tuple(column for column in self.columns if column.type in COMPARED)

    @cached_property
    def _plain_columns(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns if column.type not in COMPARED)

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
                elif name not in self._plain_columns:
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
