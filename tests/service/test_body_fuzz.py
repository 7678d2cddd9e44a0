"""Bodies of every format with mistakes in their structure: each is read, or refused in words."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from pairmark.service.datasets.arrays import Npz
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.datasets.reader import read_dataset
from pairmark.service.datasets.schemas import DatasetRequest
from pairmark.service.datasets.upload import Upload
from pairmark.service.errors import InvalidInput, PairmarkError
from pairmark.service.galleries.items.imports import file_batches
from pairmark.service.galleries.items.item_forms import VectorForm
from pairmark.service.galleries.items.rows import RowErrors
from pairmark.service.galleries.schemas import ImportOptions
from pairmark.service.runtime.binary import parse_npz, parse_npz_rows, parse_octets, parse_rows
from pairmark.service.settings import Settings
from tests.fuzzing import bodies
from tests.fuzzing.bodies import Random, chance, pick

WIDTH = 5
LIMITS = replace(FileLimits.of(Settings(), 0), rows=10_000)
SEEDS = 25


def enrol(kind: str, body: bytes, folder: Path) -> None:
    scratch = folder / "scratch"
    scratch.mkdir()
    (folder / "upload").write_bytes(body)
    limits = replace(LIMITS, rows=1_000, features=WIDTH, stored_bytes=10**7)
    for _ in file_batches(
        kind, folder / "upload", scratch, VectorForm(WIDTH), RowErrors(), ImportOptions(), limits
    ):
        pass


def store(kind: str, body: bytes, folder: Path, rng: Random) -> None:
    roles = {"npz": {"label": "y"}, "svmlight": {}}.get(kind, {"label": "label"})
    if chance(rng, 0.2):
        role = pick(rng, ["ranking", "group", "exclude", "label", "points"])
        roles = {**roles, role: pick(rng, ["label", "x0", "x0,x1", "nobody", "y", "X", "vector"])}
    try:
        request = DatasetRequest(name="n", **roles)
    except ValidationError:
        return
    (folder / "upload").write_bytes(body)
    (folder / "out").mkdir()
    upload = Upload(file=folder / "upload", kind=kind, request=request, limits=LIMITS)
    read_dataset(upload, folder / "out", folder / "scratch", spec={})


READERS: dict[str, Callable[[Random, Path], object]] = {
    "pairs npz": lambda rng, _: parse_npz(bodies.pairs_npz(rng, WIDTH), max_bytes=10**7),
    "points npz": lambda rng, _: parse_npz_rows(bodies.points_npz(rng, WIDTH), max_bytes=10**7),
    "pairs float32": lambda rng, _: parse_octets(
        bodies.raw(rng, WIDTH),
        dim=pick(rng, [1, 3, WIDTH]),
        n_left=pick(rng, [None, 0, 1, 3, 10**9]),
    ),
    "points float32": lambda rng, _: parse_rows(bodies.raw(rng, WIDTH), dim=WIDTH),
    "gallery npz": lambda rng, to: enrol("npz", bodies.items_npz(rng, WIDTH), to),
    "gallery float32": lambda rng, to: enrol("raw", bodies.raw(rng, WIDTH), to),
    "gallery csv": lambda rng, to: enrol("csv", bodies.csv(rng, WIDTH, items=True), to),
    "gallery parquet": lambda rng, to: enrol("parquet", bodies.parquet(rng, WIDTH, items=True), to),
    "dataset npz": lambda rng, to: store("npz", bodies.dataset_npz(rng, WIDTH), to, rng),
    "dataset csv": lambda rng, to: store("csv", bodies.csv(rng, WIDTH), to, rng),
    "dataset parquet": lambda rng, to: store("parquet", bodies.parquet(rng, WIDTH), to, rng),
    "dataset svmlight": lambda rng, to: store("svmlight", bodies.svmlight(rng, WIDTH), to, rng),
}


@pytest.mark.parametrize("what", READERS)
def test_a_mistake_in_the_structure_is_refused_in_words(what: str, tmp_path: Path) -> None:
    refused = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng([seed, *what.encode()])
        folder = tmp_path / str(seed)
        folder.mkdir()
        try:
            READERS[what](rng, folder)
        except PairmarkError:
            refused += 1
        except Exception as error:
            pytest.fail(f"{what}, seed {seed}: {type(error).__name__}: {error}")
    assert 0 < refused < SEEDS


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
