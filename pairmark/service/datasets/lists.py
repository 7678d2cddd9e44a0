"""CSV and Parquet files that stand for lists: the explicit pairs of a dataset, and the scores, outcomes and references
of pairs of a JSON body."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.inputs import refuse_placeholders
from pairmark.models.pairs.lists import MOST_CONTRADICTORY, contradictory_pairs, listed_units
from pairmark.schemas.datasets import Format
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.data import DatasetPairs, LabelledData, name_list
from pairmark.service.datasets.files import in_lines
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.datasets.writer import Codes, as_text
from pairmark.service.errors import InvalidInput, PairmarkError, TooLarge
from pairmark.service.settings import MIB

_LISTED = 20
"""Contradictory pairs that a warning names."""
# Rows read at a time.
_ROWS = 65_536
_TEXTS = ("left", "right", "left_unit", "right_unit")
_NUMBERS = {
    "same": "0 or 1",
    "weight": "a finite number, 0 or more",
    "drawn_from": "a whole number, 0 for a chosen pair",
}
_SAME = ("match", "label")
"""What others call ``same``."""
_NAMES = "left, right, same and optionally weight, left_unit, right_unit and drawn_from"


def read_pairs(
    path: Path,
    kind: Format,
    scratch: Path,
    limits: FileLimits,
    *,
    rows: int,
    row_of: dict[str, int] | None,
    right_row_of: dict[str, int] | None = None,
    warnings: list[str],
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
    warnings : gets what its owner should know.
    """
    try:
        with closing(TableFile(path, scratch / "pairs", kind, limits)) as file:
            if other := _other_name(file.names):
                warnings.append(
                    f"pairs file: column {other!r} is read as 'same' (1: one person or thing, 0: two)"
                )
            return _checked_pairs(_columns_of(file, rows, {"left": row_of, "right": right_row_of or row_of}))
    except PairmarkError as error:
        if isinstance(error, InvalidInput):
            error = in_lines(error, path, kind, scratch / "pairs", limits)
        raise type(error)(f"pairs file: {error.detail}", **{**error.facts, "field": "pairs"}) from error


def _other_name(names: Sequence[str]) -> str | None:
    """The column that is read as ``same`` where none is called so."""
    return None if "same" in names else next((name for name in _SAME if name in names), None)


def _columns_of(
    file: TableFile, rows: int, row_of: Mapping[str, dict[str, int] | None]
) -> dict[str, NDArray[Any]]:
    """The columns, rows and units as numbers."""
    names = tuple("same" if name == _other_name(file.names) else name for name in file.names)
    units = [name for name in names if name in ("left_unit", "right_unit")]
    if not {"left", "right", "same"} <= set(names) <= {*_TEXTS, *_NUMBERS} or len(units) == 1:
        raise InvalidInput(f"columns are {name_list(names)}; expected a first line that names {_NAMES}")
    # What cannot be read as a number comes as NULL, and is refused below with its row.
    cells = [
        file.text(number) if name in _TEXTS else f"TRY_CAST({file.cells[number]} AS DOUBLE)"
        for number, name in enumerate(names)
    ]
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    codes = Codes("unit")
    first = 0
    for block in file.rows(cells, _ROWS):
        # Texts become row numbers block by block: all of them at once would take too much memory.
        for name, values in zip(names, zip(*block, strict=True), strict=True):
            if name in row_of:
                columns[name].append(_rows(values, name, rows, row_of[name], first))
            elif name in units:
                columns[name].append(codes.of(values, first))
            else:
                columns[name].append(_numbers(values, name, first))
        first += len(block)
    if not first:
        raise InvalidInput("no pairs; expected columns left, right, same and one pair a line")
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    if units:
        try:
            sides = np.concatenate([whole[name] for name in units])
            refuse_placeholders(codes.code_of, np.bincount(sides), "sides of pairs")
        except ValueError as error:
            raise InvalidInput(str(error)) from None
    return whole


