"""How requests are sent, on an event loop or without one."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import httpx

from pairmark.client.errors import problem_of

CHUNK = 1 << 20


class Waiting:
    """Sends on an event loop."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http
        self.sleep = asyncio.sleep

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, and its whole answer."""
        content = options.get("content")
        if content is not None and not isinstance(content, (bytes, str)):
            options["content"] = _pieces(content)
        return await self.http.request(method, path, **options)

    async def streamed(self, path: str, *, lines: bool = False, **options: Any) -> AsyncGenerator[Any, None]:
        """The answer to a GET as it comes: by lines, or in pieces of at most 1 MiB; a refusal is a `Problem`."""
        async with self.http.stream("GET", path, **options) as response:
            if response.status_code >= 300:
                await response.aread()
                raise problem_of(response)
            async for piece in response.aiter_lines() if lines else response.aiter_bytes(CHUNK):
                yield piece


class Blocking:
    """Sends in this thread, as `Waiting` does: its coroutines never wait, so `client.finished` can run them."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request, and its whole answer."""
        return self.http.request(method, path, **options)

    async def streamed(self, path: str, *, lines: bool = False, **options: Any) -> AsyncGenerator[Any, None]:
        """The answer to a GET as it comes: by lines, or in pieces of at most 1 MiB; a refusal is a `Problem`."""
        with self.http.stream("GET", path, **options) as response:
            if response.status_code >= 300:
                response.read()
                raise problem_of(response)
            for piece in response.iter_lines() if lines else response.iter_bytes(CHUNK):
                yield piece

    async def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        time.sleep(seconds)


def connection(url: str | None, api_key: str | None) -> tuple[str, dict[str, str]]:
    """The service's address and the headers of every request, where needed from the environment.

    Raises
    ------
    ValueError
        For what is no address. Without a scheme it is ``http``, as in ``localhost:8000``.
    """
    address = url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000"
    key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
    full = address.strip() if "://" in address else f"http://{address.strip()}"
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise ValueError(f"url is {address!r}; expected http://HOST:PORT or https://...") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"url is {address!r}; expected http://HOST:PORT or https://...")
    return full.rstrip("/"), {"Authorization": f"Bearer {key}"} if key else {}


async def _pieces(content: Any) -> AsyncIterator[bytes]:
    """A body that comes in pieces, as the asynchronous client wants it."""
    for piece in content:
        yield piece
