"""API keys, webhooks and the audit log over HTTP, for admins."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import AfterValidator, Field

from pairmark.schemas.admin import (
    AuditEntry,
    KeyOut,
    KeyRequest,
    NewKey,
    NewWebhook,
    RotationRequest,
    WebhookOut,
    WebhookRequest,
)
from pairmark.schemas.base import ID_TEXT, Page
from pairmark.service.api.routing import GuardedRoute, PageQuery, Paging, needs
from pairmark.service.api.services import InServices, names_of
from pairmark.service.errors import UnknownTenant
from pairmark.service.keys import DAY_S

keys = APIRouter(tags=["keys"], route_class=GuardedRoute)


KeyId = Annotated[str, Path(max_length=64, description="the key's id, the part after `pm_`")]


@keys.get("/keys")
@needs("admin")
def list_keys(http: Request, services: InServices, query: Paging) -> Page[KeyOut]:
    """All keys in order of creation, including revoked ones; for an admin of a tenant, the tenant's. Secrets are not
    shown."""
    return services.keys.page(query.limit, query.cursor, tenant=names_of(http).tenant)


@keys.post("/keys", status_code=201)
@needs("admin", renames=True)
def create_key(http: Request, services: InServices, response: Response, request: KeyRequest) -> NewKey:
    """Create a key. Only this answer shows it; the service stores its hash.

    Once the first key exists, every request needs one.
    """
    own_tenant = names_of(http).tenant
    if own_tenant is not None and request.tenant not in (None, own_tenant):
        raise UnknownTenant("there is no such tenant")
    seconds = None if request.expires_in_days is None else request.expires_in_days * DAY_S
    key = services.keys.create(
        request.name,
        request.scopes,
        expires_in_s=seconds,
        rate=request.rate,
        tenant=request.tenant or own_tenant,
    )
    response.headers["Cache-Control"] = "no-store"
    return key


@keys.post("/keys/{key_id}/rotate", status_code=201)
@needs("admin", renames=True)
def rotate_key(
    http: Request, services: InServices, response: Response, key_id: KeyId, request: RotationRequest
) -> NewKey:
    """Create a new key with the same scopes. Both keys work during the overlap; then the old one expires."""
    response.headers["Cache-Control"] = "no-store"
    overlap_s = request.overlap_hours * 3600
    return services.keys.rotate(key_id, overlap_s=overlap_s, tenant=names_of(http).tenant)


@keys.delete("/keys/{key_id}", status_code=204)
@needs("admin", renames=True)
def revoke_key(http: Request, services: InServices, key_id: KeyId) -> None:
    """Revoke a key at once, with its console sessions. Revoking it again changes nothing."""
    services.keys.revoke(key_id, tenant=names_of(http).tenant)


webhooks = APIRouter(tags=["webhooks"], route_class=GuardedRoute)


WebhookId = Annotated[str, Path(max_length=32, pattern=ID_TEXT, description="the webhook's id")]


@webhooks.post("/webhooks", status_code=201)
@needs("operator")
def create_webhook(services: InServices, response: Response, request: WebhookRequest) -> NewWebhook:
    """Have events sent to an address. Only this answer shows the secret that signs the messages.

    A message is `{"type", "timestamp", "data"}` with the headers of Standard Webhooks (`webhook-id`,
    `webhook-timestamp`, `webhook-signature`). An answer other than 2xx is tried again, seven times in 18 hours.
    """
    response.headers["Cache-Control"] = "no-store"
    return services.webhooks.create(request)


@webhooks.get("/webhooks")
@needs("operator")
def list_webhooks(services: InServices, query: Paging) -> Page[WebhookOut]:
    """Webhooks, oldest first, without their secrets."""
    return services.webhooks.page(query.limit, query.cursor)


@webhooks.delete("/webhooks/{webhook_id}", status_code=204)
@needs("operator")
def delete_webhook(services: InServices, webhook_id: WebhookId) -> None:
    """Delete a webhook and its messages."""
    services.webhooks.delete(webhook_id)


audit = APIRouter(tags=["audit"], route_class=GuardedRoute)


def _in_utc(value: datetime) -> datetime:
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


class AuditQuery(PageQuery):
    """Which entries."""

    actor: str | None = Field(
        None, max_length=200, description="only changes by this actor, e.g. `key 0123456789ab`"
    )
    action: str | None = Field(
        None, max_length=64, description="only this action (`alias.move`) or group of actions (`alias`)"
    )
    resource: str | None = Field(
        None,
        max_length=400,
        description="only changes to this resource (`model:faces:3`) or to everything below it (`model:faces`, "
        "`model`)",
    )
    since: Annotated[datetime, AfterValidator(_in_utc)] | None = Field(
        None, description="only changes since this time, ISO 8601", examples=["2026-01-31T12:00:00Z"]
    )


@audit.get("/audit")
@needs("admin")
def list_audit(
    http: Request, services: InServices, query: Annotated[AuditQuery, Query()]
) -> Page[AuditEntry]:
    """Who changed what, newest first; an admin of a tenant sees the tenant's. An entry is committed with its
    change."""
    since = None if query.since is None else query.since.timestamp()
    return services.audit.page(
        **query.model_dump(exclude={"since"}), since=since, tenant=names_of(http).tenant
    )
