"""Checked vectors as scoring takes them: pairs and points, and their rows in a model's dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32
from pairmark.models.core.subjects import common_samples
from pairmark.models.records.schema import RecordError, Schema, is_plain
from pairmark.models.registry import schema_of_model
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.metrics import UNKNOWN_COLUMNS

Counts = NDArray[np.int64]

FEW = 16
"""So many numbers are looked at one by one in less time than two passes over an array take to begin."""
MAX_DENSE_BYTES = 1024 * 1024 * 1024
"""Most memory that sparse vectors may unfold to, for learners that read dense rows only."""


class SparseRow(msgspec.Struct, forbid_unknown_fields=True):
    """A vector by its non-zero entries; ``indices`` are 0-based."""

    indices: list[int]
    values: list[float]


@dataclass(slots=True)
class SparseRows:
    """Sparse vectors whose dimension is not known yet."""

    rows: list[SparseRow]
    single: bool

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(slots=True)
class RecordRows:
    """Records whose columns are not checked yet; ``single``: whether they came as one object."""

    rows: list[Any]
    single: bool

    def __len__(self) -> int:
        return len(self.rows)


SideRows = Float32 | SparseRows | RecordRows


@dataclass(slots=True)
class VectorPairs:
    """Two sides of vectors, and the model that a JSON body names. Dense sides are (n, d), finite float32.

    Attributes
    ----------
    counts : where sides hold subjects of several samples, the number of samples of each subject of the left and the
        right side; vectors lie subject after subject.
    """

    left: SideRows
    right: SideRows
    counts: tuple[Counts, Counts] | None = None
    model: str | None = None
    refs: list[list[str]] | None = None
    """The caller's names of both sides of each pair."""
    rows: tuple[Any, Any] | None = None
    """Both sides as the model took them, where these are not as they were sent."""

    @property
    def n_pairs(self) -> int:
        if self.counts is not None:
            return max(self.counts[0].size, self.counts[1].size)
        return max(len(self.left), len(self.right))

    @property
    def n_scored(self) -> int:
        """How many pairs of samples that takes."""
        if self.counts is None:
            return self.n_pairs
        left, right = self.counts
        return int(np.sum(left * right)) if 1 in (left.size, right.size) else int(left @ right)

    @property
    def common_samples(self) -> tuple[int, int] | None:
        """Numbers of samples of every pair, the larger first; None where pairs differ, and for plain vectors."""
        return None if self.counts is None else common_samples(*self.counts)

    @property
    def broadcast(self) -> bool:
        """Whether one of a side meets several of the other."""
        sides = (self.left, self.right) if self.counts is None else self.counts
        n_left, n_right = len(sides[0]), len(sides[1])
        return n_left != n_right and 1 in (n_left, n_right)

    def as_sent(self, place: int) -> dict[str, Any] | None:
        """The two sides of a pair as they were sent; None for sparse vectors and subjects of several samples."""
        sides = {}
        for name, side in (("left", self.left), ("right", self.right)):
            if self.counts is not None or isinstance(side, SparseRows):
                return None
            rows = side.rows if isinstance(side, RecordRows) else side
            row = rows[place if len(rows) > 1 else 0]
            sides[name] = row if isinstance(row, dict) else [float(number) for number in row]
        return sides

    def sample_class(self) -> tuple[int, int] | None:
        """Numbers of samples of the two subjects of every pair, the larger first; None for plain vectors."""
        if self.counts is None:
            return None
        a, b = np.broadcast_arrays(*self.counts)
        larger, smaller = np.maximum(a, b), np.minimum(a, b)
        differing = np.flatnonzero((larger != larger[0]) | (smaller != smaller[0]))
        if differing.size:
            at = int(differing[0])
            raise InvalidInput(
                f"pair 0 has {a[0]} and {b[0]} samples, and pair {at} {a[at]} and {b[at]}: a decision is calibrated "
                "for fixed numbers of samples; send pairs with other numbers in a separate request",
                field="left",
                pair=at,
            )
        return int(larger[0]), int(smaller[0])

    def check_sizes(self, max_pairs: int, max_samples: int = 100) -> None:
        """Refuse sizes that make no pairs, or too many."""
        counts = self.counts
        what = "vectors" if counts is None else "subjects"
        n_left, n_right = (len(self.left), len(self.right)) if counts is None else map(len, counts)
        if n_left != n_right and 1 not in (n_left, n_right):
            raise InvalidInput(
                f"left has {n_left} {what} and right {n_right}; expected equal numbers, or a single one on one side",
                field="right",
            )
        if counts is not None:
            for name, side in zip(("left", "right"), counts, strict=True):
                if side.max() > max_samples:
                    at = int(np.argmax(side > max_samples))
                    raise InvalidInput(
                        f"{name}[{at}] has {side[at]} samples; expected at most {max_samples} "
                        "(PAIRMARK_MAX_SUBJECT_SAMPLES)",
                        field=f"{name}[{at}].samples",
                        limit=max_samples,
                    )
            if self.n_scored > max_pairs:
                raise TooLarge(
                    f"the subjects make {self.n_scored} pairs of samples; at most {max_pairs} are taken at a time",
                    limit=max_pairs,
                )
        n_pairs = max(n_left, n_right)
        if self.refs is not None and len(self.refs) != n_pairs:
            raise InvalidInput(
                f"refs names {len(self.refs)} pairs; expected one [left, right] for each of the {n_pairs} pairs",
                field="refs",
            )
        if n_pairs > max_pairs:
            raise TooLarge(
                f"the request has {n_pairs} pairs; at most {max_pairs} are taken at a time",
                limit=max_pairs,
            )


