"""The W3C trace that a request belongs to, and its span."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from itertools import count
from typing import NamedTuple

from pairmark.service.telemetry import Exporter, Span

_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
"""W3C trace context; later versions may append fields."""
_NO_TRACE = b"0" * 32
_SAMPLED = b"13579bdf"
"""Last digits of flags whose lowest bit is set."""
_NUMBERS = count(secrets.randbits(62))
"""Of spans, from a random start: a number is a tenth of the cost of a random one."""


class Trace(NamedTuple):
    """Where a request stands in a trace.

    Attributes
    ----------
    span_id : of the request's own span. parent_id : of the caller's, if there is one.
    sampled : whether spans of the trace are exported.
    fields : headers of the answer, by which the client finds the request's span.
    """

    trace_id: str
    span_id: str
    parent_id: bytes | None
    sampled: bool
    fields: tuple[tuple[bytes, bytes], ...]

    def span(
        self, method: str, route: str, status: int, seconds: float, request_id: str, error: str | None
    ) -> Span:
        """The request's span, which ends now. It names the route, not the address: that may name people."""
        ended = time.time()
        attributes: dict[str, str | int | float | bool] = {
            "http.request.method": method[:20],
            "http.route": route,
            "http.response.status_code": status,
            "pairmark.request_id": request_id,
        }
        if error is not None:
            attributes["error.type"] = error
        return Span(
            name=f"{method[:20]} {route}",
            kind="server",
            trace_id=self.trace_id,
            span_id=self.span_id,
            parent_id=None if self.parent_id is None else self.parent_id.decode(),
            start=ended - seconds,
            end=ended,
            failed=status >= 500,
            attributes=attributes,
        )


def trace_of(headers: Mapping[bytes, bytes], exporter: Exporter | None) -> Trace | None:
    """The trace that a request's headers name; else a new one where spans are exported, and none where they are not."""
    traceparent = headers.get(b"traceparent")
    if traceparent is not None and (form := _TRACE.fullmatch(traceparent)) is not None:
        trace_id, parent_id, flags = form.groups()
        if trace_id != _NO_TRACE:
            own = b"%016x" % next(_NUMBERS)
            sampled = exporter is not None and flags[1] in _SAMPLED
            field = b"00-" + trace_id + b"-" + own + b"-" + flags
            return Trace(trace_id.decode(), own.decode(), parent_id, sampled, ((b"traceparent", field),))
    if exporter is None:
        return None
    new_id, sampled = exporter.new_trace()
    own = b"%016x" % next(_NUMBERS)
    field = b"00-%b-%b-%b" % (new_id.encode(), own, b"01" if sampled else b"00")
    return Trace(new_id, own.decode(), None, sampled, ((b"traceparent", field),))
