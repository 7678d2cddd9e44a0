"""The HTTP protocol of a serving process, with bounds on what a connection may take before a request is one.

uvicorn waits for ever for the rest of a head or body, and takes the trailers of a chunked body for headers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pairmark.service.api.wire import body_seconds
from pairmark.service.settings import Settings

MAX_HEAD_BYTES: Final = 64 * 1024
LOOK_S: Final = 1.0
_IDLE, _HEAD, _BODY = range(3)


class Connections:
    """Counts a process's connections by client, and ends those that take too long. Used on the event loop only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_client: Counter[str] = Counter()
        self._open: set[GuardedProtocol] = set()
        self._looking = False
        self.now = 0
        """Looks so far: a clock in steps of `LOOK_S` that costs nothing to read."""

    def add(self, connection: GuardedProtocol, client: str) -> bool:
        """Take a connection; False when its client has too many."""
        self._open.add(connection)
        self._by_client[client] += 1
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        limit = self._settings.max_connections_per_client
        return not 0 < limit < self._by_client[client]

    def remove(self, connection: GuardedProtocol, client: str) -> None:
        """Forget a connection."""
        self._open.discard(connection)
        self._by_client[client] -= 1
        if self._by_client[client] <= 0:
            del self._by_client[client]

    def _look(self) -> None:
        self.now += 1
        settings = self._settings
        for connection in list(self._open):
            waited = (self.now - connection.since) * LOOK_S
            if connection.phase == _HEAD and waited > settings.header_timeout_s:
                connection.refuse(
                    408, f"the head of a request did not arrive within {settings.header_timeout_s:g} s"
                )
            elif connection.phase == _BODY and waited > LOOK_S + body_seconds(settings, connection.received):
                # The edge answers a request whose body it awaits; here end those whose body nobody reads.
                connection.end_body()
        self._looking = bool(self._open)
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)


@cache
def connections() -> Connections:
    """The one of this process."""
    return Connections(Settings())


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    Attributes
    ----------
    phase : waiting for nothing, for the rest of a head, or for the rest of a body.
    since : when it began, by the clock of `Connections`. received : bytes since then.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.all = connections()
        self.phase = _HEAD
        self.since = self.all.now
        self.received = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.all.now
        self.address = self.client[0] if self.client else ""
        if not self.all.add(self, self.address):
            self.refuse(429, "too many connections from this address")

    def connection_lost(self, exc: Exception | None) -> None:
        self.all.remove(self, self.address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.phase == _IDLE:
            self.phase, self.since, self.received = _HEAD, self.all.now, 0
        self.received += len(data)
        super().data_received(data)
        if self.phase == _HEAD and self.received > MAX_HEAD_BYTES and not self.transport.is_closing():
            self.refuse(431, f"the head of a request has more than {MAX_HEAD_BYTES} bytes")

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        # What comes from now on are trailers, which must not count as headers of the request.
        self.headers = []
        self.phase, self.since, self.received = _BODY, self.all.now, 0

    def on_message_complete(self) -> None:
        self.phase = _IDLE
        super().on_message_complete()

    def refuse(self, status: int, detail: str) -> None:
        """Answer that much and close."""
        reason = {408: b"Request Timeout", 429: b"Too Many Requests", 431: b"Request Header Fields Too Large"}
        slug = {408: b"request-timeout", 429: b"rate-limited", 431: b"too-large"}[status]
        body = b'{"type":"/problems/%b","title":"%b","status":%d,"detail":"%b"}' % (
            slug,
            reason[status],
            status,
            detail.encode(),
        )
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n%bconnection: close\r\n"
            b"\r\n%b"
            % (status, reason[status], len(body), b"retry-after: 1\r\n" if status == 429 else b"", body)
        )
        self.transport.close()

    def end_body(self) -> None:
        """Close a connection whose request's body never ends, unless it waits for an answer to an earlier one."""
        if not self.flow.read_paused:
            self.transport.close()
