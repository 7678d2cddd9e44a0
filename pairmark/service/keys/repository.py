"""All SQL of keys and sessions. Nothing here commits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from sqlalchemy import Row, Select, delete, exists, func, or_, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from pairmark.schemas.keys import Quotas
from pairmark.service.db import among, touched
from pairmark.service.names import VisibleNames
from pairmark.service.tables import (
    ApiKey,
    CalibrationRow,
    DatasetRow,
    GalleryRow,
    JobRow,
    ModelRow,
    ModelVersion,
    SessionRow,
    TenantRow,
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


def ensure_tenant(session: Session, tenant: str, now: float) -> None:
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    row = {"name": tenant, "quotas": {}, "created_at": now}
    session.execute(insert(TenantRow).values(row).on_conflict_do_nothing(index_elements=["name"]))


def page_of_tenants(session: Session, limit: int, after: str | None, tenant: str | None) -> list[str]:
    """Names of tenants, in order, after a mark."""
    query = select(TenantRow.name).order_by(TenantRow.name).limit(limit)
    if after is not None:
        query = query.where(TenantRow.name > after)
    return list(session.scalars(query if tenant is None else query.where(TenantRow.name == tenant)))


def quotas_of(session: Session, tenant: str) -> dict[str, int] | None:
    """A tenant's own quotas by name; None: there is no such tenant."""
    row = session.get(TenantRow, tenant)
    return None if row is None else stored_quotas(row)


def stored_quotas(row: TenantRow) -> dict[str, int]:
    return Quotas.model_validate(row.quotas).model_dump(exclude_none=True)


def locked_quotas(session: Session, tenant: str) -> dict[str, int]:
    """A tenant's own quotas, held until the transaction ends; none where it was never made."""
    row = session.scalar(select(TenantRow).where(TenantRow.name == tenant).with_for_update())
    return {} if row is None else stored_quotas(row)


def set_quotas(session: Session, tenant: str, quotas: dict[str, int]) -> None:
    session.execute(update(TenantRow).where(TenantRow.name == tenant).values(quotas=quotas))


def use_of(session: Session, tenant: str, quotas: Collection[str] = ()) -> dict[str, int]:
    """What a tenant stores and runs, by the quota's name; of ``quotas`` alone (none given: all)."""
    names = VisibleNames(prefix=f"{tenant}/")

    def total(statement: Select[Any]) -> int:
        return int(session.scalar(statement) or 0)

    galleries, datasets = among(names, GalleryRow.name), among(names, DatasetRow.name)
    calibration = func.coalesce(ModelRow.name, CalibrationRow.name)
    counts: dict[str, Callable[[], int]] = {
        "vectors": lambda: total(select(func.sum(GalleryRow.items)).where(galleries)),
        "rows": lambda: total(select(func.sum(DatasetRow.rows)).where(datasets)),
        "bytes": lambda: (
            total(select(func.sum(DatasetRow.size_bytes)).where(datasets))
            + total(select(func.sum(4 * GalleryRow.items * GalleryRow.dimension)).where(galleries))
            + total(
                select(func.sum(ModelVersion.size_bytes)).join(ModelRow).where(among(names, ModelRow.name))
            )
            + total(
                select(func.sum(CalibrationRow.size_bytes))
                .outerjoin(ModelRow, ModelRow.id == CalibrationRow.model_id)
                .where(among(names, calibration))
            )
        ),
        "jobs": lambda: total(
            select(func.count()).where(
                JobRow.state.in_(("queued", "running")),
                or_(
                    JobRow.gallery.is_(None) & among(names, JobRow.model),
                    JobRow.gallery.is_not(None) & among(names, JobRow.gallery),
                ),
            )
        ),
        "keys": lambda: total(
            select(func.count()).where(ApiKey.tenant == tenant, ApiKey.revoked_at.is_(None))
        ),
    }
    return {name: count() for name, count in counts.items() if not quotas or name in quotas}
