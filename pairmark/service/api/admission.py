"""Who may ask: keys, sessions of the console, and this machine while there is no key."""

from __future__ import annotations

import time
from typing import Any

from starlette.types import Scope

from pairmark.service.addresses import host_name, is_loopback
from pairmark.service.api import access
from pairmark.service.api.access import Access
from pairmark.service.api.rates import limit_of
from pairmark.service.api.routing import RouteMatch
from pairmark.service.api.services import Services
from pairmark.service.errors import Forbidden, InvalidInput, Unauthenticated
from pairmark.service.keys import ActiveKey
from pairmark.service.runtime.catalogue import CatalogueView
from pairmark.service.shares import own

BURST_S = 10.0
"""So many seconds' worth of requests a key may send at once."""
_MOST_HEADERS = 1_000
"""Headers whose key is remembered, at most: spaces make many of one key."""
_MOST_PEERS = 1_024


class Admission:
    """Decides on requests, one by one, and remembers whom it let in for as long as no key changes."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._settings = services.settings
        self._catalogue = services.runtime.catalogue
        self._keys_by_headers: dict[Any, ActiveKey] = {}
        """Keys that were good in `_keys_of`, by the headers that showed them and the route: any change of a key gives
        another view, which forgets them all. Keys are few, and so are direct routes whose address names nothing."""
        self._keys_of: CatalogueView | None = None
        self._local_peers: set[tuple[str | None, bytes | None, bytes | None, bytes | None]] = set()

    async def admit(
        self,
        scope: Scope,
        headers: dict[bytes, bytes],
        method: str,
        path: str,
        route_match: RouteMatch | None,
    ) -> None:
        """Let a request in, and note in its scope who asks; the errors say what is lacking."""
        if b"\0" in scope.get("raw_path", b"") or "\0" in path or b"%00" in scope["query_string"]:
            raise InvalidInput("the address holds a NUL character; expected plain text", field="path")
        if scope.get("pairmark.trusted"):
            scope["pairmark.caller"] = "local"
            return
        scope_needed: Access = "any" if route_match is None else route_match.route.access
        if scope_needed == "open" or (scope_needed == "metrics" and self._settings.metrics_public):
            return
        view = self._catalogue.current()
        if view is None:
            view = await self._catalogue.refreshed()
        plain = headers.get(b"x-api-key")
        mark = (
            plain,
            None if plain is not None else headers.get(b"authorization"),
            id(route_match and route_match.route),
        )
        if view is not self._keys_of:
            self._keys_of = view
            self._keys_by_headers.clear()
        key = self._keys_by_headers.get(mark)
        if key is None or key.expired:
            credential = access.shown_key(headers)
            if credential is None and not view.locked:
                self._admit_without_key(scope, headers)
                scope["pairmark.caller"] = "loopback"
                return
            if credential is None:
                key = self._key_of_session(scope, view, headers, method)
            else:
                key = view.key(credential) if credential else None
            if key is None:
                raise Unauthenticated(
                    "an API key is required: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
                    if credential is None
                    else "the API key is not known here, was revoked, or has expired"
                )
            if route_match is not None:
                access.check_key(key, scope_needed, route_match.path, level=route_match.route.level)
                if (
                    credential
                    and route_match.route.direct
                    and not route_match.path
                    and len(self._keys_by_headers) < _MOST_HEADERS
                ):
                    # Hashing the key and looking at its scopes each time would cost as much as parsing the request.
                    self._keys_by_headers[mark] = key
        scope["pairmark.caller"] = f"key {key.id}"
        scope["pairmark.key"] = key
        own(key.owner)
        self._services.last_use[key.id] = time.time()
        rate = key.rate or self._settings.rate_limit
        if rate:
            limit = limit_of("requests", rate, BURST_S)
            self._services.rates.draw(scope, key.id, limit, "requests of this key")

    def _key_of_session(
        self, scope: Scope, view: CatalogueView, headers: dict[bytes, bytes], method: str
    ) -> ActiveKey | None:
        """The key that the console's session stands for."""
        word = access.shown_session(headers)
        entry = view.session(word) if word else None
        if entry is None:
            return None
        session, key = entry
        access.check_csrf(session, headers, method)
        scope["pairmark.csrf"] = session.csrf
        return key

    def _admit_without_key(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """No key was ever made: only this machine may ask, and no web page on its behalf."""
        client = scope.get("client")
        peer = (
            client and client[0],
            headers.get(b"host"),
            headers.get(b"origin"),
            headers.get(b"sec-fetch-site"),
        )
        if peer in self._local_peers:
            return
        if client is None or not is_loopback(client[0]):
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
        if len(self._local_peers) < _MOST_PEERS:
            self._local_peers.add(peer)
