"""Who may ask what, and send how much: keys, sessions of the console, this machine while there is no key, and bounds of
bodies."""

import asyncio
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from starlette.requests import cookie_parser
from starlette.types import Message, Receive, Scope

from pairmark.schemas.admin import Level
from pairmark.service.api.problems import SlowBody
from pairmark.service.api.services import Services
from pairmark.service.errors import (
    Forbidden,
    PairmarkError,
    TooLarge,
    Unauthenticated,
    UnknownDataset,
    UnknownGallery,
    UnknownModel,
)
from pairmark.service.keys import ActiveKey, ActiveSession
from pairmark.service.names import check_prefix, host_name, is_loopback, name_of
from pairmark.service.runtime.catalogue import CatalogueView
from pairmark.service.scheduling import limit_of, set_owner
from pairmark.service.settings import Settings

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
    settings, is_local = services.settings, scope.get("pairmark.trusted", False)
    if is_local:
        scope["pairmark.caller"] = "local"
    if needed == "open" or (needed == "metrics" and settings.metrics_public):
        return
    catalogue = services.runtime.catalogue
    # The one look of a request at how old the view is.
    view = await catalogue.refreshed()
    if is_local:
        return
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


_MOST_MARKS: Final = 50_000
"""Brackets, braces and commas of a JSON body that the framework reads, at most."""


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """What bounds a request.

    Attributes
    ----------
    json : the setting with the most bytes of a JSON body. other : of a body of another type.
    instead : what takes more than a JSON body may hold, for the refusal.
    timed : the whole takes at most `request_timeout_s`; else each piece of the body must come in time.
    """

    json: str = "max_control_bytes"
    other: str = "max_control_bytes"
    instead: str = "send less at a time"
    timed: bool = True


CONTROL: Final = BodyLimits()
BULK: Final = BodyLimits(json="max_json_bytes", other="max_json_bytes")
LONG: Final = BodyLimits(timed=False)
UPLOAD: Final = BodyLimits(other="max_upload_bytes", timed=False)
ITEMS: Final = BodyLimits(
    json="max_json_bytes",
    other="max_upload_bytes",
    timed=False,
    instead="send items as CSV, Parquet or npz",
)
TABLE: Final = BodyLimits(
    json="max_json_bytes",
    other="max_json_bytes",
    instead="send the rows as a CSV or Parquet file, in a form with `file`",
)
VECTORS: Final = BodyLimits(
    json="max_json_bytes",
    other="max_body_bytes",
    instead="send application/octet-stream or application/x-npz, or batches of records",
)


def bounded_receive(
    scope: Scope, receive: Receive, settings: Settings, limits: BodyLimits, limit: int, counts_marks: bool
) -> Receive:
    """Reads a body within its bounds: bytes, marks of JSON, and the time of each piece of what may take long."""
    size = marks = 0
    began = time.monotonic()

    async def next_in_time() -> Message:
        # Long uploads may take long, but each piece must come in time, and all of them at some rate.
        patience = settings.request_timeout_s
        most = began + patience + size / settings.min_upload_bytes_per_s - time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, min(most, patience))):
                return await receive()
        except TimeoutError:
            raise SlowBody(
                f"the body arrives too slowly: no piece for {patience:g} s, or less than "
                f"{settings.min_upload_bytes_per_s:g} bytes a second"
            ) from None

    async def next_piece() -> Message:
        nonlocal size, marks
        is_free = limits.timed or scope.get("pairmark.body_read")
        message = await receive() if is_free else await next_in_time()
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise too_large(f"more than {limit}", limit, limits.instead)
        if counts_marks:
            # Each may become an object and be validated, all of them while nobody else is answered.
            marks += piece.count(b"[") + piece.count(b"{") + piece.count(b",")
            if marks > _MOST_MARKS:
                raise TooLarge(
                    f"the body has more than {_MOST_MARKS} lists, objects and commas; {limits.instead}",
                    limit=_MOST_MARKS,
                )
        if not message.get("more_body", False):
            scope["pairmark.body_read"] = True
        return message

    return next_piece


def too_large(size: str, limit: int, instead: str) -> TooLarge:
    return TooLarge(f"the body has {size} bytes; at most {limit} are taken here: {instead}", limit=limit)
