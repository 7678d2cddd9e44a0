"""The edge: everything that holds for every request, in one thin ASGI layer.

Request ids, keys and scopes, bounds on bodies and time, metrics, logs, and the answer to whatever went wrong. It is
one layer and not six because each costs microseconds on routes that answer in a hundred.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import Any
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairmark.service.api.admission import Admission
from pairmark.service.api.calls import JSON, NPZ, OCTETS, Answer, Call, body_seconds, forget_body
from pairmark.service.api.deadlines import Deadlines
from pairmark.service.api.decisions import HEADER, logged_decision
from pairmark.service.api.metrics import AUTH_FAILURES, RequestMeter
from pairmark.service.api.problems import (
    Internal,
    Malformed,
    MethodNotAllowed,
    SlowBody,
    TimedOut,
    UnknownAddress,
    UnsupportedMediaType,
    render,
)
from pairmark.service.api.rates import rate_fields
from pairmark.service.api.routing import Route, RouteTable
from pairmark.service.api.services import Services
from pairmark.service.api.tracing import Trace, trace_of
from pairmark.service.audit.actor import Actor, acting
from pairmark.service.errors import Forbidden, PairmarkError, TooLarge, Unauthenticated
from pairmark.service.keys import ActiveKey
from pairmark.service.shares import LoopTurns, Turns, current_owner, noting_limits
from pairmark.service.telemetry import exporter

log = logging.getLogger("pairmark.access")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_CLIENT_GONE = 499
HTML = "text/html"
HANDLED_AT_ONCE = 8
"""Requests that handlers of the framework answer at once."""
WITHIN_PAGE = "pairmark.within_page"
"""Marks what a page of the console asks in this process: the page itself is logged."""
_MOST_MARKS = 50_000
"""Brackets, braces and commas of a JSON body that the framework reads, at most."""
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_PICTURE_POLICY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox")
_NOSNIFF = (b"x-content-type-options", b"nosniff")
_OF_PAGES = (b"referrer-policy", b"same-origin")


class Answering:
    """Sends an answer with what every answer carries, and remembers its status."""

    __slots__ = ("_fields", "_request_id", "_scope", "_send", "status")

    def __init__(
        self, scope: Scope, send: Send, request_id: bytes, fields: tuple[tuple[bytes, bytes], ...] = ()
    ) -> None:
        self._scope, self._send, self._request_id, self._fields = scope, send, request_id, fields
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            fields: tuple[tuple[bytes, bytes], ...] = (
                (b"x-request-id", self._request_id),
                _NOSNIFF,
                *self._fields,
                *rate_fields(self._scope),
            )
            headers = message.get("headers", ())
            kind = next((value for name, value in headers if name == b"content-type"), b"")
            if kind.startswith(b"text/html"):
                fields = (*fields, _OF_PAGES)
            elif kind.startswith(b"image/svg"):
                # Opened as a page of its own, a picture could run scripts with the caller's session.
                fields = (*fields, _PICTURE_POLICY)
            message["headers"] = [*headers, *fields]
        await self._send(message)


class Edge:
    """ASGI middleware around the whole service; ``app`` is the framework, for the routes that are not direct."""

    def __init__(self, app: ASGIApp, *, services: Services, table: RouteTable) -> None:
        self._app = app
        self._services = services
        self._settings = services.settings
        self._table = table
        self._meter = RequestMeter()
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._deadlines = Deadlines(services.settings.request_timeout_s)
        self._exporter = exporter()
        self._admission = Admission(services)
        self._turns = LoopTurns()
        self._handled = Turns(HANDLED_AT_ONCE, 4 * HANDLED_AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = self._request_id(headers)
        scope["pairmark.request_id"] = request_id.decode()
        trace = trace_of(headers, self._exporter)
        traced = () if trace is None else _trace_fields(scope, trace)
        path, method = scope["path"], scope["method"]
        status = 0
        answer: Answering | None = None
        route_match = self._table.find(method, path)
        route = None if route_match is None else route_match.route
        failure: BaseException | None = None
        problem: PairmarkError | None = None
        scope["pairmark.noted_limits"] = noting_limits()
        try:
            # Only where a name is repeated, which makes the dictionary shorter, may there be several hosts.
            if len(headers) != len(scope["headers"]):
                _check_host(scope)
            await self._admission.admit(scope, headers, method, path, route_match)
            if route_match is None or route is None:
                raise self._nothing_there(path)
            if b"content-encoding" in headers:
                _check_encoding(headers)
            query = route.reader.read(scope["query_string"])
            if route.direct:
                _check_length(headers, *self._limit(route, headers))
                owner = current_owner()
                if owner and self._turns.crowded(owner):
                    await self._turns.turn(owner)
                call = Call(self._services, scope, headers, receive, query, route_match.path)
                body, kind, extra = await self._deadlines.run(start, self._work(route, call))
                status = 200
                fields = [
                    (b"content-type", kind),
                    (b"content-length", b"%d" % len(body)),
                    (b"x-request-id", request_id),
                    _NOSNIFF,
                    *extra,
                    *traced,
                    *rate_fields(scope),
                ]
                await send({"type": "http.response.start", "status": 200, "headers": fields})
                await send({"type": "http.response.body", "body": body})
            else:
                answer = Answering(scope, send, request_id, traced)
                scope["pairmark.query"] = query
                scope["path_params"] = route_match.path
                scope["pairmark.route"] = route
                with acting(_actor(scope)):
                    await self._serve(scope, receive, answer, headers, route)
        except PairmarkError as error:
            problem = error
            if isinstance(error, Unauthenticated | Forbidden):
                AUTH_FAILURES.labels(error.slug).inc()
        except TimeoutError:
            problem = self._late(scope)
        except ClientDisconnect:
            status = status or _CLIENT_GONE
        except Exception as error:
            failure = error
            problem = Internal("something went wrong inside the service; the logs name it by request_id")
        status = status or (0 if answer is None else answer.status)
        if problem is not None:
            if status == 0:
                refusing = Answering(scope, send, request_id, traced)
                status = await self._refuse(scope, refusing, problem, route, headers)
            elif failure is None:
                failure = problem
        forget_body(scope)
        self._note(scope, route, trace, status, time.perf_counter() - start, problem, failure)

    def _work(self, route: Route, call: Call) -> Awaitable[Answer]:
        """What answers a direct call."""
        if route.decides and (self._settings.log_decisions or call.headers.get(HEADER) == b"true"):
            return logged_decision(route.handler, call, _actor(call.scope))
        work: Awaitable[Answer] = route.handler(call)
        return work

    def _request_id(self, headers: dict[bytes, bytes]) -> bytes:
        request_id = headers.get(b"x-request-id")
        if request_id is not None and _REQUEST_ID.fullmatch(request_id):
            return request_id
        self._count += 1
        return b"%s-%08x" % (self._prefix.encode(), self._count)

    def _late(self, scope: Scope) -> PairmarkError:
        seconds = self._settings.request_timeout_s
        if scope.get("pairmark.body_read"):
            return TimedOut(f"the answer took longer than {seconds:g} s")
        return SlowBody(f"the body did not arrive within {seconds:g} s")

    async def _refuse(
        self,
        scope: Scope,
        answer: Answering,
        problem: PairmarkError,
        route: Route | None,
        headers: dict[bytes, bytes],
    ) -> int:
        """Send a problem document, or a browser to the page where one signs in; returns the status."""
        extra = getattr(problem, "headers", None)
        code, fields, body = render(
            problem, path=scope["path"], request_id=scope["pairmark.request_id"], headers=extra
        )
        if isinstance(problem, Unauthenticated) and _wants_page(route, headers):
            # A person in a browser signs in; a problem document would leave them standing.
            code, fields, body = 303, [(b"location", _login(scope)), (b"content-length", b"0")], b""
        await answer({"type": "http.response.start", "status": code, "headers": fields})
        await answer({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})
        return code

    def _nothing_there(self, path: str) -> PairmarkError:
        methods = self._table.methods_of(path)
        if not methods:
            return UnknownAddress("there is nothing at this address; /docs lists what there is")
        error = MethodNotAllowed(f"this address takes {', '.join(methods)}")
        error.headers = {"Allow": ", ".join(methods)}
        return error

    # ------------------------------------------------------------ bounds

    def _limit(self, route: Route, headers: dict[bytes, bytes]) -> tuple[int, str]:
        """Bytes that the body may have, and what takes more."""
        limits, settings = route.limits, self._settings
        kind = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
        if limits.upload and kind != JSON:
            return settings.max_upload_bytes, "send less at a time"
        if route.direct and kind in (OCTETS, NPZ):
            return settings.max_body_bytes, "send less at a time"
        return (
            settings.max_json_bytes if route.direct or limits.bulk else settings.max_control_bytes,
            limits.instead,
        )

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], route: Route
    ) -> None:
        settings = self._settings
        upload = route.limits.upload
        limit, instead = self._limit(route, headers)
        _check_length(headers, limit, instead)
        is_json = not upload and not route.reads_stream
        marks = 0
        size = 0
        began: float | None = None

        async def bounded() -> Message:
            nonlocal size, began, marks
            # Long uploads may take long, but each piece must come in time, and all of them at some rate.
            began = time.perf_counter() if began is None else began
            remaining = began + body_seconds(settings, size) - time.perf_counter() if upload else None
            piece = None if remaining is None else max(0.0, min(remaining, settings.request_timeout_s))
            if scope.get("pairmark.body_read"):
                piece = None
            try:
                async with asyncio.timeout(piece):
                    message = await receive()
            except TimeoutError:
                slow = SlowBody(
                    f"the body arrives too slowly: no piece for {settings.request_timeout_s:g} s, or less than "
                    f"{settings.min_upload_bytes_per_s:g} bytes a second"
                )
                raise _refused(scope, slow) from None
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > limit:
                    raise _refused(scope, _too_large(f"more than {limit}", limit, instead))
                if is_json:
                    # Each may become an object and be validated, all of them while nobody else is answered.
                    marks += sum(message.get("body", b"").count(mark) for mark in (b"[", b"{", b","))
                    if marks > _MOST_MARKS:
                        problem = f"the body has more than {_MOST_MARKS} lists, objects and commas; {instead}"
                        raise _refused(scope, TooLarge(problem, limit=_MOST_MARKS))
                if not message.get("more_body", False):
                    scope["pairmark.body_read"] = True
            return message

        async with asyncio.timeout(settings.request_timeout_s if route.limits.timed else None):
            # Pages ask on within their turn; uploads and long work have places of their own; whoever watches the
            # service is told at once, also while everybody waits.
            free = route.gives == HTML or WITHIN_PAGE in scope or scope["path"] in _PROBES
            if upload or not route.limits.timed or free:
                await self._app(scope, bounded, send)
            else:
                async with self._handled.turn():
                    await self._app(scope, bounded, send)

    # ------------------------------------------------------------ logs

    def _note(
        self,
        scope: Scope,
        route: Route | None,
        trace: Trace | None,
        status: int,
        seconds: float,
        problem: PairmarkError | None,
        failure: BaseException | None,
    ) -> None:
        """Count the request, export its span and log it."""
        method, path = scope["method"], scope["path"]
        label = "unmatched" if route is None else route.label
        self._meter.observe(method, label, status, seconds)
        if trace is not None and trace.sampled and self._exporter is not None and path not in _PROBES:
            slug = None if problem is None else problem.slug
            self._exporter.add(trace.span(method, label, status, seconds, scope["pairmark.request_id"], slug))
        # Scoring that went well is counted in the metrics; a line for each would cost as much as the scoring. Probes
        # come every few seconds.
        scored = route is not None and route.direct and status < 400
        if failure is None and (scored or path in _PROBES or WITHIN_PAGE in scope):
            level = logging.DEBUG
        else:
            level = logging.ERROR if status >= 500 or failure is not None else logging.INFO
        if not log.isEnabledFor(level):
            return
        facts: dict[str, Any] = {
            "request_id": scope["pairmark.request_id"],
            "method": method[:20],
            "route": label,
            "status": status,
            "seconds": round(seconds, 6),
            "caller": scope.get("pairmark.caller", "none"),
        }
        if "pairmark.trace_id" in scope:
            facts["trace_id"] = scope["pairmark.trace_id"]
        if problem is not None:
            facts["problem"] = problem.slug
        log.log(level, "request", extra=facts, exc_info=failure)


def _check_host(scope: Scope) -> None:
    """Refuse several hosts: a proxy in front may go by another one than this service."""
    count = sum(name == b"host" for name, _ in scope["headers"])
    if count > 1:
        raise Malformed(f"the request has {count} Host headers; expected one", field="host")


def _check_encoding(headers: Mapping[bytes, bytes]) -> None:
    encoding = headers[b"content-encoding"].strip().lower()
    if encoding not in (b"", b"identity"):
        raise UnsupportedMediaType(
            f"the body has Content-Encoding: {encoding.decode('latin-1')[:100]}; expected a body that is not "
            "compressed in transfer. Files of datasets may be compressed themselves, e.g. .csv.gz and Parquet",
            field="content-encoding",
        )


def _check_length(headers: dict[bytes, bytes], limit: int, instead: str) -> None:
    declared = headers.get(b"content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit:
        raise _too_large(str(int(declared)), limit, instead)


def _too_large(size: str, limit: int, instead: str) -> TooLarge:
    return TooLarge(f"the body has {size} bytes; at most {limit} are taken here: {instead}", limit=limit)


def _trace_fields(scope: Scope, trace: Trace) -> tuple[tuple[bytes, bytes], ...]:
    """Keep the trace in the scope; returns the fields that tell the caller of it."""
    scope["pairmark.trace_id"] = trace.trace_id
    scope["pairmark.span_id"] = trace.span_id if trace.sampled else None
    return trace.fields


def _actor(scope: Scope) -> Actor:
    key: ActiveKey | None = scope.get("pairmark.key")
    return Actor(
        name=scope.get("pairmark.caller", "nobody"),
        tenant=None if key is None else key.tenant,
        request_id=scope["pairmark.request_id"],
        trace_id=scope.get("pairmark.trace_id"),
        span_id=scope.get("pairmark.span_id"),
    )


def _login(scope: Scope) -> bytes:
    """Where a person signs in to come back to this page."""
    path = scope["path"]
    if path == "/":
        return b"/login"
    return b"/login?next=" + quote(path, safe="").encode()


def _wants_page(route: Route | None, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks for one of the pages (as against a program asking for an answer)."""
    is_page = route is not None and route.method == "GET" and route.gives == "text/html"
    return is_page and b"text/html" in headers.get(b"accept", b"")


def _refused(scope: Scope, error: PairmarkError) -> PairmarkError:
    """Keep the reason: the framework takes any error of a body for a malformed one."""
    scope["pairmark.refusal"] = error
    return error
