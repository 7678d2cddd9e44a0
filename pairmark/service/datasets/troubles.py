"""Everything that keeps a table's columns from being features, told at once, each with the option that mends it."""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import BaseModel, Field

from pairmark.service.datasets.columns import Columns
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.datasets.profiles import DATE, DECIMAL_COMMA, as_texts
from pairmark.service.datasets.schemas import DatasetRequest

_AT_ONCE = 100
_MOST = 100
"""Columns that are named."""


class Trouble(BaseModel):
    """A column that was to be a feature and cannot be."""

    column: str
    row: int = Field(description="the first row in question, from 1")
    rows: int = Field(description="how many rows are in question")
    role: str = Field(description="the field of the upload that mends it: `exclude` or `time`")
    text: str


def troubles_of(
    path: Path, scratch: Path, kind: str, request: DatasetRequest, limits: FileLimits
) -> list[Trouble]:
    """Columns of a CSV or Parquet file that are features by the request and hold texts or empty cells."""
    scratch.mkdir()
    troubles: list[Trouble] = []
    with as_texts(path, scratch, kind, request.header, limits) as table:
        features = [n for n in Columns(table.names).roles(request).features if n not in table.vectors]
        for start in range(0, len(features), _AT_ONCE):
            part = features[start : start + _AT_ONCE]
            inner = ", ".join(f"nullif(trim({table.cells[n]}), '') AS v{n}" for n in part)
            selection = "count(*)"
            for n in part:
                bad = f"v{n} IS NOT NULL AND TRY_CAST(v{n} AS DOUBLE) IS NULL"
                selection += (
                    f", count_if({bad}), count_if(v{n} IS NULL), min(CASE WHEN {bad} THEN n END), "
                    f"min(CASE WHEN v{n} IS NULL THEN n END), arg_min(left(v{n}, 50), CASE WHEN {bad} THEN n END), "
                    f"coalesce(bool_and(regexp_full_match(v{n}, '{DATE}')), false)"
                )
            row = table.summary(selection, inner)
            for at, n in enumerate(part):
                texts, empty, text_row, empty_row, cell, dated = row[1 + 6 * at : 7 + 6 * at]
                # Of dates, one column may be the time.
                dated = dated and request.time is None and all(each.role != "time" for each in troubles)
                if texts or empty:
                    troubles.append(
                        _trouble(
                            table.names[n],
                            int(row[0]),
                            int(texts),
                            int(empty),
                            text_row,
                            empty_row,
                            cell,
                            bool(dated),
                        )
                    )
    return troubles[:_MOST]


def _trouble(
    column: str,
    rows: int,
    texts: int,
    empty: int,
    text_row: int | None,
    empty_row: int | None,
    cell: str | None,
    dated: bool,
) -> Trouble:
    parts = []
    if texts:
        point = ": numbers take a decimal point" if DECIMAL_COMMA.fullmatch(cell or "") else ""
        parts.append(
            f"{texts:,} of {rows:,} cells are no numbers, the first is {cell!r} in row {text_row}{point}"
        )
    if empty:
        parts.append(f"{empty:,} of {rows:,} cells are empty, the first in row {empty_row}")
    role = "time" if dated and texts else "exclude"
    mend = "--time" if role == "time" else "--exclude"
    return Trouble(
        column=column,
        row=min(at for at in (text_row, empty_row) if at is not None),
        rows=texts + empty,
        role=role,
        text=f"column {column!r}: {'; '.join(parts)} ({mend} {shlex.quote(column)})",
    )
