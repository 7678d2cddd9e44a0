"""Everything that keeps a table's columns from being features, told at once, each with the option that mends it."""

from __future__ import annotations

import shlex
from pathlib import Path

from pydantic import BaseModel, Field

from pairmark.service.datasets.columns import Columns
from pairmark.service.datasets.profiles import DATE, DECIMAL_COMMA, as_texts
from pairmark.service.datasets.upload import Upload

_AT_ONCE = 100
_MOST = 100
"""Columns that are named."""


class Trouble(BaseModel):
    """A column that cannot have the role that it was to have."""

    column: str
    row: int = Field(description="the first row in question, from 1")
    rows: int = Field(description="how many rows are in question")
    role: str = Field(
        description="the field of the upload that mends it, `exclude` or `time`; empty: correct the file"
    )
    text: str


def troubles_of(upload: Upload, scratch: Path) -> list[Trouble]:
    """Columns of a CSV or Parquet file that are features by the request and hold other than finite numbers, and
    columns of labels, groups and ids with empty cells.
    """
    scratch.mkdir()
    troubles: list[Trouble] = []
    request = upload.request
    with as_texts(upload.file, scratch, upload.kind, request.header, upload.limits) as table:
        roles = Columns(table.names).roles(request)
        whole = [number for role, number in roles.texts.items() if role != "times"]
        looked_at = [n for n in dict.fromkeys([*whole, *roles.features]) if n not in table.vectors]
        for start in range(0, len(looked_at), _AT_ONCE):
            part = looked_at[start : start + _AT_ONCE]
            inner = ", ".join(f"nullif(trim({table.cells[n]}), '') AS v{n}" for n in part)
            selection = "count(*)"
            for n in part:
                # What is no number casts to NULL.
                finite = f"coalesce(isfinite(TRY_CAST(v{n} AS DOUBLE)), false)"
                bad = "false" if n in whole else f"v{n} IS NOT NULL AND NOT {finite}"
                selection += (
                    f", count_if({bad}), count_if(v{n} IS NULL), min(CASE WHEN {bad} THEN n END), "
                    f"min(CASE WHEN v{n} IS NULL THEN n END), arg_min(left(v{n}, 50), CASE WHEN {bad} THEN n END), "
                    f"coalesce(bool_and(regexp_full_match(v{n}, '{DATE}')), false)"
                )
            row = table.summary(selection, inner)
            for at, n in enumerate(part):
                wrong, empty, wrong_row, empty_row, cell, dated = row[1 + 6 * at : 7 + 6 * at]
                if not wrong and not empty:
                    continue
                parts = []
                if wrong:
                    point = ": numbers take a decimal point" if DECIMAL_COMMA.fullmatch(cell) else ""
                    parts.append(
                        f"{wrong:,} of {row[0]:,} cells are no numbers, the first is {cell!r} in row {wrong_row}{point}"
                    )
                if empty:
                    parts.append(f"{empty:,} of {row[0]:,} cells are empty, the first in row {empty_row}")
                # Of dates, one column may be the time.
                dated = dated and request.time is None and all(each.role != "time" for each in troubles)
                role = "" if n in whole else "time" if dated and wrong else "exclude"
                mend = (
                    f"--{role} {shlex.quote(table.names[n])}"
                    if role
                    else "fill them in, or leave the rows out"
                )
                troubles.append(
                    Trouble(
                        column=table.names[n],
                        row=min(each for each in (wrong_row, empty_row) if each is not None),
                        rows=wrong + empty,
                        role=role,
                        text=f"column {table.names[n]!r}: {'; '.join(parts)} ({mend})",
                    )
                )
    return troubles[:_MOST]
