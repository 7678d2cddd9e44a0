"""Tenants: what each stores and runs, and how much of it may be."""

from __future__ import annotations

from sqlalchemy.orm import Session

from pairmark.schemas.keys import Quotas, TenantOut, TenantPage
from pairmark.service.audit.log import record
from pairmark.service.db import Database, bump_revision
from pairmark.service.errors import QuotaExceeded, UnknownTenant
from pairmark.service.keys import repository
from pairmark.service.names import checked_tenant, tenant_of
from pairmark.service.pagination import page_of, start_of
from pairmark.service.settings import Settings
from pairmark.service.shares import note_limit


class Tenants:
    """Lists tenants with their use, and sets their quotas."""

    def __init__(self, db: Database, settings: Settings) -> None:
        self._db, self._settings = db, settings

    def page(self, limit: int = 50, cursor: str | None = None, *, tenant: str | None = None) -> TenantPage:
        """Tenants by name; ``tenant`` : this one alone."""
        after = start_of(limit, cursor, str)
        with self._db.read() as session:
            names = repository.page_of_tenants(session, limit + 1, after, tenant)
            return page_of(
                TenantPage, names, limit, lambda name: (name,), lambda name: self._out(session, name)
            )

    def get(self, tenant: str) -> TenantOut:
        """A tenant with its quotas and use, or `UnknownTenant`."""
        with self._db.read() as session:
            return self._out(session, tenant)

    def set_quotas(self, tenant: str, quotas: Quotas) -> TenantOut:
        """Set quotas, those that are None to the settings' defaults; makes the tenant when there is none."""
        checked_tenant(tenant)
        with self._db.write() as session:
            now = self._db.now(session)
            repository.ensure_tenant(session, tenant, now)
            before = repository.quotas_of(session, tenant)
            after = quotas.model_dump(exclude_none=True)
            repository.set_quotas(session, tenant, after)
            record(
                session, now, "tenant.quotas", f"tenant:{tenant}", before=before, after=after, tenant=tenant
            )
            bump_revision(session)
            return self._out(session, tenant)

    def _out(self, session: Session, tenant: str) -> TenantOut:
        quotas = repository.quotas_of(session, tenant)
        if quotas is None:
            raise UnknownTenant(f"there is no tenant {tenant[:50]!r}; `GET /tenants` lists them")
        use = repository.use_of(session, tenant)
        return TenantOut(name=tenant, quotas=in_force(quotas, self._settings), use=Quotas(**use))


def in_force(own: dict[str, int], settings: Settings) -> Quotas:
    """A tenant's own quotas, and where it has none the settings' defaults; 0: no limit."""
    return Quotas(
        **{name: own.get(name, getattr(settings, f"tenant_{name}")) for name in Quotas.model_fields}
    )


def check_quotas(session: Session, settings: Settings, name: str, **amounts: int) -> None:
    """Refuse (`QuotaExceeded`) what would bring the tenant of ``name`` above a quota; nothing for names of no tenant.

    Until the transaction ends nobody else adds to the tenant, so that its quotas hold.

    Parameters
    ----------
    amounts : how much is to be added, by the quota's name.
    """
    tenant = tenant_of(name)
    if not tenant:
        return
    own = repository.locked_quotas(session, tenant)
    quotas = in_force(own, settings)
    use = repository.use_of(session, tenant, quotas=amounts)
    for what, amount in amounts.items():
        quota = getattr(quotas, what)
        if not quota:
            continue
        remaining = max(0, quota - use[what])
        over = amount > remaining
        note_limit(what, quota, remaining if over else remaining - amount)
        if over:
            unit = Quotas.model_fields[what].description
            raise QuotaExceeded(
                f"the tenant {tenant} has {use[what]} of {quota} {unit}, and this needs {amount} more: delete some, or "
                f"ask the operator to raise the quota {what!r} (PUT /tenants/{tenant})",
                quota=what,
                limit=quota,
                use=use[what],
            )
