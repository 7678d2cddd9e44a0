"""Writing to the audit log and reading it."""

import logging
import secrets
from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import delete, insert, or_, select
from sqlalchemy.orm import Session

from pairmark.schemas.admin import EVENTS, AuditEntry
from pairmark.schemas.base import Page, iso
from pairmark.service.audit import current_actor
from pairmark.service.db import Database, execute_change, read_page
from pairmark.service.names import tenant_of
from pairmark.service.tables import AuditRow, WebhookDelivery, WebhookRow


def post(session: Session, now: float, action: str, resource: str, facts: Mapping[str, Any] | None) -> None:
    """Add a delivery to each webhook that asks for this action, in the caller's transaction."""
    if action not in EVENTS:
        return
    asking = [row.id for row in session.scalars(select(WebhookRow)) if action in row.events]
    if not asking:
        return
    body = {"type": action, "timestamp": iso(now), "data": {"resource": resource, **(facts or {})}}
    session.execute(
        insert(WebhookDelivery),
        [
            {"id": secrets.token_hex(12), "webhook_id": webhook, "event": action, "body": body}
            | {"created_at": now, "attempts": 0, "next_at": now}
            for webhook in asking
        ],
    )


_DAY_S = 86_400.0


def record(
    session: Session,
    now: float,
    action: str,
    resource: str,
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
    tenant: str | None = None,
) -> int:
    """Append an entry in the caller's transaction, so that a change and its entry are committed as one.

    Parameters
    ----------
    now : seconds since the epoch on the database's clock.
    action : ``thing.verb``, e.g. ``alias.move``.
    resource : ``thing:name``, e.g. ``model:faces@production``.
    tenant : whose view of the log shows it; None: that of the actor, else of the resource's name.
    before, after : JSON-able facts. Never vectors, keys, or ids of people: those must stay erasable.

    Returns
    -------
    The entry's number.
    """
    post(session, now, action, resource, after)
    actor = current_actor()
    entry = insert(AuditRow).values(
        at=now,
        actor=actor.name[:200],
        action=action[:64],
        resource=resource[:400],
        tenant=tenant or actor.tenant or tenant_of(resource.partition(":")[2]) or None,
        before=None if before is None else dict(before),
        after=None if after is None else dict(after),
        request_id=actor.request_id,
    )
    return int(session.execute(entry.returning(AuditRow.id)).scalar_one())


class AuditLog:
    """Reads and prunes the audit log."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def page(
        self,
        limit: int = 50,
        cursor: str | None = None,
        *,
        actor: str | None = None,
        action: str | None = None,
        resource: str | None = None,
        since: float | None = None,
        tenant: str | None = None,
    ) -> Page[AuditEntry]:
        """Entries, newest first.

        Parameters
        ----------
        action : such as ``alias.move``, or a group of them such as ``alias``.
        resource : such as ``model:faces:3``, or what it begins with, such as ``model:faces`` or ``model``.
        since : seconds since the epoch.
        tenant : only entries of this one's view.
        """
        table = AuditRow
        query = select(table)
        if actor is not None:
            query = query.where(table.actor == actor)
        if action is not None:
            query = query.where(
                (table.action == action) | table.action.startswith(f"{action}.", autoescape=True)
            )
        if resource is not None:
            below = (table.resource.startswith(f"{resource}{mark}", autoescape=True) for mark in ":@")
            query = query.where(or_(table.resource == resource, *below))
        if tenant is not None:
            query = query.where(table.tenant == tenant)
        if since is not None:
            query = query.where(table.at >= since)
        with self._db.read() as session:
            make, order = AuditEntry.model_validate, (table.id,)
            return read_page(session, Page[AuditEntry], make, query, order, limit, cursor, newest_first=True)

    def note(self, action: str, resource: str, facts: Mapping[str, Any]) -> int:
        """Append what changes nothing, such as a decision, committed when this returns; returns the entry's number."""
        with self._db.write() as session:
            return record(session, self._db.now(session), action, resource, after=facts)

    def prune(self, days: float) -> int:
        """Remove entries older than ``days``, leaving one that says so; returns how many."""
        with self._db.write() as session:
            now = self._db.now(session)
            n_removed = execute_change(session, delete(AuditRow).where(AuditRow.at < now - days * _DAY_S))
            if n_removed:
                record(
                    session,
                    now,
                    "audit.prune",
                    "audit",
                    after={"removed": n_removed, "older_than_days": days},
                )
        return n_removed


logger = logging.getLogger("pairmark.recovery")
Repair = Literal["job", "storage", "galleries"]
SAID: dict[Repair, str] = {
    "job": "job queued again after a lost attempt",
    "storage": "data of killed processes removed from storage",
    "galleries": "data of deleted galleries and killed imports removed",
}


def record_recovery(session: Session, now: float, repair: Repair, resource: str, **facts: Any) -> None:
    """Note a repair, in the caller's transaction.

    Parameters
    ----------
    resource : what was repaired, such as ``job:ID``.
    facts : JSON-able, for the entry and the log line.
    """
    record(session, now, f"recovery.{repair}", resource, after=facts)
    logger.warning(SAID[repair], extra={"resource": resource, **facts})
