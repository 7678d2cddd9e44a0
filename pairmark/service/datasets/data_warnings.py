"""What a dataset's features give away, as warnings: those that name the person, and those that number the rows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.schema import STRINGS, RecordColumn, Schema
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.writer import name_list

_PEOPLE, _FEWEST = 1_000, 10
"""People with several rows that are looked at, and how many it takes."""
_NUMBERS = 20_000_000
_CONSTANT, _DISTINCT = 0.95, 0.9
"""Shares of the people within whom a feature does not differ, and of different values between them."""
_CODE = re.compile(r"[A-Za-z]{0,8}[-_/# ]?\d+|[0-9A-Fa-f]{8,}(-[0-9A-Fa-f]+)*")
_NUMBERED = 10
"""Rows from which numbers that go up by one are taken for a count of the rows."""
_RISING = 0.95
"""Share of the steps from row to row from which on a feature numbers the rows; few may repeat a number or miss one."""
_GLANCED = 1_000
"""Rows by which features that cannot be a count are told apart, before all rows are read."""


def exclusions(names: Sequence[str]) -> str:
    """The options that leave some features out."""
    return " ".join(f"--exclude {shlex.quote(name)}" for name in names)


def feature_warnings(data: LabelledData) -> list[str]:
    """What is said of the features of dense rows or records."""
    X: Any = data.X
    warnings = []
    if data.schema is None and len(X) > 1:
        constant = np.flatnonzero(X.min(axis=0) == X.max(axis=0))
        if constant.size:
            warnings.append(
                f"features that hold one value only and tell nothing apart ({constant.size:,}): "
                + name_list([data.feature_names[column] for column in constant[:5]], constant.size)
            )
    numbering = _numbering_features(X, data.schema)
    if numbering:
        names = [data.feature_names[at] for at in numbering]
        warnings.append(
            f"features that number the rows: {name_list(names)}. Exclude them, unless order means something "
            f"({exclusions(names)})"
        )
    if data.y is not None:
        warnings += naming_warnings(data)
    return warnings


def _numbering_features(X: NDArray[Any], schema: Schema | None) -> list[int]:
    """Features that count the rows: where the rows of one person stand together, they give the answer away."""
    if not _NUMBERED <= len(X) <= 2**24:
        return []
    columns = None if schema is None else schema.fields
    strides = np.diff(_numbers(X[:: max(len(X) // _GLANCED, 1)], columns), axis=0)
    numbering = []
    for feature in np.flatnonzero((strides > 0).mean(axis=0) >= _RISING).tolist():
        steps = np.diff(
            _numbers(
                X[:, feature : feature + 1], None if columns is None else columns[feature : feature + 1]
            ),
            axis=0,
        )
        if (steps == 1).mean() >= _RISING:
            numbering.append(feature)
    return numbering


def naming_warnings(data: LabelledData) -> list[str]:
    """What is said of features of dense labeled rows, or of records, that name the person of each row.

    Among texts only codes are looked at: names and addresses are what records are compared by. Where every feature
    names the person, rows are repeated and nothing is told.
    """
    X: Any = data.X
    y = np.asarray(data.y)
    counts = np.bincount(y)
    most = min(_PEOPLE, int(_NUMBERS / max(1, data.n_features) / max(2.0, counts.mean())))
    people = np.flatnonzero(counts >= 2)[:most]
    if people.size < _FEWEST or data.is_sparse:
        return []
    rows = np.flatnonzero(np.isin(y, people))
    rows = rows[np.argsort(y[rows], kind="stable")]
    values = _numbers(X[rows], None if data.schema is None else data.schema.fields)
    starts = np.flatnonzero(np.diff(y[rows], prepend=-1))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    n_distinct = 1 + (np.diff(np.sort(low, axis=0), axis=0) > 0).sum(axis=0)
    naming = ((low == high).mean(axis=0) >= _CONSTANT) & (n_distinct >= _DISTINCT * people.size)
    if not naming.any() or (naming.all() and naming.size > 1):
        return []
    names = [data.feature_names[at] for at in np.flatnonzero(naming)[:5]]
    return [
        f"names the person: {', '.join(map(repr, names))} is the same in all rows of each and differs between all of "
        f"them, as a copy of the identity would. Leave it out unless new rows bring it as well ({exclusions(names)})"
    ]


def _numbers(cells: NDArray[Any], columns: Sequence[RecordColumn] | None) -> NDArray[Any]:
    """Numbers as they are; of records numbers, and codes as numbers, NaN for what is missing or neither."""
    if columns is None:
        return cells
    values = np.full(cells.shape, np.nan)
    for place, column in enumerate(columns):
        present = np.array([cell is not None for cell in cells[:, place]])
        column_cells = cells[present, place]
        if column.type == "number":
            values[present, place] = column_cells.astype(np.float64)
        elif column.type in STRINGS and all(_CODE.fullmatch(cell.strip()) for cell in column_cells):
            values[present, place] = np.unique(column_cells.astype(np.str_), return_inverse=True)[1]
    return values
