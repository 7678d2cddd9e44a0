"""Routes that check who asks, and what may be sent, before the body is read.

A handler is FastAPI's own: ``@router.post(...)``, and below it ``@needs(...)``, the one declaration of access and
limits. `GuardedRoute` is the route class of every router. A `PlainRoute` passes the framework by: its handler takes a
`Call`, reads the body itself and answers in a hundred microseconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from inspect import Parameter, Signature
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl

from fastapi import Body, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from pairmark.schemas.admin import Level
from pairmark.schemas.models import DECIDED_RATES
from pairmark.service.api.access import Access
from pairmark.service.api.problems import (
    MethodNotAllowed,
    NotAcceptable,
    SlowBody,
    UnsupportedMediaType,
    invalid_field,
)
from pairmark.service.api.services import Services
from pairmark.service.audit import Actor, acting
from pairmark.service.errors import Forbidden, InvalidInput, TooLarge
from pairmark.service.keys import ActiveKey
from pairmark.service.names import EVERY_NAME, NAME_PATTERN, VisibleNames
from pairmark.service.pagination import MAX_LIMIT
from pairmark.service.places import current_owner
from pairmark.service.runtime.bodies import check_structure
from pairmark.service.runtime.versions import LoadedVersion
from pairmark.service.settings import Settings

MAX_FIELDS: Final = 2048
_CACHED_BYTES: Final = 512
Q = TypeVar("Q", bound="QueryModel")


class QueryModel(BaseModel):
    """The query of an address. A parameter without a value counts as not given; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _given(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value != ""}


class PageQuery(QueryModel):
    """One page of a list."""

    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="largest number of items in the answer")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the previous page")


Paging = Annotated[PageQuery, Query()]


