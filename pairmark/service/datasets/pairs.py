"""The pairs file: one line for each pair, same or different."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.missing import label_of, refuse_placeholders
from pairmark.models.pairs.splits import contradictory_pairs
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.data import DatasetPairs
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.datasets.tabular import Table
from pairmark.service.datasets.writer import as_text
from pairmark.service.errors import InvalidInput, PairmarkError

_LISTED = 20
"""Contradictory pairs that a warning names."""
_COLUMNS = ("left", "right", "same", "weight", "left_unit", "right_unit", "drawn_from")
_NAMES = "left, right, same and optionally weight, left_unit, right_unit and drawn_from"
_CELLS = {
    "same": "0 or 1",
    "weight": "a number, 0 or more",
    "drawn_from": "a whole number, 0 for a chosen pair",
}


def read_pairs(
    path: Path,
    scratch: Path,
    kind: str,
    limits: FileLimits,
    *,
    rows: int,
    row_of: dict[str, int] | None,
    right_row_of: dict[str, int] | None = None,
) -> DatasetPairs:
    """Read a CSV or Parquet file with columns ``left``, ``right``, ``same`` and perhaps ``weight``.

    ``drawn_from`` says that a pair was drawn at random of so many, which is one number throughout; 0: it was chosen.

    ``left_unit`` and ``right_unit``, numbers or texts, say which person each side belongs to, where the dataset has
    neither labels nor groups.

    Parameters
    ----------
    rows : how many points there are.
    row_of : row id -> row, where the dataset has an id column; else left and right are 0-based rows.
    right_row_of : the same for the right side, where that is a table of its own.
    """
    scratch.mkdir()
    try:
        table, has_units = _open_table(path, scratch, kind, limits)
        with closing(table):
            columns = _columns_of(table, has_units, rows, row_of, right_row_of or row_of)
    except PairmarkError as error:
        if error.facts.get("field") == "pairs":
            raise
        # What mends a column of features does not mend this one.
        cell, text, _ = error.detail.partition(", not a number")
        expected = _CELLS.get(str(error.facts.get("column")))
        detail = f"{cell}{text}; expected {expected}" if text and expected else error.detail
        if (role := error.facts.get("field")) in ("group", "id"):
            detail = f"{detail.removeprefix(f'{role}: ')}; expected a first line that names {_NAMES}"
        raise type(error)(f"pairs file: {detail}", **{**error.facts, "field": "pairs"}) from error
    return _pairs_of(columns)


class _Columns(NamedTuple):
    """A pairs file as it was read: ``values`` (n, names) of ``names``, and rows and units of both sides."""

    names: list[str]
    values: NDArray[Any]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    units: NDArray[np.int64] | None


def _columns_of(
    table: Table,
    has_units: bool,
    rows: int,
    row_of: dict[str, int] | None,
    right_row_of: dict[str, int] | None,
) -> _Columns:
    names = table.feature_names
    alone = [name for name in names if name in ("left_unit", "right_unit")]
    if alone:
        raise InvalidInput(f"{alone[0]} is given alone; expected left_unit and right_unit, or neither")
    if "same" not in names or not set(names) <= set(_COLUMNS):
        raise InvalidInput(f"columns are {', '.join(['left', 'right', *names])}; expected {_NAMES}")
    # Texts become row numbers block by block: all of them at once would take too much memory.
    blocks: list[NDArray[Any]] = []
    left: list[NDArray[np.int64]] = []
    right: list[NDArray[np.int64]] = []
    units: list[NDArray[np.int64]] = []
    codes: dict[str, int] = {}
    pair = 0
    for block in table.blocks():
        blocks.append(np.asarray(block.X))
        left.append(_rows(block.groups or (), "left", rows, row_of, pair))
        right.append(_rows(block.ids or (), "right", rows, right_row_of, pair))
        if has_units:
            units.append(_units(block.labels or (), block.times or (), codes, pair))
        pair += len(blocks[-1])
    if not blocks:
        raise InvalidInput("no pairs; expected columns left, right, same and one pair a line")
    if has_units:
        try:
            refuse_placeholders(codes, np.bincount(np.concatenate(units).ravel()), "sides of pairs")
        except ValueError as error:
            raise InvalidInput(f"pairs file: {error}", field="pairs") from None
    sides = np.concatenate(left), np.concatenate(right)
    return _Columns(names, np.concatenate(blocks), *sides, np.concatenate(units) if has_units else None)


def _pairs_of(columns: _Columns) -> DatasetPairs:
    """The pairs, or `InvalidInput` that names the first that cannot be one."""
    names, values, left, right, units = columns
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
    own = np.flatnonzero(left == right)
    if own.size:
        _refuse(int(own[0]), "left and right are the same row; expected two rows")
    truth = same == 1
    if truth.all() or not truth.any():
        raise InvalidInput(
            f"pairs file: every pair has same={int(truth[0])}; expected some that are the same and some that are not",
            field="pairs",
        )
    return DatasetPairs(
        left=left,
        right=right,
        same=truth,
        weight=weight,
        units=units,
        drawn_from=_draws(values[:, names.index("drawn_from")]) if "drawn_from" in names else None,
    )


def pair_counts(pairs: DatasetPairs | None) -> dict[str, Any]:
    """What a dataset's summary says of its pairs."""
    drawn = None if pairs is None else pairs.drawn_from
    return {
        "n_pairs": 0 if pairs is None else pairs.same.size,
        "n_same_pairs": 0 if pairs is None else int(pairs.same.sum()),
        "n_drawn_different": 0 if pairs is None or drawn is None else int(((drawn > 0) & ~pairs.same).sum()),
        "population": None if pairs is None else pairs.population,
    }


