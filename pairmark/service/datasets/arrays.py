"""npz (dense ``X``, or CSR as ``scipy.sparse.save_npz`` writes it) and svmlight, in bounded memory."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.service.datasets.limits import UNREADABLE_HEAD, FileLimits, checked_members, damage_refused
from pairmark.service.datasets.writer import MAX_NAME
from pairmark.service.errors import InvalidInput

_CELLS = 2_000_000


class Npz:
    """The arrays of an ``.npz`` file, unpacked to disk and memory-mapped; objects are refused, nothing is unpickled."""

    def __init__(self, path: Path, scratch: Path, limits: FileLimits) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        damage = damage_refused("the npz file is truncated or damaged; save and send it again", "file")
        with damage, zipfile.ZipFile(path) as archive:
            members = checked_members(archive, limits.unpacked_bytes, limits.raised_by["unpacked_bytes"])
            for number, member in enumerate(members):
                name = member.filename.removesuffix(".npy")
                self._arrays[name] = _unpacked(archive, member, scratch / f"array{number}.npy", name)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    @property
    def names(self) -> list[str]:
        return list(self._arrays)

    def shapes(self) -> list[tuple[str, str, str]]:
        """Name, type and shape of each array."""
        return [(name, str(array.dtype), str(array.shape)) for name, array in self._arrays.items()]

    def get(self, name: str, ndim: int, rows: int | None = None) -> NDArray[Any]:
        """One array of so many dimensions, and rows; `InvalidInput` when it is missing or of another shape."""
        if name not in self._arrays:
            raise InvalidInput(
                f"the npz has no array {name!r}; it has {', '.join(sorted(self._arrays)) or 'none'}",
                field="file",
            )
        array = self._arrays[name]
        if array.ndim != ndim or (rows is not None and array.shape[0] != rows):
            shape = f"{ndim} dimension(s)" + (
                "" if rows is None else f" and {rows} rows, as many as the points"
            )
            raise InvalidInput(f"array {name!r} has shape {array.shape}; expected {shape}", field=name)
        return array

    def texts(self, name: str, rows: int | None = None) -> NDArray[Any]:
        """A 1-dimensional array; a column vector is taken too."""
        array = self._arrays.get(name)
        if array is not None and array.ndim == 2 and array.shape[1] == 1:
            self._arrays[name] = array[:, 0]
        return self.get(name, 1, rows)

    def points(self) -> NDArray[Any] | csr_array:
        """The array ``X``, or the CSR arrays."""
        if "X" in self._arrays:
            X = self.get("X", 2)
            if X.dtype.kind not in "fiub":
                raise InvalidInput(f"array 'X' holds {X.dtype}; expected numbers", field="file")
            return X
        if "indptr" not in self._arrays:
            raise InvalidInput(
                f"the npz has arrays {', '.join(sorted(self._arrays)) or '(none)'}; expected 'X' of shape (rows, "
                "features), or 'data', 'indices', 'indptr' and 'shape' of a CSR matrix",
                field="file",
            )
        layout = self._arrays.get("format")
        if layout is not None and np.asarray(layout).item() not in (b"csr", "csr"):
            raise InvalidInput(
                "the sparse matrix is not CSR; convert it with .tocsr() and save again", field="file"
            )
        data, indices, indptr = (self.get(name, 1) for name in ("data", "indices", "indptr"))
        shape = self.get("shape", 1).tolist()
        ok = (
            len(shape) == 2
            and data.dtype.kind in "fiub"
            and indices.dtype.kind in "iu"
            and indptr.dtype.kind in "iu"
            and indptr.size == shape[0] + 1
            and indices.size == data.size
            and int(indptr[0]) == 0
            and int(indptr[-1]) == data.size
            and bool((np.diff(indptr.astype(np.int64)) >= 0).all())
            and (not indices.size or (int(indices.min()) >= 0 and int(indices.max()) < shape[1]))
        )
        if not ok:
            raise InvalidInput("data, indices, indptr and shape do not make a CSR matrix", field="file")
        return csr_array((data, indices, indptr), shape=(int(shape[0]), int(shape[1])))


def clipped(array: NDArray[Any], longest: int = MAX_NAME) -> list[Any]:
    """Values of an array, texts cut where they are known to be too long."""
    width = longest + 1
    if array.dtype.kind in "US" and array.dtype.itemsize > width * np.dtype(f"{array.dtype.kind}1").itemsize:
        array = array.astype(f"{array.dtype.kind}{width}")
    values: list[Any] = array.tolist()
    return values


def row_blocks(X: NDArray[Any] | csr_array) -> Iterator[tuple[int, Any]]:
    """(first row, rows) in blocks of a few million numbers."""
    rows, width = X.shape
    if isinstance(X, np.ndarray):
        step = max(1, _CELLS // max(1, width))
    else:
        step = max(1, int(_CELLS * rows / max(1, X.nnz)))
    for start in range(0, rows, step):
        yield start, X[start : start + step]


def svmlight_rows(path: Path, limits: FileLimits) -> tuple[csr_array, NDArray[Any], NDArray[Any]]:
    """Rows, labels and query ids (none where no line has one) of svmlight text; indices count from 0 or from 1, from 1
    when no index is 0."""
    # Costs a reader half a second to import, and few uploads need it.
    from sklearn.datasets import load_svmlight_file

    try:
        X, y, query = load_svmlight_file(str(path), zero_based="auto", query_id=True, dtype=np.float64)
    except (ValueError, OverflowError, IndexError) as error:
        _refuse_svmlight(path, error)
    rows, features = X.shape
    if rows == 0:
        raise InvalidInput("the file has no rows; expected lines such as `3 1:0.5 7:2`", field="file")
    if X.nnz == 0 and not X.indices.size:
        raise InvalidInput("no line has a feature; expected lines such as `3 1:0.5 7:2`", field="file")
    if features > limits.features:
        raise limits.exceeded("features", f"a feature index is above {limits.features}", "features")
    if query.size not in (0, rows):
        raise InvalidInput("only some lines have a qid; expected it in all lines or in none", field="group")
    return csr_array(X), y, query


def _refuse_svmlight(path: Path, error: Exception) -> NoReturn:
    with path.open("rb") as stream:
        line = 1
        for text in stream:
            body = text.partition(b"#")[0].split()
            if not _is_svmlight(body):
                excerpt = text[:60].decode("utf-8", "replace").strip()
                raise InvalidInput(
                    f"line {line} ({excerpt!r}) is not svmlight; expected `label index:value ...`, indices rising",
                    line=line,
                ) from error
            line += 1
    raise InvalidInput(
        "the file is not svmlight; expected lines such as `3 1:0.5 7:2`, indices rising", field="file"
    ) from error


def _is_svmlight(words: list[bytes]) -> bool:
    if not words:
        return True
    try:
        float(words[0])
        indices = []
        for word in words[1:]:
            name, colon, value = word.partition(b":")
            if not colon:
                return False
            if name != b"qid":
                indices.append(int(name))
            float(value)
    except ValueError:
        return False
    return all(a < b for a, b in pairwise(indices)) and (not indices or indices[0] >= 0)


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, name: str) -> NDArray[Any]:
    with archive.open(member) as packed, target.open("wb") as plain:
        while chunk := packed.read(1 << 20):
            plain.write(chunk)
    try:
        with target.open("rb") as stream:
            version = npy_format.read_magic(stream)
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, _, dtype = read(stream)
            if dtype.hasobject or dtype.names is not None:
                raise InvalidInput(
                    f"array {name!r} holds Python objects; save numbers or fixed-width strings (astype(str))",
                    field=name,
                )
            if dtype.itemsize * int(np.prod(shape, dtype=object)) != target.stat().st_size - stream.tell():
                raise ValueError("size")
            if dtype.itemsize == 0 or 0 in shape:
                return np.empty(shape, dtype=dtype)
        mapped: NDArray[Any] = np.load(target, mmap_mode="r", allow_pickle=False)
        return mapped
    except UNREADABLE_HEAD as error:
        raise InvalidInput(
            f"{name!r} in the npz is not a whole array; save and send it again", field=name
        ) from error
