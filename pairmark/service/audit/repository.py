"""All SQL of the audit log. Nothing here commits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from pairmark.service.db import touched
from pairmark.service.tables import AuditRow


def add(session: Session, values: Mapping[str, Any]) -> int:
    """Append an entry; returns its number."""
    return int(session.execute(insert(AuditRow).values(**values).returning(AuditRow.id)).scalar_one())


def page(
    session: Session,
    *,
    limit: int,
    before: int | None,
    actor: str | None,
    action: str | None,
    resource: str | None,
    since: float | None,
    tenant: str | None,
) -> list[AuditRow]:
    """Entries, newest first. ``action`` and ``resource`` also name whole groups by what comes before their mark."""
    statement = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(AuditRow.id < before)
    if actor is not None:
        statement = statement.where(AuditRow.actor == actor)
    if action is not None:
        statement = statement.where(
            (AuditRow.action == action) | AuditRow.action.startswith(f"{action}.", autoescape=True)
        )
    if resource is not None:
        statement = statement.where(
            (AuditRow.resource == resource)
            | AuditRow.resource.startswith(f"{resource}:", autoescape=True)
            | AuditRow.resource.startswith(f"{resource}@", autoescape=True)
        )
    if tenant is not None:
        statement = statement.where(AuditRow.tenant == tenant)
    if since is not None:
        statement = statement.where(AuditRow.at >= since)
    return list(session.scalars(statement))


def delete_before(session: Session, before: float) -> int:
    """Remove entries older than a time; returns how many."""
    return touched(session, delete(AuditRow).where(AuditRow.at < before))
