"""What all pages share: calls of the public API with the rights of the page's caller, templates, headers, navigation;
signing in and out.

Pages hold no data access of their own: what the caller's key may not read, or what this version of the service does
not offer, is simply absent from them."""

import asyncio
import json
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import Field

from pairmark.models.calibration.guarantees import askable
from pairmark.schemas.admin import Scope
from pairmark.schemas.base import QueryModel
from pairmark.service.api.access import COOKIE, from_elsewhere
from pairmark.service.api.docs import GUIDE, with_code
from pairmark.service.api.routing import WITHIN_PAGE, GuardedRoute, needs
from pairmark.service.api.services import InServices, Services, may
from pairmark.service.errors import Forbidden
from pairmark.service.keys import SESSION_S
from pairmark.service.scheduling import limit_of
from pairmark.version import VERSION

_FORWARDED = frozenset({b"host", b"authorization", b"x-api-key", b"cookie", b"x-request-id"})
_COPIED = (
    "type",
    "asgi",
    "http_version",
    "scheme",
    "server",
    "client",
    "root_path",
    "state",
    "pairmark.trusted",
)


@dataclass(frozen=True, kw_only=True)
class ApiAnswer:
    """What the API answered; ``data`` is the parsed JSON body, of a refusal the problem document."""

    status: int
    data: Any

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def body(self) -> Any:
        """The body, or None where the API refused."""
        return self.data if self.ok else None


class Refused(Exception):
    """The API refused what a page cannot do without: the page says so instead."""

    def __init__(self, answer: ApiAnswer) -> None:
        self.answer = answer


class Api:
    """GET requests to the service's own routes, through the same checks as any other request."""

    def __init__(self, request: Request) -> None:
        self._request = request

    async def get(self, path: str, **query: object) -> ApiAnswer:
        """Ask for ``path`` (decoded); query values that are None are left out."""
        outer = self._request.scope
        query_string = urlencode({name: value for name, value in query.items() if value is not None})
        scope: MutableMapping[str, Any] = {name: outer[name] for name in _COPIED if name in outer}
        scope.update(
            {
                "method": "GET",
                "path": path,
                "raw_path": quote(path).encode(),
                "query_string": query_string.encode(),
                "headers": [
                    (b"accept", b"application/json"),
                    *((name, value) for name, value in outer["headers"] if name in _FORWARDED),
                ],
                WITHIN_PAGE: True,
            }
        )
        status, pieces = 500, []

        async def receive() -> MutableMapping[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                pieces.append(message.get("body", b""))

        await self._request.app(scope, receive, send)
        body = b"".join(pieces)
        try:
            return ApiAnswer(status=status, data=json.loads(body))
        except ValueError:
            return ApiAnswer(status=status, data=None)

    async def need(self, path: str, **query: object) -> Any:
        """The body that the page is made of; `Refused` where the API refused."""
        answer = await self.get(path, **query)
        if not answer.ok:
            raise Refused(answer)
        return answer.data

    async def items(self, path: str, **query: object) -> list[dict[str, Any]]:
        """The entries of a list; none where the API refused."""
        items: list[dict[str, Any]] = ((await self.get(path, **query)).body or {"items": []})["items"]
        return items


HEADLINE_FPR = 0.01
"""The rate that people look at first, where training named none."""


async def promise(api: Api, version: dict[str, Any]) -> dict[str, Any] | None:
    """What a version that decides answers at the rate it was trained for, or at the smallest it can guarantee; None of
    others.

    ``fpr`` : the rate. ``point`` : the operating point; None where there is none. ``refusal`` : why the rate cannot be
    guaranteed.
    """
    fpr = version["lineage"].get("evaluation", {}).get("target_fpr") or HEADLINE_FPR
    if "match" not in version["capabilities"]:
        return None
    if version["calibration_id"] is None:
        return {"fpr": fpr, "point": None, "refusal": "it has no calibration, so it cannot decide"}
    path = f"/models/{version['model']}/versions/{version['version']}/operating-point"
    answer = await api.get(path, fpr=fpr)
    if answer.ok:
        return {"fpr": fpr, "point": answer.data, "refusal": None}
    problem = answer.data or {}
    by_method = problem.get("smallest_fpr") or {}
    smallest = by_method.get("finite-sample") or min(filter(None, by_method.values()), default=None)
    point = None if smallest is None else (await api.get(path, fpr=askable(smallest))).body
    return {"fpr": fpr, "point": point, "refusal": problem.get("detail", "no operating point could be read")}


HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "cache-control": "no-store",
}
HERE = Path(__file__).parent
NAVIGATION: tuple[tuple[str, str, Scope | None], ...] = (
    ("/", "Overview", None),
    ("/console/models", "Models", None),
    ("/console/try", "Try it", "score"),
    ("/console/train", "Train", "train"),
    ("/console/jobs", "Jobs", None),
    ("/console/datasets", "Datasets", None),
    ("/console/galleries", "Galleries", "gallery"),
    ("/console/links", "Links", "train"),
    ("/console/reviews", "Reviews", "train"),
    ("/console/keys", "Keys", "admin"),
    ("/console/audit", "Audit", "admin"),
)
"""Address, words, and the scope without which the page is of no use."""


