"""Files are read within bounds: of memory, of time, and of every text, list and array before it is Python's."""

from __future__ import annotations

import io
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.service.datasets.arrays import clipped
from pairmark.service.datasets.confined import CallerGone, Gone, parsed, stays
from pairmark.service.datasets.limits import UNPACKED_FREE, FileLimits
from pairmark.service.datasets.schemas import DatasetRequest
from pairmark.service.datasets.tabular import Table
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.galleries.items.batches import confined_batches
from pairmark.service.galleries.items.item_forms import VectorForm
from pairmark.service.galleries.items.rows import RowErrors
from pairmark.service.galleries.schemas import ImportOptions
from pairmark.service.settings import MIB, Settings
from tests.fuzzing.crafted import parquet

SETTINGS = Settings()
# What the processes that read have to begin with is more than half of it.
LITTLE_MEMORY = 320 * MIB


def read(
    folder: Path, content: bytes, kind: str, gone: Gone = stays, *, limits: Any = None, **roles: str
) -> dict[str, Any]:
    """What is made of a file."""
    upload = folder / "upload"
    upload.write_bytes(content)
    (folder / "out").mkdir()
    task = {
        "function": "dataset",
        "upload": str(upload),
        "out": str(folder / "out"),
        "scratch": str(folder / "scratch"),
        "kind": kind,
        "request": DatasetRequest(name="d", **roles).model_dump(mode="json"),
        "spec": {},
    }
    own = replace(FileLimits.of(SETTINGS, len(content)), **(limits or {}))
    made: dict[str, Any] = parsed(task, own, gone)
    return made


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def enrolled(
    folder: Path, content: bytes, kind: str, *, metadata: str | None = None
) -> tuple[int, RowErrors]:
    """Rows that a gallery of four numbers would take, and what is wrong with the others."""
    upload, scratch, errors = folder / "upload", folder / "scratch", RowErrors()
    upload.write_bytes(content)
    scratch.mkdir()
    own = replace(
        FileLimits.of(SETTINGS, len(content), rows="max_gallery_items", features=4), memory_bytes=640 * MIB
    )
    options = ImportOptions(metadata=metadata)
    with closing(
        confined_batches(kind, upload, scratch, VectorForm(4), errors, options, own, stays)
    ) as batches:
        return sum(len(rows) for rows in batches), errors


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


def test_reading_ends_when_nobody_waits_for_it(tmp_path: Path) -> None:
    content = parquet("SELECT (i % 7)::TINYINT AS x, (i // 2)::INTEGER AS y FROM range(12_000_000) r(i)")
    left = threading.Event()
    threading.Timer(0.5, left.set).start()
    with pytest.raises(CallerGone):
        read(tmp_path, content, "parquet", left.is_set, limits={"seconds": 60.0}, label="y")


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


def test_a_parquet_list_may_have_as_many_numbers_as_a_dataset(tmp_path: Path) -> None:
    content = parquet("SELECT list_resize([1::TINYINT], 2000000, 1::TINYINT) AS v, i AS y FROM range(2) r(i)")
    with pytest.raises(TooLarge, match="2000000 features; at most 1048576 features"):
        read(tmp_path, content, "parquet", label="y")


@pytest.mark.parametrize("role", ["label", "group", "id", "time"])
def test_texts_are_cut_before_they_are_python_s(tmp_path: Path, role: str) -> None:
    content = parquet("SELECT i AS x, repeat('a', 20000) AS t FROM range(100) r(i)")
    for kind, body in (("parquet", content), ("csv", b"x,t\n" + (b"1," + b"a" * 20_000 + b"\n") * 100)):
        (tmp_path / "upload").write_bytes(body)
        request = DatasetRequest(name="d", **{role: "t"})
        limits = FileLimits.of(SETTINGS, len(body))
        with closing(Table(tmp_path / "upload", tmp_path, kind, request, limits)) as table:
            (block,) = table.blocks()
        values = getattr(block, f"{role}s")
        assert {len(one) for one in values} == {1_001}
        (tmp_path / kind).mkdir()
        with pytest.raises(InvalidInput, match="row 1"):
            read(
                tmp_path / kind,
                body,
                kind,
                **{role: "t"},
                **({} if role == "label" else {"unlabelled": "true"}),
            )


