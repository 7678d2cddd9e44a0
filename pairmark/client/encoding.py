"""How arrays, files and answers travel. NumPy is used where it is installed; without it arrays are lists."""

from __future__ import annotations

import datetime
import io
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

from pairmark.client.errors import InvalidName

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]

HAS_NUMPY = np is not None
RAW_FROM = 4096
"""Numbers in a request from which dense arrays travel as raw float32 (1/23 of the CPU of the best JSON)."""
Progress = Callable[[float, str], None]
Vectors = Any
"""A vector, a list of vectors, an (n, d) array, or a SciPy sparse matrix; for a model of records a
``{"column": value}``, a list of those, a pandas or polars frame, or an Arrow table."""
Side = Any
"""`Vectors`, or a subject of several samples ``{"samples": Vectors}``, or a list of subjects."""


def array(values: Any, dtype: str | None) -> Any:
    """Values as an array; without NumPy as they are."""
    return values if np is None else np.asarray(values, dtype=dtype)


def from_bytes(scores: bytes) -> Any:
    """The float32 numbers of a raw answer."""
    return np.frombuffer(scores, dtype="<f4").astype(np.float32, copy=False)


def is_array(value: Any) -> bool:
    """Whether a value is a dense array of numbers."""
    return np is not None and isinstance(value, np.ndarray) and value.dtype.kind in "fiu"


def raw_pairs(left: Vectors, right: Vectors) -> tuple[bytes, dict[str, int]] | None:
    """Both sides as raw float32 and its query parameters, or None where JSON says it better."""
    if not is_array(left) or not is_array(right) or left.size + right.size < RAW_FROM:
        return None
    a, b = np.atleast_2d(left), np.atleast_2d(right)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        return None
    body = np.ascontiguousarray(a, dtype="<f4").tobytes() + np.ascontiguousarray(b, dtype="<f4").tobytes()
    return body, {"dim": a.shape[1], "n_left": a.shape[0], "pairs": max(len(a), len(b))}


def jsonable(value: Any) -> Any:
    """Arrays as lists, sparse rows as their indices and values."""
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        edges = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [
            {"indices": rows.indices[start:end].tolist(), "values": rows.data[start:end].tolist()}
            for start, end in edges
        ]
    if isinstance(value, datetime.date):
        return value.isoformat()
    records = records_of(value)
    if records is not None:
        return records
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "to_numpy"):
        return value.to_numpy().tolist()
    raise TypeError(
        f"{type(value).__name__} cannot be sent; expected lists, NumPy arrays or SciPy sparse matrices"
    )


def records_of(frame: Any) -> list[dict[str, Any]] | None:
    """Records of a pandas or polars frame or an Arrow table, missing cells left out; None for what holds numbers alone,
    which are vectors."""
    if hasattr(frame, "to_dicts"):
        rows = frame.to_dicts()
    elif hasattr(frame, "column_names") and hasattr(frame, "to_pylist"):
        rows = frame.to_pylist()
    elif hasattr(frame, "columns") and hasattr(frame, "to_dict"):
        rows = frame.to_dict("records")
    else:
        return None
    records = [
        {str(name): _cell(cell) for name, cell in row.items() if not _is_missing(cell)} for row in rows
    ]
    texts = any(not isinstance(cell, (int, float)) for row in records for cell in row.values())
    return records if texts or any(len(row) < len(records[0]) for row in records) else None


def _cell(cell: Any) -> Any:
    # What pandas has of its own: numbers of NumPy, and times, of which midnight is a date.
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell.item() if hasattr(cell, "item") else cell


def _is_missing(cell: Any) -> bool:
    return (
        cell is None
        or type(cell).__name__ in ("NaTType", "NAType")
        or (isinstance(cell, float) and cell != cell)
    )


def listed_rows(features: Vectors) -> Any:
    """A list of rows, also from one row."""
    if is_array(features):
        return np.atleast_2d(features)
    is_row = isinstance(features, Sequence) and features and isinstance(features[0], (int, float))
    return [features] if is_row else features


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given: a parameter that is None is left to the service."""
    return {name: value for name, value in values.items() if value is not None}


def path_part(name: object) -> str:
    """A name, id or subject as one path segment; ':' and '@' are part of references and stay readable.

    Raises
    ------
    InvalidName
        For what is no segment: empty, ``.`` or ``..``. They survive quoting, and HTTP libraries resolve them, so the
        request would go to another address.
    """
    text = str(name)
    if text in ("", ".", ".."):
        raise InvalidName(f"{text!r} cannot stand in an address; expected another name or id")
    return quote(text, safe=":@")


def npz(**arrays: Any) -> bytes:
    """Those arrays that are not None, as one npz file."""
    stream = io.BytesIO()
    np.savez(stream, **without_none(arrays))
    return stream.getvalue()


class ProgressReader(io.RawIOBase):
    """A file that reports how much of it was read."""

    def __init__(self, stream: IO[bytes], progress: Progress) -> None:
        self._stream, self._progress = stream, progress
        self._size = max(stream.seek(0, os.SEEK_END), 1)
        stream.seek(0)

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._progress(min(self._stream.tell() / self._size, 1.0), "uploading")
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()
