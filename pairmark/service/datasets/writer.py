"""Blocks of rows in, a dataset's folder of arrays out; memory holds one block and the codes of the rows.

Files are written front to back, never through a memory map: on a full disk a map kills the process.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.inputs import label_of, row_of_unranked
from pairmark.models.records.schema import Records, Schema
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.data import (
    FACTS,
    FACTS_VERSION,
    DatasetPairs,
    write_cells,
    write_pairs,
    write_strings,
)
from pairmark.service.errors import InvalidInput, TooLarge

MAX_NAME = 1_000
MAX_RANKED = 1_000
MAX_KEPT = 1_000
"""Different values of a column that is kept beside the rows."""


@dataclass(kw_only=True)
class Block:
    """Some consecutive rows, as a reader found them. Strings are not checked yet."""

    X: NDArray[Any] | csr_array
    labels: Sequence[Any] | None = None
    groups: Sequence[Any] | None = None
    ids: Sequence[Any] | None = None
    kept: Mapping[str, Sequence[Any]] = field(default_factory=dict)


class Rankings(NamedTuple):
    """Labels that every row ranks, and (rows, labels) numbers: smaller is better, equal is tied, NaN is absent."""

    labels: list[str]
    positions: NDArray[np.float64]


class Npy:
    """An ``.npy`` file that grows by rows; its header is written for good when the number of rows is known."""

    def __init__(self, path: Path, dtype: Any, width: int | None = None) -> None:
        self.dtype, self.width, self.rows = np.dtype(dtype), width, 0
        self._stream: BinaryIO = path.open("wb")
        self._header()
        self._start = self._stream.tell()

    def append(self, values: NDArray[Any]) -> None:
        """Add rows."""
        self._stream.write(np.ascontiguousarray(values, dtype=self.dtype).data)
        self.rows += values.shape[0]

    def close(self) -> None:
        """Write the final header."""
        self._stream.seek(0)
        self._header()
        if self._stream.tell() != self._start:
            raise AssertionError("numpy's headers leave room for the row count to grow")
        self._stream.close()

    def _header(self) -> None:
        shape = (self.rows,) if self.width is None else (self.rows, self.width)
        npy_format.write_array_header_1_0(
            self._stream,
            {"descr": npy_format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": shape},
        )


class Codes:
    """Strings turned into codes as they come, of whatever spelling (`label_of`); ``what`` they are is told.

    Attributes
    ----------
    code_of : each string's code, in the order in which they came.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.code_of: dict[str, int] = {}
        self._code_of_spelling: dict[str, int] = {}

    def of(self, values: Sequence[Any], first_row: int) -> NDArray[np.int64]:
        """Codes of the next rows' values."""
        code_of = self._code_of_spelling
        codes = np.empty(len(values), dtype=np.int64)
        for offset, value in enumerate(values):
            text = value if type(value) is str else as_text(value)
            code = code_of.get(text) if text is not None else None
            if code is None:
                name = checked_text(text, self._what, first_row + offset)
                code = self.code_of.setdefault(label_of(name), len(self.code_of))
                code_of[name] = code
            codes[offset] = code
        return codes

    def in_order(self, codes: Sequence[NDArray[np.int64]]) -> tuple[list[str], NDArray[np.int64]]:
        """The strings in order, and the codes of all rows into them."""
        names = sorted(self.code_of, key=_order(self.code_of))
        new_code = np.empty(len(names), dtype=np.int64)
        new_code[[self.code_of[name] for name in names]] = np.arange(len(names))
        return names, new_code[np.concatenate(codes)]


