"""Tables of records: columns with types, missing cells and all, from a file to a dataset's arrays and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.records.cells import canonical
from pairmark.models.records.inference import Inference, infer
from pairmark.models.records.schema import FieldType, RecordError, Schema
from pairmark.schemas.datasets import DatasetRequest, RecordColumnOut
from pairmark.service.datasets.limits import Upload
from pairmark.service.datasets.rankings import RankingColumn
from pairmark.service.datasets.tabular import Table, TableFile
from pairmark.service.datasets.writer import Block, as_text
from pairmark.service.errors import InvalidInput, TooLarge

_ROLES: dict[str, tuple[FieldType, ...]] = {
    "label": ("identity", "classes"),
    "group": ("group",),
    "time": ("time",),
    "id": ("id",),
}
"""Types of the columns of each role; the first is what a column gets that is named for it."""
_NOTES = ("reason", "examples", "warnings", "missing", "placeholders", "distinct")


class RecordTable(NamedTuple):
    """A table as it was read: its schema with what speaks for it, and all its rows."""

    inference: Inference
    block: Block
    label_names: list[str] | None = None
    row_of: tuple[dict[str, int], dict[str, int]] | None = None
    """Row id -> row of the left and the right table, where there are two."""
    one_sided: Sequence[str] = ()
    """Columns that only one of two tables has."""


def read_records(upload: Upload, file: TableFile, scratch: Path) -> RecordTable:
    """CSV or Parquet as records; `InvalidInput` names row and column of a cell that is not of its column's type."""
    request, limits = upload.request, upload.limits
    table, n, one_sided = _tables(upload, file, scratch)
    n_rows = len(next(iter(table.values())))
    if n_rows == 0:
        raise InvalidInput("the file has no rows; expected at least one row of data")
    size = sum(len(cell) for cells in table.values() for cell in cells if isinstance(cell, str))
    if n_rows > limits.rows or size > limits.stored_bytes:
        raise TooLarge(
            f"{n_rows} rows with {size} bytes of text; at most {limits.rows} rows and {limits.stored_bytes} bytes"
        )
    labels, positions = _rankings(table, request.ranking)
    # Files of rankings often carry each label's position too: as fields those would give the answer away.
    beside = table.keys() & set(labels or ())
    try:
        inference = infer(
            table, dict.fromkeys(one_sided, "ignore") | _types(request) | dict.fromkeys(beside, "ignore")
        )
        cells = inference.schema.read(table)
    except RecordError as error:
        first = error.problems[0]
        facts = {} if first["row"] is None else {"row": first["row"]}
        raise InvalidInput(str(error), column=first["column"], **facts) from error
    empty = inference.schema.empty_rows(cells)
    if empty.size:
        raise InvalidInput(
            f"row {empty[0] + 1} {inference.schema.no_cell}: leave out the {empty.size:,} of {n_rows:,} rows",
            row=int(empty[0]) + 1,
        )
    columns = {role: _column(inference.schema, role, types, request) for role, types in _ROLES.items()}
    if request.unlabelled:
        columns["label"] = None
    _refuse_missing(table, [name for role, name in columns.items() if name is not None and role != "time"])
    texts: dict[str, Any] = {f"{role}s": table[name] for role, name in columns.items() if name is not None}
    if upload.right is None:
        return RecordTable(inference, Block(X=cells, rankings=positions, **texts), labels)
    ids = texts.get("ids")
    if ids is None:
        raise InvalidInput(
            "two tables need a column of type id, which the pairs name rows by", field="columns"
        )
    sides = [
        {str(row_id): row for row, row_id in enumerate(ids) if (row >= n) == later} for later in (False, True)
    ]
    if len(sides[0]) + len(sides[1]) != n_rows:
        raise InvalidInput("row ids repeat within a table; expected a different one in every row", field="id")
    if sides[0].keys() & sides[1].keys():
        texts["ids"] = [f"{'right' if row >= n else 'left'}:{row_id}" for row, row_id in enumerate(ids)]
    block = Block(X=cells, rankings=positions, **texts)
    return RecordTable(inference, block, labels, (sides[0], sides[1]), one_sided)


