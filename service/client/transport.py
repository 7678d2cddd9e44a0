"""The two ways to perform calls: blocking, and on an event loop."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Self, TypeVar

import httpx

from pairmark.client.calls import (
    Close,
    Emit,
    Pause,
    Read,
    ReadAll,
    Request,
    Steps,
    ask,
    each,
    operation,
    stream,
)
from pairmark.client.wire import jsonable, without_none

T = TypeVar("T")
CHUNK = 1 << 20


class Calls:
    """What every group of calls builds on."""

    url: str
    retries: int

    @operation
    def request(self, /, method: str, path: str, **options: Any) -> Steps[httpx.Response]:
        """One request, for endpoints that have no method here; ``options`` are those of httpx."""
        return (yield from ask(self, method, path, **options))

    def _get(self, path: str, **params: Any) -> Steps[Any]:
        """GET as JSON; parameters that are None are left out."""
        response = yield from ask(self, "GET", path, params=without_none(params))
        return response.json()

    def _send(self, method: str, path: str, body: Mapping[str, Any], **options: Any) -> Steps[Any]:
        """Send JSON, JSON back; members and parameters that are None are left out."""
        # NaN goes out as it is: the service names the field, which says more than this encoder could.
        headers = {"Content-Type": "application/json", **options.pop("headers", {})}
        content = json.dumps(without_none(body), separators=(",", ":"), default=jsonable).encode()
        params = without_none(options.pop("params", {})) or None  # {} would drop the query of ``path``
        response = yield from ask(
            self, method, path, content=content, headers=headers, params=params, **options
        )
        return response.json()

    def _pages(self, path: str, make: Any, *, limit: int | None = None, **params: Any) -> Steps[Any]:
        """Emit every entry of a list, page after page (``limit`` in all)."""
        cursor, left = None, limit
        while left is None or left > 0:
            size = 100 if left is None else min(left, 100)
            page = yield from self._get(path, limit=size, cursor=cursor, **params)
            for entry in page["items"]:
                yield Emit(make(entry))
            left = None if left is None else left - len(page["items"])
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _listed(self, path: str, make: Callable[[Any], T], *, limit: int | None = None) -> Steps[list[T]]:
        """Every entry of a list at once."""
        found: list[T] = []
        yield from each(self._pages(path, make, limit=limit), found.append)
        return found

    @stream
    def pages(self, /, path: str, *, limit: int | None = None, **params: Any) -> Steps[dict[str, Any]]:
        """Every entry of a list as JSON, page after page (``limit`` in all)."""
        return self._pages(path, lambda entry: entry, limit=limit, **params)


def address(url: str) -> str:
    """The address of a service; without a scheme it is ``http``, as in ``localhost:8000``.

    Raises
    ------
    ValueError
        For what is no address.
    """
    full = url.strip()
    if "://" not in full:
        full = f"http://{full}"
    try:
        parsed = httpx.URL(full)
    except httpx.InvalidURL as error:
        raise ValueError(f"url is {url!r}; expected http://HOST:PORT or https://...") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"url is {url!r}; expected http://HOST:PORT or https://...")
    return full.rstrip("/")


def _settings(url: str | None, api_key: str | None) -> tuple[str, dict[str, str]]:
    key = api_key if api_key is not None else os.environ.get("PAIRMARK_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return address(url or os.environ.get("PAIRMARK_URL") or "http://127.0.0.1:8000"), headers


class SyncTransport(Calls):
    """Performs calls in this thread."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url, headers = _settings(url, api_key)
        self.retries = retries
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._http.close()

    def perform(self, steps: Steps[T]) -> T:
        """Perform the steps and return what they return."""
        box: list[T] = []

        def boxed() -> Steps[None]:
            box.append((yield from steps))

        for _ in self.hand_out(boxed()):
            pass
        return box[0]

    def hand_out(self, steps: Steps[Any]) -> Iterator[Any]:
        """Perform the steps, and yield what they emit."""
        readers: dict[int, Iterator[Any]] = {}
        reply: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    step = steps.send(reply) if error is None else steps.throw(error)
                except StopIteration:
                    return
                reply, error = None, None
                if isinstance(step, Emit):
                    yield step.value
                    continue
                try:
                    reply = self._step(step, readers)
                except httpx.TransportError as raised:
                    error = raised
        finally:
            steps.close()

    def _step(self, step: Any, readers: dict[int, Iterator[Any]]) -> Any:
        match step:
            case Request(method, path, options, False):
                return self._http.request(method, path, **options)
            case Request(method, path, options, True):
                return self._http.send(self._http.build_request(method, path, **options), stream=True)
            case Read(response, lines):
                known = readers.get(id(response))
                if known is None:
                    known = readers[id(response)] = (
                        response.iter_lines() if lines else response.iter_bytes(CHUNK)
                    )
                return next(known, None)
            case ReadAll(response):
                response.read()
            case Close(response):
                response.close()
            case Pause(seconds):
                time.sleep(seconds)
        return None


class AsyncTransport(Calls):
    """Performs calls on an event loop."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url, headers = _settings(url, api_key)
        self.retries = retries
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=timeout, transport=transport
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections."""
        await self._http.aclose()

    async def perform(self, steps: Steps[T]) -> T:
        """Perform the steps and return what they return."""
        box: list[T] = []

        def boxed() -> Steps[None]:
            box.append((yield from steps))

        async for _ in self.hand_out(boxed()):
            pass
        return box[0]

    async def hand_out(self, steps: Steps[Any]) -> AsyncIterator[Any]:
        """Perform the steps, and yield what they emit."""
        readers: dict[int, AsyncIterator[Any]] = {}
        reply: Any = None
        error: Exception | None = None
        try:
            while True:
                try:
                    step = steps.send(reply) if error is None else steps.throw(error)
                except StopIteration:
                    return
                reply, error = None, None
                if isinstance(step, Emit):
                    yield step.value
                    continue
                try:
                    reply = await self._step(step, readers)
                except httpx.TransportError as raised:
                    error = raised
        finally:
            await self._closed(steps)

    async def _closed(self, steps: Steps[Any]) -> None:
        """End steps that were abandoned; what they still want to close is closed."""
        try:
            step = steps.throw(GeneratorExit())
            while True:
                if isinstance(step, Close):
                    await step.response.aclose()
                step = steps.send(None)
        except (StopIteration, GeneratorExit):
            pass

    async def _step(self, step: Any, readers: dict[int, AsyncIterator[Any]]) -> Any:
        match step:
            case Request(method, path, options, False):
                return await self._http.request(method, path, **_streamable(options))
            case Request(method, path, options, True):
                return await self._http.send(self._http.build_request(method, path, **options), stream=True)
            case Read(response, lines):
                known = readers.get(id(response))
                if known is None:
                    known = readers[id(response)] = (
                        response.aiter_lines() if lines else response.aiter_bytes(CHUNK)
                    )
                return await anext(known, None)
            case ReadAll(response):
                await response.aread()
            case Close(response):
                await response.aclose()
            case Pause(seconds):
                await asyncio.sleep(seconds)
        return None


def _streamable(options: dict[str, Any]) -> dict[str, Any]:
    """A body that comes in pieces, as the asynchronous client wants it."""
    content = options.get("content")
    if content is None or isinstance(content, (bytes, str)):
        return options

    async def pieces() -> AsyncIterator[bytes]:
        for piece in content:
            yield piece

    return {**options, "content": pieces()}
