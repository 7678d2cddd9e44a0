"""Archives that trip the standard library are refused in words."""

from __future__ import annotations

import io
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.reader import Npz
from pairmark.service.errors import InvalidInput
from pairmark.service.scoring.binary import parse_npz
from pairmark.service.settings import Settings

LIMITS = replace(FileLimits.of(Settings(), 0), rows=10_000)


def archive(name: str, data: bytes) -> bytearray:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        made.writestr(zipfile.ZipInfo(name), data)
    return bytearray(stream.getvalue())


def damaged() -> dict[str, bytes]:
    """What once was answered with 500."""
    head = b"(" * 300 + b"\n"
    unfinished = b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head
    before_its_start = archive("left.npy", b"x")
    end = before_its_start.rfind(b"PK\x05\x06")
    before_its_start[end + 16 : end + 20] = (2**31).to_bytes(4, "little")
    return {
        "a member without a name": bytes(archive("", b"x")),
        "a head that does not end": bytes(archive("left.npy", unfinished)),
        "a directory before the file's start": bytes(before_its_start),
    }


@pytest.mark.parametrize("what", damaged())
def test_archives_that_trip_the_standard_library_are_refused(what: str, tmp_path: Path) -> None:
    body = damaged()[what]
    with pytest.raises(InvalidInput):
        parse_npz(body, max_bytes=1_000)
    (tmp_path / "x.npz").write_bytes(body)
    with pytest.raises(InvalidInput):
        Npz(tmp_path / "x.npz", tmp_path, LIMITS)
