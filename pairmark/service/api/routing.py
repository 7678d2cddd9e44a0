"""Route definitions and the lookup of a request's route; `routes.py` lists the routes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import Any, Final, get_args, get_type_hints

from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.routing import compile_path

from pairmark.service.api.access import Access
from pairmark.service.api.problems import responses
from pairmark.service.api.query import NoQuery, Query, QueryReader, reader_of
from pairmark.service.keys.schemas import Level
from pairmark.service.names import NAME_PATTERN

JSON_TYPE: Final = "application/json"
_ALWAYS = (422, 500, 503)


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """What bounds a request.

    Attributes
    ----------
    upload : the body may have `max_upload_bytes` and arrive in pieces, each in time.
    bulk : a JSON body holds vectors, records, items, scores, outcomes or candidates, and may have `max_json_bytes`;
        else `max_control_bytes`.
    decoded : the handler decodes the JSON itself, as the framework would hold up everybody over long lists.
    instead : what takes more than a JSON body may hold, for the refusal.
    timed : the whole takes at most `request_timeout_s`.
    """

    upload: bool = False
    bulk: bool = False
    decoded: bool = False
    instead: str = "send less at a time"
    timed: bool = True


EVENTS: Final = "text/event-stream"
EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "one server-sent event; `data` is JSON",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data", "retry")},
}


@dataclass(frozen=True, kw_only=True)
class Binary:
    """Bodies and answers beside JSON.

    Attributes
    ----------
    bodies : media types that are read.
    answer_headers : headers of a raw answer, with what they hold; None: the answer is always JSON.
    text : says what the bytes are.
    """

    bodies: tuple[str, ...]
    answer_headers: Mapping[str, str] | None = None
    text: str = ""


@dataclass(frozen=True)
class Route:
    """One address and method: everything that dispatch, access, limits, metrics and the OpenAPI document need.

    Attributes
    ----------
    handler : takes a `Call` if ``direct``, else what FastAPI finds in its signature.
    access : the scope it needs.
    tag : its group in the OpenAPI document; None: it is not there.
    query, body, answer : their models; what is left out is read from the handler's signature. No answer: see ``gives``.
    gives : media type of the answer; with a type other than JSON the handler returns a response of its own.
    or_gives : a media type that the same answer can have instead of JSON.
    also : further successful answers, status -> (model, description).
    errors : statuses of problems beyond those that every route can answer with.
    reading : a POST that changes nothing, so that a key which may only read may send it.
    of_items : it changes items of a gallery and not the gallery itself.
    links : operation id -> parameters of it, as expressions on this route's answer.
    decides : answers are decisions, which the audit log can keep.
    direct : the edge calls the handler itself, past the framework, whose handling of a body costs more than a score.
    """

    method: str
    path: str
    handler: Callable[..., Any]
    _: KW_ONLY
    access: Access
    tag: str | None = None
    summary: str | None = None
    name: str | None = None
    query: type[Query] | None = None
    body: Any = None
    answer: Any = None
    gives: str = JSON_TYPE
    or_gives: str | None = None
    status: int = 200
    also: Mapping[int, tuple[type[BaseModel], str]] = field(default_factory=dict)
    errors: tuple[int, ...] = ()
    limits: BodyLimits = BodyLimits()
    reading: bool = False
    of_items: bool = False
    direct: bool = False
    decides: bool = False
    binary: Binary | None = None
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, model in ({} if self.direct else _signature_models(self.handler)).items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, model)

    @property
    def operation_id(self) -> str:
        """The operation's name, unique in the table."""
        return self.name or self.handler.__name__

    @cached_property
    def reads(self) -> bool:
        """Whether it changes nothing."""
        return self.reading or self.method == "GET"

    @cached_property
    def level(self) -> Level:
        """How much of a resource its scope has to cover."""
        return "read" if self.reads else "items" if self.of_items else "all"

    @cached_property
    def label(self) -> str:
        """The address without the kinds of its parameters, as metrics, logs and the OpenAPI document show it."""
        return self.path.replace(":path}", "}")

    @cached_property
    def reader(self) -> QueryReader:
        return reader_of(self.query or NoQuery)

    @cached_property
    def app(self) -> Any:
        """The handler as an ASGI application, with FastAPI reading its path, headers and body."""
        return self.framework_route(self.handler).app

    @property
    def reads_stream(self) -> bool:
        """Whether the handler reads the body itself, so that the framework does not know its form."""
        return self.body is not None and (self.direct or self.binary is not None or self.limits.decoded)

    def problem_statuses(self) -> set[int]:
        statuses = {*_ALWAYS, *self.errors}
        if self.access != "open":
            statuses |= {401, 403}
        if self.method in ("POST", "PUT", "PATCH"):
            statuses |= {408, 413}
        if self.direct:
            statuses |= {404, 406, 415, 429}
        if "{" in self.path:
            statuses.add(404)
        return statuses

    def framework_route(self, endpoint: Callable[..., Any]) -> APIRoute:
        """FastAPI's view of the route with this endpoint."""
        json = self.gives == JSON_TYPE and self.status != 204
        answers: dict[int | str, dict[str, Any]] = {
            status: {"model": model, "description": text} for status, (model, text) in self.also.items()
        }
        if not json and self.status != 204:
            is_binary = self.gives.startswith(("image/", "application/"))
            text = {"type": "string", "format": "binary"} if is_binary else {"type": "string"}
            schema = EVENT if self.gives == EVENTS else text
            answers[self.status] = {
                "description": "Successful Response",
                "content": {self.gives: {"schema": schema}},
            }
        if self.or_gives is not None:
            answers[self.status] = {"content": {self.or_gives: {"schema": {"type": "string"}}}}
        answers.update(responses(*sorted(self.problem_statuses())))
        return APIRoute(
            self.path,
            endpoint,
            methods=[self.method],
            response_model=self.answer if json else None,
            response_class=JSONResponse if json else Response,
            status_code=self.status,
            responses=answers,
            tags=[self.tag] if self.tag else None,
            summary=self.summary or self.operation_id.replace("_", " ").capitalize(),
            operation_id=self.operation_id,
            name=self.operation_id,
        )


