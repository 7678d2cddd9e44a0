"""Rows of a request as they were sent, and as a model takes them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32
from pairmark.models.records.schema import RecordError
from pairmark.service.datasets.data import name_list
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.versions import LoadedVersion

Counts = NDArray[np.int64]

MAX_DENSE_BYTES = 1024 * 1024 * 1024
"""Most memory that sparse vectors may unfold to, for learners that read dense rows only."""


@dataclass(slots=True)
class SparseRows:
    """Sparse vectors whose dimension is not known yet: indices and values of all, one after another.

    Two lists for each would have the collector look at all of them again and again, while nobody else is answered.
    """

    indices: array[int]
    values: array[float]
    counts: list[int]
    single: bool

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(slots=True)
class RecordRows:
    """Records whose columns are not checked yet; ``single``: whether they came as one object."""

    rows: list[Any]
    single: bool

    def __len__(self) -> int:
        return len(self.rows)


SideRows = Float32 | SparseRows | RecordRows


def to_rows(version: LoadedVersion, side: SideRows, name: str, *, dense: bool = False) -> Any:
    """Rows of the model's dimension: dense float32, CSR for a learner that reads it unless ``dense`` ones are asked
    for, or cells for one of records; ``name`` is what refusals call them."""
    accepts_sparse = version.accepts_sparse and not dense
    if isinstance(side, RecordRows):
        return _record_rows(version, side, name, dense=not accepts_sparse)
    if not version.takes_vectors:
        names = name_list(version.columns)
        raise InvalidInput(
            f"{name} is a vector; the model takes records with the columns {names}", field=name
        )
    if isinstance(side, SparseRows):
        return _sparse_rows(side, name, version.n_features, accepts_sparse=accepts_sparse)
    if side.shape[1] != version.n_features:
        raise InvalidInput(
            f"{name} has vectors of {side.shape[1]} numbers; the model expects {version.n_features}",
            field=name,
            expected_dimension=version.n_features,
        )
    return side


def _record_rows(version: LoadedVersion, side: RecordRows, name: str, *, dense: bool) -> Any:
    """Cells of records, held against the model's columns; encoded for a learner that takes vectors."""
    schema, encoder = version.schema, version.encoder
    if schema is None:
        raise InvalidInput(
            f"{name} is a record; expected a vector of {version.n_features} numbers", field=name
        )
    try:
        cells = schema.records(side.rows, name)
    except RecordError as error:
        first = error.problems[0]
        member = name if side.single else f"{name}[{first['row'] - 1}]"
        raise InvalidInput(
            f"{member}: column {first['column']!r} {first['detail']}", field=f"{member}.{first['column']}"
        ) from None
    empty = schema.empty_rows(cells)
    if empty.size:
        member = name if side.single else f"{name}[{empty[0]}]"
        raise InvalidInput(f"{member} {schema.no_cell}", field=member)
    if encoder is None:
        return cells
    rows = encoder.transform(cells)
    return rows.toarray() if dense and not isinstance(rows, np.ndarray) else rows


def _sparse_rows(side: SparseRows, name: str, n_features: int, *, accepts_sparse: bool) -> Any:
    if not accepts_sparse and 4 * n_features * len(side) > MAX_DENSE_BYTES:
        raise TooLarge(f"{name} unfolds to more than {MAX_DENSE_BYTES} bytes; send fewer vectors at a time")
    pointers = np.concatenate([[0], np.cumsum(side.counts)]).astype(np.int32)
    columns = np.frombuffer(side.indices, np.int64)
    row_of = np.repeat(np.arange(len(side)), side.counts)
    wrong, problem = (
        np.flatnonzero((columns < 0) | (columns >= n_features)),
        f"is not in 0 to {n_features - 1}",
    )
    if not wrong.size:
        order = np.lexsort((columns, row_of))
        cells = row_of[order] * n_features + columns[order]
        wrong, problem = order[1:][np.diff(cells) == 0], "occurs twice"
    if wrong.size:
        place, row = int(wrong.min()), int(row_of[wrong.min()])
        field = f"{name if side.single else f'{name}[{row}]'}.indices[{place - pointers[row]}]"
        raise InvalidInput(
            f"{field} {problem}; expected distinct columns of the model's {n_features}", field=field
        )
    numbers = np.frombuffer(side.values).astype(np.float32)
    matrix = csr_array((numbers, columns.astype(np.int32), pointers), shape=(len(side), n_features))
    matrix.sort_indices()
    return matrix if accepts_sparse else matrix.toarray()
