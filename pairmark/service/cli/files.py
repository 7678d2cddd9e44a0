"""Files of vectors, records and pairs, as commands take them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
