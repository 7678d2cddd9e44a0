"""SQL of links."""

from __future__ import annotations

from typing import Any

from sqlalchemy import delete, func, select, tuple_, update
from sqlalchemy.orm import Session

from pairmark.service.db import among
from pairmark.service.names import VisibleNames
from pairmark.service.tables import JobRow, LinkAddition, LinkRow, ReviewRow

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


def review_of(session: Session, row: LinkRow, which: str) -> ReviewRow | None:
    """One of `folders.REVIEWS` of a job's links, while there is one."""
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


def count_additions(session: Session, link_id: str) -> int:
    query = select(func.count()).select_from(LinkAddition).where(LinkAddition.link_id == link_id)
    return session.scalar(query) or 0


def additions(session: Session, link_id: str, start: int = 0) -> list[dict[str, Any]]:
    """Records that were put in and are not in the blob, from a number on."""
    query = select(LinkAddition.record).where(LinkAddition.link_id == link_id, LinkAddition.number >= start)
    return list(session.scalars(query.order_by(LinkAddition.number)))


def put_in(session: Session, link_id: str, number: int, record: dict[str, Any]) -> None:
    session.add(LinkAddition(link_id=link_id, number=number, record=record))


def drop_additions(session: Session, link_id: str, n: int) -> None:
    """Remove the first ``n``, and number the others from 0."""
    of = LinkAddition.link_id == link_id
    session.execute(delete(LinkAddition).where(of, LinkAddition.number < n))
    session.execute(update(LinkAddition).where(of).values(number=LinkAddition.number - n))


def remove(session: Session, link_id: str) -> None:
    session.execute(delete(LinkRow).where(LinkRow.id == link_id))
