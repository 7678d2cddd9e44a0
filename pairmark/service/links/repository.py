"""SQL of links."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, select, tuple_
from sqlalchemy.orm import Session

from pairmark.service.db import among
from pairmark.service.names import VisibleNames
from pairmark.service.tables import JobRow, LinkRow, ReviewRow

_WITH_STATE = select(LinkRow, JobRow.state).join(JobRow, JobRow.id == LinkRow.id)


def keep(
    session: Session, link_id: str, name: str, request: dict[str, Any], now: float, **found: Any
) -> None:
    """Keep what was asked, and what was ``found``: the job and who submits it do so, in either order."""
    session.merge(LinkRow(id=link_id, name=name, request=request, created_at=now, **found))


def find(session: Session, link_id: str, *, lock: bool = False) -> tuple[LinkRow, str] | None:
    """A link job's row and state; with ``lock``, nobody else changes it until the transaction ends."""
    query = _WITH_STATE.where(LinkRow.id == link_id)
    row = session.execute(query.with_for_update(of=LinkRow) if lock else query).one_or_none()
    return None if row is None else (row[0], row[1])


def review_of(session: Session, row: LinkRow, which: str = "review") -> ReviewRow | None:
    """The review of a job's links, while there is one; or its ``missed_review``."""
    review = (row.summary or {}).get(which)
    return None if review is None else session.get(ReviewRow, review)


def page(
    session: Session, limit: int, after: tuple[float, str] | None, names: VisibleNames
) -> list[tuple[LinkRow, str]]:
    """Up to ``limit`` rows, newest first, after a (created_at, id) mark."""
    query = _WITH_STATE.order_by(LinkRow.created_at.desc(), LinkRow.id.desc()).limit(limit)
    if after is not None:
        query = query.where(tuple_(LinkRow.created_at, LinkRow.id) < tuple_(*after))
    return [(row[0], row[1]) for row in session.execute(query.where(among(names, LinkRow.name)))]


def remove(session: Session, link_id: str) -> None:
    session.execute(delete(LinkRow).where(LinkRow.id == link_id))
