"""CSV and Parquet files that stand for the lists of a JSON body: scores, outcomes, references of pairs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.datasets.writer import as_text, name_list
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.settings import MIB

_ROWS = 65_536
_LONGEST_CELL = 1_024
_MOST_JSON = 32 * MIB
"""Of the lists that a table stands for: more of a body at once would keep the event loop too long."""
_TRUTHS = {"1": True, "true": True, "0": False, "false": False}
_CELLS_EXPECTED = {
    "score": "a finite number",
    "same": "1 or true (same), 0 or false (different)",
    "match": "1 or true (match), 0 or false (no match)",
}


@dataclass(frozen=True, kw_only=True)
class TableForm:
    """How a table stands for lists of a JSON body.

    Attributes
    ----------
    columns : by a column's name, the list that its cells are, or their name in the object of each row.
    optional : columns that may be left out. objects : the list of objects, one a row; None: each column is a list.
    parent : the object of the lists, in which left and right are pairs of names, ``refs``; None: the body.
    most : rows; None: as many as a calibration has scores.
    """

    columns: Mapping[str, str]
    optional: tuple[str, ...] = ()
    objects: str | None = None
    parent: str | None = None
    most: int | None = None

    @property
    def expected(self) -> str:
        """The columns, in words."""
        needed = ", ".join(name for name in self.columns if name not in self.optional)
        return f"{needed} and optionally {', '.join(self.optional)}" if self.optional else needed


def write_as_json(
    limits: FileLimits,
    *,
    upload: str,
    scratch: str,
    kind: str,
    members: Mapping[str, str],
    form: Mapping[str, Any],
    out: str,
) -> None:
    """Write the JSON body that a CSV or Parquet file and the members beside it stand for."""
    table = TableForm(**form)
    most = limits.rows if table.most is None else table.most
    rows: list[tuple[Any, ...]] = []
    with closing(TableFile(Path(upload), Path(scratch), kind, limits, guess=False)) as file:
        names = file.names
        wrong = [f"{name!r} is missing" for name in table.columns if name not in (*names, *table.optional)]
        wrong += [f"{name[:60]!r} is not read here" for name in names if name not in table.columns]
        if wrong:
            raise InvalidInput(
                f"column {wrong[0]}; expected a first line that names {table.expected}; the file has "
                f"{name_list(names)}",
                field="file",
            )
        cells = [file.text(number, _LONGEST_CELL + 1) for number in range(len(names))]
        for block in file.rows(cells, _ROWS):
            rows += block
            if len(rows) > most:
                raise TooLarge(f"the file has more than {most} rows; send it in parts", limit=most)
    if not rows:
        raise InvalidInput("the file has no rows; expected at least one", field="file")
    lists: dict[str, list[Any]] = {
        table.columns[name]: [_json_cell(name, value, row) for row, value in enumerate(column)]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    if table.objects is not None:
        objects = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        lists = {table.objects: objects}
    body: dict[str, Any] = {**members, **lists}
    if table.parent is not None:
        refs = list(zip(lists.pop("left"), lists.pop("right"), strict=True))
        body = {**members, table.parent: {"refs": refs, **lists}}
    text = json.dumps(body)
    if len(text) > _MOST_JSON:
        raise TooLarge(
            f"the rows take {len(text)} bytes as JSON; at most {_MOST_JSON} are taken: send fewer rows, or shorter "
            "names",
            limit=_MOST_JSON,
        )
    Path(out).write_text(text)


def _json_cell(column: str, value: Any, row: int) -> Any:
    """A cell as JSON has it; None where it is empty."""
    text = as_text(value)
    if text is None:
        return None
    if column == "score":
        with suppress(ValueError):
            if math.isfinite(number := float(value)):
                return number
    elif column in ("same", "match") and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    elif column not in ("same", "match") and len(text) <= _LONGEST_CELL:
        return text
    expected = _CELLS_EXPECTED.get(column, f"at most {_LONGEST_CELL} characters")
    raise InvalidInput(f"{column}[{row}] is {text[:50]!r}; expected {expected}", field=f"{column}[{row}]")
