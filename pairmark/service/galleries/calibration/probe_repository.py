"""SQL of the probes that calibrations keep. Nothing here commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.orm import Session

from pairmark.service.db import touched
from pairmark.service.galleries.repository import GalleryState
from pairmark.service.tables import GalleryCalibrationRow, GalleryProbe


@dataclass(frozen=True, slots=True)
class CalibrationHead:
    """What every search at a rate reads of the calibration that answers it."""

    id: str
    seq: int
    revision: int
    keeps_probes: bool


_HEAD = select(
    GalleryCalibrationRow.id,
    GalleryCalibrationRow.seq,
    GalleryCalibrationRow.revision,
    GalleryCalibrationRow.kept.is_not(None),
)


def head_of(session: Session, id: str) -> CalibrationHead | None:
    row = session.execute(_HEAD.where(GalleryCalibrationRow.id == id)).first()
    return None if row is None else CalibrationHead(*row)


def newest_head(
    session: Session, state: GalleryState, aggregation: str | None = None
) -> CalibrationHead | None:
    """The newest calibration of the gallery with the version that serves it: of searches for single items, or for
    subjects by an aggregation."""
    table = GalleryCalibrationRow
    newest = (
        _HEAD.where(table.gallery_id == state.id, table.model_id == state.model_id)
        .where(table.version == state.version, table.aggregation.is_not_distinct_from(aggregation))
        .order_by(table.created_at.desc(), table.id)
    )
    row = session.execute(newest.limit(1)).first()
    return None if row is None else CalibrationHead(*row)


def find_calibration(session: Session, gallery_id: int, id: str) -> GalleryCalibrationRow | None:
    askable = id.isascii() and id.isalnum() and len(id) <= 32
    row = session.get(GalleryCalibrationRow, id) if askable else None
    return row if row is not None and row.gallery_id == gallery_id else None


def add_probes(
    session: Session, row: GalleryCalibrationRow, subjects: Sequence[str], bodies: Sequence[bytes]
) -> None:
    """Keep the probes of a calibration; those of earlier ones of the same version and aggregation go."""
    table = GalleryCalibrationRow
    earlier = select(table.id).where(
        table.gallery_id == row.gallery_id,
        table.model_id == row.model_id,
        table.version == row.version,
        table.aggregation.is_not_distinct_from(row.aggregation),
        table.id != row.id,
    )
    session.execute(delete(GalleryProbe).where(GalleryProbe.calibration_id.in_(earlier)))
    session.execute(update(table).where(table.id.in_(earlier)).values(kept=None))
    if subjects:
        session.execute(
            insert(GalleryProbe),
            [
                {
                    "calibration_id": row.id,
                    "place": at,
                    "gallery_id": row.gallery_id,
                    "subject": subject,
                    "vector": bodies[at],
                }
                for at, subject in enumerate(subjects)
            ],
        )


def probes_of(session: Session, calibration_id: str) -> tuple[list[str], list[bytes]]:
    """Subjects and stored vectors or records of the probes that a calibration keeps, by place."""
    probe = GalleryProbe
    rows = session.execute(
        select(probe.subject, probe.vector)
        .where(probe.calibration_id == calibration_id)
        .order_by(probe.place)
    ).all()
    return [row[0] for row in rows], [row[1] for row in rows]


def calibrations_with(session: Session, gallery_id: int, subject: str) -> list[str]:
    probe = GalleryProbe
    ids = select(probe.calibration_id).where(probe.gallery_id == gallery_id, probe.subject == subject)
    return list(session.scalars(ids.distinct().order_by(probe.calibration_id)))


def subjects_of(session: Session, calibration_id: str) -> list[str]:
    """Subjects of the probes that a calibration keeps, by place."""
    probe = GalleryProbe
    subjects = select(probe.subject).where(probe.calibration_id == calibration_id).order_by(probe.place)
    return list(session.scalars(subjects))


def remove_probes(session: Session, calibration_id: str, subject: str) -> int:
    """Delete a subject's probes of a calibration; returns how many there were."""
    probe = GalleryProbe
    return touched(
        session, delete(probe).where(probe.calibration_id == calibration_id, probe.subject == subject)
    )


def bring_up(session: Session, id: str, revision: int, values: dict[str, Any]) -> bool:
    """Store newer scores of a calibration, unless probes were erased or somebody was faster; says whether it did."""
    table = GalleryCalibrationRow
    same = update(table).where(table.id == id, table.revision == revision, table.seq < values["seq"])
    return bool(touched(session, same.values(**values)))