class CursorQuery(QueryModel):
    """Which page of a list."""

    cursor: str | None = Field(None, max_length=1000)


def page(request: Request, template: str, *, status: int = 200, **values: object) -> HTMLResponse:
    rights = {scope: may(request, scope) for scope in get_args(Scope)}
    path = request.url.path
    links = [(href, words) for href, words, scope in NAVIGATION if scope is None or rights[scope]]
    body = (
        _templates()
        .get_template(template)
        .render(
            rights=rights,
            key=request.scope.get("pairmark.key"),
            # What a session's changes must bring back, as the header x-csrf-token or the form field csrf.
            csrf=request.scope.get("pairmark.csrf"),
            guide=GUIDE.is_dir(),
            links=links,
            pages={href for href, _ in links},
            at=next((href for href, _ in links if path == href or path.startswith(f"{href}/")), ""),
            version_of_service=VERSION,
            **values,
        )
    )
    return HTMLResponse(body, status_code=status, headers=HEADERS)


def listing(answer: dict[str, Any], query: CursorQuery) -> dict[str, Any]:
    """One page of a list, as its template takes it."""
    return {
        "items": answer["items"],
        "next_cursor": answer["next_cursor"],
        "first": query.cursor is None,
    }


async def show_refusal(request: Request, error: Exception) -> HTMLResponse:
    """The page for what the API refused: what was wrong, and how to fix it."""
    assert isinstance(error, Refused)
    answer = error.answer
    problem = answer.data if isinstance(answer.data, dict) else {}
    return page(request, "refused.html", status=answer.status, problem=problem)


@cache
def _templates() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    templates = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "percent": percent,
        "code": with_code,
        "moment": lambda iso: str(iso)[:16].replace("T", " ") if iso else "–",
        "count": lambda number: f"{number:,}",
        "size": size,
        "path": lambda text: quote(str(text), safe=""),
        "brief": brief,
        "pretty": lambda value: json.dumps(value, ensure_ascii=False),
    }
    return templates


def percent(rate: float, digits: int = 3) -> str:
    """A share in words: 0.001 is ``0.1 %``."""
    return f"{100 * rate:.{digits}g}".replace("e-05", "e-5") + "\u00a0%"


def brief(text: str) -> str:
    """Text whose ids of 24 digits or more are cut to 8, so that a table fits the screen."""
    return re.sub(r"[0-9a-f]{24,}", lambda digits: f"{digits[0][:8]}\u2026", str(text))


def size(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.3g}\u00a0{unit}"


sign_in = APIRouter(include_in_schema=False, route_class=GuardedRoute, default_response_class=HTMLResponse)


LONGEST_FORM = 4096
KEY = re.compile(r"[A-Za-z0-9_-]{1,200}")


class LoginQuery(QueryModel):
    """Where to go after signing in."""

    next: str | None = Field(None, max_length=1000)


@sign_in.get("/login")
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


@sign_in.post("/login")
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


@sign_in.post("/logout")
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
