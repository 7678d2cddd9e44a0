"""The HTTP protocol of a serving process, with bounds on what a connection may take beside the bodies of requests.

uvicorn waits for ever for the rest of a head or body, keeps the trailers of a chunked body as headers without a bound,
and goes on parsing a request that was answered before its body was read.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from multiprocessing import parent_process
from typing import Any, Final

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pairmark.service.settings import Settings

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 256
MAX_FRAMING_BYTES: Final = 64 * 1024
"""Most bytes of a chunked body that are neither its data nor the frame of a chunk of fair size: chunk extensions,
trailers, and the frames of tiny chunks."""
FRAME_BYTES: Final = 16
"""Bytes of a chunk's size and line ends that are not counted, at most as many as the chunk has data."""
MAX_PIPELINED: Final = 64
"""Requests of one connection that wait for the answers to earlier ones."""
SLICE_BYTES: Final = 16 * 1024
"""Most bytes that are parsed before the bounds are checked again."""
LINGER_S: Final = 2.0
LINGER_BYTES: Final = 1024 * 1024
"""For how long, and for how many bytes, a client may go on sending after the answer that ends its connection."""
LOOK_S: Final = 1.0
YIELD_S: Final = 0.0002
MOST_YIELDS: Final = 32
"""How long a process that has connections waits after taking another, and how often between two looks, at most."""
_IDLE, _HEAD, _BODY, _LINGER = range(4)
_REFUSALS: Final = {
    400: (b"malformed-request", b"Bad Request"),
    408: (b"request-timeout", b"Request Timeout"),
    429: (b"rate-limited", b"Too Many Requests"),
    431: (b"too-large", b"Request Header Fields Too Large"),
}
"""Problem and words of each status."""