def test_texts_of_arrays_are_cut_before_they_are_python_s() -> None:
    for array in (np.array(["a" * 20_000, "b"]), np.array([b"a" * 20_000, b"b"])):
        assert [len(one) for one in clipped(array)] == [1_001, 1]
    assert clipped(np.array([1.5, 2.0])) == [1.5, 2.0]


def test_rankings_are_bounded_together(tmp_path: Path) -> None:
    content = parquet("SELECT i AS x, 'a>' || repeat('b', 20000) || i AS r FROM range(3000) r(i)")
    with pytest.raises(TooLarge, match=r"the different rankings have 6\d+ bytes together") as refusal:
        read(tmp_path, content, "parquet", ranking="r")
    assert refusal.value.facts["limit"] == 32 * MIB


LONG = "repeat(chr(97 + (i % 5)::INTEGER), 20000)"


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        (f"{LONG} AS id, 's' AS subject, 'm' AS m, [1, 2, 3, 4]::FLOAT[] AS v", "id has 513 bytes"),
        (f"i AS id, {LONG} AS subject, 'm' AS m, [1, 2, 3, 4]::FLOAT[] AS v", "subject has 513 bytes"),
        (f"i AS id, 's' AS subject, {LONG} AS m, [1, 2, 3, 4]::FLOAT[] AS v", "metadata has 4"),
        (
            "i AS id, 's' AS subject, list_resize(['abc'], 1000, 'abc') AS m, [1, 2, 3, 4]::FLOAT[] AS v",
            "metadata.m is a list",
        ),
        (
            "i AS id, 's' AS subject, 'm' AS m, list_resize([1.5::FLOAT], 1000, 1.5::FLOAT) AS v",
            "vector has 1000 numbers; the gallery's have 4",
        ),
    ],
)
def test_rows_of_a_gallery_are_bounded_before_they_are_python_s(
    tmp_path: Path, columns: str, wrong: str
) -> None:
    content = parquet(f"SELECT {columns} FROM range(16384) r(i)")
    stored, errors = enrolled(tmp_path, content, "parquet", metadata="m")
    assert (stored, errors.count) == (0, 16_384)
    assert wrong in errors.items[0]["detail"]
    assert len(errors.items) == 1_000


def test_batches_arrive_as_they_were_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(20_000, 4)).astype(np.float32)
    vectors[17_000, 2] = np.nan
    ids = np.array([f"i{at}" for at in range(20_000)])
    ids[3] = ids[2]
    upload, scratch, errors = tmp_path / "upload", tmp_path / "scratch", RowErrors()
    upload.write_bytes(npz(ids=ids, vectors=vectors, subjects=np.array(["s", ""])[np.arange(20_000) % 2]))
    scratch.mkdir()
    limits = FileLimits.of(SETTINGS, upload.stat().st_size)
    batches = list(
        confined_batches("npz", upload, scratch, VectorForm(4), errors, ImportOptions(), limits, stays)
    )
    assert [len(one) for one in batches] == [16_383, 3_615]
    assert [one["row"] for one in errors.items] == [3, 17_000]
    np.testing.assert_array_equal(batches[0].vectors[:3], vectors[:3])
    assert batches[0].subjects[:3] == ["s", None, "s"]
    assert batches[1].places[0] == 16_384
    assert not list(scratch.glob("batch*"))


def test_many_readers_are_at_work_at_once(tmp_path: Path) -> None:
    problems: list[BaseException] = []

    def one(number: int) -> None:
        folder = tmp_path / f"{number}"
        folder.mkdir()
        try:
            for turn in range(5):
                (folder / f"{turn}").mkdir()
                made = read(folder / f"{turn}", b"x,y\n1,a\n2,a\n3,b\n" * 1, "csv", label="y")
                assert made["rows"] == 3
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    assert time.monotonic() - started < 60
