"""The pairs file: one line for each pair, same or different."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.datasets.data import Pairs
from pairmark.service.datasets.limits import Limits
from pairmark.service.datasets.schemas import DatasetRequest
from pairmark.service.datasets.tabular import Table
from pairmark.service.errors import InvalidInput, PairmarkError

_COLUMNS = ("left", "right", "same", "weight", "left_unit", "right_unit")


def read_pairs(
    path: Path,
    scratch: Path,
    kind: str,
    limits: Limits,
    *,
    rows: int,
    row_of: dict[str, int] | None,
    right_row_of: dict[str, int] | None = None,
) -> Pairs:
    """Read a CSV or Parquet file with columns ``left``, ``right``, ``same`` and perhaps ``weight``.

    ``left_unit`` and ``right_unit`` are whole numbers that say which person each side belongs to, where the dataset has
    neither labels nor groups.

    Parameters
    ----------
    rows : how many points there are.
    row_of : row id -> row, where the dataset has an id column; else left and right are 0-based rows.
    right_row_of : the same for the right side, where that is a table of its own.
    """
    scratch.mkdir()
    try:
        table = Table(path, scratch, kind, DatasetRequest(name="pairs", group="left", id="right"), limits)
        try:
            names = table.feature_names
            unknown = [name for name in names if name not in _COLUMNS]
            if "same" not in names or unknown:
                raise InvalidInput(
                    f"columns are left, right, {', '.join(names)}; expected left, right, same and optionally "
                    "weight, left_unit and right_unit"
                )
            # Texts become row numbers block by block: all of them at once would take too much memory.
            blocks: list[NDArray[Any]] = []
            sides: dict[str, list[NDArray[np.int64]]] = {"left": [], "right": []}
            pair = 0
            for block in table.blocks():
                blocks.append(np.asarray(block.X))
                for side, texts, ids in (
                    ("left", block.groups, row_of),
                    ("right", block.ids, right_row_of or row_of),
                ):
                    sides[side].append(_rows(texts or (), side, rows, ids, pair))
                pair += len(blocks[-1])
        finally:
            table.close()
    except PairmarkError as error:
        if error.facts.get("field") == "pairs":
            raise
        raise type(error)(f"pairs file: {error.detail}", **{**error.facts, "field": "pairs"}) from error
    if not blocks:
        raise InvalidInput(
            "pairs file: no pairs; expected columns left, right, same and one pair a line", field="pairs"
        )
    values = np.concatenate(blocks)
    same = values[:, names.index("same")]
    wrong = np.flatnonzero((same != 0) & (same != 1))
    if wrong.size:
        _refuse(int(wrong[0]), f"same is {same[wrong[0]]:g}; expected 0 or 1")
    weight = values[:, names.index("weight")] if "weight" in names else None
    if weight is not None:
        wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
        if wrong.size:
            _refuse(int(wrong[0]), f"weight is {weight[wrong[0]]:g}; expected a finite number, 0 or more")
        if not weight.any():
            raise InvalidInput("pairs file: every weight is 0; expected some above", field="pairs")
    units = _units(values, names)
    left, right = (np.concatenate(sides[side]) for side in ("left", "right"))
    own = np.flatnonzero(left == right)
    if own.size:
        _refuse(int(own[0]), "left and right are the same row; expected two rows")
    truth = same == 1
    if truth.all() or not truth.any():
        raise InvalidInput(
            f"pairs file: every pair has same={int(truth[0])}; expected some that are the same and some that are not",
            field="pairs",
        )
    return Pairs(left=left, right=right, same=truth, weight=weight, units=units)


def _units(values: NDArray[Any], names: list[str]) -> NDArray[np.int64] | None:
    given = [name for name in ("left_unit", "right_unit") if name in names]
    if not given:
        return None
    if len(given) == 1:
        raise InvalidInput(
            f"pairs file: {given[0]} is given alone; expected left_unit and right_unit, or neither",
            field="pairs",
        )
    sides = values[:, [names.index(name) for name in given]]
    # Numbers are read as float32, which holds whole numbers up to 2^24.
    wrong = np.flatnonzero((sides != np.floor(sides)) | (sides < 0) | (sides > 2**24))
    if wrong.size:
        pair, side = divmod(int(wrong[0]), 2)
        _refuse(pair, f"{given[side]} is {sides[pair, side]:g}; expected a whole number from 0 to {2**24}")
    return sides.astype(np.int64)


def _rows(
    texts: Sequence[Any], side: str, rows: int, row_of: dict[str, int] | None, first: int
) -> NDArray[np.int64]:
    found = np.empty(len(texts), dtype=np.int64)
    for pair, text in enumerate(texts, first):
        if row_of is not None:
            row = row_of.get(str(text), -1)
            if row < 0:
                _refuse(pair, f"{side} is {str(text)[:50]!r}, which is not a row id of the dataset")
        else:
            row = int(text) if isinstance(text, str) and text.strip().isdecimal() and len(text) < 18 else -1
            if not 0 <= row < rows:
                _refuse(
                    pair,
                    f"{side} is {str(text)[:50]!r}; expected a row from 0 to {rows - 1} (to use row ids, name their "
                    "column as id)",
                )
        found[pair - first] = row
    return found


def _refuse(pair: int, detail: str) -> None:
    raise InvalidInput(f"pairs file: row {pair + 1}: {detail}", field="pairs", row=pair + 1)
