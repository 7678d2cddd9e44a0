"""API keys over HTTP, for admins."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Response

from pairmark.service.api.query import FROM_QUERY, PageQuery
from pairmark.service.api.services import InServices
from pairmark.service.keys.keys import DAY_S
from pairmark.service.keys.schemas import KeyPage, KeyRequest, NewKey, RotationRequest

KeyId = Annotated[str, Path(max_length=64, description="the key's id, the part after `pm_`")]


def list_keys(services: InServices, query: Annotated[PageQuery, FROM_QUERY]) -> KeyPage:
    """Every key in the order they were made, revoked ones too; never the keys themselves."""
    return services.keys.page(query.limit, query.cursor)


async def create_key(services: InServices, response: Response, request: KeyRequest) -> NewKey:
    """Make a key. The answer is the only place where it is ever shown: only its hash is kept.

    Once the first one is made, every request needs one.
    """
    seconds = None if request.expires_in_days is None else request.expires_in_days * DAY_S
    made = await services.runtime.in_thread(
        lambda: services.keys.create(request.name, request.scopes, expires_in_s=seconds, rate=request.rate)
    )
    await services.runtime.changed()
    response.headers["Cache-Control"] = "no-store"
    return made


async def rotate_key(
    services: InServices, response: Response, key_id: KeyId, request: RotationRequest
) -> NewKey:
    """Make a key that may do the same; the old one ends after an overlap, in which both work."""
    made = await services.runtime.in_thread(
        lambda: services.keys.rotate(key_id, overlap_s=request.overlap_hours * 3600)
    )
    await services.runtime.changed()
    response.headers["Cache-Control"] = "no-store"
    return made


async def revoke_key(services: InServices, key_id: KeyId) -> None:
    """Make a key useless at once, with the sessions that stand for it; revoking it again changes nothing."""
    await services.runtime.in_thread(lambda: services.keys.revoke(key_id))
    await services.runtime.changed()