def _draws(drawn_from: NDArray[Any]) -> NDArray[np.int64]:
    """How many pairs each was drawn from, held against the sample: one list, at least as long as what was drawn."""
    drawn = drawn_from != 0
    n = int(drawn.sum())
    population = drawn_from[drawn][0] if n else 0
    for wrong, expected in (
        (
            ~(np.isfinite(drawn_from) & (drawn_from >= 0) & (drawn_from % 1 == 0)),
            "a whole number, 0 for a chosen pair",
        ),
        (
            drawn & (drawn_from != population),
            f"{population:g} as before: all that were drawn are of one list",
        ),
        (drawn & (drawn_from < n), f"at least {n}, as so many were drawn"),
    ):
        if wrong.any():
            at = int(wrong.argmax())
            _refuse(at, f"drawn_from is {drawn_from[at]:g}; expected {expected}")
    return drawn_from.astype(np.int64)


def contradictions(pairs: DatasetPairs) -> list[str]:
    """A warning that lists pairs marked different whose rows are one person's by the others, if there are any."""
    wrong = contradictory_pairs(pairs.left, pairs.right, pairs.same, pairs.units)
    if not wrong.size:
        return []
    lines = ", ".join(f"{number + 1:,}" for number in wrong[:_LISTED])
    lines += f" and {wrong.size - _LISTED:,} more" if wrong.size > _LISTED else ""
    return [
        f"pairs marked different although other pairs make their rows one person's: {wrong.size:,}, row {lines}. An "
        "open-set job refuses them: correct them, or leave them out"
    ]


def _open_table(path: Path, scratch: Path, kind: str, limits: FileLimits) -> tuple[Table, bool]:
    """The file, and whether it names units: texts in the roles of labels and times, which are never numbers."""
    request = DatasetRequest.model_validate({"name": "pairs", "group": "left", "id": "right"})
    try:
        with_units = request.model_copy(update={"label": "left_unit", "time": "right_unit"})
        return Table(path, scratch, kind, with_units, limits), True
    except InvalidInput as error:
        if error.facts.get("field") not in ("label", "time"):
            raise
    return Table(path, scratch, kind, request, limits), False


def _units(left: Sequence[Any], right: Sequence[Any], codes: dict[str, int], first: int) -> NDArray[np.int64]:
    """Codes of the units on both sides of some pairs; new ones are added."""
    units = np.empty((len(left), 2), dtype=np.int64)
    for at, side in enumerate((left, right)):
        for pair, value in enumerate(side):
            text = as_text(value)
            if text is None or not text.strip():
                _refuse(
                    first + pair, f"{('left_unit', 'right_unit')[at]} is empty; expected a number or a text"
                )
            units[pair, at] = codes.setdefault(label_of(text), len(codes))
    return units


def _rows(
    texts: Sequence[Any], side: str, rows: int, row_of: dict[str, int] | None, first: int
) -> NDArray[np.int64]:
    positions = np.empty(len(texts), dtype=np.int64)
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
        positions[pair - first] = row
    return positions


def _refuse(pair: int, detail: str) -> NoReturn:
    raise InvalidInput(f"pairs file: row {pair + 1}: {detail}", field="pairs", row=pair + 1)