class DatasetWriter:
    """Writes one dataset into an empty folder.

    Parameters
    ----------
    folder : where the files go. limits : how much is taken.
    feature_names : names, or None for ``x0``, ``x1``, ...
    schema : of the records of a table, whose blocks hold cells.
    """

    def __init__(
        self,
        folder: Path,
        limits: FileLimits,
        features: int,
        feature_names: list[str] | None = None,
        *,
        sparse: bool = False,
        schema: Schema | None = None,
    ) -> None:
        if features < 1:
            raise InvalidInput("no feature column is left; expected at least one column of numbers")
        if features > limits.features:
            raise limits.exceeded("features", f"{features} features", "features")
        self.folder, self.features, self.feature_names = folder, features, feature_names
        self.limits, self.sparse = limits, sparse
        self.rows = 0
        self._bytes = 0
        self._codes = {what: Codes(what) for what in ("label", "group")}
        self._codes_of_rows: dict[str, list[NDArray[np.int64]]] = {"label": [], "group": []}
        self._ids: list[str] = []
        # Of each column that is kept the codes of its values, and those of the rows.
        self._kept: dict[str, tuple[dict[str, int], list[int]]] = {}
        self._files: dict[str, Npy] = {}
        self._schema = schema
        self._cells: list[Records] = []
        if sparse:
            self._files["data"] = Npy(folder / "data.npy", np.float32)
            self._files["indices"] = Npy(folder / "indices.npy", np.int32)
            self._files["indptr"] = Npy(folder / "indptr.npy", np.int64)
            self._files["indptr"].append(np.zeros(1, dtype=np.int64))
        elif schema is None:
            self._files["X"] = Npy(folder / "X.npy", np.float32, features)
        self._nonzeros = 0

    def add(self, block: Block) -> None:
        """Check and write the next rows; `InvalidInput` names row (from 1) and column of the first number not taken."""
        count = int(block.X.shape[0])
        if self.rows + count > self.limits.rows:
            raise self.limits.exceeded("rows", f"{self.rows + count} rows or more", "rows")
        # A value of a sparse row takes its number and its column. What is too much is refused before it is written.
        self._bytes += 8 * block.X.nnz if isinstance(block.X, csr_array) else 4 * count * self.features
        if self._bytes > self.limits.stored_bytes:
            raise self.limits.exceeded(
                "stored_bytes", f"the file holds {self._bytes} bytes of numbers or more", "bytes"
            )
        if self._schema is not None:
            cells: Any = block.X
            self._cells.append(cells)
        elif isinstance(block.X, csr_array):
            self._add_sparse(block.X.copy())
        else:
            self._files["X"].append(self._float32(block.X))
        for what, values in (("label", block.labels), ("group", block.groups)):
            if values is not None:
                self._codes_of_rows[what].append(self._codes[what].of(values, self.rows))
        for name, cells_of_rows in block.kept.items():
            code_of, codes = self._kept.setdefault(name, ({}, []))
            codes += [code_of.setdefault(as_text(cell) or "", len(code_of)) for cell in cells_of_rows]
            if len(code_of) > MAX_KEPT:
                raise InvalidInput(
                    f"keep: column {name[:100]!r} has more than {MAX_KEPT} values; expected few, such as sites: "
                    "exclude it",
                    field="keep",
                )
        for offset, value in enumerate(block.ids or ()):
            self._ids.append(checked_text(as_text(value), "id", self.rows + offset, field="id"))
        self.rows += count

    def row_of(self) -> dict[str, int] | None:
        """Row id -> row; None where rows have no ids."""
        return {text: row for row, text in enumerate(self._ids)} or None

    def finish(
        self,
        pairs: DatasetPairs | None,
        *,
        rankings: Rankings | None = None,
        left_rows: int | None = None,
    ) -> None:
        """Write what is known only at the end; the folder is a whole dataset afterwards. ``left_rows`` : rows of the
        left one of two tables."""
        for file in self._files.values():
            file.close()
        # Codes followed the order in which labels came; now that all are known, they follow the labels' own.
        names: dict[str, list[str]] = {"label": [], "group": []}
        for what, file_name in (("label", "y"), ("group", "groups")):
            if self._codes_of_rows[what]:
                names[what], codes = self._codes[what].in_order(self._codes_of_rows[what])
                np.save(self.folder / f"{file_name}.npy", codes, allow_pickle=False)
        if self._ids:
            if len(set(self._ids)) != len(self._ids):
                raise InvalidInput("row ids repeat; expected a different one in every row", field="id")
            write_strings(self.folder, "row_ids", self._ids)
        for at, (_, kept_codes) in enumerate(self._kept.values()):
            np.save(self.folder / f"kept{at}.npy", np.array(kept_codes, dtype=np.int64), allow_pickle=False)
        if rankings is not None:
            np.save(self.folder / "rankings.npy", checked_positions(rankings.positions), allow_pickle=False)
        if pairs is not None:
            write_pairs(self.folder, pairs)
        if self._schema is not None:
            write_cells(self.folder, self._schema, np.concatenate(self._cells))
        facts = {
            "format_version": FACTS_VERSION,
            "rows": self.rows,
            "features": self.features,
            "sparse": self.sparse,
            "feature_names": self.feature_names,
            "identities": names["label"],
            "group_names": names["group"],
            "label_names": [] if rankings is None else rankings.labels,
            **({} if self._schema is None else {"schema": self._schema.model_dump(mode="json")}),
            **({} if left_rows is None else {"left_rows": left_rows}),
            **(
                {"kept": [[name, list(values)] for name, (values, _) in self._kept.items()]}
                if self._kept
                else {}
            ),
        }
        with (self.folder / FACTS).open("w") as stream:
            json.dump(facts, stream, sort_keys=True, ensure_ascii=True)

    def _add_sparse(self, X: csr_array) -> None:
        X.sum_duplicates()
        data = np.asarray(X.data)
        narrow = _narrow(data)
        bad = np.flatnonzero(~np.isfinite(narrow))
        if bad.size:
            row = int(np.searchsorted(X.indptr, bad[0], side="right")) - 1
            self._refuse(row, int(X.indices[bad[0]]), data[bad[0]])
        self._files["data"].append(narrow)
        self._files["indices"].append(X.indices)
        self._files["indptr"].append(np.asarray(X.indptr[1:], dtype=np.int64) + self._nonzeros)
        self._nonzeros += int(X.indptr[-1])

    def _float32(self, X: NDArray[Any]) -> NDArray[np.float32]:
        narrow = _narrow(X)
        if not np.isfinite(narrow).all():
            row, column = (int(index) for index in np.argwhere(~np.isfinite(narrow))[0])
            self._refuse(row, column, X[row, column])
        return narrow

    def _refuse(self, row: int, column: int, value: Any) -> None:
        name = f"x{column}" if self.feature_names is None else self.feature_names[column]
        number = self.rows + row + 1
        if math.isnan(value):
            what = "NaN (a missing value); expected a number: fill it in, leave the row out, or exclude the column"
        elif math.isinf(value):
            what = "infinite; expected a finite number: clip it or exclude the column"
        else:
            what = f"{value:.6g}, beyond the range of float32 (3.4e38); expected smaller: rescale the column"
        raise InvalidInput(f"row {number}, column {name!r} is {what}", row=number, column=name)


