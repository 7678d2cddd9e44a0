"""The edge: everything that holds for every request, in one thin ASGI layer.

Request ids, keys and scopes, bounds on bodies and time, metrics, logs, and the answer to whatever went wrong. It is
one layer and not six because each costs microseconds on routes that answer in a hundred.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairmark.service.api import access
from pairmark.service.api.access import Access
from pairmark.service.api.decisions import logged_decision, wants_log
from pairmark.service.api.metrics import AUTH_FAILURES, RequestMeter
from pairmark.service.api.problems import (
    Internal,
    MethodNotAllowed,
    NotFound,
    SlowBody,
    TimedOut,
    render,
)
from pairmark.service.api.routing import Found, Route, RouteTable
from pairmark.service.api.services import Services
from pairmark.service.api.tracing import trace_of
from pairmark.service.api.wire import Call, body_seconds
from pairmark.service.audit.actor import Actor, acting
from pairmark.service.errors import Forbidden, InvalidInput, PairmarkError, TooLarge, Unauthenticated
from pairmark.service.keys import ActiveKey
from pairmark.service.runtime.catalogue import View
from pairmark.service.telemetry import exporter

log = logging.getLogger("pairmark.access")

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_CLIENT_GONE = 499
WITHIN_PAGE = "pairmark.within_page"
"""Marks what a page of the console asks in this process: the page itself is logged."""
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
T = TypeVar("T")
LOOK_S = 0.25
BURST_S = 10.0
"""So many seconds' worth of requests a key may send at once."""
_LET_IN = 1_000
"""Headers whose key is remembered, at most: spaces make many of one key."""
_PICTURE_POLICY = (
    b"content-security-policy",
    b"default-src 'none'; style-src 'unsafe-inline'; sandbox",
)
_NOSNIFF = (b"x-content-type-options", b"nosniff")


