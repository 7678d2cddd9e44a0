"""Probes kept with a gallery's calibration, and their scores as the calibration's row stores them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from pairmark.models.calibration.identification import GalleryCalibration
from pairmark.models.core.arrays import Float32
from pairmark.service.galleries.calibration import probe_repository
from pairmark.service.galleries.items.rows import ItemForm, Matrix
from pairmark.service.tables import GalleryCalibrationRow

RECORD = np.dtype(
    [("best", "<f4"), ("at", "<i8"), ("own", "<f4"), ("own_items", "<i8"), ("own_newest", "<i8")]
)
"""Of one probe: its best score and that item's sequence number (-1: search anew); where the subject is enrolled, the
best score with its own items, how many those are and the newest one's sequence number."""


def scores_of(records: NDArray[np.void]) -> tuple[Float32, Float32]:
    """Best scores of strangers, and scores of the enrolled with their own subject."""
    enrolled = records["own_items"] > 0
    return records["best"][~enrolled].astype(np.float32), records["own"][enrolled].astype(np.float32)


@dataclass(frozen=True)
class KeptProbes:
    """Probes and what they score in a gallery at ``seq``.

    Attributes
    ----------
    id : of the calibration, "" while it has none. revision : counts erasures of probes.
    subjects : n different texts. vectors : (n, d), as the model takes them. records : (n,) of `RECORD`.
    size : items of the gallery. aggregation : how probes are compared with whole subjects; None: with items.
    """

    id: str
    revision: int
    subjects: list[str]
    vectors: Matrix
    records: NDArray[np.void]
    seq: int
    size: int
    aggregation: str | None = None

    @classmethod
    def unsearched(cls, subjects: list[str], vectors: Matrix, aggregation: str | None) -> KeptProbes:
        """Probes that were never compared with anything."""
        records = np.zeros(len(subjects), dtype=RECORD)
        records["best"], records["at"] = -np.inf, -1
        return cls("", 0, subjects, vectors, records, 0, 0, aggregation)

    @cached_property
    def calibration(self) -> GalleryCalibration:
        """What the strangers among them say; there must be one."""
        best, mated = scores_of(self.records)
        return GalleryCalibration(best, gallery_size=max(self.size, 1), mated_scores=mated)


def load(session: Session, id: str, form: ItemForm) -> KeptProbes | None:
    """The probes that a calibration keeps; None when it keeps none."""
    row = session.get(GalleryCalibrationRow, id)
    if row is None or row.kept is None:
        return None
    return _probes_of_row(row, form, *probe_repository.probes_of(session, id))


def _probes_of_row(
    row: GalleryCalibrationRow, form: ItemForm, subjects: list[str], bodies: list[bytes]
) -> KeptProbes:
    vectors, sound = form.rows(bodies)
    records = np.frombuffer(row.kept or b"", dtype=RECORD)
    if len(records) != len(subjects) or not sound.all():
        raise ValueError(f"{len(records)} scores of probes, and {len(subjects)} probes")
    size = int(row.summary["gallery_size"])
    return KeptProbes(row.id, row.revision, subjects, vectors, records, row.seq, size, row.aggregation)


def score_columns(records: NDArray[np.void], seq: int, size: int, summary: dict[str, Any]) -> dict[str, Any]:
    """Columns of the calibration's row that say what the probes score."""
    best, mated = scores_of(records)
    return {
        "seq": seq,
        "kept": records.tobytes(),
        "best": best.astype("<f4").tobytes(),
        "mated": mated.astype("<f4").tobytes(),
        "summary": {
            **summary,
            "gallery_size": size,
            "n_probes": int(best.size),
            "n_mated": int(mated.size),
            "state": {**summary["state"], "gallery_size": max(size, 1)},
        },
    }


def erase_probes(session: Session, gallery_id: int, subject: str) -> int:
    """Remove a subject's probes from every calibration of a gallery, with their scores; the gallery must be locked."""
    n = 0
    for id in probe_repository.calibrations_with(session, gallery_id, subject):
        row = session.get(GalleryCalibrationRow, id)
        assert row is not None
        assert row.kept is not None
        remains = np.array(
            [probe_subject != subject for probe_subject in probe_repository.subjects_of(session, id)]
        )
        records = np.frombuffer(row.kept, dtype=RECORD)[remains]
        columns = score_columns(records, row.seq, int(row.summary["gallery_size"]), row.summary)
        for name, value in columns.items():
            setattr(row, name, value)
        row.revision += 1
        n += probe_repository.remove_probes(session, id, subject)
    return n
