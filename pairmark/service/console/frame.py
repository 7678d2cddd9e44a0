"""What all pages share: calls of the public API with the rights of the page's caller, templates, headers, navigation.

Pages hold no data access of their own: what the caller's key may not read, or what this version of the service does
not offer, is simply absent from them."""

from __future__ import annotations

import json
import re
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from pydantic import Field

from pairmark.models.calibration.guarantees import askable
from pairmark.schemas.admin import Scope
from pairmark.schemas.base import QueryModel
from pairmark.service.api.docs import GUIDE, with_code
from pairmark.service.api.routing import WITHIN_PAGE
from pairmark.service.api.services import may
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
"""The rate that people look at first."""


async def promise(api: Api, version: dict[str, Any]) -> dict[str, Any] | None:
    """What a version that decides answers at the headline rate, or at the smallest it can guarantee; None of others.

    ``point`` : the operating point; None where there is none. ``refusal`` : why the headline rate cannot be guaranteed.
    """
    if "match" not in version["capabilities"]:
        return None
    if version["calibration_id"] is None:
        return {"point": None, "refusal": "it has no calibration, so it cannot decide"}
    path = f"/models/{version['model']}/versions/{version['version']}/operating-point"
    answer = await api.get(path, fpr=HEADLINE_FPR)
    if answer.ok:
        return {"point": answer.data, "refusal": None}
    problem = answer.data or {}
    by_method = problem.get("smallest_fpr") or {}
    smallest = by_method.get("finite-sample") or min(filter(None, by_method.values()), default=None)
    point = None if smallest is None else (await api.get(path, fpr=askable(smallest))).body
    return {"point": point, "refusal": problem.get("detail", "no operating point could be read")}


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


async def refused(request: Request, error: Exception) -> HTMLResponse:
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
    """Text whose ids of 32 digits or more are cut to 8, so that a table fits the screen."""
    return re.sub(r"[0-9a-f]{32,}", lambda digits: f"{digits[0][:8]}\u2026", str(text))


def size(n_bytes: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.3g}\u00a0{unit}"