def query_values(raw: bytes) -> dict[str, str]:
    """The parameters of a query, or `InvalidInput`: each may be given once."""
    try:
        pairs = parse_qsl(
            raw.decode(),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise InvalidInput(
            f"the query is not of the form name=value&name=value, with at most {MAX_FIELDS} of them",
            field="query",
        ) from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise InvalidInput(f"{name[:100]} is given twice; expected once", field=name[:100])
        values[name] = value
    return values


def read_query(model: type[Q], raw: bytes) -> Q:
    """The query as the model has it, or `InvalidInput` that names the parameter and what was expected."""
    # Clients ask the same again and again, so what was read is kept.
    read: Q = _read_query(model, raw) if len(raw) <= _CACHED_BYTES else _read_query.__wrapped__(model, raw)
    return read


@lru_cache(1024)
def _read_query(model: Any, raw: bytes) -> Any:
    try:
        return model.model_validate(query_values(raw) if raw else {})
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        raise invalid_field(
            [{**problem, "loc": ("query", *problem["loc"])} for problem in problems]
        ) from None


JSON: Final = b"application/json"
OCTETS: Final = b"application/octet-stream"
NPZ: Final = b"application/x-npz"
_GIVEN: Final = frozenset({JSON, OCTETS, b"application/*", b"*/*", b""})

Answer = tuple[bytes, bytes, tuple[tuple[bytes, bytes], ...]]
"""Body, media type and further headers of an answer with status 200."""


class Call(Request):
    """A request to a plain route.

    Attributes
    ----------
    services : of this process. query : what the route's query model read. fields : headers, by name in small letters.
    whole : the body that was read.
    """

    def __init__(self, scope: Scope, receive: Receive, services: Services, query: Any) -> None:
        super().__init__(scope, receive)
        self.services, self.query = services, query
        self.fields: dict[bytes, bytes] = scope["pairmark.fields"]
        self.whole: bytes | bytearray = b""

    @property
    def key(self) -> ActiveKey | None:
        """The key of who asks; None: who was admitted without one, and may do everything."""
        key: ActiveKey | None = self.scope.get("pairmark.key")
        return key

    @property
    def asker(self) -> str:
        """Who asks: a key's id, else an address."""
        return self.key.id if self.key is not None else str(self.client and self.client.host)

    @property
    def models(self) -> VisibleNames:
        """The models that who asks may use here."""
        key = self.key
        return EVERY_NAME if key is None else key.grants.usable

    def shows_scores(self, version: LoadedVersion | None) -> bool:
        """Whether who asks may see scores of a version; a key with `decide` alone gets decisions only."""
        key = self.key
        if key is None or not key.allows("decide"):
            return True
        return key.allows("score", None if version is None else version.entry.name)

    def check_listed(self, version: LoadedVersion | None, *rates: float | None, **fixed: bool) -> None:
        """Refuse what would tell a key that may only decide more than decisions at the listed rates: a series of rates,
        confidences, methods or costs brackets a score as closely as one likes.

        Parameters
        ----------
        version : that decides. rates : those that are asked for.
        fixed : by name, whether a parameter has the one value that such a key may use.
        """
        model = (
            None if version is None else self.services.runtime.catalogue.view.models.get(version.entry.name)
        )
        may = DECIDED_RATES if model is None else model.rates
        for rate in rates:
            if rate is not None and not any(math.isclose(rate, listed) for listed in may):
                listed = ", ".join(f"{listed:g}" for listed in may)
                raise Forbidden(
                    f"the key may only decide, at one of the rates {listed}; {rate:g} takes a key with score",
                    scope="score",
                )
        for name, is_fixed in fixed.items():
            if not is_fixed:
                raise Forbidden(f"the key may only decide; {name} takes a key with score", scope="score")

    async def read_body(self) -> bytes | bytearray:
        """The whole body; of JSON, no more brackets than the largest batch has."""
        message = await self.receive()
        whole: bytes | bytearray = message.get("body", b"")
        if message.get("more_body", False):
            whole = bytearray(whole)
            while message.get("more_body", False):
                message = await self.receive()
                whole += message.get("body", b"")
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        self.whole = whole
        self.scope["pairmark.body_read"] = True
        if media_type(self.fields) not in (OCTETS, NPZ):
            check_structure(whole, self.services.settings.max_batch_pairs)
        return whole


def media_type(fields: Mapping[bytes, bytes]) -> bytes:
    """The type of a body; without one it is JSON."""
    kind = fields.get(b"content-type", JSON)
    return kind if kind == JSON else kind.partition(b";")[0].strip().lower()


def media(call: Call) -> tuple[bytes, bool]:
    """Media type of the body, and whether raw bytes are wanted back; refuses what is neither read nor given."""
    kind, accept = media_type(call.fields), call.fields.get(b"accept", b"*/*")
    if kind not in (JSON, OCTETS, NPZ):
        raise UnsupportedMediaType(
            f"the body is {kind.decode('latin-1')[:100]!r}; expected Content-Type: application/json, "
            "application/octet-stream or application/x-npz"
        )
    wanted = {media_range.partition(b";")[0].strip() for media_range in accept.lower().split(b",")}
    if OCTETS in wanted and JSON not in wanted:
        return kind, True
    if wanted.isdisjoint(_GIVEN):
        raise NotAcceptable(
            f"Accept is {accept.decode('latin-1')[:100]!r}; this route answers with application/json or "
            "application/octet-stream"
        )
    return kind, False


def only_json(call: Call) -> None:
    """Refuse anything but JSON in and JSON out."""
    kind, raw = media(call)
    if kind != JSON:
        raise UnsupportedMediaType("this route reads application/json")
    if raw:
        raise NotAcceptable("this route answers with application/json")


def model_header(model: bytes) -> tuple[bytes, bytes]:
    """The version that answered, for raw answers. Names are ASCII, so its JSON can stand in a header as it is."""
    return (b"x-pairmark-model", model)


DECISION_HEADER: Final = b"pairmark-log-decision"
LOGGED: Final = 1_000
"""Most scores of one entry; the digest of the answer stands for the rest."""


async def logged_decision(handler: Callable[..., Awaitable[Answer]], call: Call) -> Answer:
    """Answer, once the decision is in the audit log: the answer names its entry in ``Pairmark-Decision-Id``."""
    body, kind, extra = await handler(call, **call.path_params)
    facts = {
        "query": call.scope["query_string"].decode("latin-1")[:500],
        "input_sha256": hashlib.sha256(call.whole).hexdigest(),
        "answer_sha256": hashlib.sha256(body).hexdigest(),
        **(_of_json(body) if kind == JSON else _of_headers(extra)),
    }
    resource = f"gallery:{call.path_params['gallery']}" if "gallery" in call.path_params else "match"
    number = await asyncio.to_thread(call.services.audit.note, "decision", resource, facts)
    return body, kind, (*extra, (b"pairmark-decision-id", b"%d" % number))


def _of_json(body: bytes) -> dict[str, Any]:
    answer = json.loads(body)
    entries = answer.get("matches", answer.get("decisions"))
    if entries is None and "results" in answer:
        entries = [hit for hits in answer["results"] for hit in hits]
    if entries is None:
        entries = [answer]
    # Who was found is not kept: ids of people must stay erasable.
    decisions = [
        {name: entry[name] for name in ("score", "match", "decision") if name in entry}
        for entry in entries[:LOGGED]
    ]
    return {
        "model": answer.get("model"),
        "operating_point": answer.get("operating_point"),
        "n": len(entries),
        "decisions": decisions,
    }


def _of_headers(extra: tuple[tuple[bytes, bytes], ...]) -> dict[str, Any]:
    answer = {name.decode().lower(): value.decode() for name, value in extra}
    return {
        "operating_point": {
            "threshold": answer.get("x-pairmark-threshold"),
            "calibration_id": answer.get("x-pairmark-calibration-id"),
        },
        "model": answer.get("x-pairmark-model"),
    }


Handler = TypeVar("Handler", bound=Callable[..., Any])
JSON_TYPE: Final = "application/json"
OCTETS_TYPE: Final = "application/octet-stream"
EVENT: Final[dict[str, Any]] = {
    "type": "object",
    "description": "one server-sent event; `data` is JSON",
    "properties": {name: {"type": "string"} for name in ("id", "event", "data", "retry")},
}
WITHIN_PAGE: Final = "pairmark.within_page"
"""Marks what a page of the console asks in this process: the page itself is logged."""
_MOST_MARKS: Final = 50_000
"""Brackets, braces and commas of a JSON body that the framework reads, at most."""
_BINARY: Final = {"type": "string", "format": "binary"}


@dataclass(frozen=True, kw_only=True)
class BodyLimits:
    """What bounds a request.

    Attributes
    ----------
    json : the setting with the most bytes of a JSON body. other : of a body of another type.
    instead : what takes more than a JSON body may hold, for the refusal.
    timed : the whole takes at most `request_timeout_s`; else each piece of the body must come in time.
    """

    json: str = "max_control_bytes"
    other: str = "max_control_bytes"
    instead: str = "send less at a time"
    timed: bool = True

    def limit(self, settings: Settings, kind: bytes) -> int:
        """Bytes that a body of this type may have."""
        limit: int = getattr(settings, self.json if kind == JSON else self.other)
        return limit


CONTROL: Final = BodyLimits()
BULK: Final = BodyLimits(json="max_json_bytes", other="max_json_bytes")
LONG: Final = BodyLimits(timed=False)
LONG_LISTS: Final = BodyLimits(json="max_json_bytes", other="max_json_bytes", timed=False)
UPLOAD: Final = BodyLimits(other="max_upload_bytes", timed=False)
ITEMS: Final = BodyLimits(
    json="max_json_bytes",
    other="max_upload_bytes",
    timed=False,
    instead="send items as CSV, Parquet or npz",
)
VECTORS: Final = BodyLimits(
    json="max_json_bytes",
    other="max_body_bytes",
    instead="send application/octet-stream or application/x-npz, or batches of records",
)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a route needs and limits.

    Attributes
    ----------
    access : the scope, on the resource in the path if there is one.
    reading : a POST that changes nothing, so that a key which may only read may send it.
    of_items : it changes items of a gallery and not the gallery itself.
    decode : reads a JSON body with long lists, in a thread; the framework would hold up everybody over them.
    query, body : what a plain route reads, for the OpenAPI document.
    bodies : media types that are read beside JSON.
    decides : answers are decisions, which the audit log can keep.
    """

    access: Access
    limits: BodyLimits = CONTROL
    reading: bool = False
    of_items: bool = False
    decode: Callable[[bytes], BaseModel] | None = None
    query: Any = None
    body: Any = None
    bodies: tuple[str, ...] = ()
    decides: bool = False


def needs(access: Access, **declared: Any) -> Callable[[Handler], Handler]:
    """Declare below ``@router.get(...)`` what a handler needs: see `Needs`."""

    def declare(handler: Handler) -> Handler:
        vars(handler)["needs"] = Needs(access=access, **declared)
        return handler

    return declare


def content(media_type: str, schema: Mapping[str, Any] = _BINARY) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with something other than JSON."""
    return {200: {"content": {media_type: {"schema": schema}}}}


class _Name(Convertor[str]):
    """A name in an address, with or without a tenant, however its slash is encoded."""

    regex = NAME_PATTERN

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Name())


