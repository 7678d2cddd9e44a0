"""Calls of the public API in this process, with the rights of the page's caller.

Pages hold no data access of their own: what the caller's key may not read, or what this version of the service does
not offer, is simply absent from them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import Request

from pairmark.service.api.routing import WITHIN_PAGE

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

    async def each(self, *paths: str) -> list[ApiAnswer]:
        """Several requests at once, answers in order."""
        return list(await asyncio.gather(*(self.get(path) for path in paths)))