@dataclass(frozen=True)
class RouteMatch:
    """The route of a request, and the parameters in its path."""

    route: Route
    path: dict[str, str]


class RouteTable:
    """Routes by method and path, the first that fits; `ValueError` when two share both, or an operation's name."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes: Sequence[Route] = tuple(routes)
        self._exact: dict[tuple[str, str], RouteMatch] = {}
        self._patterns: dict[tuple[str, str], list[tuple[re.Pattern[str], Route]]] = {}
        names: set[str] = set()
        for route in self.routes:
            if route.operation_id in names:
                raise ValueError(f"two routes are called {route.operation_id!r}")
            names.add(route.operation_id)
            for method in _methods(route):
                if "{" in route.path:
                    pattern = _pattern(route.path)
                    self._patterns.setdefault((method, _first(route.path)), []).append((pattern, route))
                elif (method, route.path) in self._exact:
                    raise ValueError(f"two routes answer {method} {route.path}")
                else:
                    self._exact[(method, route.path)] = RouteMatch(route, {})

    def find(self, method: str, path: str) -> RouteMatch | None:
        """The route of a request, if there is one."""
        route_match = self._exact.get((method, path))
        if route_match is not None:
            return route_match
        for pattern, route in self._patterns.get((method, _first(path)), ()):
            # Not `match`: there "$" would leave a line break at the end out of the name.
            matched = pattern.fullmatch(path)
            if matched is not None:
                return RouteMatch(route, matched.groupdict())
        return None

    def methods_of(self, path: str) -> list[str]:
        """The methods that an address takes; none: there is nothing there."""
        methods = {method for method, _ in (*self._exact, *self._patterns)}
        return sorted(method for method in methods if self.find(method, path) is not None)


def _signature_models(handler: Callable[..., Any]) -> dict[str, type[BaseModel] | None]:
    """The models of query, body and answer that a handler's signature names."""
    hints = get_type_hints(handler)
    answers = get_args(hints.get("return")) or (hints.get("return"),)
    models = {"query": (hints.get("query"),), "body": (hints.get("request"),), "answer": answers}
    return {
        name: next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)
        for name, kinds in models.items()
    }


def _pattern(path: str) -> re.Pattern[str]:
    """What an address matches; names may have a tenant before them."""
    pattern = compile_path(path)[0].pattern
    for name in ("name", "ref", "gallery"):
        pattern = pattern.replace(f"(?P<{name}>[^/]+)", f"(?P<{name}>{NAME_PATTERN})")
    return re.compile(pattern)


def _methods(route: Route) -> tuple[str, ...]:
    """A route that reads answers HEAD as well, unless its answer does not end by itself."""
    return ("GET", "HEAD") if route.method == "GET" and route.limits.timed else (route.method,)


def _first(path: str) -> str:
    return path[1:].partition("/")[0]