class Connections:
    """Counts a process's connections by client, and ends those that take too long. Used on the event loop only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_client: Counter[str] = Counter()
        self._open: set[GuardedProtocol] = set()
        self._looking = False
        # A service of one process has nobody to yield to.
        self._most_yields = self._yields = MOST_YIELDS if parent_process() else 0
        self.now = 0
        """Looks so far: a clock in steps of `LOOK_S` that costs nothing to read."""

    def add(self, connection: GuardedProtocol, client: str) -> bool:
        """Take a connection; False when its client has too many."""
        if self._open and self._yields:
            # Else whichever process wakes first takes all the connections that a client opens at once.
            self._yields -= 1
            time.sleep(YIELD_S)
        self._open.add(connection)
        self._by_client[client] += 1
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        limit = self._settings.max_connections_per_client
        return not 0 < limit < self._by_client[client]

    def remove(self, connection: GuardedProtocol, client: str) -> None:
        self._open.discard(connection)
        self._by_client[client] -= 1
        if self._by_client[client] <= 0:
            del self._by_client[client]

    def _look(self) -> None:
        self.now += 1
        self._yields = self._most_yields
        settings = self._settings
        for connection in list(self._open):
            waited = (self.now - connection.since) * LOOK_S
            if connection.phase == _HEAD and waited > settings.header_timeout_s:
                connection.refuse(
                    408, f"the head of a request did not arrive within {settings.header_timeout_s:g} s"
                )
            elif (
                connection.phase == _BODY
                and waited
                > LOOK_S + settings.request_timeout_s + connection.n_bytes / settings.min_upload_bytes_per_s
            ):
                # The edge answers a request whose body it awaits; here end those whose body nobody reads.
                connection.end_body()
            elif connection.phase == _LINGER and waited > LINGER_S:
                connection.socket.close()
        self._looking = bool(self._open)
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)


@cache
def connections() -> Connections:
    """The one of this process."""
    return Connections(Settings())


class LingeringTransport:
    """What uvicorn writes the answers of a connection to.

    The head of an answer goes out with the first piece of its body: one call of the system, and one packet. `close`
    ends the connection once the client can have read the answers: closing a socket to which the client still sends
    would discard what it has not read yet.
    """

    def __init__(self, connection: GuardedProtocol) -> None:
        self._connection = connection
        self._send: Callable[[bytes], object] = connection.socket.write
        self._call_soon = asyncio.get_running_loop().call_soon
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send, or keep a head until its body comes, at the latest until the event loop's next turn."""
        if self._head and len(data) <= SLICE_BYTES:
            data, self._head = self._head + data, b""
        elif self._head:
            # Copying a long body would cost more than the call.
            self.flush()
        elif data.startswith(b"HTTP/1.1 ") and data.endswith(b"\r\n\r\n"):
            self._head = data
            self._call_soon(self.flush)
            return
        self._send(data)

    def flush(self) -> None:
        """Send the head that waits, if one does."""
        if self._head:
            data, self._head = self._head, b""
            self._send(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._connection.phase == _LINGER or self._connection.socket.is_closing()

    def close(self) -> None:
        """Close at once, or only the sending side while the client is in the middle of a request."""
        self.flush()
        connection = self._connection
        if connection.socket.is_closing() or not connection.is_receiving():
            connection.socket.close()
            return
        connection.linger()
        self._send = _discard


def _discard(data: bytes) -> None:
    """Write to nobody."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection.

    Attributes
    ----------
    phase : waiting for nothing, for the rest of a head, for the rest of a body, or for the client to stop sending.
    since : when it began, by the clock of `Connections`. n_bytes : what came since then.
    body_bytes : how much of the newest body has come.
    framing : bytes of the body that count towards `MAX_FRAMING_BYTES`.
    keep_alive : whether the connection may stay open after the answer to the newest request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.all_connections = connections()
        self.phase = _HEAD
        self.since = self.all_connections.now
        self.n_bytes = self.framing = self.body_bytes = 0
        self.keep_alive = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.socket = transport
        self.transport = LingeringTransport(self)  # type: ignore[assignment]
        self.since = self.all_connections.now
        self.address = self.client[0] if self.client else ""
        if not self.all_connections.add(self, self.address):
            self.refuse(429, "too many connections from this address")

    def connection_lost(self, exc: Exception | None) -> None:
        self.all_connections.remove(self, self.address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if len(data) <= SLICE_BYTES:
            self._take(data)
            return
        unparsed = memoryview(data)
        while unparsed:
            size = max(SLICE_BYTES, self._missing())
            self._take(unparsed[:size])
            unparsed = unparsed[size:]

    def _missing(self) -> int:
        """How many bytes of a body of declared length are still to come: nothing in them needs a look in between."""
        if self.phase != _BODY:
            return 0
        headers = self.cycle.scope["headers"]
        declared = next((value for name, value in headers if name == b"content-length"), b"0")
        return int(declared) - self.body_bytes

    def _take(self, data: bytes | memoryview) -> None:
        if self.transport.is_closing():
            self.n_bytes += len(data)
            if self.n_bytes > LINGER_BYTES:
                self.socket.close()
            return
        if self.phase == _IDLE:
            self.phase, self.since, self.n_bytes = _HEAD, self.all_connections.now, 0
        self.n_bytes += len(data)
        self.framing += len(data)
        self._parse(data)
        if self.phase == _HEAD:
            self._check_head()
        elif self.phase == _BODY:
            self._check_framing()

    def _parse(self, data: bytes | memoryview) -> None:
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            (end_of_head,) = upgrade.args
            self._parse_without_upgrade(data[end_of_head:])
        except HttpParserError:
            self.refuse(400, "the request is not HTTP/1.1")

    def _parse_without_upgrade(self, data: bytes | memoryview) -> None:
        """Parse a request again whose head asks for another protocol, as if it had not asked: HTTP/1.1 alone is spoken
        here, and the parser would take the body, with which ``data`` begins, for the next request."""
        head = [self.parser.get_method(), b" ", self.url, b" HTTP/", self.parser.get_http_version().encode()]
        for name, value in self.headers:
            if name != b"upgrade":
                head += [b"\r\n", name, b": ", value]
        self.parser = HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self._parse(b"".join([*head, b"\r\n\r\n", data]))

    def _check_head(self) -> None:
        if self.n_bytes > MAX_HEAD_BYTES:
            self.refuse(431, f"the head of a request has more than {MAX_HEAD_BYTES} bytes")
        elif self.headers is not None and len(self.headers) > MAX_HEADERS:
            self.refuse(431, f"a request has more than {MAX_HEADERS} header fields")

    def _check_framing(self) -> None:
        # Trailers must not count as headers of the request, and are not kept.
        self.headers.clear()
        # What earlier pieces were below the bound is no credit for later ones.
        self.framing = max(0, self.framing)
        if self.framing > MAX_FRAMING_BYTES:
            self.refuse(
                431,
                f"the chunk extensions, trailers and frames of a body have more than {MAX_FRAMING_BYTES} bytes",
            )

    def on_headers_complete(self) -> None:
        if len(self.headers) > MAX_HEADERS or len(self.pipeline) >= MAX_PIPELINED:
            self.refuse(431, f"a request has more than {MAX_HEADERS} header fields")
            raise HttpParserError("the connection is closed")
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            return
        super().on_headers_complete()
        # An answer that goes out before the whole request came says that the connection ends, and ends it.
        self.keep_alive, self.cycle.keep_alive = self.cycle.keep_alive, False
        self.headers = []
        self.phase, self.since, self.n_bytes = _BODY, self.all_connections.now, 0
        self.framing = self.body_bytes = 0

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self.body_bytes += size
        self.framing -= size + min(size, FRAME_BYTES)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.phase != _BODY:
            # The head asks for another protocol: `_parse_without_upgrade` comes next.
            return
        self.phase = _IDLE
        if not self.cycle.response_started:
            self.cycle.keep_alive = self.keep_alive
        super().on_message_complete()

    def shutdown(self) -> None:
        self.keep_alive = False
        super().shutdown()

    def is_receiving(self) -> bool:
        """Whether part of a request has come, and not all of it."""
        return self.phase == _BODY or (self.phase == _HEAD and self.n_bytes > 0)

    def linger(self) -> None:
        """Send nothing more, and drop what still comes until the client stops or `Connections` ends it."""
        self.phase, self.since, self.n_bytes = _LINGER, self.all_connections.now, 0
        if self.headers is not None:
            self.headers.clear()
        self.flow.resume_reading()
        self.socket.write_eof()

    def refuse(self, status: int, detail: str) -> None:
        """Answer that much and close."""
        if not self._may_refuse():
            return
        slug, reason = _REFUSALS[status]
        body = b'{"type":"/problems/%b","title":"%b","status":%d,"detail":"%b"}' % (
            slug,
            reason,
            status,
            detail.encode(),
        )
        self.transport.write(
            b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n%bconnection: close\r\n"
            b"\r\n%b" % (status, reason, len(body), b"retry-after: 1\r\n" if status == 429 else b"", body)
        )
        self.transport.close()

    def _may_refuse(self) -> bool:
        """Whether a refusal can go out now. Where an earlier request's answer is due first, that answer ends the
        connection; where one has begun, or several are due, it is closed at once and the request that is refused
        counts as one whose client has left."""
        if self.transport.is_closing():
            return False
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return True
        if self.phase != _BODY and not self.pipeline and not cycle.response_started:
            cycle.keep_alive = False
            self.flow.pause_reading()
            return False
        cycle.disconnected = True
        cycle.message_event.set()
        if self.phase != _BODY or self.pipeline or cycle.response_started:
            self.socket.close()
            return False
        return True

    def end_body(self) -> None:
        """Close a connection whose request's body never ends, unless it waits for an answer to an earlier one."""
        if not self.flow.read_paused:
            self.socket.close()
