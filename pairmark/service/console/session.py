"""Signing in and out."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import Request
from fastapi.responses import RedirectResponse, Response
from pydantic import Field

from pairmark.service.api.access import COOKIE, from_elsewhere
from pairmark.service.api.query import FROM_QUERY, Query
from pairmark.service.api.rates import limit_of
from pairmark.service.api.routing import Route
from pairmark.service.api.services import InServices
from pairmark.service.console.frame import page
from pairmark.service.errors import Forbidden
from pairmark.service.keys.sessions import SESSION_S

LONGEST_FORM = 4096
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


class LoginQuery(Query):
    """Where to go after signing in."""

    next: str | None = Field(None, max_length=1000)


async def login_form(
    request: Request, services: InServices, query: Annotated[LoginQuery, FROM_QUERY]
) -> Response:
    """Where a key is entered, once one exists."""
    if not (await services.runtime.catalogue.refreshed()).locked:
        return RedirectResponse("/", status_code=303)
    return page(request, "login.html", wrong=False)


async def login(request: Request, services: InServices, query: Annotated[LoginQuery, FROM_QUERY]) -> Response:
    """Begin a session that stands for the key: a random word in a cookie, which scripts cannot read and other sites
    cannot send."""
    _check_origin(request)
    key = _key_in(await request.body())
    view = await services.runtime.catalogue.refreshed()
    known = None if key is None else view.key(key)
    if known is None:
        # So many that an attack shows, and no more: whoever is refused must not fill the log.
        if not services.rates.take("refused logins", limit_of("refused-logins", 1.0, 10.0)).wait_s:
            client = request.client
            facts = {"from": None if client is None else client.host}
            await asyncio.to_thread(services.audit.note, "session.refuse", "login", facts)
        return page(request, "login.html", status=403, wrong=True)
    word = await asyncio.to_thread(services.sessions.begin, known.id)
    await services.runtime.catalogue.changed()
    answer = RedirectResponse(_own_page(query.next), status_code=303, headers={"cache-control": "no-store"})
    answer.set_cookie(
        COOKIE,
        word,
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


async def logout(request: Request, services: InServices) -> Response:
    """End the session, here and wherever its cookie was copied to."""
    _check_origin(request)
    word = request.cookies.get(COOKIE)
    if word:
        await asyncio.to_thread(services.sessions.end, word)
        await services.runtime.catalogue.changed()
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _check_origin(request: Request) -> None:
    if from_elsewhere(dict(request.scope["headers"])):
        raise Forbidden("signing in and out is for this service's own pages")


def _own_page(path: str | None) -> str:
    """The path, if it is one of this service and no address of another."""
    return path if path and re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", path) else "/"


def _key_in(body: bytes) -> str | None:
    if len(body) > LONGEST_FORM:
        return None
    try:
        form = parse_qs(body.decode("ascii"), max_num_fields=4, errors="strict")
    except ValueError:
        return None
    key = form.get("key", [""])[0].strip()
    return key if KEY.fullmatch(key) else None


ROUTES = (
    Route("GET", "/login", login_form, access="open", query=LoginQuery, gives="text/html"),
    Route("POST", "/login", login, access="open", query=LoginQuery, gives="text/html"),
    Route("POST", "/logout", logout, access="open", gives="text/html"),
)
