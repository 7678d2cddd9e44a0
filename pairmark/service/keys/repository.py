"""All SQL of keys and sessions. Nothing here commits."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, exists, select, tuple_, update
from sqlalchemy.orm import Session

from pairmark.service.db import touched
from pairmark.service.tables import (
    ApiKey,
    SessionRow,
)


def all_keys(session: Session) -> list[ApiKey]:
    """Keys in the order they were made."""
    return list(session.scalars(select(ApiKey).order_by(ApiKey.created_at, ApiKey.id)))


def active_key_columns(session: Session) -> list[Row[Any]]:
    """Columns of the keys that are not revoked."""
    columns = (
        ApiKey.id,
        ApiKey.name,
        ApiKey.sha256,
        ApiKey.scopes,
        ApiKey.expires_at,
        ApiKey.rate,
        ApiKey.tenant,
    )
    return list(
        session.execute(select(*columns).where(ApiKey.revoked_at.is_(None)).order_by(ApiKey.created_at))
    )


def session_columns(session: Session) -> list[Row[Any]]:
    """Columns of every session that was not ended, perhaps expired ones among them."""
    of = SessionRow
    return list(session.execute(select(of.sha256, of.key_id, of.csrf, of.expires_at)))


def any_key(session: Session) -> bool:
    return bool(session.scalar(select(exists().select_from(ApiKey))))


def revoke_key(session: Session, key_id: str, at: float) -> bool:
    """Revoke a key; False when it was revoked before."""
    usable = update(ApiKey).where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None))
    return bool(touched(session, usable.values(revoked_at=at)))


def drop_ended_keys(session: Session, beginning: str, before: float) -> None:
    """Forget keys whose name begins so and which expired before a time."""
    ended = ApiKey.name.startswith(beginning, autoescape=True) & (ApiKey.expires_at < before)
    session.execute(delete(ApiKey).where(ended))


def page_of_keys(
    session: Session, limit: int, after: tuple[float, str] | None, tenant: str | None
) -> list[ApiKey]:
    """Keys in the order they were made, after a mark; of a tenant."""
    query = select(ApiKey).order_by(ApiKey.created_at, ApiKey.id).limit(limit)
    if tenant is not None:
        query = query.where(ApiKey.tenant == tenant)
    if after is not None:
        query = query.where(tuple_(ApiKey.created_at, ApiKey.id) > tuple_(*after))
    return list(session.scalars(query))


def touch(session: Session, key_id: str, at: float) -> None:
    """Keep that a key was used, unless it was used later."""
    session.execute(
        update(ApiKey)
        .where(ApiKey.id == key_id, (ApiKey.last_used_at.is_(None)) | (ApiKey.last_used_at < at))
        .values(last_used_at=at)
    )


def drop_session(session: Session, sha256: str) -> bool:
    """End a session; False when there is none."""
    return bool(touched(session, delete(SessionRow).where(SessionRow.sha256 == sha256)))


def drop_sessions(session: Session, key_id: str, now: float, keep: int) -> None:
    """End expired sessions, and of a key all but the newest so many."""
    session.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
    newest = (
        select(SessionRow.sha256)
        .where(SessionRow.key_id == key_id)
        .order_by(SessionRow.created_at.desc(), SessionRow.sha256)
        .offset(keep)
        .limit(10_000)
    )
    old = list(session.scalars(newest))
    if old:
        session.execute(delete(SessionRow).where(SessionRow.sha256.in_(old)))