class GuardedRoute(APIRoute):
    """A route that refuses what it does not allow before anything is parsed.

    Attributes
    ----------
    method : of its address. reads_json : whether the framework parses its bodies.
    """

    reads_json = True

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        self.needs: Needs = vars(endpoint)["needs"]
        (self.method,) = options["methods"]
        options["operation_id"] = options["operation_id"] or endpoint.__name__
        extra = {} if self.needs.access == "open" else _access_text(self.needs.access)
        if self.needs.bodies:
            extra["requestBody"] = {"content": {kind: {"schema": _BINARY} for kind in self.needs.bodies}}
        super().__init__(path, endpoint, **{**options, "openapi_extra": extra})

    @property
    def is_page(self) -> bool:
        """Whether people see the answer in a browser."""
        return self.response_class is HTMLResponse

    @cached_property
    def level(self) -> Level:
        """How much of a resource its scope has to cover."""
        if self.needs.reading or self.method == "GET":
            return "read"
        return "items" if self.needs.of_items else "all"

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind its guards."""
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            scope = request.scope
            services: Services = scope["app"].state.services
            receive = await self.admitted(services, scope, request.receive)
            decoding = _Decoding(scope, receive, services, self.needs.decode)
            seconds = services.settings.request_timeout_s if self.needs.limits.timed else None
            with acting(actor_of(scope)):
                async with asyncio.timeout(seconds):
                    if self._is_free(scope):
                        return await handler(decoding)
                    async with services.slot(current_owner()):
                        return await handler(decoding)

        return guarded

    def _is_free(self, scope: Scope) -> bool:
        """Pages ask on within their turn; uploads and long work have places of their own; whoever watches the service
        is told at once, also while everybody waits."""
        is_probe = self.needs.access in ("open", "metrics")
        return self.is_page or is_probe or WITHIN_PAGE in scope or not self.needs.limits.timed

    async def admitted(self, services: Services, scope: Scope, receive: Receive) -> Receive:
        """Check all that can be checked before a body is read; returns what reads that within its bounds."""
        if "pairmark.head" in scope and not self.needs.limits.timed:
            raise MethodNotAllowed("this address takes GET")
        await services.admission.admit(scope, self.needs.access, scope.get("path_params", {}), self.level)
        self._check_query(scope)
        fields: dict[bytes, bytes] = scope["pairmark.fields"]
        if b"content-encoding" in fields:
            _check_encoding(fields[b"content-encoding"].strip().lower())
        limits, settings = self.needs.limits, services.settings
        kind = media_type(fields)
        limit = limits.limit(settings, kind)
        declared = fields.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise _too_large(str(int(declared)), limit, limits.instead)
        counts_marks = self.reads_json and self.needs.decode is None and kind == JSON
        if declared.isdigit() and limits.timed and not counts_marks:
            # The server gives no more than was declared.
            return receive
        return _Body(scope, receive, settings, limits, limit, counts_marks).receive

    def _check_query(self, scope: Scope) -> None:
        if scope["query_string"]:
            values = query_values(scope["query_string"])
            if not self.dependant.query_params:
                name = next(iter(values))[:100]
                raise InvalidInput(f"{name!r} is not a query parameter here; there is none", field=name)


class PlainRoute(GuardedRoute):
    """A route whose handler reads a `Call`; the models in `Needs` say what it takes, for the document."""

    reads_json = False

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        declared: Needs = vars(endpoint)["needs"]
        given = {"query": (declared.query, Query()), "body": (declared.body, Body())}

        def reads(**_: Any) -> None:
            """Never called: names what the handler reads."""

        vars(reads)["__signature__"] = Signature(
            [
                Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[model, place])
                for name, (model, place) in given.items()
                if model is not None
            ]
        )
        super().__init__(path, endpoint, **{**options, "dependencies": [Depends(reads)]})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler behind its guards, without the framework between."""

        async def guarded(request: Request) -> Response:
            body, kind, extra = await self.answer(request.scope, request.receive)
            response = Response(body, media_type=kind.decode())
            response.raw_headers.extend(extra)
            return response

        return guarded

    async def answer(self, scope: Scope, receive: Receive) -> Answer:
        """What the handler answers."""
        services: Services = scope["app"].state.services
        settings = services.settings
        receive = await self.admitted(services, scope, receive)
        model = self.needs.query
        query = None if model is None else read_query(model, scope["query_string"])
        call = Call(scope, receive, services, query)
        async with asyncio.timeout(settings.request_timeout_s if self.needs.limits.timed else None):
            logs = self.needs.decides and (
                settings.log_decisions or call.fields.get(DECISION_HEADER) == b"true"
            )
            await services.turns.begin(current_owner())
            if not logs and not self.needs.of_items:
                answer: Answer = await self.endpoint(call, **call.path_params)
                return answer
            with acting(actor_of(scope)):
                if logs:
                    return await logged_decision(self.endpoint, call)
                changed: Answer = await self.endpoint(call, **call.path_params)
                return changed

    def _check_query(self, scope: Scope) -> None:
        if self.needs.query is None:
            super()._check_query(scope)


