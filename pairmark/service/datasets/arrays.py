"""Files of arrays: npz and svmlight."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.service.datasets.confined import (
    UNREADABLE_HEAD,
    FileLimits,
    checked_members,
    damage_refused,
)
from pairmark.service.errors import InvalidInput

_CELLS = 2_000_000


class Npz:
    """The arrays of an ``.npz`` file, unpacked to disk and memory-mapped; objects are refused, nothing is unpickled."""

    def __init__(self, path: Path, scratch: Path, limits: FileLimits) -> None:
        self.arrays: dict[str, NDArray[Any]] = {}
        damage = damage_refused("the npz file is truncated or damaged; save and send it again", "file")
        with damage, zipfile.ZipFile(path) as archive:
            members = checked_members(archive, limits.unpacked_bytes, limits.raised_by["unpacked_bytes"])
            for number, member in enumerate(members):
                name = member.filename.removesuffix(".npy")
                self.arrays[name] = _unpack_array(archive, member, scratch / f"array{number}.npy", name)

    def get(self, name: str, ndim: int, rows: int | None = None) -> NDArray[Any]:
        """One array of so many dimensions, and rows; `InvalidInput` when it is missing or of another shape."""
        if name not in self.arrays:
            raise InvalidInput(
                f"the npz has no array {name!r}; it has {', '.join(sorted(self.arrays)) or 'none'}",
                field="file",
            )
        array = self.arrays[name]
        if array.ndim != ndim or (rows is not None and array.shape[0] != rows):
            shape = f"{ndim} dimension(s)" + (
                "" if rows is None else f" and {rows} rows, as many as the points"
            )
            raise InvalidInput(f"array {name!r} has shape {array.shape}; expected {shape}", field=name)
        return array

    def texts(self, name: str, rows: int | None = None) -> NDArray[Any]:
        """A 1-dimensional array; a column vector is taken too."""
        array = self.arrays.get(name)
        if array is not None and array.ndim == 2 and array.shape[1] == 1:
            self.arrays[name] = array[:, 0]
        return self.get(name, 1, rows)

    def points(self) -> NDArray[Any] | csr_array:
        """The array ``X``, or the CSR arrays."""
        if "X" in self.arrays:
            X = self.get("X", 2)
            if X.dtype.kind not in "fiub":
                raise InvalidInput(f"array 'X' holds {X.dtype}; expected numbers", field="file")
            return X
        if "indptr" not in self.arrays:
            raise InvalidInput(
                f"the npz has arrays {', '.join(sorted(self.arrays)) or '(none)'}; expected 'X' of shape (rows, "
                "features), or 'data', 'indices', 'indptr' and 'shape' of a CSR matrix",
                field="file",
            )
        layout = self.arrays.get("format")
        if layout is not None and np.asarray(layout).item() not in (b"csr", "csr"):
            raise InvalidInput(
                "the sparse matrix is not CSR; convert it with .tocsr() and save again", field="file"
            )
        data, indices, indptr = (self.get(name, 1) for name in ("data", "indices", "indptr"))
        shape = self.get("shape", 1).tolist()
        try:
            sparse = csr_array((data, indices, indptr), shape=shape)
            sparse.check_format(full_check=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(
                f"data, indices, indptr and shape do not make a CSR matrix of numbers: {error}", field="file"
            ) from error
        if sparse.dtype.kind not in "fiub":
            raise InvalidInput(f"array 'data' holds {sparse.dtype}; expected numbers", field="file")
        return sparse


def row_blocks(X: NDArray[Any] | csr_array) -> Iterator[tuple[int, Any]]:
    """(first row, rows) in blocks of a few million numbers."""
    rows, width = X.shape
    if isinstance(X, np.ndarray):
        step = max(1, _CELLS // max(1, width))
    else:
        step = max(1, int(_CELLS * rows / max(1, X.nnz)))
    for start in range(0, rows, step):
        yield start, X[start : start + step]


def svmlight_rows(path: Path) -> tuple[csr_array, NDArray[Any], NDArray[Any]]:
    """Rows, labels and query ids (none where no line has one) of svmlight text; indices count from 0 or from 1, from 1
    when no index is 0."""
    # Costs a reader a second to import, and few uploads need it.
    from sklearn.datasets import load_svmlight_file

    try:
        X, y, query = load_svmlight_file(str(path), zero_based="auto", query_id=True, dtype=np.float64)
    except (ValueError, OverflowError, IndexError) as error:
        _refuse_svmlight(path, error)
    rows = X.shape[0]
    if rows == 0:
        raise InvalidInput("the file has no rows; expected lines such as `3 1:0.5 7:2`", field="file")
    if X.nnz == 0 and not X.indices.size:
        raise InvalidInput("no line has a feature; expected lines such as `3 1:0.5 7:2`", field="file")
    if query.size not in (0, rows):
        raise InvalidInput("only some lines have a qid; expected it in all lines or in none", field="group")
    return csr_array(X), y, query


def _refuse_svmlight(path: Path, error: Exception) -> NoReturn:
    """Raise which line cannot be read: the file is halved until one is left."""
    from sklearn.datasets import load_svmlight_file

    lines = path.read_bytes().splitlines(keepends=True)
    first, n = 0, len(lines)
    while n > 1:
        half = n // 2
        try:
            load_svmlight_file(io.BytesIO(b"".join(lines[first : first + half])), zero_based=True)
        except (ValueError, OverflowError, IndexError):
            n = half
        else:
            first, n = first + half, n - half
    excerpt = lines[first][:60].decode("utf-8", "replace").strip()
    raise InvalidInput(
        f"line {first + 1} ({excerpt!r}) is not svmlight; expected `label index:value ...`, indices rising",
        line=first + 1,
    ) from error


def _unpack_array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, name: str) -> NDArray[Any]:
    with archive.open(member) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    try:
        array = np.load(target, mmap_mode="r", allow_pickle=False)
    except UNREADABLE_HEAD as error:
        raise InvalidInput(
            f"{name!r} in the npz is not a whole array of numbers or fixed-width strings (astype(str)); save and send "
            "it again",
            field=name,
        ) from error
    return np.asarray(array)
