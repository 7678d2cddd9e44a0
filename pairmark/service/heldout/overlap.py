"""Detects training data by digests of rows and identities, kept in a version's report."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.missing import label_of
from pairmark.schemas.evidence import OverlapOut
from pairmark.service.datasets.data import LabelledData

DIGEST_BYTES = 16
NAMED = 20
"""Overlapping rows and identities that are named."""
Digests = NDArray[np.bytes_]


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """Digests of what a version was trained on.

    Attributes
    ----------
    rows : one a training row.
    identities : one a training identity, made with `salt`; empty when there were no identities.
    """

    rows: Digests
    identities: Digests
    salt: str


def trained_on(data: LabelledData, rows: NDArray[np.int64], salt: str) -> TrainedOn:
    """Digests of some rows of a dataset and of the identities among them."""
    names: Iterable[str] = ()
    if data.y is not None:
        names = (data.identities[code] for code in np.unique(np.asarray(data.y)[rows]))
    return TrainedOn(rows=data.row_hashes[rows], identities=identity_digests(names, salt), salt=salt)


def identity_digests(names: Iterable[str], salt: str) -> Digests:
    """Salted digest of each identity's name, (n,): the names themselves are not kept with a model."""
    key = hashlib.sha256(salt.encode()).digest()
    digests = [
        hashlib.blake2b(label_of(name).encode(), digest_size=DIGEST_BYTES, key=key).digest() for name in names
    ]
    return np.array(digests, dtype=f"S{DIGEST_BYTES}")


def overlap_with(training: TrainedOn, data: LabelledData) -> OverlapOut:
    """Which rows and identities of a dataset are among those trained on: how many, and the first of them."""
    rows = np.flatnonzero(np.isin(data.row_hashes, training.rows))
    digests = identity_digests(data.identities, training.salt)
    names = np.flatnonzero(np.isin(digests, training.identities))
    return OverlapOut(
        rows=int(rows.size),
        identities=int(names.size),
        first_rows=rows[:NAMED].tolist(),
        first_identities=[data.identities[at] for at in names[:NAMED]],
    )


def overlapping(training: TrainedOn, data: LabelledData, *, identities: bool) -> NDArray[np.bool_]:
    """Which rows of a dataset were trained on, (n,); with ``identities``, also every row of an identity that was."""
    overlap = np.isin(data.row_hashes, training.rows)
    if identities and data.y is not None:
        trained = np.isin(identity_digests(data.identities, training.salt), training.identities)
        overlap |= trained[np.asarray(data.y)]
    return np.asarray(overlap)
