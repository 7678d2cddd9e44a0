"""Who the units of a calibration are, by names that no version of a dataset changes."""

from __future__ import annotations

import hmac

import numpy as np
from numpy.typing import NDArray

from pairmark.service.datasets.data import LabelledData


def people_of(data: LabelledData, rows: NDArray[np.int64], protocol: str) -> list[str]:
    """Names of the identities of some rows (open-set); else, and without labels, hashes of the rows themselves."""
    if protocol == "open-set" and data.y is not None:
        return [data.identities[code] for code in np.unique(np.asarray(data.y)[rows])]
    return sorted({row.hex() for row in data.row_hashes[rows].tolist()})


def digests_of(people: list[str], secret: bytes) -> tuple[str, ...]:
    """A keyed digest of each name, for the ledger of calibrations: the names themselves are not kept there."""
    return tuple(hmac.new(secret, b"person:" + name.encode(), "sha256").hexdigest()[:32] for name in people)