def checked_positions(rankings: NDArray[np.float64]) -> NDArray[np.float64]:
    """The rankings as `dense_positions`; `InvalidInput` names the first row that is none."""
    unranked = row_of_unranked(rankings)
    for rows, detail in (
        (np.flatnonzero(np.isinf(rankings).any(axis=1)), "has an infinite ranking position"),
        (
            [] if unranked is None else [unranked],
            "has the ranking position -1, which would be the best; expected 0 or more, and nothing (in npz NaN) where "
            "a label is absent",
        ),
        (
            np.flatnonzero(np.isnan(rankings).all(axis=1)),
            "ranks no label; expected at least one: leave the row out",
        ),
    ):
        if len(rows):
            number = int(rows[0]) + 1
            raise InvalidInput(f"row {number} {detail}", row=number, field="ranking")
    return dense_positions(rankings)


def dense_positions(rankings: NDArray[np.float64]) -> NDArray[np.float64]:
    """Numbers of any scale, smaller is better, as 0-based positions; NaN stays, equal numbers share a position."""
    # Few uploads need it.
    from scipy.stats import rankdata

    ranks: NDArray[np.float64] = rankdata(rankings, method="dense", axis=1, nan_policy="omit")
    return ranks - 1


def as_text(value: Any) -> str | None:
    """A label as text, the same from every format: 3, 3.0 and "3" are "3"; None and NaN are missing."""
    if value is None or value is np.ma.masked:
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isnan(number):
            return None
        return str(int(number)) if number.is_integer() and abs(number) < 2**53 else repr(number)
    return str(value)


def checked_text(text: str | None, what: str, row: int, **facts: str) -> str:
    """The text, if there is some that every database and JSON can carry; ``facts`` go with a refusal."""
    if text is None or not text.strip():
        raise InvalidInput(
            f"row {row + 1} has no {what}; expected one in every row: fill it in or leave the row out",
            row=row + 1,
            **facts,
        )
    try:
        text.encode()
    except UnicodeEncodeError:
        text = "\x00"
    if "\x00" in text or len(text) > MAX_NAME:
        raise InvalidInput(
            f"row {row + 1} has a {what} that is not plain text of at most {MAX_NAME} characters", row=row + 1
        )
    return text


def _narrow(X: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        return X.astype(np.float32, copy=False)


def _order(names: Iterable[str]) -> Any:
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        return None
    if not all(math.isfinite(number) for number in numbers.values()):
        return None
    return lambda name: (numbers[name], name)


def parsed_rankings(texts: Sequence[str | None]) -> Rankings:
    """Rankings such as ``b>a=c``; `InvalidInput` names the first row that has none."""
    # Each different ranking is read once: there are few of them, whatever the rows.
    orders = {text: _parse(text or "") for text in dict.fromkeys(texts)}
    labels = sorted({label for order in orders.values() for label in order or ()})
    if all(order is None or len(order) == 1 for order in orders.values()):
        example = next(iter(texts), "") or ""
        raise InvalidInput(
            f"the ranking column orders fewer than two labels, as in {example[:60]!r}; expected labels best first with "
            "> between them (= where they tie), such as b>a>c",
            field="ranking",
        )
    check_ranked(labels)
    column_of = {label: number for number, label in enumerate(labels)}
    positions = np.full((len(orders), len(labels)), np.nan)
    for number, (text, order) in enumerate(orders.items()):
        if order is None:
            row = texts.index(text) + 1
            raise InvalidInput(
                f"row {row}: {(text or '')[:100]!r} is not a ranking; expected labels, each once, best first, such as "
                "b>a>c or b>a=c",
                row=row,
                field="ranking",
            )
        positions[number, [column_of[label] for label in order]] = list(order.values())
    # Back to rows.
    number_of = {text: number for number, text in enumerate(orders)}
    return Rankings(labels, positions[[number_of[text] for text in texts]])


def check_ranked(labels: Sequence[str]) -> None:
    if len(labels) > MAX_RANKED:
        raise TooLarge(f"the rankings order {len(labels)} labels; at most {MAX_RANKED} are taken")


def _parse(text: str) -> dict[str, int] | None:
    positions: dict[str, int] = {}
    for position, tied in enumerate(text.split(">")):
        for part in tied.split("="):
            label = part.strip()
            if not label or label in positions or len(label) > MAX_NAME:
                return None
            positions[label] = position
    return positions
