"""The HTTP of uvicorn, with a bound on what comes beside bodies: heads, trailers, chunk extensions."""

import json
from typing import Final

from httptools import HttpParserError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pairmark.service.api.problems import PAGES, PROBLEM_JSON, HeadTooLarge

MAX_HEAD_BYTES: Final = 64 * 1024
LINGER_S: Final = 2.0
"""How long a client may go on sending after its refusal: closed at once, the refusal would be lost to it."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection. It ends where a head, or what follows a body, has more than `MAX_HEAD_BYTES`."""

    _unread = 0
    """Bytes since a head, a piece of a body or a request was complete."""
    _is_over = False

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return
        self._unread += len(data)
        super().data_received(data)
        # The parser keeps a field until it is complete, and uvicorn all of them.
        if self._unread > MAX_HEAD_BYTES:
            self._end()

    def on_headers_complete(self) -> None:
        if self._unread > MAX_HEAD_BYTES:
            # A short head may have come with the begin of a long body.
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > MAX_HEAD_BYTES:
                raise HttpParserError("the head is too large")
        self._unread = 0
        super().on_headers_complete()
        # Trailers are no headers of the request, and nobody reads them.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._unread > MAX_HEAD_BYTES:
            self._end()
        else:
            super().send_400_response(msg)

    def _end(self) -> None:
        """Refuse the head if nothing else is being answered, and close."""
        self._is_over = True
        if self.transport.is_closing():
            return
        # A head that is complete says the method.
        in_head = self.scope is not None and "method" not in self.scope
        if not in_head or not (self.cycle is None or self.cycle.response_complete):
            self.transport.close()
            return
        page = PAGES[HeadTooLarge.slug]
        problem = {
            "type": f"/problems/{HeadTooLarge.slug}",
            "title": HeadTooLarge.title,
            "status": page.status,
            "detail": f"the address and the headers have more than {MAX_HEAD_BYTES} bytes",
        }
        body = json.dumps(problem).encode()
        self.transport.write(
            b"HTTP/1.1 %d Request Header Fields Too Large\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (page.status, PROBLEM_JSON.encode(), len(body), body)
        )
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)
