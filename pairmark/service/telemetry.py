"""Spans of requests and jobs, sent to an OpenTelemetry collector by OTLP (HTTP, JSON).

On where ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT``) is set. Other standard variables
that count are ``OTEL_EXPORTER_OTLP_HEADERS`` (and ``..._TRACES_HEADERS``), ``OTEL_SERVICE_NAME``,
``OTEL_RESOURCE_ATTRIBUTES``, ``OTEL_TRACES_SAMPLER`` (and its ``_ARG``) and ``OTEL_SDK_DISABLED``. Why this is not the
OpenTelemetry SDK: docs/decisions/traces-without-the-sdk.md.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import unquote

from pairmark.version import VERSION

logger = logging.getLogger("pairmark.telemetry")
MOST_WAITING = 8_192
"""Spans that wait to be sent; more are dropped, and counted in a log line."""
AT_A_TIME = 512
EVERY_S = 1.0
PATIENCE_S = 5.0
"""Longest that the collector may take for one message, and that the end of a process waits for it."""
Kind = Literal["internal", "server", "client", "producer", "consumer"]
_KINDS: tuple[Kind, ...] = ("internal", "server", "client", "producer", "consumer")
_ERROR = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """Something that took time.

    Attributes
    ----------
    trace_id, span_id, parent_id : in hexadecimal, of 32, 16 and 16 digits.
    start, end : seconds since the epoch.
    failed : whether it is an error in the sense of OpenTelemetry.
    """

    name: str
    kind: Kind
    trace_id: str
    span_id: str
    parent_id: str | None = None
    start: float
    end: float
    failed: bool = False
    attributes: Mapping[str, str | int | float | bool] = field(default_factory=dict)


class Exporter:
    """Sends spans from a thread of its own; who hands them in never waits.

    Parameters
    ----------
    address : that spans are posted to. headers : of those requests.
    resource : attributes of this process.
    ratio : share of the traces that begin here that are kept.
    """

    def __init__(
        self, address: str, *, headers: Mapping[str, str], resource: Mapping[str, str], ratio: float = 1.0
    ) -> None:
        self.address, self._headers, self._resource = address, dict(headers), dict(resource)
        self._below = int(ratio * 2**64)
        self._waiting: deque[Span] = deque()
        self._dropped = 0
        self._away = False
        self._news, self._closing = threading.Event(), threading.Event()
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None

    def new_trace(self) -> tuple[str, bool]:
        """An id for a trace that begins here, and whether it is kept."""
        trace_id = secrets.token_hex(16)
        return trace_id, int(trace_id[16:], 16) < self._below

    def add(self, span: Span) -> None:
        """Have a span sent soon, or drop it when too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            self._dropped += 1
            return
        self._waiting.append(span)
        if self._thread is None:
            self._start()

    def close(self) -> None:
        """Send what waits, for at most `PATIENCE_S`."""
        self._closing.set()
        self._news.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    def _start(self) -> None:
        with self._guard:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="telemetry", daemon=True)
                self._thread.start()

    def _send_all(self) -> None:
        while True:
            self._news.wait(EVERY_S)
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(AT_A_TIME, len(self._waiting)))]
                if not self._send(batch):
                    self._dropped += len(batch)
                    break
            if self._closing.is_set():
                return

    def _send(self, spans: list[Span]) -> bool:
        body = json.dumps(message(spans, self._resource)).encode()
        request = urllib.request.Request(
            self.address, data=body, headers={**self._headers, "content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S):
                pass
        except (OSError, ValueError, urllib.error.URLError) as error:
            if not self._away:
                facts = {"address": self.address, "reason": str(error)[:200]}
                logger.warning("the collector takes no spans; they are dropped until it does", extra=facts)
            self._away = True
            return False
        if self._away or self._dropped:
            logger.info("the collector takes spans", extra={"dropped": self._dropped})
        self._away, self._dropped = False, 0
        return True


def message(spans: list[Span], resource: Mapping[str, str]) -> dict[str, Any]:
    scope = {"scope": {"name": "pairmark", "version": VERSION}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [scope]}]}


@functools.cache
def exporter() -> Exporter | None:
    """The one of this process; none where no collector is named."""
    environment = os.environ
    address = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "")
    base = environment.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    if not address and base:
        address = f"{base.rstrip('/')}/v1/traces"
    if (
        not address.startswith(("http://", "https://"))
        or environment.get("OTEL_SDK_DISABLED", "").lower() == "true"
    ):
        if address and "://" not in address:
            logger.warning("no spans are sent: the endpoint is not an http:// or https:// address")
        return None
    headers = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get(
        "OTEL_EXPORTER_OTLP_HEADERS", ""
    )
    resource = {"service.name": "pairmark", "service.version": VERSION, "process.pid": str(os.getpid())}
    resource |= _pairs(environment.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    if environment.get("OTEL_SERVICE_NAME"):
        resource["service.name"] = environment["OTEL_SERVICE_NAME"]
    return Exporter(address, headers=_pairs(headers), resource=resource, ratio=_ratio(environment))


def span_of_job(job_id: str) -> str:
    """The id of the span of a job's submission, which the spans of its attempts name as their parent."""
    return job_id[:16]


def submitted(job_id: str, trace_id: str | None, parent_id: str | None, task: str) -> None:
    sends = exporter()
    if sends is None or trace_id is None:
        return
    now = time.time()
    sends.add(
        Span(
            name=f"submit {task}", kind="producer", trace_id=trace_id, span_id=span_of_job(job_id),
            parent_id=parent_id, start=now, end=now, attributes={"pairmark.job": job_id},
        )
    )  # fmt: skip


def attempted(
    job_id: str, trace_id: str | None, task: str, start: float, error: str | None, **facts: str | int
) -> None:
    """Note an attempt at a job, which ends now; ``error`` is the slug of what it failed with."""
    sends = exporter()
    if sends is None:
        return
    attributes = {"pairmark.job": job_id, **facts, **({} if error is None else {"error.type": error})}
    sends.add(
        Span(
            name=f"run {task}", kind="consumer", trace_id=trace_id or job_id, span_id=secrets.token_hex(8),
            parent_id=None if trace_id is None else span_of_job(job_id), start=start, end=time.time(),
            failed=error is not None, attributes=attributes,
        )
    )  # fmt: skip


def _span(span: Span) -> dict[str, Any]:
    reported: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        # The protocol counts from one: zero is "unspecified".
        "kind": _KINDS.index(span.kind) + 1,
        "startTimeUnixNano": str(round(1e9 * span.start)),
        "endTimeUnixNano": str(round(1e9 * span.end)),
        "attributes": _attributes(span.attributes),
        "status": {"code": _ERROR} if span.failed else {},
    }
    if span.parent_id is not None:
        reported["parentSpanId"] = span.parent_id
    return reported


def _attributes(values: Mapping[str, str | int | float | bool]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items()]


def _value(value: str | int | float | bool) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
    return {"stringValue": value}


def _pairs(text: str) -> dict[str, str]:
    """``a=1,b=2``, values percent-encoded."""
    parts = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in parts}


def _ratio(environment: Mapping[str, str]) -> float:
    """Share of the traces that begin here that are kept."""
    match environment.get("OTEL_TRACES_SAMPLER", "").removeprefix("parentbased_"):
        case "always_off":
            return 0.0
        case "traceidratio":
            try:
                return min(1.0, max(0.0, float(environment.get("OTEL_TRACES_SAMPLER_ARG", "1"))))
            except ValueError:
                return 1.0
    return 1.0
