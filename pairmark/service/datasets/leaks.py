"""Features that name the person: one value in all rows of each, and another for everybody else."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.schema import STRINGS, Records, Schema

_PEOPLE, _FEWEST = 1_000, 10
"""People with several rows that are looked at, and how many it takes."""
_NUMBERS = 20_000_000
_CONSTANT, _DISTINCT = 0.95, 0.9
"""Shares of the people within whom a feature does not differ, and of different values between them."""
_CODE = re.compile(r"[A-Za-z]{0,8}[-_/# ]?\d+|[0-9A-Fa-f]{8,}(-[0-9A-Fa-f]+)*")


def naming_features(X: Any, y: NDArray[Any], names: Sequence[str], schema: Schema | None) -> list[str]:
    """The features of dense rows, or of records, that name the person of each row, ``y``.

    Among texts only codes are looked at: names and addresses are what records are compared by. Where every feature is
    so, rows are repeated and nothing is told.
    """
    counts = np.bincount(y)
    most = min(_PEOPLE, int(_NUMBERS / max(1, X.shape[1]) / max(2.0, counts.mean())))
    people = np.flatnonzero(counts >= 2)[:most]
    if people.size < _FEWEST or not isinstance(X, np.ndarray):
        return []
    rows = np.flatnonzero(np.isin(y, people))
    rows = rows[np.argsort(y[rows], kind="stable")]
    values = X[rows] if schema is None else _numbers(X[rows], schema)
    starts = np.flatnonzero(np.diff(y[rows], prepend=-1))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    n_distinct = 1 + (np.diff(np.sort(low, axis=0), axis=0) > 0).sum(axis=0)
    naming = ((low == high).mean(axis=0) >= _CONSTANT) & (n_distinct >= _DISTINCT * people.size)
    return [] if naming.all() and naming.size > 1 else [names[at] for at in np.flatnonzero(naming).tolist()]


def naming_warning(features: Sequence[str]) -> list[str]:
    """What is said of them, if there are any."""
    if not features:
        return []
    return [
        f"names the person: {', '.join(map(repr, features[:5]))} is the same in all rows of each and differs between "
        "all of them, as a copy of the identity would. Leave it out unless new rows bring it as well ("
        + " ".join(f"--exclude {shlex.quote(name)}" for name in features[:5])
        + ")"
    ]


def _numbers(cells: Records, schema: Schema) -> NDArray[np.float64]:
    """Numbers, and codes as numbers; NaN for what is missing or neither."""
    values = np.full(cells.shape, np.nan)
    for at, column in enumerate(schema.fields):
        present = np.array([cell is not None for cell in cells[:, at]])
        own = cells[present, at]
        if column.type == "number":
            values[present, at] = own.astype(np.float64)
        elif column.type in STRINGS and all(_CODE.fullmatch(cell.strip()) for cell in own):
            values[present, at] = np.unique(own.astype(np.str_), return_inverse=True)[1]
    return values
