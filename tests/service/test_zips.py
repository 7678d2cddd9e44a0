"""npz files from strangers: damaged, or far larger inside than outside."""

from __future__ import annotations

import io
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.reader import Npz
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.scoring.binary import parse_npz
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


def test_sizes_count_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    body = packed(left=rng.normal(size=(100, 10)), right=rng.normal(size=(100, 10)))
    assert parse_npz(body, max_bytes=8_200).n_pairs == 100
    with pytest.raises(TooLarge, match="unpack to"):
        parse_npz(body, max_bytes=8_000)
