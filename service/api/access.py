"""Who asks: the key that a request shows, and whether it comes from this machine."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping


def shown_key(headers: Mapping[bytes, bytes], method: str) -> str | None:
    """The API key a request shows: ``Authorization: Bearer``, ``X-API-Key``, or for reading the console's cookie.

    The cookie counts for reading only, so that another site's form cannot act with it.
    """
    given = headers.get(b"x-api-key")
    if given is not None:
        return given.decode("latin-1").strip()
    given = headers.get(b"authorization")
    if given is not None:
        scheme, _, key = given.decode("latin-1").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else ""
    cookie = headers.get(b"cookie") if method in ("GET", "HEAD") else None
    if cookie is not None:
        for part in cookie.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name == "pairmark_key":
                return value.strip()
    return None


_loopback: dict[str, bool] = {"127.0.0.1": True, "::1": True, "localhost": True}


def is_loopback(host: str) -> bool:
    """Whether an address (or a Host header's name) is this machine itself."""
    known = _loopback.get(host)
    if known is not None:
        return known
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_name(header: str) -> str:
    """The name in a Host header, without port and brackets."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
