"""Signing in and out."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import ConfigDict, Field

from pairmark.schemas.base import QueryModel
from pairmark.service.api.access import COOKIE, from_elsewhere
from pairmark.service.api.metrics import AUTH_FAILURES
from pairmark.service.api.problems import UnknownAddress
from pairmark.service.api.rates import limit_of
from pairmark.service.api.routing import GuardedRoute, needs
from pairmark.service.api.services import InServices, Services
from pairmark.service.console.frame import page
from pairmark.service.errors import Forbidden, NotReady, RateLimited
from pairmark.service.keys import SESSION_S
from pairmark.service.settings import OIDC_CALLBACK

if TYPE_CHECKING:
    from pairmark.service.keys.openid import Provider

router = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


log = logging.getLogger(__name__)

LONGEST_FORM = 4096
SIGN_ON_S = 600
"""How long a person may take at the provider."""
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


class LoginQuery(QueryModel):
    """Where to go after signing in."""

    next: str | None = Field(None, max_length=1000)


class CallbackQuery(QueryModel):
    """What a provider adds to the address that it sends people back to."""

    model_config = ConfigDict(extra="ignore")

    code: str | None = Field(None, max_length=4000)
    state: str | None = Field(None, max_length=500)
    iss: str | None = Field(None, max_length=500)
    error: str | None = Field(None, max_length=500)


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
        provider=services.provider is not None,
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
    answer = RedirectResponse(_own_page(query.next), status_code=303, headers={"cache-control": "no-store"})
    secure = request.url.scheme == "https"
    earlier = request.cookies.get(COOKIE)
    await _begin_session(services, answer, view_of_key.id, SESSION_S, earlier, secure=secure)
    return answer


async def _begin_session(
    services: Services, answer: Response, key_id: str, seconds: float, earlier: str | None, *, secure: bool
) -> None:
    word = await asyncio.to_thread(services.sessions.begin, key_id, instead_of=earlier)
    await services.runtime.catalogue.after_change()
    answer.set_cookie(COOKIE, word, max_age=int(seconds), httponly=True, samesite="strict", secure=secure)


@router.get("/login/oidc")
@needs("open")
async def begin_sign_on(
    request: Request, services: InServices, query: Annotated[LoginQuery, Query()]
) -> Response:
    """Send a person to the OpenID provider; a cookie holds what the way back has to fit."""
    provider = _provider(services)
    if not (await services.runtime.catalogue.refreshed()).locked:
        return RedirectResponse("/", status_code=303)
    address, progress = await provider.begin(request)
    answer = RedirectResponse(address, status_code=303, headers={"cache-control": "no-store"})
    # The session's own cookie does not come back with a person whom another site sends.
    facts = {"progress": progress, "next": _own_page(query.next), "earlier": request.cookies.get(COOKIE)}
    packed = urlsafe_b64encode(json.dumps(facts).encode()).decode()
    # Lax: the way back begins at another site.
    answer.set_cookie(
        _sign_on_cookie(provider),
        packed,
        max_age=SIGN_ON_S,
        httponly=True,
        samesite="lax",
        secure=provider.is_secure,
    )
    return answer


@router.get(OIDC_CALLBACK)
@needs("open")
async def end_sign_on(
    request: Request, services: InServices, query: Annotated[CallbackQuery, Query()]
) -> Response:
    """Begin a session for who comes back from the provider. It stands for a key that ends with it, has the scopes of
    the person's groups, and is never shown."""
    provider = _provider(services)
    name = _sign_on_cookie(provider)
    progress, target, earlier = _progress_in(request.cookies.get(name))
    seconds = services.settings.oidc_session_s
    try:
        person = await provider.end(request, progress, query.iss)
        key = await asyncio.to_thread(services.keys.sign_on, person.name, person.scopes, seconds)
    except (Forbidden, NotReady, RateLimited) as error:
        AUTH_FAILURES.labels(error.slug).inc()
        log.warning("a sign-in was refused: %s", error.detail)
        answer = _form(request, services, target, status=403, wrong=error.detail)
    else:
        # A page and no redirect: a browser keeps a strict cookie back while the way leads over another site.
        answer = page(request, "signed_in.html", target=target)
        await _begin_session(services, answer, key, seconds, earlier, secure=provider.is_secure)
    answer.delete_cookie(name, httponly=True, samesite="lax", secure=provider.is_secure)
    return answer


def _provider(services: Services) -> Provider:
    if services.provider is None:
        raise UnknownAddress("people sign in with an API key here; single sign-on is not set up")
    return services.provider


def _sign_on_cookie(provider: Provider) -> str:
    # With this prefix no other host of the domain can plant one.
    return "__Host-pairmark_sign_on" if provider.is_secure else "pairmark_sign_on"


def _progress_in(cookie: str | None) -> tuple[dict[str, Any], str, str | None]:
    """What `begin_sign_on` wrote; nothing fits what cannot be read."""
    try:
        facts = json.loads(urlsafe_b64decode((cookie or "")[:LONGEST_FORM]))
        return (
            dict(facts["progress"]),
            _own_page(str(facts["next"])),
            facts["earlier"] and str(facts["earlier"]),
        )
    except (LookupError, TypeError, ValueError, RecursionError):
        return {}, "/", None


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
