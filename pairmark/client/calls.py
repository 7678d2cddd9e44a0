"""What every group of calls builds on: requests, retries and lists.

Calls are coroutines, written once: `AsyncClient` awaits them on an event loop, `Client` runs them without one.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx

from pairmark.client.encoding import jsonable, without_none
from pairmark.client.errors import json_of, problem_of, unanswered

LONGEST_RETRY_WAIT_S = 30.0
CHUNK = 1 << 20


class Waiting:
    """Sends on an event loop."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.sleep = asyncio.sleep

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, and its whole answer."""
        return await self.http.request(method, path, **options)

    async def streamed(self, path: str) -> AsyncGenerator[bytes, None]:
        """The answer to a GET in pieces of at most 1 MiB; a refusal is a `Problem`."""
        async with self.http.stream("GET", path) as response:
            if response.status_code >= 300:
                await response.aread()
                raise problem_of(response)
            async for piece in response.aiter_bytes(CHUNK):
                yield piece


class Blocking:
    """Sends in this thread, as `Waiting` does: its coroutines never wait, so `client.finished` can run them."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, and its whole answer."""
        return self.http.request(method, path, **options)

    async def streamed(self, path: str) -> AsyncGenerator[bytes, None]:
        """The answer to a GET in pieces of at most 1 MiB; a refusal is a `Problem`."""
        with self.http.stream("GET", path) as response:
            if response.status_code >= 300:
                response.read()
                raise problem_of(response)
            for piece in response.iter_bytes(CHUNK):
                yield piece

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(seconds)


class Calls:
    """Requests to one service."""

    def __init__(self, url: str, http: Blocking | Waiting, retries: int) -> None:
        self.url = url
        self.retries = retries
        self._http = http

    async def request(self, /, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, for endpoints that have no method here; ``options`` are those of httpx."""
        for attempt in range(self.retries + 1):
            try:
                response = await self._http.request(method, path, **options)
            except httpx.TransportError as error:
                raise unanswered(self.url, error) from error
            if response.status_code not in (429, 503) or attempt == self.retries or "files" in options:
                break
            await self._http.sleep(retry_wait(response, attempt))
        if response.status_code >= 300:
            raise problem_of(response)
        return response

    async def _get(self, path: str, **params: Any) -> Any:
        """GET as JSON; parameters that are None are left out."""
        return json_of(await self.request("GET", path, params=without_none(params)))

    async def _send(self, method: str, path: str, body: Mapping[str, Any], **options: Any) -> Any:
        """Send JSON, JSON back; members and parameters that are None are left out."""
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(without_none(body), separators=(",", ":"), default=jsonable).encode()
        params = without_none(options.pop("params", {}))
        return json_of(
            await self.request(method, path, content=content, headers=headers, params=params, **options)
        )

    async def pages(
        self, /, path: str, *, limit: int | None = None, **params: Any
    ) -> AsyncIterator[dict[str, Any]]:
        """Every entry of a list as JSON, page after page (``limit`` in all)."""
        cursor, left = None, limit
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = await self._get(path, limit=size, cursor=cursor, **params)
            for entry in page["items"]:
                yield entry
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return


def retry_wait(response: httpx.Response, attempt: int) -> float:
    """Seconds before a busy service is asked again: its Retry-After, else longer each time."""
    try:
        seconds = float(response.headers.get("Retry-After", ""))
    except ValueError:
        seconds = 0.5 * 2**attempt
    return min(max(seconds, 0.0), LONGEST_RETRY_WAIT_S)


def connection(url: str | None, api_key: str | None) -> tuple[str, dict[str, str]]:
    """The service's address and the headers of every request, where needed from the environment.

    Raises
    ------
    ValueError
        For what is no address. Without a scheme it is ``http``, as in ``localhost:8000``.
    """
    address = (url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000").strip()
    key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
    full = address if "://" in address else f"http://{address}"
    wrong = ValueError(f"url is {address!r}; expected http://HOST:PORT or https://...")
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise wrong from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise wrong
    return full.rstrip("/"), {"Authorization": f"Bearer {key}"} if key else {}
