"""API keys over HTTP, for admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from pairmark.schemas.keys import (
    KeyPage,
    KeyRequest,
    NewKey,
    RotationRequest,
)
from pairmark.service.api.query import Paging
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices, names_of
from pairmark.service.errors import UnknownTenant
from pairmark.service.keys.keys import DAY_S

router = APIRouter(tags=["keys"], route_class=GuardedRoute)


KeyId = Annotated[str, Path(max_length=64, description="the key's id, the part after `pm_`")]


@router.get("/keys")
@needs("admin")
def list_keys(http: Request, services: InServices, query: Paging) -> KeyPage:
    """All keys in order of creation, including revoked ones; for an admin of a tenant, the tenant's. Secrets are not
    shown."""
    return services.keys.page(query.limit, query.cursor, tenant=names_of(http).tenant)


@router.post("/keys", status_code=201)
@needs("admin")
async def create_key(http: Request, services: InServices, response: Response, request: KeyRequest) -> NewKey:
    """Create a key. Only this answer shows it; the service stores its hash.

    Once the first key exists, every request needs one.
    """
    own = names_of(http).tenant
    if own is not None and request.tenant not in (None, own):
        raise UnknownTenant("there is no such tenant")
    seconds = None if request.expires_in_days is None else request.expires_in_days * DAY_S
    key = await asyncio.to_thread(
        services.keys.create,
        request.name,
        request.scopes,
        expires_in_s=seconds,
        rate=request.rate,
        tenant=request.tenant or own,
    )
    await services.runtime.catalogue.after_change()
    response.headers["Cache-Control"] = "no-store"
    return key


@router.post("/keys/{key_id}/rotate", status_code=201)
@needs("admin")
async def rotate_key(
    http: Request, services: InServices, response: Response, key_id: KeyId, request: RotationRequest
) -> NewKey:
    """Create a new key with the same scopes. Both keys work during the overlap; then the old one expires."""
    overlap_s, tenant = request.overlap_hours * 3600, names_of(http).tenant
    key = await asyncio.to_thread(services.keys.rotate, key_id, overlap_s=overlap_s, tenant=tenant)
    await services.runtime.catalogue.after_change()
    response.headers["Cache-Control"] = "no-store"
    return key


@router.delete("/keys/{key_id}", status_code=204)
@needs("admin")
async def revoke_key(http: Request, services: InServices, key_id: KeyId) -> None:
    """Revoke a key at once, with its console sessions. Revoking it again changes nothing."""
    await asyncio.to_thread(services.keys.revoke, key_id, tenant=names_of(http).tenant)
    await services.runtime.catalogue.after_change()
