"""Files unpacked within limits: text, with the lines on which its rows begin, and arrays of npz and svmlight."""

import codecs
import csv
import gzip
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
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

CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
DELIMITERS = (",", ";", "\t", "|")
NO_UTF8 = (
    "is not UTF-8; save the file as UTF-8 (spreadsheets call it `CSV UTF-8`), or convert it from the encoding that it "
    "has, such as `iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW`"
)
# Characters of a line that are read, at most, to find the header.
_MAX_HEADER = 32 * CHUNK
_OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet); save it as CSV, or as npz with the extension .npz",
    b"PAR1": "a Parquet file; send format=parquet",
    b"\x28\xb5\x2f\xfd": "packed with zstd; unpack it, or use gzip",
    b"BZh": "packed with bzip2; unpack it, or use gzip",
    b"\xfd7zXZ": "packed with xz; unpack it, or use gzip",
}


_MOSTLY_ALONE = 1.5
"""Bytes beyond ASCII in a row, on average: fewer in Windows-1252, more in other scripts and in broken UTF-8."""
_BEYOND_ASCII = re.compile(r"\w{0,20}[^\x00-\x7f]\w{0,20}")


def plain_text(path: Path, scratch: Path, limits: FileLimits) -> tuple[Path, list[str]]:
    """The file itself, or what it unpacks to as UTF-8, within ``limits``, where it is text by its first bytes; and a
    warning where its encoding is a guess."""
    plain = _unpack_file(path, scratch, limits)
    encoding = _encoding_of(plain)
    if encoding == "utf-8":
        return plain, []
    text = scratch / "text"
    try:
        with plain.open(encoding=encoding, newline="") as stream:
            _write((part.encode() for part in iter(lambda: stream.read(CHUNK), "")), text, limits)
    except UnicodeError as error:
        raise InvalidInput(f"the file {NO_UTF8}", field="file") from error
    if encoding == "utf-16":
        return text, []
    with text.open(encoding="utf-8", newline="") as stream:
        words = (_BEYOND_ASCII.search(part) for part in iter(lambda: stream.read(CHUNK), ""))
        example = next(filter(None, words))[0]
    return text, [
        f"the file is not UTF-8: it is read as Windows-1252, such as {example!r}; if that is wrong, save it as UTF-8"
    ]


def _encoding_of(path: Path) -> str:
    """UTF-8, or UTF-16 by its mark, or Windows-1252 where the bytes of a text that is no UTF-8 look like it; else
    `InvalidInput`, with the line."""
    line, decoder = 1, codecs.getincrementaldecoder("utf-8")()
    with path.open("rb") as stream:
        if stream.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            return "utf-16"
        stream.seek(0)
        try:
            while chunk := stream.read(CHUNK):
                decoder.decode(chunk)
                line += chunk.count(b"\n")
            decoder.decode(b"", final=True)
        except UnicodeDecodeError as error:
            line += error.object[: error.start].count(b"\n")
            stream.seek(0)
            n_bytes = n_runs = 0
            while chunk := stream.read(CHUNK):
                runs = re.findall(rb"[\x80-\xff]+", chunk)
                n_bytes, n_runs = n_bytes + sum(map(len, runs)), n_runs + len(runs)
            # A last character that is cut off is damage.
            if "unexpected end" not in error.reason and n_bytes < _MOSTLY_ALONE * n_runs:
                return "cp1252"
            raise InvalidInput(f"line {line} {NO_UTF8}", field="file", line=line) from error
    return "utf-8"


def _write(parts: Iterable[bytes], path: Path, limits: FileLimits) -> None:
    with path.open("wb") as out:
        for part in parts:
            out.write(part)
            if (size := out.tell()) > limits.unpacked_bytes:
                raise limits.exceeded("unpacked_bytes", f"the file unpacks to {size} bytes or more", "bytes")


def _unpack_file(path: Path, scratch: Path, limits: FileLimits) -> Path:
    empty = InvalidInput("the file is empty; expected a header line and rows", field="file")
    with path.open("rb") as stream:
        start = stream.read(8)
        if not start:
            raise empty
        for magic, kind in _OTHER_MAGIC.items():
            if start.startswith(magic):
                raise InvalidInput(f"the file is {kind}", field="file")
        if not start.startswith(GZIP_MAGIC):
            return path
        stream.seek(0)
        plain = scratch / "unpacked"
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked:
                _write(iter(lambda: unpacked.read(CHUNK), b""), plain, limits)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(
                "the gzip file is truncated or damaged; pack and send it again", field="file"
            ) from error
        if plain.stat().st_size == 0:
            raise empty
        return plain


def first_record(path: Path) -> tuple[int, str, list[str]]:
    """How many blank lines a file begins with, the delimiter and the cells of the line after them, or `InvalidInput`
    when there is none.

    The delimiter is whichever of comma, semicolon, tab and bar the line holds most of, outside quotes.
    """
    with path.open("r", encoding="utf-8-sig", newline="") as stream:
        lines = iter(lambda: stream.readline(_MAX_HEADER), "")
        blank, head = next(((n, line) for n, line in enumerate(lines) if line.strip()), (0, ""))
        if not head:
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        # Every other part lies between quotes.
        bare = "".join(part for number, part in enumerate(head.split('"')) if number % 2 == 0)
        delimiter = max(DELIMITERS, key=bare.count)
        try:
            # csv's own limit guards against a quote that never closes.
            return blank, delimiter, next(csv.reader(chain([head], lines), delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            raise InvalidInput(f"the first line is not CSV: {error}", field="file") from error


_ROW = re.compile(r"(?:^|(?<=; ))row (\d+)\b")


def in_lines(
    error: InvalidInput, path: Path, kind: str, scratch: Path, limits: FileLimits, *, header: bool = True
) -> InvalidInput:
    """What was refused of a text file, with the lines on which its rows begin instead of their numbers; of other files
    as it is. ``error`` : a row is named at its beginning, or after a semicolon."""
    rows = {int(number) for number in _ROW.findall(error.detail)}
    if kind != "csv" or not rows:
        return error
    plain, _ = plain_text(path, scratch, limits)
    blank, delimiter, first = first_record(plain)
    lines: dict[int, int] = {}
    with suppress(csv.Error), plain.open(encoding="utf-8-sig", newline="") as stream:
        reader, row, line = (
            csv.reader(islice(stream, blank, None), delimiter=delimiter),
            -int(header),
            blank + 1,
        )
        for record in reader:
            # Blank lines are no rows, but of a table of one column empty cells.
            row += bool(record) or (len(first) == 1 and row >= 0)
            if record or len(first) == 1:
                lines |= {row: line} if row in rows else {}
            line = blank + reader.line_num + 1
            if row >= max(rows):
                break
    if rows - lines.keys():
        return error
    detail = _ROW.sub(lambda match: f"line {lines[int(match[1])]}", error.detail)
    named = {"line": lines[error.facts["row"]]} if error.facts.get("row") in lines else {}
    return InvalidInput(detail, **{**error.facts, **named})


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
            # In full: indices out of range would reach beyond the arrays later.
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
    numbers = rows * width if isinstance(X, np.ndarray) else X.nnz
    step = max(1, _CELLS * rows // max(1, numbers))
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

    # Invariant: what is before `first` can be read, and some line of the n from there on cannot.
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
