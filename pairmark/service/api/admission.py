"""Who may ask: keys, sessions of the console, and this machine while there is no key."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from pairmark.schemas.keys import Level
from pairmark.service.addresses import host_name, is_loopback
from pairmark.service.api import access
from pairmark.service.api.access import Access
from pairmark.service.api.rates import limit_of
from pairmark.service.errors import Forbidden, Unauthenticated
from pairmark.service.keys import ActiveKey
from pairmark.service.runtime.catalogue import CatalogueView
from pairmark.service.shares import own

if TYPE_CHECKING:
    from pairmark.service.api.services import Services

BURST_S: Final = 10.0
"""So many seconds' worth of requests a key may send at once."""
_OF_A_PEER: Final = (b"host", b"origin", b"sec-fetch-site")


class Admission:
    """Decides on requests, one by one."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def admit(self, scope: Scope, needed: Access, path: Mapping[str, str], level: Level) -> None:
        """Let a request in, and note in its scope who asks; the errors say what is lacking."""
        settings = self._services.settings
        if scope.get("pairmark.trusted"):
            scope["pairmark.caller"] = "local"
            return
        if needed == "open" or (needed == "metrics" and settings.metrics_public):
            return
        catalogue = self._services.runtime.catalogue
        view = catalogue.current()
        if view is None:
            view = await catalogue.refreshed()
        headers: dict[bytes, bytes] = scope["pairmark.fields"]
        credential = access.shown_key(headers)
        if credential is None and not view.locked:
            client = scope.get("client")
            _admit_without_key(client and client[0], *(headers.get(name) for name in _OF_A_PEER))
            scope["pairmark.caller"] = "loopback"
            return
        key = _key_of(scope, view, headers, credential)
        if key is None and (credential or access.shown_session(headers)):
            # It may be younger than the view: made a moment ago, by another process.
            key = _key_of(scope, await catalogue.looked_up(), headers, credential)
        if key is None:
            raise Unauthenticated(
                "an API key is required: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
                if credential is None
                else "the API key is not known here, was revoked, or has expired"
            )
        access.check_key(key, needed, path, level=level)
        scope["pairmark.caller"] = f"key {key.id}"
        scope["pairmark.key"] = key
        own(key.owner)
        self._services.last_use[key.id] = time.time()
        rate = key.rate or settings.rate_limit
        if rate:
            limit = limit_of("requests", rate, BURST_S)
            self._services.rates.draw(scope, key.id, limit, "requests of this key")


def _key_of(
    scope: Scope, view: CatalogueView, headers: dict[bytes, bytes], credential: str | None
) -> ActiveKey | None:
    """The key that was shown, or that the console's session stands for."""
    if credential is not None:
        return view.key(credential)
    word = access.shown_session(headers)
    entry = view.session(word) if word else None
    if entry is None:
        return None
    session, key = entry
    access.check_csrf(session, headers, scope["method"])
    scope["pairmark.csrf"] = session.csrf
    return key


@lru_cache(1024)
def _admit_without_key(client: str | None, *peer: bytes | None) -> None:
    """No key was ever made: only this machine may ask, and no web page on its behalf."""
    headers = {name: value for name, value in zip(_OF_A_PEER, peer, strict=True) if value is not None}
    if client is None or not is_loopback(client):
        raise Unauthenticated(
            "no API key exists yet, so only this machine is served; make one with 'pairmark keys create'"
        )
    host = host_name(headers.get(b"host", b"").decode("latin-1"))
    if not is_loopback(host):
        raise Forbidden(
            f"without an API key only requests to localhost are served, not to {host[:100]!r}; "
            "make a key with 'pairmark keys create'"
        )
    if access.from_elsewhere(headers):
        raise Forbidden("without an API key, web pages of other sites are not served; make a key")
