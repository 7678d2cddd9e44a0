"""How arrays, files and answers travel."""

from __future__ import annotations

import datetime
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote

import numpy as np

from pairmark.client.errors import InvalidName

RAW_FROM = 4096
"""Numbers in a request from which dense arrays travel as raw float32 (1/23 of the CPU of the best JSON)."""
Progress = Callable[[float, str], None]
Vectors = Any
"""A vector, a list of vectors, an (n, d) array, or a SciPy sparse matrix; for a model of records a
``{"column": value}``, a list of those, a pandas or polars frame, or an Arrow table."""
Side = Any
"""`Vectors`, or a subject of several samples ``{"samples": Vectors}``, or a list of subjects."""


def raw_pairs(left: Vectors, right: Vectors) -> tuple[bytes, dict[str, int]] | None:
    """Both sides as raw float32 and its query parameters, or None where JSON says it better."""
    if not isinstance(left, np.ndarray) or not isinstance(right, np.ndarray):
        return None
    if left.dtype.kind not in "fiu" or right.dtype.kind not in "fiu" or left.size + right.size < RAW_FROM:
        return None
    a, b = np.atleast_2d(left), np.atleast_2d(right)
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        return None
    body = np.ascontiguousarray(a, dtype="<f4").tobytes() + np.ascontiguousarray(b, dtype="<f4").tobytes()
    return body, {"dim": a.shape[1], "n_left": a.shape[0], "pairs": max(len(a), len(b))}


def subjects_npz(left: Any, right: Any) -> bytes | None:
    """Sides of which one holds subjects as an npz with counts, or None where JSON says it better."""
    sides = [_subject_rows(side) for side in (left, right)]
    if any(side is None for side in sides) or all(counts is None for _, counts in sides):  # type: ignore[misc]
        return None
    (a, of_a), (b, of_b) = sides  # type: ignore[misc]
    if a.size + b.size < RAW_FROM or a.shape[1] != b.shape[1]:
        return None
    return npz(left=a, right=b, left_counts=of_a, right_counts=of_b)


def _subject_rows(side: Any) -> tuple[Any, Any] | None:
    """Dense rows of a side and, where it holds subjects, their numbers of samples; None for anything else."""
    if isinstance(side, np.ndarray) and side.dtype.kind in "fiu" and side.ndim in (1, 2):
        return np.atleast_2d(side).astype(np.float32), None
    subjects = [side] if isinstance(side, Mapping) else side
    if not isinstance(subjects, list) or not subjects:
        return None
    parts = [
        subject.get("samples") if isinstance(subject, Mapping) and len(subject) == 1 else None
        for subject in subjects
    ]
    if not all(
        isinstance(part, np.ndarray) and part.dtype.kind in "fiu" and part.ndim == 2 and len(part)
        for part in parts
    ):
        return None
    if len({part.shape[1] for part in parts}) != 1:  # type: ignore[union-attr]
        return None
    rows = np.concatenate(parts).astype(np.float32)  # type: ignore[arg-type]
    return rows, np.array([len(part) for part in parts], dtype=np.int64)  # type: ignore[arg-type]


def jsonable(value: Any) -> Any:
    """Arrays as lists, sparse rows as their indices and values."""
    if hasattr(value, "tocsr"):
        rows = value.tocsr()
        edges = zip(rows.indptr[:-1], rows.indptr[1:], strict=True)
        return [
            {"indices": rows.indices[start:end].tolist(), "values": rows.data[start:end].tolist()}
            for start, end in edges
        ]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, datetime.date):
        return value.isoformat()
    records = records_of(value)
    if records is not None:
        return records
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
    if isinstance(cell, np.generic):
        return cell.item()
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return cell.date().isoformat()
    return cell


def _is_missing(cell: Any) -> bool:
    return (
        cell is None
        or type(cell).__name__ in ("NaTType", "NAType")
        or (isinstance(cell, float) and cell != cell)
    )


def listed_rows(features: Vectors) -> Any:
    """A list of rows, also from one row."""
    if isinstance(features, np.ndarray):
        return np.atleast_2d(features)
    if (
        isinstance(features, Sequence)
        and features
        and not isinstance(features[0], (Sequence, np.ndarray, Mapping))
    ):
        return [features]
    return features


class ServerSent:
    """A reader of text/event-stream, line by line."""

    def __init__(self) -> None:
        self._id: str | None = None
        self._event = "message"
        self._data: list[str] = []

    def read(self, line: str) -> tuple[str | None, str, dict[str, Any]] | None:
        """(id, event, data) where the line ends an event."""
        if not line:
            message = (self._id, self._event, json.loads("\n".join(self._data))) if self._data else None
            self._event, self._data = "message", []
            return message
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "id":
            self._id = value
        elif name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        return None


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
        start = stream.tell()
        self._size = max(stream.seek(0, os.SEEK_END) - start, 1)
        self._start = start
        stream.seek(start)

    def read(self, size: int = -1) -> bytes:
        chunk = self._stream.read(size)
        self._progress(min((self._stream.tell() - self._start) / self._size, 1.0), "uploading")
        return chunk

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()
