"""All SQL of webhooks. Nothing here commits, but the making of the secret that theirs follow from."""

from __future__ import annotations

import secrets
from typing import Any

from sqlalchemy import Row, delete, func, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from pairmark.service.db import Database, touched
from pairmark.service.tables import ServiceSecret, WebhookDelivery, WebhookRow


def count(session: Session) -> int:
    return int(session.scalar(select(func.count()).select_from(WebhookRow)) or 0)


def page_of_webhooks(session: Session, limit: int, after: tuple[float, str] | None) -> list[WebhookRow]:
    """Webhooks in the order they were made, after a mark."""
    query = select(WebhookRow).order_by(WebhookRow.created_at, WebhookRow.id).limit(limit)
    if after is not None:
        query = query.where(tuple_(WebhookRow.created_at, WebhookRow.id) > tuple_(*after))
    return list(session.scalars(query))


def remove(session: Session, webhook_id: str) -> bool:
    """Delete a webhook with its deliveries; False where there is none."""
    session.execute(delete(WebhookDelivery).where(WebhookDelivery.webhook_id == webhook_id))
    return bool(touched(session, delete(WebhookRow).where(WebhookRow.id == webhook_id)))


def page_of_deliveries(
    session: Session, webhook_id: str, limit: int, after: tuple[float, str] | None
) -> list[WebhookDelivery]:
    """Deliveries to a webhook, newest first, after a mark."""
    of = WebhookDelivery
    query = select(of).where(of.webhook_id == webhook_id)
    if after is not None:
        query = query.where(tuple_(of.created_at, of.id) < tuple_(*after))
    return list(session.scalars(query.order_by(of.created_at.desc(), of.id.desc()).limit(limit)))


def receivers(session: Session, now: float) -> set[str]:
    """Webhooks to which something is due."""
    due = select(WebhookDelivery.webhook_id).where(WebhookDelivery.next_at <= now)
    return set(session.scalars(due.distinct()))


def claim(session: Session, webhook_id: str, now: float, until: float) -> Row[Any] | None:
    """Take the delivery to a webhook that is due the longest, (id, webhook_id, url, body, attempts, created_at): nobody
    else tries it before ``until``. None: none is due."""
    of = WebhookDelivery
    columns = of.id, of.webhook_id, WebhookRow.url, of.body, of.attempts, of.created_at
    due = select(*columns).join(WebhookRow, WebhookRow.id == of.webhook_id)
    due_row = session.execute(
        due.where(of.webhook_id == webhook_id, of.next_at <= now)
        .order_by(of.next_at)
        .limit(1)
        .with_for_update(of=of, skip_locked=True)
    ).first()
    if due_row is not None:
        session.execute(update(of).where(of.id == due_row.id).values(next_at=until, attempts=of.attempts + 1))
    return due_row


def close(session: Session, delivery_id: str, answer: str, next_at: float | None, delivered: bool) -> None:
    """Keep what an attempt came to."""
    values = {"answer": answer[:200], "next_at": next_at, "delivered": delivered}
    session.execute(update(WebhookDelivery).where(WebhookDelivery.id == delivery_id).values(**values))


def pause(session: Session, webhook_id: str, until: float) -> None:
    """Try nothing to a webhook before ``until``."""
    of = WebhookDelivery
    session.execute(update(of).where(of.webhook_id == webhook_id, of.next_at < until).values(next_at=until))


def forget(session: Session, before: float) -> None:
    """Delete deliveries of before a time."""
    session.execute(delete(WebhookDelivery).where(WebhookDelivery.created_at < before))


_ROW = 1


def service_secret(db: Database) -> bytes:
    """The secret; the first who asks makes it."""
    with db.read() as session:
        row = session.get(ServiceSecret, _ROW)
    if row is not None:
        return row.value
    try:
        with db.write() as session:
            session.add(ServiceSecret(id=_ROW, value=secrets.token_bytes(32)))
    except IntegrityError:
        # Another process made it meanwhile.
        pass
    with db.read() as session:
        return session.get_one(ServiceSecret, _ROW).value
