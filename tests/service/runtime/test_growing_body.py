"""Bodies that arrive in parts: whole, whatever their size and parts."""

from __future__ import annotations

from mmap import mmap

import numpy as np
import pytest

from pairmark.service.runtime import growing_body
from pairmark.service.runtime.binary import parse_octets
from pairmark.service.runtime.growing_body import GrowingBody, RequestBody
from pairmark.service.runtime.parsing import parse_pairs, plain_pairs


def arrived(data: bytes, part: int) -> RequestBody:
    body = GrowingBody(data[:part])
    for start in range(part, len(data), part):
        body.add(data[start : start + part])
    assert body.size == len(data)
    return body.finished()


@pytest.mark.parametrize("size", [1, 1_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (4 << 20) + 3, 17_000_001])
@pytest.mark.parametrize("part", [65_536, 1_500_000])
@pytest.mark.parametrize("resizes", [True, False])
def test_bodies_of_any_size_are_whole(
    size: int, part: int, resizes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not resizes:

        class Fixed(mmap):
            def resize(self, newsize: int) -> None:
                raise SystemError("no mremap")

        monkeypatch.setattr(growing_body, "mmap", Fixed)
    data = np.random.default_rng(size).bytes(size)
    body = arrived(data, part)
    assert len(body) == size
    assert bytes(body[:]) == data


def test_large_bodies_are_read_as_small_ones() -> None:
    rows = np.random.default_rng(0).normal(size=(40_000, 16)).astype(np.float32)
    octets = parse_octets(arrived(rows.tobytes(), 65_536), dim=16, n_left=None)
    np.testing.assert_array_equal(octets.left, rows[:20_000])
    text = b'{"left": %b, "right": %b}' % (
        str(rows[:9_000].tolist()).encode(),
        str(rows[0].tolist()).encode(),
    )
    for body in (text, text.replace(b"{", b'{"model": null, ', 1)):
        whole = arrived(body, 65_536)
        pairs = plain_pairs(whole) or parse_pairs(whole)
        np.testing.assert_array_equal(pairs.left, rows[:9_000])
        np.testing.assert_array_equal(pairs.right, rows[:1])
