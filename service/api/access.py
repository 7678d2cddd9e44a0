"""Who may do what: the scope that each request needs, and the key that it shows.

Checked before a body is read. A path that no rule names needs `admin`, so a forgotten rule locks rather than opens.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final, Literal

Need = Literal["open", "metrics", "any", "score", "gallery", "train", "admin"]

_SCORING: Final = frozenset({"/similarity", "/match", "/explain", "/rank-labels", "/classify", "/embed"})
_OPEN: Final = frozenset({"/healthz", "/readyz", "/login", "/logout", "/favicon.ico"})
_READ_BY_ANY: Final = frozenset({"/", "/docs", "/openapi.json"})
_PAGES: Final = frozenset({"/", "/docs"})
_READABLE_PREFIXES: Final = ("/models", "/learners", "/calibrations", "/datasets", "/jobs")


def need(method: str, path: str) -> Need:
    """The scope that a request needs.

    Reading models, learners, datasets and jobs takes any key; scoring takes `score`; uploads, jobs, calibrations
    and promotions take `train`; everything that removes a version, and everything unnamed, takes `admin`.
    """
    if path in _SCORING:
        return "score"
    if path in _OPEN or path.startswith(("/static/", "/problems/")) or path == "/problems":
        return "open"
    if path == "/metrics":
        return "metrics"
    if path in _READ_BY_ANY:
        return "any"
    room = "/" + path[1:].partition("/")[0]
    if room == "/galleries":
        return "gallery"
    if room in _READABLE_PREFIXES:
        if room == "/jobs" and path.endswith("/cancel"):
            # The handler asks for what submitting the job took: `train`, or `gallery`.
            return "any"
        if path.endswith("/export"):
            return "train"
        if method in ("GET", "HEAD"):
            return "any"
        if room == "/models" and method == "DELETE":
            return "admin"
        return "train"
    return "admin"


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


def is_page(method: str, path: str, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks for one of the pages (as against a program asking for an answer)."""
    return method == "GET" and path in _PAGES and b"text/html" in headers.get(b"accept", b"")


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