@dataclass(slots=True)
class Features:
    """Points, and the model that a JSON body names. Dense ones are (n, d), finite float32."""

    rows: SideRows
    model: str | None = None

    def __len__(self) -> int:
        return len(self.rows)


def check_finite(values: Any, *, noun: str, what: str, field: str) -> None:
    """Refuse results that are not finite, by row: ``noun`` is what a row is called (``pair``), ``what`` its value
    (``score``), ``field`` where the vectors came in."""
    if values.size <= FEW and all(map(math.isfinite, values.ravel().tolist())):
        return
    finite = np.isfinite(values)
    if not finite.all():
        at = int(np.argmin(finite.reshape(len(finite), -1).all(axis=1)))
        raise InvalidInput(
            f"the {what} of {noun} {at} is not finite: its vectors are too extreme for this model",
            field=field,
            **{noun: at},
        )


def to_rows(
    side: SideRows,
    name: str,
    n_features: int,
    *,
    accepts_sparse: bool,
    ignores_unknown: bool = False,
    estimator: Any = None,
) -> Any:
    """Rows of the model's dimension: dense float32, CSR for a learner that reads it, or cells for one of records.

    ``estimator`` : the model that records are meant for; None where none can be.

    With ``ignores_unknown``, entries of sparse vectors in columns beyond the model's are dropped and counted.
    """
    schema = None if estimator is None else schema_of_model(estimator)
    if isinstance(side, RecordRows):
        return _record_rows(side, name, n_features, schema, estimator, dense=not accepts_sparse)
    if schema is not None and not is_plain(schema):
        raise InvalidInput(
            f"{name} is a vector; the model takes records with the columns {_columns(schema)}", field=name
        )
    if isinstance(side, SparseRows):
        if ignores_unknown:
            side = _known_columns(side, n_features)
        return _sparse_rows(side, name, n_features, accepts_sparse=accepts_sparse)
    if side.shape[1] != n_features:
        raise InvalidInput(
            f"{name} has vectors of {side.shape[1]} numbers; the model expects {n_features}",
            field=name,
            expected_dimension=n_features,
        )
    return side


def _record_rows(
    side: RecordRows, name: str, n_features: int, schema: Schema | None, estimator: Any, *, dense: bool
) -> Any:
    """Cells of records, held against the model's columns; encoded for a learner that takes vectors."""
    if schema is None:
        raise InvalidInput(f"{name} is a record; expected a vector of {n_features} numbers", field=name)
    try:
        cells = schema.records(side.rows, name)
    except RecordError as error:
        first = error.problems[0]
        at = name if side.single else f"{name}[{first['row'] - 1}]"
        raise InvalidInput(
            f"{at}: column {first['column']!r} {first['detail']}", field=f"{at}.{first['column']}"
        ) from None
    empty = schema.empty_rows(cells)
    if empty.size:
        at = name if side.single else f"{name}[{empty[0]}]"
        raise InvalidInput(f"{at} {schema.no_cell}", field=at)
    encoder = getattr(estimator, "encoder_", None)
    if encoder is None:
        return cells
    rows = encoder.transform(cells)
    return rows.toarray() if dense and not isinstance(rows, np.ndarray) else rows


def _columns(schema: Schema) -> str:
    names = [column.name for column in schema.fields]
    return ", ".join(names[:20]) + ("" if len(names) <= 20 else f" and {len(names) - 20} more")


def _known_columns(side: SparseRows, n_features: int) -> SparseRows:
    """Without the entries of columns that the model never saw; rows that are wrong otherwise stay as they are."""
    dropped = 0
    rows = []
    for row in side.rows:
        unknown = sum(column >= n_features for column in row.indices)
        if unknown and len(row.indices) == len(row.values) and len(set(row.indices)) == len(row.indices):
            dropped += unknown
            places = [at for at, column in enumerate(row.indices) if column < n_features]
            row = SparseRow(
                indices=[row.indices[at] for at in places], values=[row.values[at] for at in places]
            )
        rows.append(row)
    if dropped:
        UNKNOWN_COLUMNS.inc(dropped)
    return SparseRows(rows, side.single)


def _sparse_rows(side: SparseRows, name: str, n_features: int, *, accepts_sparse: bool) -> Any:
    if not accepts_sparse and 4 * n_features * len(side) > MAX_DENSE_BYTES:
        raise TooLarge(f"{name} unfolds to more than {MAX_DENSE_BYTES} bytes; send fewer vectors at a time")
    counts = []
    for index, row in enumerate(side.rows):
        at = name if side.single else f"{name}[{index}]"
        if len(row.indices) != len(row.values):
            raise InvalidInput(
                f"{at} has {len(row.indices)} indices and {len(row.values)} values; expected equal numbers",
                field=at,
            )
        distinct: set[int] = set()
        for place, column in enumerate(row.indices):
            if not 0 <= column < n_features or column in distinct:
                field = f"{at}.indices[{place}]"
                problem = "occurs twice" if column in distinct else f"is not in 0 to {n_features - 1}"
                raise InvalidInput(
                    f"{field} {problem}; expected distinct columns of the model's {n_features}", field=field
                )
            distinct.add(column)
        counts.append(len(row.indices))
    flat = [value for row in side.rows for value in row.values]
    values = np.array(flat, dtype=np.float32)
    pointers = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    columns = np.array([column for row in side.rows for column in row.indices], dtype=np.int32)
    matrix = csr_array((values, columns, pointers), shape=(len(side), n_features))
    matrix.sort_indices()
    return matrix if accepts_sparse else matrix.toarray()
