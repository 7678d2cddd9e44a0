"""Points as commands take them: on the command line, or a CSV whose first line names the features."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

RequiredModel = Annotated[str, typer.Option(help="NAME, NAME@ALIAS or NAME:VERSION.")]


def read_points(file: Path) -> tuple[list[str], list[list[float]]]:
    """The names of the features, and the points in the file's order; `typer.BadParameter` names the row that has too
    few or too many fields, or one that is no number."""
    names, lines = _table(file)
    return names, [_numbers_of(names, line, f"{file}: row {at}") for at, line in enumerate(lines, start=1)]


def read_records(argument: str) -> list[dict[str, Any]]:
    """Records of a JSON file, or of JSON itself: an object, or a list of objects; else `typer.BadParameter`."""
    try:
        text = (
            argument if argument.lstrip().startswith("{") else Path(argument).read_text(encoding="utf-8-sig")
        )
        value = json.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{argument[:100]}: {error}") from error
    records = value if isinstance(value, list) else [value]
    if not records or not all(isinstance(record, dict) for record in records):
        raise typer.BadParameter(
            f'{argument[:100]}: expected a record {{"column": value, ..}} or a list of records'
        )
    return records


def read_table(file: Path, columns: dict[str, str]) -> list[dict[str, Any]]:
    """Records of a CSV, of a model's columns; `typer.BadParameter` names the cell that is not of its column's type."""
    from pairmark.models.records.tables import declared

    names, lines = _table(file)
    schema = declared(columns)
    rows = [dict(zip(names, line, strict=True)) for line in lines]
    try:
        return list(schema.values(schema.records(rows, "a line", strict=False)))
    except ValueError as error:
        raise typer.BadParameter(f"{file}: {error}") from None


def read_subjects(file: Path, column: str) -> list[dict[str, list[list[float]]]]:
    """Subjects in order of their first row: points with the same word in a column are samples of one subject. Refused
    as by `read_points`."""
    names, lines = _table(file)
    if column not in names:
        raise typer.BadParameter(f"{file}: the first line has no {column!r}; it has {', '.join(names[:20])}")
    place = names.index(column)
    subjects: dict[str, dict[str, list[list[float]]]] = {}
    for at, line in enumerate(lines, start=1):
        features, cells = ([*row[:place], *row[place + 1 :]] for row in (names, line))
        values = _numbers_of(features, cells, f"{file}: row {at}")
        subjects.setdefault(line[place], {"samples": []})["samples"].append(values)
    return list(subjects.values())


def _table(file: Path) -> tuple[list[str], list[list[str]]]:
    """The first line's names, all different, and the other lines, of as many fields."""
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if len(lines) < 2:
        raise typer.BadParameter(f"{file}: expected a line of names and a line for each point")
    names = lines[0]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise typer.BadParameter(
            f"{file}: the first line has {', '.join(map(repr, twice[:5]))} more than once"
        )
    for number, line in enumerate(lines[1:], start=1):
        if len(line) != len(names):
            raise typer.BadParameter(f"{file}: row {number} has not as many fields as the first line")
    return names, lines[1:]


def _numbers_of(names: list[str], line: list[str], where: str) -> list[float]:
    try:
        return [float(cell) for cell in line]
    except ValueError:
        for name, cell in zip(names, line, strict=True):
            numbers(
                [cell], f"{where}, column {name!r}", "; leave out columns that are no features of the model"
            )
        raise


def numbers(words: Iterable[str], where: str, mend: str = "") -> list[float]:
    """Each of ``words`` as a number, or `typer.BadParameter`."""
    read = []
    for word in words:
        try:
            read.append(float(word))
        except ValueError:
            raise typer.BadParameter(f"{where}: {word!r} is not a number{mend}") from None
    return read


TableFile = Annotated[
    Path, typer.Argument(help="CSV, Parquet, npz or svmlight file.", exists=True, dir_okay=False)
]
ColumnTypes = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Type of a table's column, NAME:TYPE, such as street:text or born:date (repeatable); dates take a format.",
    ),
]
PairsFile = Annotated[
    Path | None,
    typer.Option(
        help="File of explicit pairs: columns left, right, same and optionally weight, left_unit, right_unit, "
        "drawn_from.",
        exists=True,
    ),
]
RightFile = Annotated[
    Path | None,
    typer.Option(help="A second table of records: the pairs' right side names its ids.", exists=True),
]


def column_types(columns: list[str] | None) -> dict[str, str] | None:
    """Types by column; None where none is named."""
    if not columns:
        return None
    wrong = [option for option in columns if ":" not in option]
    if wrong:
        raise typer.BadParameter(f"--column {wrong[0]!r}: expected NAME:TYPE, such as street:text")
    # A name may hold colons; a date's format holds none.
    parts = [
        option.rsplit(":date:", 1) if ":date:" in option else option.rsplit(":", 1) for option in columns
    ]
    dated = [":date:" in option for option in columns]
    return {name: f"date:{kind}" if date else kind for (name, kind), date in zip(parts, dated, strict=True)}


def rate(text: str) -> float:
    """A number between 0 and 1, also in percent; `typer.BadParameter` for anything else."""
    digits = str(text).strip()
    number, divisor = (digits[:-1], 100) if digits.endswith("%") else (digits, 1)
    try:
        value = round(float(number) / divisor, 15)
    except ValueError:
        value = float("nan")
    if not 0 < value < 1:
        raise typer.BadParameter(
            f"{digits!r} is no rate; expected a number between 0 and 1, such as 0.01 or 1%"
        )
    return value


Confidence = Annotated[float, typer.Option(parser=rate, metavar="RATE", help="Confidence of the guarantee.")]
