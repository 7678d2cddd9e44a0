"""All SQL of the keys room."""

from __future__ import annotations

from sqlalchemy import exists, select, update
from sqlalchemy.orm import Session

from pairmark.service.tables import ApiKey


def insert_key(session: Session, row: ApiKey) -> None:
    """Add a key."""
    session.add(row)
    session.flush()


def key_by_id(session: Session, key_id: str) -> ApiKey | None:
    """The key of that id, revoked or not."""
    return session.get(ApiKey, key_id)


def all_keys(session: Session, *, active: bool = False) -> list[ApiKey]:
    """Keys in the order they were made; only those not revoked if ``active``."""
    query = select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)
    return list(session.scalars(query.where(ApiKey.revoked_at.is_(None)) if active else query))


def any_key(session: Session) -> bool:
    """Whether a key was ever made."""
    return bool(session.scalar(select(exists().select_from(ApiKey))))


def revoke_key(session: Session, key_id: str, at: float) -> bool:
    """Revoke a key; False when it was revoked before."""
    changed = session.execute(
        update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None)).values(revoked_at=at)
    )
    return bool(changed.rowcount)  # type: ignore[attr-defined]
