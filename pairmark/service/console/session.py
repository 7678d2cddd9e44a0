"""Signing in and out."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from pairmark.schemas.base import QueryModel
from pairmark.service.api.access import COOKIE, from_elsewhere
from pairmark.service.api.rates import limit_of
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices, Services
from pairmark.service.console.frame import page
from pairmark.service.errors import Forbidden
from pairmark.service.keys import SESSION_S

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


LONGEST_FORM = 4096
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


class LoginQuery(QueryModel):
    """Where to go after signing in."""

    next: str | None = Field(None, max_length=1000)


@router.get("/login")
@needs("open")
async def login_form(
    request: Request, services: InServices, query: Annotated[LoginQuery, Query()]
) -> Response:
    """Where a key is entered, once one exists."""
    if not (await services.runtime.catalogue.refreshed()).locked:
        return RedirectResponse("/", status_code=303)
    return _form(request, services, query.next)


def _form(
    request: Request, services: Services, next: str | None, *, status: int = 200, wrong: str | None = None
) -> Response:
    return page(
        request,
        "login.html",
        status=status,
        wrong=wrong,
        next=_own_page(next),
    )


@router.post("/login")
@needs("open")
async def login(request: Request, services: InServices, query: Annotated[LoginQuery, Query()]) -> Response:
    """Begin a session that stands for the key: a random word in a cookie, which scripts cannot read and other sites
    cannot send."""
    _check_origin(request)
    key = str(
        (await request.form(max_files=0, max_fields=4, max_part_size=LONGEST_FORM)).get("key", "")
    ).strip()
    view_of_key = (await services.runtime.catalogue.looked_up()).key(key) if KEY.fullmatch(key) else None
    if view_of_key is None:
        # So many that an attack shows, and no more: whoever is refused must not fill the log.
        if not services.rates.take("refused logins", limit_of("refused-logins", 1.0, 10.0)).wait_s:
            client = request.client
            facts = {"from": None if client is None else client.host}
            await asyncio.to_thread(services.audit.note, "session.refuse", "login", facts)
        wrong = "This key is unknown, has expired, or was revoked."
        return _form(request, services, query.next, status=403, wrong=wrong)
    earlier = request.cookies.get(COOKIE)
    word = await asyncio.to_thread(services.sessions.begin, view_of_key.id, instead_of=earlier)
    await services.runtime.catalogue.after_change()
    answer = RedirectResponse(_own_page(query.next), status_code=303, headers={"cache-control": "no-store"})
    secure = request.url.scheme == "https"
    answer.set_cookie(COOKIE, word, max_age=SESSION_S, httponly=True, samesite="strict", secure=secure)
    return answer


@router.post("/logout")
@needs("open")
async def logout(request: Request, services: InServices) -> Response:
    """End the session, here and wherever its cookie was copied to."""
    _check_origin(request)
    word = request.cookies.get(COOKIE)
    if word:
        await asyncio.to_thread(services.sessions.end, word)
        await services.runtime.catalogue.after_change()
    answer = RedirectResponse("/login", status_code=303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return answer


def _check_origin(request: Request) -> None:
    if from_elsewhere(dict(request.scope["headers"])):
        raise Forbidden("signing in and out is for this service's own pages")


def _own_page(path: str | None) -> str:
    """The path, if it is one of this service and no address of another."""
    return path if path and re.fullmatch(r"/(?![/\\])[\x21-\x7e]*", path) else "/"
