"""Who may ask what: keys, sessions of the console, and this machine while there is no key."""

import hmac
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

from starlette.requests import cookie_parser
from starlette.types import Scope

from pairmark.schemas.admin import Level
from pairmark.service.api.services import Services
from pairmark.service.errors import (
    Forbidden,
    PairmarkError,
    Unauthenticated,
    UnknownDataset,
    UnknownGallery,
    UnknownModel,
)
from pairmark.service.keys import ActiveKey, ActiveSession
from pairmark.service.names import check_prefix, host_name, is_loopback, name_of
from pairmark.service.runtime.catalogue import CatalogueView
from pairmark.service.scheduling import limit_of, set_owner

COOKIE: Final = "pairmark_session"
READING: Final = frozenset({"GET", "HEAD"})
Access = Literal[
    "open",
    "metrics",
    "any",
    "model",
    "scores",
    "dataset",
    "score",
    "decide",
    "gallery",
    "train",
    "import",
    "admin",
    "operator",
]
"""What a route needs: a scope, on the resource in its path if there is one; ``model`` and ``dataset``: that the key
may see the one in the path; ``scores``: that it may see the model's scores too, and so thresholds; ``any`` key;
``metrics``: any key of no tenant, unless a setting opens it; ``operator``: `admin` of no tenant; ``open``: none."""
_NAMED: Final[dict[str, type[PairmarkError]]] = {
    "name": UnknownModel,
    "ref": UnknownDataset,
    "gallery": UnknownGallery,
}
"""Names in a path, and what is raised where the key may not see them."""


def shown_key(headers: Mapping[bytes, bytes]) -> str | None:
    """The API key that a request shows: ``Authorization: Bearer`` or ``X-API-Key``."""
    field = headers.get(b"x-api-key")
    if field is not None:
        return field.decode("latin-1").strip()
    field = headers.get(b"authorization")
    if field is not None:
        scheme, _, key = field.decode("latin-1").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""
    return None


def shown_session(headers: Mapping[bytes, bytes]) -> str | None:
    """The word of the console's session that a request shows in its cookie."""
    return cookie_parser(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)


def from_elsewhere(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a page of another site makes a browser send the request."""
    origin, host = headers.get(b"origin"), headers.get(b"host", b"").decode("latin-1")
    if origin is not None and origin.decode("latin-1").partition("://")[2] != host:
        return True
    # Browsers send no Origin with most GETs, but say from where they come.
    return headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin")


def check_csrf(session: ActiveSession, headers: Mapping[bytes, bytes], method: str) -> None:
    """Refuse (`Forbidden`) a change that the session's own pages did not ask for."""
    if method in READING:
        return
    token = headers.get(b"x-csrf-token", b"").decode("latin-1")
    if from_elsewhere(headers) or not hmac.compare_digest(token.encode(), session.csrf.encode()):
        raise Forbidden(
            "changes in a session need the X-CSRF-Token that its pages hold; programs send an API key instead"
        )


def check_key(key: ActiveKey, access: Access, path: Mapping[str, str], *, level: Level) -> None:
    """Refuse a key that lacks what a route needs (`Forbidden`), or may not see what the path names (404)."""
    for part, unknown in _NAMED.items():
        if part in path:
            check_prefix(name_of(path[part]), key.grants.visible, unknown)
    if access == "any":
        return
    if access in ("metrics", "operator"):
        scope, name = "admin" if access == "operator" else "no tenant", ""
        if key.grants.tenant is not None:
            raise Forbidden(
                f"the key is of the tenant {key.grants.tenant!r}; this is for all tenants and needs a key of none"
                f"{' with the scope ' + repr(scope) if access == 'operator' else ''}",
                scope=scope,
            )
        fine = access == "metrics" or key.grants.allows("admin")
    elif access == "model":
        scope, name = "score, decide or train", path.get("name", "")
        fine = name in key.grants.models
    elif access == "scores":
        scope, name = "score or train", path.get("name", "")
        fine = name in key.grants.resources("score", "train")
    elif access == "dataset":
        scope, name = "train", name_of(path.get("ref", ""))
        fine = name in key.grants.datasets
    else:
        name = path.get("gallery") or path.get("name") or name_of(path.get("ref", ""))
        scope, fine = access, key.grants.allows(access, name or None, level=level)
    if not fine:
        raise Forbidden(
            f"the key has the scopes {', '.join(key.grants.texts)}; this needs {scope!r}"
            f"{' on what it is about' if name else ''}",
            scope=scope,
        )


BURST_S: Final = 10.0
"""So many seconds' worth of requests a key may send at once."""
_OF_A_PEER: Final = (b"host", b"origin", b"sec-fetch-site")


async def admit(
    services: Services, scope: Scope, needed: Access, path: Mapping[str, str], level: Level
) -> None:
    """Let a request in, and note in its scope who asks; the errors say what is lacking."""
    settings = services.settings
    if scope.get("pairmark.trusted"):
        scope["pairmark.caller"] = "local"
        return
    if needed == "open" or (needed == "metrics" and settings.metrics_public):
        return
    catalogue = services.runtime.catalogue
    view = await catalogue.refreshed()
    headers: dict[bytes, bytes] = scope["pairmark.fields"]
    credential = shown_key(headers)
    if credential is None and not view.locked:
        client = scope.get("client")
        host, origin, site = headers.get(b"host"), headers.get(b"origin"), headers.get(b"sec-fetch-site")
        _admit_without_key(client and client[0], host, origin, site)
        scope["pairmark.caller"] = "loopback"
        return
    key = _key_of(scope, view, headers, credential)
    if key is None and (credential or shown_session(headers)):
        # It may be younger than the view: made a moment ago, by another process.
        key = _key_of(scope, await catalogue.looked_up(), headers, credential)
    if key is None:
        raise Unauthenticated(
            "an API key is required: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
            if credential is None
            else "the API key is not known here, was revoked, or has expired"
        )
    check_key(key, needed, path, level=level)
    scope["pairmark.caller"] = f"key {key.id}"
    scope["pairmark.key"] = key
    set_owner(key.owner)
    services.last_use[key.id] = time.time()
    rate = key.rate or settings.rate_limit
    if rate:
        limit = limit_of("requests", rate, BURST_S)
        services.rates.draw(scope, key.id, limit, "requests of this key")


def _key_of(
    scope: Scope, view: CatalogueView, headers: dict[bytes, bytes], credential: str | None
) -> ActiveKey | None:
    """The key that was shown, or that the console's session stands for."""
    if credential is not None:
        return view.key(credential)
    word = shown_session(headers)
    entry = view.session(word) if word else None
    if entry is None:
        return None
    session, key = entry
    check_csrf(session, headers, scope["method"])
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
    if from_elsewhere(headers):
        raise Forbidden("without an API key, web pages of other sites are not served; make a key")
