"""Dense vectors in JSON, read without the GIL: long bodies of one client hold up nobody else."""

from __future__ import annotations

from mmap import mmap

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.models.core.kernels.json_rows import NOT_PLAIN, read_rows


class PlainForm:
    """JSON objects of a model's name and dense vectors, which most bodies of requests are.

    Parameters
    ----------
    fields : the names of the vectors: each a list of numbers, or a list of such lists.
    """

    def __init__(self, *fields: str) -> None:
        names = [b"model", *(field.encode() for field in fields)]
        self._names = np.frombuffer(b"".join(names), dtype=np.uint8)
        self._ends = np.cumsum([len(name) for name in names])
        self._absent = np.full((len(names), 3), -1)

    def read(self, body: bytes | bytearray | mmap) -> tuple[str | None, list[Float32]] | None:
        """The model (None: not named) and the rows of each field, (n, d) finite float32; None for any other body, also
        for one that is wrong: what is wrong with it is said by whoever reads every form."""
        if not body:
            return None
        places = self._absent.copy()
        values = np.empty(len(body) // 2 + 1, dtype=np.float32)
        text = np.frombuffer(body, dtype=np.uint8)
        if not isinstance(body, bytes):
            # One type for the kernel, whether a body can be written to or not: another would be compiled in a request.
            text.flags.writeable = False
        if read_rows(text, self._names, self._ends, values, places) == NOT_PLAIN:
            return None
        (start, stop, kind), *fields = places.tolist()
        if kind > 0 or any(width <= 0 for _, _, width in fields):
            return None
        rows = [values[at : at + max(n, 1) * width].reshape(-1, width) for at, n, width in fields]
        return body[start:stop].decode("ascii") if kind == 0 else None, rows


def warm_json_rows() -> None:
    """Compile the kernel, or read it from the cache, ahead of the first request."""
    PlainForm("features").read(b'{"features": [[0.5]]}')
