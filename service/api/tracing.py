"""The W3C trace that a request belongs to, and its span."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pairmark.service.telemetry import Exporter, Span

_TRACE = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
"""W3C trace context; later versions may append fields."""
_NO_TRACE = b"0" * 32
_SAMPLED = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """Where a request stands in a trace.

    Attributes
    ----------
    span_id : of the request's own span. parent_id : of the caller's, if there is one.
    kept : whether spans of the trace are exported.
    fields : headers of the answer, by which whoever asked finds the request's span.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    kept: bool
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
            name=f"{method[:20]} {route}", kind="server", trace_id=self.trace_id, span_id=self.span_id,
            parent_id=self.parent_id, started=ended - seconds, ended=ended, failed=status >= 500,
            attributes=attributes,
        )  # fmt: skip


def trace_of(headers: Mapping[bytes, bytes], exporter: Exporter | None) -> Trace | None:
    """The trace that a request's headers name; else a new one where spans are exported, and none where they are not."""
    given = headers.get(b"traceparent")
    if given is not None and (form := _TRACE.fullmatch(given)) is not None and form[1] != _NO_TRACE:
        own = secrets.token_hex(8)
        kept = exporter is not None and int(form[3], 16) & _SAMPLED == _SAMPLED
        field = b"00-%b-%b-%b" % (form[1], own.encode(), form[3])
        return Trace(form[1].decode(), own, form[2].decode(), kept, ((b"traceparent", field),))
    if exporter is None:
        return None
    trace_id, kept = exporter.new_trace()
    own = secrets.token_hex(8)
    field = f"00-{trace_id}-{own}-{'01' if kept else '00'}".encode()
    return Trace(trace_id, own, None, kept, ((b"traceparent", field),))
