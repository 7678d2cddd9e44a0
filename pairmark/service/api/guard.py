"""The guard: what holds for every request, in one ASGI layer.

Request ids, the head's form, metrics, logs, and a problem document for whatever went wrong. Keys and bounds are checked
by each route before its body is read: see `pairmark.service.api.routing`. What it takes to hold off slow heads and
connections by the thousand is a proxy's: see the deployment page.
"""

import logging
import re
import secrets
import time
from collections.abc import Awaitable, Mapping
from typing import Any, Final
from urllib.parse import quote

from fastapi import FastAPI
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pairmark.service.api.metrics import AUTH_FAILURES, measures
from pairmark.service.api.problems import (
    Internal,
    Malformed,
    NotImplementedHere,
    ProblemAnswer,
    SlowBody,
    TimedOut,
    UnmetExpectation,
    UnsupportedMediaType,
)
from pairmark.service.api.routing import WITHIN_PAGE, GuardedRoute, PlainRoute
from pairmark.service.errors import Forbidden, InvalidInput, PairmarkError, Unauthenticated, out_of_files
from pairmark.service.scheduling import BucketState, Limit
from pairmark.service.settings import Settings

log = logging.getLogger("pairmark.access")

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_CLIENT_GONE: Final = 499
_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_BY_TYPE: Final = {
    b"text/html": (b"referrer-policy", b"same-origin"),
    # Opened as a page of its own, a picture could run scripts with the caller's session.
    b"image/svg+xml": (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; sandbox"),
}


class Answering:
    """Sends an answer with what every answer carries, and remembers its status."""

    __slots__ = ("_scope", "_send", "status")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.status = 0

    def __call__(self, message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            request_id = (b"x-request-id", self._scope["pairmark.request_id"].encode())
            headers = [*message.get("headers", ()), request_id, _NOSNIFF, *rate_fields(self._scope)]
            kind = dict(headers).get(b"content-type", b"").partition(b";")[0]
            if kind in _BY_TYPE:
                headers.append(_BY_TYPE[kind])
            message["headers"] = headers
        return self._send(message)


def rate_fields(scope: Scope) -> tuple[tuple[bytes, bytes], ...]:
    """``RateLimit-Policy`` and ``RateLimit`` of an answer, by draft-ietf-httpapi-ratelimit-headers-11; none where
    nothing is limited."""
    limits: list[tuple[Limit, BucketState]] = scope.get("pairmark.limits", [])
    spent: tuple[str, int] | None = getattr(scope.get("pairmark.problem"), "spent", None)
    if not limits and spent is None:
        return ()
    states = [f'"{limit.name}";r={state.remaining};t={state.full_in_s}' for limit, state in limits]
    policies = [limit.policy for limit, _ in limits]
    if spent is not None:
        name, quota = spent
        states.append(f'"{name}";r=0')
        policies.append(f'"{name}";q={quota}')
    return ((b"ratelimit-policy", ", ".join(policies).encode()), (b"ratelimit", ", ".join(states).encode()))


class Guard:
    """ASGI middleware around the whole service."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app, self._settings = app, settings
        self._prefix = secrets.token_hex(4)
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        scope["pairmark.fields"] = headers
        if scope["method"] == "HEAD":
            # Answered as GET; the server sends no body.
            scope = {**scope, "method": "GET", "pairmark.head": True}
        scope["pairmark.request_id"] = self._request_id(headers)
        answer = Answering(scope, send)
        failure: BaseException | None = None
        problem: PairmarkError | None = None
        try:
            _check_head(scope, headers)
            await self._app(scope, receive, answer)
        except PairmarkError as error:
            problem = error
        except TimeoutError:
            problem = self._late(scope)
        except ClientDisconnect:
            answer.status = answer.status or _CLIENT_GONE
        except Exception as error:
            failure = error
            problem = out_of_files(error) or Internal(
                "something went wrong inside the service; the logs name it by request_id"
            )
        if problem is not None:
            if answer.status == 0:
                await _refuse(scope, receive, answer, problem, headers)
            elif failure is None:
                failure = problem
        self._note(scope, answer.status, time.perf_counter() - start, problem, failure)

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        request_id = headers.get(b"x-request-id")
        if request_id is not None and _REQUEST_ID.fullmatch(request_id):
            return request_id.decode()
        self._count += 1
        return f"{self._prefix}-{self._count:08x}"

    def _late(self, scope: Scope) -> PairmarkError:
        seconds = self._settings.request_timeout_s
        if scope["method"] == "GET" or scope.get("pairmark.body_read"):
            return TimedOut(f"the answer took longer than {seconds:g} s")
        return SlowBody(f"the body did not arrive within {seconds:g} s")

    def _note(
        self,
        scope: Scope,
        status: int,
        seconds: float,
        problem: PairmarkError | None,
        failure: BaseException | None,
    ) -> None:
        """Count the request and log it."""
        route, path = scope.get("route"), scope["path"]
        label = route.path_format if isinstance(route, GuardedRoute) else "unmatched"
        method = "HEAD" if "pairmark.head" in scope else scope["method"]
        counter, timer = measures(method, label, status)
        counter.inc()
        timer.observe(seconds)
        problem = problem or scope.get("pairmark.problem")
        if problem is not None and isinstance(problem, Unauthenticated | Forbidden):
            AUTH_FAILURES.labels(problem.slug).inc()
        # Scoring that went well is counted in the metrics; a line for each would cost as much as the scoring. Probes
        # come every few seconds.
        scored = isinstance(route, PlainRoute) and status < 400
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
        if problem is not None:
            facts["problem"] = problem.slug
        log.log(level, "request", extra=facts, exc_info=failure)


class Application(FastAPI):
    """FastAPI's. Plain routes are answered before its middleware, which would cost them a fifth of a score more."""

    plain: dict[tuple[str, str], Guard]
    """By method and address."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        guarded = self.plain.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if guarded is None:
            await super().__call__(scope, receive, send)
        else:
            scope["app"] = self
            await guarded(scope, receive, send)


def _check_head(scope: Scope, headers: dict[bytes, bytes]) -> None:
    """Refuse heads that RFC 9112 refuses, or that this service would read otherwise than a proxy in front."""
    # Only where a name is repeated, which makes the dictionary shorter, may there be several hosts or encodings.
    hosts = int(b"host" in headers)
    if len(headers) != len(scope["headers"]):
        hosts = sum(name == b"host" for name, _ in scope["headers"])
        codings = [value for name, value in scope["headers"] if name == b"content-encoding"]
        if codings:
            headers[b"content-encoding"] = b", ".join(codings)
    if hosts != 1 and (hosts or scope["http_version"] != "1.0"):
        raise Malformed(f"the request has {hosts} Host headers; expected one", field="host")
    encoding = headers.get(b"content-encoding")
    if encoding is not None and (encoding := encoding.strip().lower()) not in (b"", b"identity"):
        raise UnsupportedMediaType(
            f"the body has Content-Encoding: {encoding.decode('latin-1')[:100]}; expected a body that is not "
            "compressed in transfer. Files of datasets may be compressed themselves, e.g. .csv.gz and Parquet",
            field="content-encoding",
        )
    coding = headers.get(b"transfer-encoding")
    if coding is not None and coding.strip().lower() != b"chunked":
        raise NotImplementedHere(
            f"Transfer-Encoding is {coding.decode('latin-1')[:100]!r}; only chunked is read here"
        )
    expected = headers.get(b"expect")
    if expected is not None and expected.strip().lower() != b"100-continue":
        raise UnmetExpectation(
            f"Expect is {expected.decode('latin-1')[:100]!r}; only 100-continue is met here"
        )
    if _CONTROL.search(scope["path"]) or b"%00" in scope["query_string"]:
        raise InvalidInput("the address holds a control character; expected plain text", field="path")


async def _refuse(
    scope: Scope, receive: Receive, answer: Answering, problem: PairmarkError, headers: Mapping[bytes, bytes]
) -> None:
    """Send a problem document, or a browser to the page where one signs in."""
    route = scope.get("route")
    wants_page = isinstance(route, GuardedRoute) and route.is_page and scope["method"] == "GET"
    if isinstance(problem, Unauthenticated) and wants_page and b"text/html" in headers.get(b"accept", b""):
        # A person in a browser signs in; a problem document would leave them standing.
        path = scope["path"]
        to = "/login" if path == "/" else f"/login?next={quote(path, safe='')}"
        fields = [(b"location", to.encode()), (b"content-length", b"0")]
        await answer({"type": "http.response.start", "status": 303, "headers": fields})
        await answer({"type": "http.response.body", "body": b""})
        return
    await ProblemAnswer(problem)(scope, receive, answer)