class _Decoding(Request):
    """A request whose JSON is read by the route's own decoder, if it has one."""

    def __init__(
        self, scope: Scope, receive: Receive, services: Services, decode: Callable[[bytes], BaseModel] | None
    ) -> None:
        super().__init__(scope, receive)
        self._services, self._decode = services, decode

    async def json(self) -> Any:
        body = await self.body()
        if self._decode is None:
            return await super().json()
        try:
            return await self._services.runtime.batch_place.run(partial(self._decode, body))
        except Exception as error:
            # The framework takes any error of a body for a malformed one.
            self.scope["pairmark.refusal"] = error
            raise


class _Body:
    """Reads a body within its bounds: bytes, marks of JSON, and the time of each piece of what may take long."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        settings: Settings,
        limits: BodyLimits,
        limit: int,
        counts_marks: bool,
    ) -> None:
        self._scope, self._receive, self._settings, self._limits = scope, receive, settings, limits
        self._limit, self._counts_marks = limit, counts_marks
        self._size = self._marks = 0
        self._began = 0.0
        self._is_read = False

    async def receive(self) -> Message:
        """The next piece; what is refused is kept in the scope, as the framework takes it for a malformed body."""
        try:
            return await self._next()
        except (SlowBody, TooLarge) as error:
            self._scope["pairmark.refusal"] = error
            raise

    async def _next(self) -> Message:
        if self._limits.timed or self._is_read:
            message = await self._receive()
        else:
            message = await self._in_time()
        piece = message.get("body", b"")
        self._size += len(piece)
        if self._size > self._limit:
            raise _too_large(f"more than {self._limit}", self._limit, self._limits.instead)
        if self._counts_marks:
            # Each may become an object and be validated, all of them while nobody else is answered.
            self._marks += piece.count(b"[") + piece.count(b"{") + piece.count(b",")
            if self._marks > _MOST_MARKS:
                raise TooLarge(
                    f"the body has more than {_MOST_MARKS} lists, objects and commas; {self._limits.instead}",
                    limit=_MOST_MARKS,
                )
        if not message.get("more_body", False):
            self._is_read = self._scope["pairmark.body_read"] = True
        return message

    async def _in_time(self) -> Message:
        """Long uploads may take long, but each piece must come in time, and all of them at some rate."""
        settings, now = self._settings, time.monotonic()
        self._began = self._began or now
        patience = settings.request_timeout_s
        most = self._began + patience + self._size / settings.min_upload_bytes_per_s - now
        try:
            async with asyncio.timeout(max(0.0, min(most, patience))):
                return await self._receive()
        except TimeoutError:
            raise SlowBody(
                f"the body arrives too slowly: no piece for {patience:g} s, or less than "
                f"{settings.min_upload_bytes_per_s:g} bytes a second"
            ) from None


def _access_text(access: Access) -> dict[str, Any]:
    return {
        "security": [{"bearer": []}, {"key": []}],
        "x-required-scope": "any" if access == "metrics" else access,
    }


def actor_of(scope: Scope) -> Actor:
    key = scope.get("pairmark.key")
    return Actor(
        name=scope.get("pairmark.caller", "nobody"),
        tenant=None if key is None else key.tenant,
        request_id=scope["pairmark.request_id"],
        trace_id=scope.get("pairmark.trace_id"),
    )


def _too_large(size: str, limit: int, instead: str) -> TooLarge:
    return TooLarge(f"the body has {size} bytes; at most {limit} are taken here: {instead}", limit=limit)


def _check_encoding(encoding: bytes) -> None:
    if encoding not in (b"", b"identity"):
        raise UnsupportedMediaType(
            f"the body has Content-Encoding: {encoding.decode('latin-1')[:100]}; expected a body that is not "
            "compressed in transfer. Files of datasets may be compressed themselves, e.g. .csv.gz and Parquet",
            field="content-encoding",
        )