def _tables(upload: Upload, file: TableFile, scratch: Path) -> tuple[dict[str, list[Any]], int, list[str]]:
    """The cells of one table, or of two with the second one's rows last; how many rows the first of two has; and
    columns that one of two lacks. Columns of two are one by name, else by spelling: ``Last Name`` is ``last_name``."""
    table = _cells(upload.request, file)
    if upload.right is None:
        return table, 0, []
    path, kind = upload.right
    header = upload.request.header
    with closing(TableFile(path, scratch / "right", kind, upload.limits, header=header)) as right:
        right_table = _cells(upload.request, right)
    name_of = {_spelling(name): name for name in table if name not in right_table}
    for name in [name for name in right_table if name not in table and _spelling(name) in name_of]:
        right_table[name_of.pop(_spelling(name))] = right_table.pop(name)
    n, m = (len(next(iter(side.values()))) for side in (table, right_table))
    names = dict.fromkeys([*table, *right_table])
    joined = {name: [*table.get(name, [None] * n), *right_table.get(name, [None] * m)] for name in names}
    return joined, n, sorted(table.keys() ^ right_table.keys())


def _spelling(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _types(request: DatasetRequest) -> dict[str, str]:
    """The types that a request names, by column."""
    by_column = {**dict.fromkeys(request.exclude, "ignore"), **(request.columns or {})}
    for role, types in _ROLES.items():
        name = getattr(request, role)
        if name is not None and by_column.get(name) not in types:
            by_column[name] = types[0]
    return by_column | dict.fromkeys(request.ranking, "ignore")


def _refuse_missing(table: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
    """Refuse labels, groups and ids that some rows lack."""
    for name in names:
        rows = [row for row, cell in enumerate(table[name], start=1) if not (as_text(cell) or "").strip()]
        if rows:
            raise InvalidInput(
                f"column {name!r}: {len(rows):,} of {len(table[name]):,} cells are empty, the first in row {rows[0]} "
                "(fill them in, or leave the rows out)",
                row=rows[0],
                column=name,
            )


def _rankings(table: Mapping[str, Sequence[Any]], names: Sequence[str]) -> tuple[list[str] | None, Any]:
    """Labels and their positions, of one column of rankings or a column of positions for each label."""
    if len(names) == 1:
        cells = [None if cell is None else str(cell) for cell in table[names[0]]]
        column = RankingColumn(sorted({cell for cell in cells if cell}))
        return column.labels, column.positions(cells, 0)
    if not names:
        return None, None
    positions = np.empty((len(table[names[0]]), len(names)))
    for at, name in enumerate(names):
        for row, cell in enumerate(table[name]):
            try:
                value = canonical(cell, "number")
            except ValueError as error:
                raise InvalidInput(
                    f"row {row + 1}, column {name!r} {error}", row=row + 1, column=name
                ) from None
            positions[row, at] = np.nan if value is None else value
    return list(names), positions


def column_notes(inference: Inference) -> list[RecordColumnOut]:
    """What each column was taken for, as answers show it."""
    return [
        RecordColumnOut(**dict(notes.column), **{name: vars(notes)[name] for name in _NOTES})
        for notes in inference.notes
    ]


def _cells(request: DatasetRequest, file: TableFile) -> dict[str, list[Any]]:
    # The index of a data frame is left out unless it is named.
    named = dict.fromkeys([*_types(request), *request.ranking], "ignore")
    return Table(file, request=DatasetRequest(name=request.name, columns=named), as_cells=True).cells()


def _column(schema: Schema, role: str, types: Sequence[FieldType], request: DatasetRequest) -> str | None:
    """The one column of a role: the one that was named, else the one whose type says so."""
    column_name: str | None = getattr(request, role)
    there = [name for kind in types for name in schema.of_type(kind)]
    if column_name is not None:
        return column_name
    if len(there) > 1:
        raise InvalidInput(
            f"columns {', '.join(map(repr, there[:5]))} are all of type {types[0]}; expected one: give the others "
            "another type",
            field="columns",
        )
    return there[0] if there else None
