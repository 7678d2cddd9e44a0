"""Authenticates a request: its key or session, its rights, and whether it comes from this machine."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final, Literal

from pairmark.schemas.keys import Level
from pairmark.service.errors import Forbidden, PairmarkError, UnknownDataset, UnknownGallery, UnknownModel
from pairmark.service.keys.keys import ActiveKey, ActiveSession
from pairmark.service.names import check_prefix
from pairmark.service.store.refs import name_of

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
    cookie = headers.get(b"cookie")
    if cookie is not None:
        for part in cookie.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name == COOKIE:
                return value.strip()
    return None


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
        if key.tenant is not None:
            raise Forbidden(
                f"the key is of the tenant {key.tenant!r}; this is for all tenants and needs a key of none"
                f"{' with the scope ' + repr(scope) if access == 'operator' else ''}",
                scope=scope,
            )
        fine = access == "metrics" or key.allows("admin")
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
        scope, fine = access, key.allows(access, name or None, level=level)
    if not fine:
        raise Forbidden(
            f"the key has the scopes {', '.join(key.grants.texts)}; this needs {scope!r}"
            f"{' on what it is about' if name else ''}",
            scope=scope,
        )
