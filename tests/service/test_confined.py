"""Files are read within bounds: of memory, of time, and of every text, list and array before it is Python's."""

import io
import os
import random
import threading
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetRequest
from pairmark.schemas.galleries import ImportOptions
from pairmark.service.datasets.confined import UNPACKED_FREE, FileLimits, read_confined
from pairmark.service.datasets.files import Npz
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.galleries.imports import confined_batches
from pairmark.service.galleries.rows import RowErrors, VectorForm
from pairmark.service.scoring.requests import parse_npz
from pairmark.service.settings import MIB, Settings
from tests.serving import npz, parquet

SETTINGS = Settings()
# What the processes that read have to begin with is more than half of it.
LITTLE_MEMORY = 320 * MIB


def read(
    folder: Path, content: bytes | None, kind: str, *, limits: Any = None, **roles: str
) -> dict[str, Any]:
    """What is made of a file; None: of what is there."""
    upload = folder / "upload"
    if content is not None:
        upload.write_bytes(content)
    (folder / "out").mkdir()
    task = {
        "function": "dataset",
        "file": str(upload),
        "out": str(folder / "out"),
        "scratch": str(folder / "scratch"),
        "kind": kind,
        "request": DatasetRequest(name="d", **roles).model_dump(mode="json"),
    }
    return read_confined(task, replace(FileLimits.of(SETTINGS, len(content or b"")), **(limits or {})))


def test_memory_is_bounded(tmp_path: Path) -> None:
    n = 1_500_000
    content = npz(X=np.zeros((n, 1), dtype=np.int8), y=np.arange(n) // 2)
    with pytest.raises(TooLarge, match="PAIRMARK_PARSE_MEMORY_BYTES raises this") as refusal:
        read(tmp_path, content, "npz", limits={"memory_bytes": LITTLE_MEMORY, "seconds": 60.0})
    assert refusal.value.facts == {"limit": LITTLE_MEMORY, "setting": "PAIRMARK_PARSE_MEMORY_BYTES"}


def test_time_is_bounded(tmp_path: Path) -> None:
    content = parquet("SELECT (i % 7)::TINYINT AS x, (i // 2)::INTEGER AS y FROM range(12_000_000) r(i)")
    with pytest.raises(TooLarge, match=r"at most 0\.5 seconds.*PAIRMARK_PARSE_TIMEOUT_S raises this"):
        read(tmp_path, content, "parquet", limits={"seconds": 0.5}, label="y")


def test_a_reader_that_is_held_up_is_waited_for(tmp_path: Path) -> None:
    """As on a busy machine: it takes longer by the clock, and none of its processor's time."""
    late = threading.Timer(1.5, (tmp_path / "held" / "upload").write_bytes, [b"no archive"])
    for folder in ("at once", "held"):
        (tmp_path / folder).mkdir()
        content: bytes | None = b"no archive"
        if folder == "held":
            os.mkfifo(tmp_path / folder / "upload")
            late.start()
            content = None
        with pytest.raises(InvalidInput, match="truncated or damaged"):
            read(tmp_path / folder, content, "npz", limits={"seconds": 0.1})
    late.join()


def test_what_a_file_may_become_follows_its_size() -> None:
    small, large = FileLimits.of(SETTINGS, 10_000), FileLimits.of(SETTINGS, 5 * MIB)
    assert small.unpacked_bytes == small.stored_bytes == UNPACKED_FREE
    assert large.unpacked_bytes == 5 * MIB * SETTINGS.max_unpacked_ratio
    assert large.raised_by["unpacked_bytes"] == "PAIRMARK_MAX_UNPACKED_RATIO"
    huge = FileLimits.of(SETTINGS, SETTINGS.max_upload_bytes)
    assert huge.stored_bytes == SETTINGS.max_dataset_bytes
    assert huge.raised_by["stored_bytes"] == "PAIRMARK_MAX_DATASET_BYTES"
    # Five MB are read within ten seconds, or not at all.
    assert large.seconds < 10


def test_batches_arrive_as_they_were_read(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(20_000, 4)).astype(np.float32)
    vectors[17_000, 2] = np.nan
    ids = np.array([f"i{at}" for at in range(20_000)])
    ids[3] = ids[2]
    upload, scratch, errors = tmp_path / "upload", tmp_path / "scratch", RowErrors()
    upload.write_bytes(npz(ids=ids, vectors=vectors, subjects=np.array(["s", ""])[np.arange(20_000) % 2]))
    scratch.mkdir()
    limits = FileLimits.of(SETTINGS, upload.stat().st_size)
    batches = list(confined_batches("npz", upload, scratch, VectorForm(4), errors, ImportOptions(), limits))
    assert [len(one) for one in batches] == [16_383, 3_615]
    assert [one["row"] for one in errors.items] == [3, 17_000]
    np.testing.assert_array_equal(batches[0].vectors[:3], vectors[:3])
    assert (batches[0].subjects[:3], batches[1].places[0]) == (["s", None, "s"], 16_384)
    assert not list(scratch.glob("batch*"))


LIMITS = replace(FileLimits.of(Settings(), 0), rows=10_000, features=100)


def test_flipped_bytes_are_refused_or_read_never_anything_else(tmp_path: Path) -> None:
    """Deflate streams, headers, names, methods and sizes: whatever three bytes are flipped."""
    rng = np.random.default_rng(0)
    body = npz(X=rng.normal(size=(200, 8)), y=np.arange(200) // 4)
    pairs = npz(left=rng.normal(size=(50, 8)), right=rng.normal(size=(50, 8)))
    refused = 0
    for seed in range(300):
        chance = random.Random(seed)
        for whole in (body, pairs):
            spoiled = bytearray(whole)
            for _ in range(3):
                spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
            folder = tmp_path / f"{seed}"
            folder.mkdir(exist_ok=True)
            (folder / "x.npz").write_bytes(spoiled)
            try:
                if whole is body:
                    Npz(folder / "x.npz", folder, LIMITS)
                else:
                    parse_npz(bytes(spoiled), max_bytes=1_000_000)
            except (InvalidInput, TooLarge):
                refused += 1
    assert refused > 300


def test_sizes_count_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    body = npz(left=rng.normal(size=(100, 10)), right=rng.normal(size=(100, 10)))
    assert [len(side) for side in parse_npz(body, max_bytes=8_200)] == [100, 100]
    with pytest.raises(TooLarge, match="unpack to"):
        parse_npz(body, max_bytes=8_000)


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