class Deadlines:
    """Ends requests that take too long: one look at all of them now and then, since a timer for each costs more.

    Parameters
    ----------
    seconds : a request gets, and at most `LOOK_S` more.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._looking = False

    async def run(self, started: float, work: Awaitable[T]) -> T:
        """Await the work, which began at ``started`` of the performance counter.

        Raises
        ------
        TimeoutError
        """
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = started
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
        try:
            return await work
        except asyncio.CancelledError as error:
            if task in self._expired and task.uncancel() <= 0:
                raise TimeoutError from error
            raise
        finally:
            del self._open[task]
            self._expired.discard(task)

    def _look(self) -> None:
        overdue = time.perf_counter() - self._seconds
        for task, started in self._open.items():
            if started < overdue and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        self._looking = bool(self._open)
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)


class Answering:
    """Sends an answer with what every answer carries, and remembers its status."""

    __slots__ = ("_request_id", "_send", "_traced", "status")

    def __init__(self, send: Send, request_id: bytes, traced: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        self._send, self._request_id, self._traced = send, request_id, traced
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            more: tuple[tuple[bytes, bytes], ...] = (
                (b"x-request-id", self._request_id),
                _NOSNIFF,
                *self._traced,
            )
            headers = message.get("headers", ())
            if any(name == b"content-type" and kind.startswith(b"image/svg") for name, kind in headers):
                # Opened as a page of its own, a picture could run scripts with the caller's session.
                more = (*more, _PICTURE_POLICY)
            message["headers"] = [*headers, *more]
        await self._send(message)


class Edge:
    """ASGI middleware around the whole service.

    Parameters
    ----------
    app : the framework, which serves the routes that are not direct.
    """

    def __init__(self, app: ASGIApp, *, services: Services, table: RouteTable) -> None:
        self._app = app
        self._services = services
        self._runtime = services.runtime
        self._settings = services.settings
        self._table = table
        self._meter = RequestMeter()
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._deadlines = Deadlines(services.settings.request_timeout_s)
        self._exporter = exporter()
        self._let_in: dict[Any, ActiveKey] = {}
        """Keys that `_let_in_by` admits, by the headers that showed them and the route. Keys are few, and so are direct
        routes whose address names nothing."""
        self._let_in_by: View | None = None
        self._admitted: set[tuple[str | None, bytes | None, bytes | None, bytes | None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given_id = headers.get(b"x-request-id")
        if given_id is not None and _REQUEST_ID.fullmatch(given_id):
            request_id = given_id
        else:
            self._count += 1
            request_id = b"%s-%08x" % (self._prefix.encode(), self._count)
        scope["pairmark.request_id"] = request_id.decode()
        trace = trace_of(headers, self._exporter)
        traced: tuple[tuple[bytes, bytes], ...] = ()
        if trace is not None:
            scope["pairmark.trace_id"] = trace.trace_id
            scope["pairmark.span_id"] = trace.span_id if trace.kept else None
            traced = trace.fields
        path: str = scope["path"]
        method: str = scope["method"]
        status = 0
        answer: Answering | None = None
        found = self._table.find(method, path)
        route = None if found is None else found.route
        failure: BaseException | None = None
        problem: PairmarkError | None = None
        try:
            await self._admit(scope, headers, method, path, found)
            if found is None or route is None:
                raise self._nothing_there(path)
            query = route.reader.read(scope["query_string"])
            if route.direct:
                self._check_length(headers, self._settings.max_body_bytes)
                if route.decides and wants_log(headers, self._settings):
                    work = logged_decision(
                        route.handler,
                        self._services,
                        scope,
                        headers,
                        receive,
                        query,
                        found.path,
                        _actor(scope),
                    )
                else:
                    work = route.handler(Call(self._services, scope, headers, receive, query, found.path))
                body, kind, extra = await self._deadlines.run(started, work)
                status = 200
                fields = [
                    (b"content-type", kind),
                    (b"content-length", b"%d" % len(body)),
                    (b"x-request-id", request_id),
                    _NOSNIFF,
                    *extra,
                    *traced,
                ]
                await send({"type": "http.response.start", "status": 200, "headers": fields})
                await send({"type": "http.response.body", "body": body})
            else:
                answer = Answering(send, request_id, traced)
                scope["pairmark.query"] = query
                scope["path_params"] = found.path
                scope["pairmark.route"] = route
                with acting(_actor(scope)):
                    await self._serve(scope, receive, answer, headers, route)
        except PairmarkError as error:
            problem = error
            if isinstance(error, Unauthenticated | Forbidden):
                AUTH_FAILURES.labels(error.slug).inc()
        except TimeoutError:
            seconds = self._settings.request_timeout_s
            if scope.get("pairmark.body_read"):
                problem = TimedOut(f"the answer took longer than {seconds:g} s")
            else:
                problem = SlowBody(f"the body did not arrive within {seconds:g} s")
        except ClientDisconnect:
            status = status or _CLIENT_GONE
        except Exception as error:
            failure = error
            problem = Internal("something went wrong inside the service; the logs name it by request_id")
        if answer is not None:
            status = status or answer.status
        if problem is not None:
            if status == 0:
                answer = Answering(send, request_id, traced)
                given = getattr(problem, "headers", None)
                code, fields, body = render(
                    problem, path=path, request_id=scope["pairmark.request_id"], headers=given
                )
                if isinstance(problem, Unauthenticated) and _wants_page(route, headers):
                    # A person in a browser signs in; a problem document would leave them standing.
                    code, fields, body = 303, [(b"location", _login(scope)), (b"content-length", b"0")], b""
                await answer({"type": "http.response.start", "status": code, "headers": fields})
                await answer({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
                status = code
            elif failure is None:
                failure = problem
        seconds = time.perf_counter() - started
        label = "unmatched" if route is None else route.label
        self._meter.seen(method, label, status, seconds)
        if trace is not None and trace.kept and self._exporter is not None and path not in _PROBES:
            slug = None if problem is None else problem.slug
            request = scope["pairmark.request_id"]
            self._exporter.add(trace.span(method, label, status, seconds, request, slug))
        # Scoring that went well is counted in the metrics; a line for each would cost as much as the scoring. Probes
        # come every few seconds.
        scored = route is not None and route.direct and status < 400
        quiet = scored or path in _PROBES or WITHIN_PAGE in scope
        self._log(scope, method, label, status, seconds, problem, failure, quiet=quiet)

    def _nothing_there(self, path: str) -> PairmarkError:
        methods = self._table.methods_of(path)
        if not methods:
            return NotFound("there is nothing at this address; /docs lists what there is")
        error = MethodNotAllowed(f"this address takes {', '.join(methods)}")
        error.headers = {"Allow": ", ".join(methods)}
        return error

    # ------------------------------------------------------------ who may

    async def _admit(
        self, scope: Scope, headers: dict[bytes, bytes], method: str, path: str, found: Found | None
    ) -> None:
        if b"\0" in scope.get("raw_path", b"") or "\0" in path or b"%00" in scope["query_string"]:
            raise InvalidInput("the address holds a NUL character; expected plain text", field="path")
        if scope.get("pairmark.trusted"):
            scope["pairmark.caller"] = "local"
            return
        needed: Access = "any" if found is None else found.route.access
        if needed == "open" or (needed == "metrics" and self._settings.metrics_public):
            return
        catalogue = self._runtime.catalogue
        view = catalogue.current()
        if view is None:
            view = await catalogue.refreshed()
        own = headers.get(b"x-api-key")
        mark = own, None if own is not None else headers.get(b"authorization"), id(found and found.route)
        if view is not self._let_in_by:
            self._let_in_by = view
            self._let_in.clear()
        key = self._let_in.get(mark)
        if key is None or key.expired:
            shown = access.shown_key(headers)
            if shown is None and not view.locked:
                self._admit_without_key(scope, headers)
                scope["pairmark.caller"] = "loopback"
                return
            key = view.key(shown) if shown else self._key_of_session(scope, view, headers, method, shown)
            if key is None:
                raise Unauthenticated(
                    "an API key is required: send 'Authorization: Bearer KEY' or 'X-API-Key: KEY'"
                    if shown is None
                    else "the API key is not known here, was revoked, or has expired"
                )
            if found is not None:
                access.check_key(key, needed, found.path, reading=found.route.reads)
                if shown and found.route.direct and not found.path and len(self._let_in) < _LET_IN:
                    # Hashing the key and looking at its scopes each time would cost as much as parsing the request.
                    self._let_in[mark] = key
        scope["pairmark.caller"] = f"key {key.id}"
        scope["pairmark.key"] = key
        self._services.last_use[key.id] = time.time()
        rate = key.rate or self._settings.rate_limit
        if rate:
            self._services.rates.take(key.id, rate, max(1.0, BURST_S * rate), _rate_said(rate))

    def _key_of_session(
        self, scope: Scope, view: View, headers: dict[bytes, bytes], method: str, shown: str | None
    ) -> ActiveKey | None:
        """The key that the console's session stands for, where the request shows no key of its own."""
        word = access.shown_session(headers) if shown is None else None
        found = view.session(word) if word else None
        if found is None:
            return None
        session, key = found
        access.check_csrf(session, headers, method)
        scope["pairmark.csrf"] = session.csrf
        return key

    def _admit_without_key(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        """No key was ever made: only this machine may ask, and no web page on its behalf."""
        client = scope.get("client")
        asked = (
            client and client[0],
            headers.get(b"host"),
            headers.get(b"origin"),
            headers.get(b"sec-fetch-site"),
        )
        if asked in self._admitted:
            return
        if client is None or not access.is_loopback(client[0]):
            raise Unauthenticated(
                "no API key exists yet, so only this machine is served; make one with 'pairmark keys create'"
            )
        host = access.host_name(headers.get(b"host", b"").decode("latin-1"))
        if not access.is_loopback(host):
            raise Forbidden(
                f"without an API key only requests to localhost are served, not to {host[:100]!r}; "
                "make a key with 'pairmark keys create'"
            )
        if access.from_elsewhere(headers):
            raise Forbidden("without an API key, web pages of other sites are not served; make a key")
        if len(self._admitted) < 1024:
            self._admitted.add(asked)

    # ------------------------------------------------------------ bounds

    def _check_length(self, headers: dict[bytes, bytes], limit: int) -> None:
        declared = headers.get(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise TooLarge(f"the body has {int(declared)} bytes; at most {limit} are taken here", limit=limit)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[bytes, bytes], route: Route
    ) -> None:
        settings = self._settings
        upload = route.limits.upload
        limit = settings.max_upload_bytes if upload else settings.max_body_bytes
        self._check_length(headers, limit)
        begins = route.limits.begins
        beginning = None if begins is None else begins(headers.get(b"content-type", b""))
        taken = 0
        began: float | None = None

        async def bounded() -> Message:
            nonlocal taken, began
            # Long uploads may take long, but each piece must come in time, and all of them at some rate.
            began = time.perf_counter() if began is None else began
            left = began + body_seconds(settings, taken) - time.perf_counter() if upload else None
            piece = None if left is None else max(0.0, min(left, settings.request_timeout_s))
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
                taken += len(message.get("body", b""))
                if taken > limit:
                    said = f"the body has more than {limit} bytes, which is the most taken here"
                    raise _refused(scope, TooLarge(said, limit=limit))
                if beginning is not None:
                    try:
                        beginning.take(message.get("body", b""))
                    except PairmarkError as error:
                        raise _refused(scope, error) from error
                if not message.get("more_body", False):
                    scope["pairmark.body_read"] = True
            return message

        async with asyncio.timeout(settings.request_timeout_s if route.limits.timed else None):
            await self._app(scope, bounded, send)

    # ------------------------------------------------------------ logs

    def _log(
        self,
        scope: Scope,
        method: str,
        route: str,
        status: int,
        seconds: float,
        problem: PairmarkError | None,
        failure: BaseException | None,
        *,
        quiet: bool,
    ) -> None:
        if quiet and failure is None:
            level = logging.DEBUG
        else:
            level = logging.ERROR if status >= 500 or failure is not None else logging.INFO
        if not log.isEnabledFor(level):
            return
        facts: dict[str, Any] = {
            "request_id": scope["pairmark.request_id"],
            "method": method[:20],
            "route": route,
            "status": status,
            "seconds": round(seconds, 6),
            "caller": scope.get("pairmark.caller", "none"),
        }
        if "pairmark.trace_id" in scope:
            facts["trace_id"] = scope["pairmark.trace_id"]
        if problem is not None:
            facts["problem"] = problem.slug
        log.log(level, "request", extra=facts, exc_info=failure)


@functools.lru_cache(64)
def _rate_said(rate: float) -> str:
    return f"at most {rate:g} requests a second are taken from this key"


def _actor(scope: Scope) -> Actor:
    return Actor(
        name=scope.get("pairmark.caller", "nobody"),
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
