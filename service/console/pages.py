"""The web pages: what the service holds and what it promises, server-rendered.

Nothing comes from elsewhere, nothing is inline, and every value is escaped by the template engine. Pages only read.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles

from pairmark.service.api.house import InHouse, may
from pairmark.service.api.routing import Route
from pairmark.service.console.view import overview

COOKIE = "pairmark_key"
SESSION_S = 12 * 3600
LONGEST_FORM = 4096
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_HERE = Path(__file__).parent


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    templates.filters["percent"] = lambda rate: f"{100 * rate:.4g} %"
    templates.filters["moment"] = lambda iso: str(iso)[:16].replace("T", " ") if iso else "-"
    return templates


async def static_file(request: Request, file: str) -> Response:
    """A style sheet, script or picture of the pages."""
    return await _static().get_response(file, request.scope)


@cache
def _static() -> StaticFiles:
    return StaticFiles(directory=_HERE / "static")


async def first_page(request: Request, house: InHouse) -> HTMLResponse:
    """Models with their promise, datasets, and jobs with live progress."""
    signed_in = COOKIE in request.cookies
    return _page(
        "overview.html", signed_in=signed_in, **await overview(house, galleries=may(request, "gallery"))
    )


async def login_form(house: InHouse) -> Response:
    """Where a key is entered, once one exists."""
    if not (await house.runtime.catalogue.refreshed()).locked:
        return RedirectResponse("/", status_code=303)
    return _page("login.html", wrong=False)


async def login(request: Request, house: InHouse) -> Response:
    """Keep the key in a cookie that scripts cannot read and other sites cannot send; it opens reading only."""
    key = _key_in(await request.body())
    view = await house.runtime.catalogue.refreshed()
    if key is None or view.key(key) is None:
        return _page("login.html", status=403, wrong=True)
    answer = RedirectResponse("/", status_code=303, headers={"cache-control": "no-store"})
    answer.set_cookie(
        COOKIE, key, max_age=SESSION_S, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return answer


async def logout() -> Response:
    """Forget the key."""
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _key_in(body: bytes) -> str | None:
    if len(body) > LONGEST_FORM:
        return None
    try:
        form = parse_qs(body.decode("ascii"), max_num_fields=4, errors="strict")
    except ValueError:
        return None
    key = form.get("key", [""])[0].strip()
    # Anything else could not be sent back in a cookie.
    return key if KEY.fullmatch(key) else None


def _page(template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    return HTMLResponse(
        _templates().get_template(template).render(**values), status_code=status, headers=HEADERS
    )


ROUTES: Final = (
    Route("GET", "/", first_page, access="any", gives="text/html"),
    Route("GET", "/login", login_form, access="open", gives="text/html"),
    Route("POST", "/login", login, access="open", gives="text/html"),
    Route("POST", "/logout", logout, access="open", gives="text/html"),
    Route("GET", "/static/{file:path}", static_file, access="open", gives="application/octet-stream"),
)