def _checked_pairs(columns: Mapping[str, NDArray[Any]]) -> DatasetPairs:
    """The pairs, or `InvalidInput` that names the first that cannot be one."""
    left, right, same, weight = (columns.get(name) for name in ("left", "right", "same", "weight"))
    assert left is not None
    assert right is not None
    assert same is not None
    _refuse_first((same != 0) & (same != 1), "same", same)
    if weight is not None:
        _refuse_first(~(np.isfinite(weight) & (weight >= 0)), "weight", weight)
        if not weight.any():
            raise InvalidInput("every weight is 0; expected some above")
    # A row beside itself scores highest whatever the learner: it would flatter every figure.
    own = np.flatnonzero(left == right)
    if own.size:
        _refuse(int(own[0]), "left and right are the same row; expected two rows")
    truth = same == 1
    if truth.all() or not truth.any():
        raise InvalidInput(
            f"every pair has same={int(truth[0])}; expected some that are the same and some that are not"
        )
    has_units = "left_unit" in columns
    return DatasetPairs(
        left=left,
        right=right,
        same=truth,
        weight=weight,
        units=np.stack([columns["left_unit"], columns["right_unit"]], axis=1) if has_units else None,
        drawn_from=_draws(columns["drawn_from"]) if "drawn_from" in columns else None,
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


def facts_of_list(data: LabelledData, pairs: DatasetPairs) -> dict[str, Any] | None:
    """People of a list of pairs and what is known of its origin; None where pairs contradict each other."""
    try:
        listed = listed_units(
            pairs.left,
            pairs.right,
            pairs.same,
            protocol="open-set",
            units=pairs.units,
            labels=data.y,
            groups=data.groups,
        )
    except ValueError:
        return None
    return {"units": int(listed.units.max()) + 1, "origin": listed.origin(pairs.same)}


def _draws(drawn_from: NDArray[Any]) -> NDArray[np.int64]:
    """How many pairs each was drawn from, held against the sample: one list, at least as long as what was drawn."""
    drawn = drawn_from != 0
    n = int(drawn.sum())
    population = drawn_from[drawn][0] if n else 0
    _refuse_first(
        ~(np.isfinite(drawn_from) & (drawn_from >= 0) & (drawn_from % 1 == 0)), "drawn_from", drawn_from
    )
    same_list = f"{population:g} as before: all that were drawn are of one list"
    _refuse_first(drawn & (drawn_from != population), "drawn_from", drawn_from, same_list)
    _refuse_first(drawn & (drawn_from < n), "drawn_from", drawn_from, f"at least {n}, as so many were drawn")
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
        "open-set job leaves out the fewest pairs that settle them, and refuses a list with more than "
        f"{100 * MOST_CONTRADICTORY:g} % of such: correct them"
    ]


def _numbers(values: Sequence[Any], name: str, first: int) -> NDArray[np.float64]:
    if None in values:
        _refuse(first + values.index(None), f"{name} is no number; expected {_NUMBERS[name]}")
    return np.array(values, dtype=np.float64)


def _rows(
    texts: Sequence[Any], side: str, rows: int, row_of: dict[str, int] | None, first: int
) -> NDArray[np.int64]:
    positions = np.empty(len(texts), dtype=np.int64)
    for pair, text in enumerate(texts, first):
        if row_of is not None:
            row = row_of.get(as_text(text) or "", -1)
            if row < 0:
                _refuse(pair, f"{side} is {str(text)[:50]!r}, which is not a row id of the dataset")
        else:
            word = (as_text(text) or "").strip()
            # Of more digits it is no row, and might be of millions, which take long to read.
            row = int(word) if word.isdecimal() and len(word) < 18 else -1
            if not 0 <= row < rows:
                _refuse(
                    pair,
                    f"{side} is {str(text)[:50]!r}; expected a row from 0 to {rows - 1} (to use row ids, name their "
                    "column as id)",
                )
        positions[pair - first] = row
    return positions


def _refuse_first(
    wrong: NDArray[np.bool_], name: str, values: NDArray[Any], expected: str | None = None
) -> None:
    if wrong.any():
        at = int(wrong.argmax())
        _refuse(at, f"{name} is {values[at]:g}; expected {expected or _NUMBERS[name]}")


def _refuse(pair: int, detail: str) -> NoReturn:
    raise InvalidInput(f"row {pair + 1}: {detail}", row=pair + 1)


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
        for block in file.rows([file.text(number, _LONGEST_CELL + 1) for number in range(len(names))], _ROWS):
            rows += block
            if len(rows) > most:
                raise TooLarge(f"the file has more than {most} rows; send it in parts", limit=most)
    if not rows:
        raise InvalidInput("the file has no rows; expected at least one", field="file")
    # 1. A list for each column, as its cells would stand in JSON.
    lists: dict[str, list[Any]] = {
        table.columns[name]: [_json_cell(name, value, row) for row, value in enumerate(column)]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    # 2. Rows that are objects: the lists turned, each under its member's name.
    if table.objects is not None:
        objects = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        lists = {table.objects: objects}
    body: dict[str, Any] = {**members, **lists}
    # 3. Pairs of names: both sides of a row together, inside the member that holds them.
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
