"""All SQL of galleries; items and calibrations have modules of their own. Nothing here commits."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import and_, delete, func, select, update
from sqlalchemy.orm import Session, load_only

from pairmark.service.db import among, touched
from pairmark.service.errors import DamagedRow
from pairmark.service.names import EVERY_NAME, VisibleNames
from pairmark.service.tables import (
    GalleryCalibrationRow,
    GalleryItem,
    GalleryProbe,
    GalleryRemoval,
    GalleryRow,
    ModelRow,
    ModelVersion,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GalleryState:
    """A gallery at one moment.

    Attributes
    ----------
    id, key : its row, and the name of its folder on each machine.
    model_id, model, version, kind : the version that serves it.
    dimension : numbers of a vector. columns : of its records, as the model's schema stores them; None for vectors.
    items : how many it holds.
    seq : number of the last write; every item has that of its own write.
    floor : removals up to this number are no longer listed: whoever has seen less reads everything anew.
    fields : names of metadata that searches filter by, in order.
    created_at, updated_at : seconds since the epoch.
    """

    id: int
    key: str
    name: str
    model_id: str
    model: str
    version: int
    kind: str
    dimension: int
    columns: list[Any] | None
    items: int
    seq: int
    floor: int
    fields: list[str]
    created_at: float
    updated_at: float


_OF_VERSIONS = {"model": ModelRow.name, "kind": ModelVersion.kind}
"""What the gallery's own row does not hold."""
_STATE = (
    select(
        *(
            (_OF_VERSIONS[name] if name in _OF_VERSIONS else getattr(GalleryRow, name)).label(name)
            for name in (member.name for member in fields(GalleryState))
        )
    )
    .outerjoin(ModelRow, ModelRow.id == GalleryRow.model_id)
    .outerjoin(
        ModelVersion,
        and_(ModelVersion.model_id == GalleryRow.model_id, ModelVersion.version == GalleryRow.version),
    )
)


# ---------------------------------------------------------------- galleries


def state_of(session: Session, name: str) -> GalleryState | None:
    row = session.execute(_STATE.where(GalleryRow.name == name)).first()
    return None if row is None else _state(row)


def state_by_id(session: Session, gallery_id: int) -> GalleryState | None:
    row = session.execute(_STATE.where(GalleryRow.id == gallery_id)).first()
    return None if row is None else _state(row)


def _state(row: Any) -> GalleryState:
    if row.kind is None:
        raise DamagedRow(
            f"gallery {row.name!r} is served by version {row.version} of a model, which is not there; restore a backup",
            table="galleries",
            row=str(row.name),
        )
    return GalleryState(**row._mapping)


def page(
    session: Session, *, limit: int | None, after: str | None = None, names: VisibleNames = EVERY_NAME
) -> list[GalleryState]:
    """Galleries by name; of some names if given."""
    statement = _STATE.order_by(GalleryRow.name).limit(limit)
    if after is not None:
        statement = statement.where(GalleryRow.name > after)
    return [_state(row) for row in session.execute(statement.where(among(names, GalleryRow.name)))]


def locked(session: Session, name: str) -> GalleryState | None:
    """The gallery of that name, held until the transaction ends: its writers go one at a time."""
    number = session.scalar(select(GalleryRow.id).where(GalleryRow.name == name).with_for_update())
    return None if number is None else state_by_id(session, number)


def locked_row(session: Session, name: str) -> GalleryRow | None:
    """The gallery's row, whatever serves it, held until the transaction ends."""
    columns = (GalleryRow.id, GalleryRow.key, GalleryRow.items)
    statement = select(GalleryRow).options(load_only(*columns)).where(GalleryRow.name == name)
    return session.scalar(statement.with_for_update())


def add(session: Session, row: GalleryRow | GalleryCalibrationRow) -> None:
    session.add(row)
    session.flush()


def change(session: Session, gallery_id: int, **values: Any) -> None:
    session.execute(update(GalleryRow).where(GalleryRow.id == gallery_id).values(**values))


def remove_gallery(session: Session, gallery_id: int) -> None:
    """Delete the gallery's row, calibrations and probes; its items go by `remove_orphans`."""
    for table in (GalleryProbe, GalleryCalibrationRow):
        session.execute(delete(table).where(table.gallery_id == gallery_id))
    session.execute(delete(GalleryRow).where(GalleryRow.id == gallery_id))


def orphans(session: Session) -> list[int]:
    """Numbers of galleries that are gone while some of their rows are not."""
    orphan_ids: set[int] = set()
    for table in (GalleryItem, GalleryRemoval):
        # One step of the index for each gallery, however many rows it has.
        last = -1
        while True:
            next_id = session.scalar(select(func.min(table.gallery_id)).where(table.gallery_id > last))
            if next_id is None:
                break
            last = next_id
            if session.scalar(select(GalleryRow.id).where(GalleryRow.id == next_id)) is None:
                orphan_ids.add(next_id)
    return sorted(orphan_ids)


def remove_orphans(session: Session, gallery_id: int, limit: int) -> int:
    """Delete at most ``limit`` rows of a gallery that is gone; returns how many went."""
    ids = select(GalleryItem.id).where(GalleryItem.gallery_id == gallery_id).limit(limit)
    n_removed = touched(
        session, delete(GalleryItem).where(GalleryItem.gallery_id == gallery_id, GalleryItem.id.in_(ids))
    )
    if not n_removed:
        session.execute(delete(GalleryRemoval).where(GalleryRemoval.gallery_id == gallery_id))
    return n_removed


def sizes(session: Session, limit: int) -> tuple[dict[str, int], int]:
    """Items of the largest galleries by name, and of all together."""
    statement = select(GalleryRow.name, GalleryRow.items).order_by(GalleryRow.items.desc(), GalleryRow.name)
    largest = {row[0]: row[1] for row in session.execute(statement.limit(limit))}
    return largest, session.scalar(select(func.sum(GalleryRow.items))) or 0
