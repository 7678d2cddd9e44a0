"""The service inside this process, behind the same HTTP client: one code path for the command line.

The application runs on an event loop in a thread of its own, with its lifespan; requests and answers stream.
It is marked as trusted in the ASGI scope, which nothing that arrives over a socket can do, so a person who can
read the embedded database needs no key to it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from concurrent.futures import Future
from typing import Any

import httpx
from fastapi import FastAPI

TRUSTED = "pairmark.trusted"
Scope = MutableMapping[str, Any]


class InProcessTransport(httpx.BaseTransport):
    """An httpx transport that calls an ASGI application directly.

    Parameters
    ----------
    app : the ASGI application; its lifespan is run from construction to `close`.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="pairmark-inprocess", daemon=True)
        self._thread.start()
        self._lifespan = app.router.lifespan_context(app)
        try:
            self._state: dict[str, Any] = self._run(self._lifespan.__aenter__()) or {}
        except BaseException:
            self._end_loop()
            raise

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Run one request; the answer's body streams as the application produces it."""
        exchange = _Exchange(self._loop, request, dict(self._state))
        exchange.task = asyncio.run_coroutine_threadsafe(exchange.run(self._app), self._loop)
        kind, value = exchange.answer.get()
        if kind == "failed":
            raise value
        return httpx.Response(value[0], headers=value[1], stream=exchange, request=request)

    def close(self) -> None:
        """Shut the application down."""
        if self._loop.is_closed():
            return
        try:
            self._run(self._lifespan.__aexit__(None, None, None))
        finally:
            self._end_loop()

    def _end_loop(self) -> None:
        async def cancel_rest() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()

        self._run(cancel_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Exchange(httpx.SyncByteStream):
    """One request and its answer, handed over between the caller's thread and the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, request: httpx.Request, state: dict[str, Any]
    ) -> None:
        self._loop = loop
        self._state = state
        self._body: Iterator[bytes] = iter(request.stream)  # type: ignore[arg-type]
        self._request = request
        self._sent_all = False
        self._left: asyncio.Event = asyncio.Event()
        self.task: Future[None] | None = None
        # Bounded by what one answer holds: the application is in this very process and reads from memory anyway.
        self.answer: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    async def run(self, app: Callable[..., Any]) -> None:
        url = self._request.url
        scope: Scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": self._request.method,
            "headers": [(name.lower(), value) for name, value in self._request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "root_path": "",
            "server": (url.host, url.port or 80),
            "client": ("127.0.0.1", 0),
            "state": self._state,
            TRUSTED: True,
        }
        try:
            await app(scope, self._receive, self._send)
            self.answer.put(("end", None))
        except BaseException as error:
            self.answer.put(("failed", error))
            if not isinstance(error, Exception):
                raise

    async def _receive(self) -> dict[str, Any]:
        if self._sent_all:
            await self._left.wait()
            return {"type": "http.disconnect"}
        chunk = await asyncio.to_thread(next, self._body, None)
        self._sent_all = chunk is None
        return {"type": "http.request", "body": chunk or b"", "more_body": chunk is not None}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.answer.put(("start", (message["status"], message.get("headers", []))))
        elif message["type"] == "http.response.body" and message.get("body"):
            self.answer.put(("body", message["body"]))

    def __iter__(self) -> Iterator[bytes]:
        while True:
            kind, value = self.answer.get()
            if kind == "end":
                return
            if kind == "failed":
                raise value
            yield value

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._left.set)


def embedded_client(settings: Any, **options: Any) -> Any:
    """A `pairmark.client.Client` of the service that the settings describe, run in this process."""
    from pairmark.client import Client
    from pairmark.service.app import create_app

    transport = InProcessTransport(create_app(settings, warm=False))
    return Client("http://pairmark.embedded", api_key="", transport=transport, **options)
