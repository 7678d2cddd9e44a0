"""npz files from strangers: damaged, or far larger inside than outside."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairmark.service.datasets import zips
from pairmark.service.datasets.arrays import Npz
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.binary import parse_npz
from pairmark.service.settings import Settings

LIMITS = replace(FileLimits.of(Settings(), 0), rows=10_000, features=100)


def packed(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def test_flipped_bytes_are_refused_or_read_never_anything_else(tmp_path: Path) -> None:
    """Deflate streams, headers, names, methods and sizes: whatever three bytes are flipped."""
    rng = np.random.default_rng(0)
    body = packed(X=rng.normal(size=(200, 8)), y=np.arange(200) // 4)
    pairs = packed(left=rng.normal(size=(50, 8)), right=rng.normal(size=(50, 8)))
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


def test_what_unpacks_to_far_more_than_it_is_is_refused_unread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zips, "RATIO_FROM", 1_000_000)
    (tmp_path / "x.npz").write_bytes(packed(X=np.zeros((40_000, 10))))
    with pytest.raises(TooLarge, match="at most 200 times") as refused:
        Npz(tmp_path / "x.npz", tmp_path, LIMITS)
    assert refused.value.facts["limit"] == 200
    assert not list(tmp_path.glob("array*"))
    (tmp_path / "x.npz").write_bytes(packed(X=np.random.default_rng(0).normal(size=(40_000, 10))))
    assert Npz(tmp_path / "x.npz", tmp_path, LIMITS).get("X", 2).shape == (40_000, 10)
