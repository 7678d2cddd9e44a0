"""Signing in and out."""

from __future__ import annotations

import re
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from pairmark.service.api.house import InHouse
from pairmark.service.api.routing import Route
from pairmark.service.console.frame import page

COOKIE = "pairmark_key"
SESSION_S = 12 * 3600
LONGEST_FORM = 4096
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


async def login_form(request: Request, house: InHouse) -> Response:
    """Where a key is entered, once one exists."""
    if not (await house.runtime.catalogue.refreshed()).locked:
        return RedirectResponse("/", status_code=303)
    return page(request, "login.html", wrong=False)


async def login(request: Request, house: InHouse) -> Response:
    """Keep the key in a cookie that scripts cannot read and other sites cannot send; it opens reading only."""
    key = _key_in(await request.body())
    view = await house.runtime.catalogue.refreshed()
    if key is None or view.key(key) is None:
        return page(request, "login.html", status=403, wrong=True)
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


ROUTES = (
    Route("GET", "/login", login_form, access="open", gives="text/html"),
    Route("POST", "/login", login, access="open", gives="text/html"),
    Route("POST", "/logout", logout, access="open", gives="text/html"),
)
