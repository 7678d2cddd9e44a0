"""Text uploads: unpacked, checked for UTF-8, and their first line read."""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from pairmark.service.datasets.limits import FileLimits
from pairmark.service.errors import InvalidInput

CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
DELIMITERS = (",", ";", "\t", "|")
_MAX_HEADER = 32 * CHUNK
_OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet); save it as CSV, or as npz with the extension .npz",
    b"PAR1": "a Parquet file; send format=parquet",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x28\xb5\x2f\xfd": "packed with zstd; unpack it, or use gzip",
    b"BZh": "packed with bzip2; unpack it, or use gzip",
    b"\xfd7zXZ": "packed with xz; unpack it, or use gzip",
}


def plain_text(path: Path, scratch: Path, limits: FileLimits) -> Path:
    """The file itself, or what it unpacks to, within ``limits``, once it is known to be UTF-8 text."""
    with path.open("rb") as stream:
        start = stream.read(8)
        stream.seek(0)
        if not start:
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        for magic, kind in _OTHER_MAGIC.items():
            if start.startswith(magic):
                raise InvalidInput(f"the file is {kind}", field="file")
        if not start.startswith(GZIP_MAGIC):
            _check(stream, None, limits)
            return path
        plain = scratch / "unpacked"
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked, plain.open("wb") as copy:
                _check(unpacked, copy, limits)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(
                "the gzip file is truncated or damaged; pack and send it again", field="file"
            ) from error
        if plain.stat().st_size == 0:
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        return plain


def first_record(path: Path) -> tuple[str, list[str]]:
    """The delimiter and the cells of a file's first line, or `InvalidInput` when there is none.

    The delimiter is whichever of comma, semicolon, tab and bar the line holds most of, outside quotes.
    """
    with path.open("r", encoding="utf-8-sig", newline="") as stream:
        lines = iter(lambda: stream.readline(_MAX_HEADER), "")
        head = next((line for line in lines if line.strip("\r\n")), "")
        if not head.strip():
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        bare = "".join(part for number, part in enumerate(head.split('"')) if number % 2 == 0)
        delimiter = max(DELIMITERS, key=bare.count)
        try:
            # csv's own limit guards against a quote that never closes.
            return delimiter, next(csv.reader(chain([head], lines), delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            raise InvalidInput(f"the first line is not CSV: {error}", field="file") from error


def _check(stream: BinaryIO | gzip.GzipFile, copy: BinaryIO | None, limits: FileLimits) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = lines = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > limits.unpacked_bytes:
            raise limits.exceeded("unpacked_bytes", f"the file unpacks to {size} bytes or more", "bytes")
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError as error:
            bad = error.object[error.start]
            line = lines + error.object[: error.start].count(b"\n") + 1
            raise InvalidInput(
                f"line {line} holds byte 0x{bad:02x}, which is not UTF-8; save the file as UTF-8",
                field="file",
                line=line,
            ) from error
        if b"\x00" in chunk:
            line = lines + chunk[: chunk.index(b"\x00")].count(b"\n") + 1
            raise InvalidInput(f"line {line} holds a zero byte; expected text", field="file", line=line)
        lines += chunk.count(b"\n")
        if copy is not None:
            copy.write(chunk)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "the file ends within a UTF-8 character; is it truncated?", field="file"
        ) from error
