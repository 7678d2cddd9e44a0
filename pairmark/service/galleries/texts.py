"""Many texts in two arrays that can be memory-mapped: a million ids as Python objects would weigh as much as their
vectors."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Texts:
    """n texts as UTF-8, and where each ends.

    Parameters
    ----------
    body : uint8, all texts joined. ends : (n,) int64.
    """

    __slots__ = ("_body", "_ends")

    def __init__(self, body: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._body, self._ends = body, ends

    @classmethod
    def of(cls, values: Sequence[str]) -> Texts:
        joined = "".join(values)
        if joined.isascii():
            ends = np.cumsum(np.fromiter(map(len, values), dtype=np.int64, count=len(values)))
            return cls(np.frombuffer(joined.encode(), dtype=np.uint8), ends)
        encoded = [value.encode() for value in values]
        ends = np.cumsum([len(body) for body in encoded], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return int(self._ends.size)

    def encoded(self, at: int) -> bytes:
        start = int(self._ends[at - 1]) if at else 0
        body: bytes = self._body[start : int(self._ends[at])].tobytes()
        return body

    def __getitem__(self, at: int) -> str:
        return self.encoded(at).decode()

    def find(self, value: str) -> int:
        """Where a text is among *sorted* ones; -1 when it is not there."""
        encoded = value.encode()
        at = bisect_left(range(len(self)), encoded, key=self.encoded)
        return at if at < len(self) and self.encoded(at) == encoded else -1

    def write(self, folder: Path, name: str) -> None:
        np.save(folder / f"{name}.npy", self._body, allow_pickle=False)
        np.save(folder / f"{name}-ends.npy", self._ends, allow_pickle=False)

    @classmethod
    def read(cls, folder: Path, name: str) -> Texts:
        def array(part: str) -> Any:
            path = folder / f"{part}.npy"
            values = np.load(path, mmap_mode="r" if path.stat().st_size > 4096 else None, allow_pickle=False)
            return values

        return cls(array(name), array(f"{name}-ends"))
