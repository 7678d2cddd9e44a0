"""Who the units of a calibration are, by names that no version of a dataset changes."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.datasets.data import LabelledData

WITNESSES = 256
"""Rows by which the ledger recognises people under other names."""


def people_of(data: LabelledData, rows: NDArray[np.int64], protocol: str) -> list[str]:
    """Names of the identities of some rows (open-set); else, and without labels, hashes of the rows themselves."""
    if protocol == "open-set" and data.y is not None:
        return [data.identities[code] for code in np.unique(np.asarray(data.y)[rows])]
    return sorted({row.hex() for row in data.row_hashes[rows].tolist()})


def digests_of(people: list[str], secret: bytes) -> tuple[str, ...]:
    """A keyed digest of each name, for the ledger of calibrations: the names themselves are not kept there."""
    return _keyed(b"person:", (name.encode() for name in people), secret)


def digests_of_rows(data: LabelledData, rows: NDArray[np.int64], secret: bytes) -> tuple[str, ...]:
    """Keyed digests of a few of the rows, for the ledger: who is given another name is recognised by them.

    They are the rows of the smallest hashes, so that of two sets of rows that share many the same ones are taken. Rows
    that occur twice are common values rather than somebody's, and left out.
    """
    hashes, counts = np.unique(data.row_hashes[rows], return_counts=True)
    return _keyed(b"row:", hashes[counts == 1][:WITNESSES].tolist(), secret)


def digest_of_scores(scores: NDArray[Any], same: Any, secret: bytes) -> tuple[str, ...]:
    """A keyed digest of a list of scores, in whatever order: for the ledger, as that of rows."""
    values = np.asarray(scores, dtype=np.float32).reshape(len(same), -1)
    rows = np.column_stack([values, np.asarray(same)]).astype("<f4")
    listed = rows[np.lexsort(rows.T)]
    return _keyed(b"scores:", [np.int64(listed.shape[1]).tobytes() + listed.tobytes()], secret)


def _keyed(kind: bytes, names: Iterable[bytes], secret: bytes) -> tuple[str, ...]:
    return tuple(hmac.new(secret, kind + name, "sha256").hexdigest()[:32] for name in names)
