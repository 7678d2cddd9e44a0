"""API keys over HTTP, for admins."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Path, Response

from pairmark.service.api.query import FROM_QUERY, PageQuery
from pairmark.service.api.services import InServices
from pairmark.service.keys.keys import DAY_S
from pairmark.service.keys.schemas import KeyPage, KeyRequest, NewKey, RotationRequest

KeyId = Annotated[str, Path(max_length=64, description="the key's id, the part after `pm_`")]


def list_keys(services: InServices, query: Annotated[PageQuery, FROM_QUERY]) -> KeyPage:
    """All keys in order of creation, including revoked ones. Secrets are not shown."""
    return services.keys.page(query.limit, query.cursor)


async def create_key(services: InServices, response: Response, request: KeyRequest) -> NewKey:
    """Create a key. Only this answer shows it; the service stores its hash.

    Once the first key exists, every request needs one.
    """
    seconds = None if request.expires_in_days is None else request.expires_in_days * DAY_S
    made = await asyncio.to_thread(
        services.keys.create, request.name, request.scopes, expires_in_s=seconds, rate=request.rate
    )
    await services.runtime.catalogue.changed()
    response.headers["Cache-Control"] = "no-store"
    return made


async def rotate_key(
    services: InServices, response: Response, key_id: KeyId, request: RotationRequest
) -> NewKey:
    """Create a new key with the same scopes. Both keys work during the overlap; then the old one expires."""
    made = await asyncio.to_thread(services.keys.rotate, key_id, overlap_s=request.overlap_hours * 3600)
    await services.runtime.catalogue.changed()
    response.headers["Cache-Control"] = "no-store"
    return made


async def revoke_key(services: InServices, key_id: KeyId) -> None:
    """Revoke a key at once, with its console sessions. Revoking it again changes nothing."""
    await asyncio.to_thread(services.keys.revoke, key_id)
    await services.runtime.catalogue.changed()
