"""Routes that check who asks, and what may be sent, before the body is read.

A handler is FastAPI's own: ``@router.post(...)``, and below it ``@needs(...)``, the one declaration of access and
limits. `GuardedRoute` is the route class of every router. A `PlainRoute` passes the framework by: its handler takes a
`Call`, reads the body itself and answers in a hundred microseconds.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from inspect import Parameter, Signature
from types import coroutine
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import parse_qsl

from fastapi import Body, Depends, Path, Query, Request, Response
from fastapi.responses import HTMLResponse
from fastapi.routing import APIRoute
from pydantic import Field, ValidationError
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from pairmark.models.evaluation.pairs import MEDIA_TYPES, Format
from pairmark.schemas.admin import Level
from pairmark.schemas.base import QueryModel
from pairmark.service.api.access import CONTROL, UPLOAD, Access, BodyLimits, admit, bounded_receive, too_large
from pairmark.service.api.problems import (
    RESPONSES,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
)
from pairmark.service.api.services import Services
from pairmark.service.audit import Actor, acting_as
from pairmark.service.datasets.lists import TableForm
from pairmark.service.db import MAX_LIMIT
from pairmark.service.errors import InvalidInput, invalid_field
from pairmark.service.keys import EVERYTHING, ActiveKey
from pairmark.service.names import NAME_PATTERN
from pairmark.service.scheduling import MODERATE_S, SHORT_S, RequestWork, current_owner
from pairmark.service.scoring.json import count_marks
from pairmark.service.scoring.requests import MAX_AT_ONCE, SMALL

# Parameters of a query, at most, and bytes of one whose reading is kept.
MAX_FIELDS: Final = 2048
_CACHED_BYTES: Final = 512
Q = TypeVar("Q", bound=QueryModel)


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
        raise invalid_field(error.errors(include_url=False, include_input=False), "query") from None


JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
NPZ: Final = "application/x-npz"
FORM: Final = "multipart/form-data"
_BYTES_A_SECOND: Final = {JSON: 64 * 1024 * 1000.0, OCTETS: 2 * 1024 * 1024 * 1000.0}
"""How fast a body is read; an npz may hold far more than its bytes."""
T = TypeVar("T")


class Call(Request):
    """A request to a plain route.

    Attributes
    ----------
    services : of this process. query : what the route's query model read. work : where the request's work runs.
    kind : the type of the body; without one it is JSON. raw : whether octets are wanted back.
    key, grants : of who asks, and what they may see and do; without a key, everything.
    """

    def __init__(
        self, scope: Scope, receive: Receive, services: Services, needs: "Needs", work: RequestWork
    ) -> None:
        super().__init__(scope, receive)
        self.services, self.work = services, work
        self.query: Any = None if needs.query is None else read_query(needs.query, scope["query_string"])
        fields = scope["pairmark.fields"]
        self.kind = media_type(fields)
        if self.kind not in needs.reads:
            raise UnsupportedMediaType(
                f"the body is {self.kind[:100]!r}; expected Content-Type: {' or '.join(needs.reads)}"
            )
        self.raw = _wants_octets(fields.get(b"accept", b"*/*"), may_be_raw=needs.raw)
        self.key: ActiveKey | None = scope.get("pairmark.key")
        self.grants = EVERYTHING if self.key is None else self.key.grants
        self._whole: bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of the body, as the head declares them; of one in pieces at most as many as are read at once."""
        fields: dict[bytes, bytes] = self.scope["pairmark.fields"]
        declared = fields.get(b"content-length", b"")
        return int(declared) if declared.isdigit() else MAX_AT_ONCE * (b"transfer-encoding" in fields)

    @property
    def asker(self) -> str:
        """Who asks: a key's id, else an address."""
        client = self.scope.get("client")
        return self.key.id if self.key is not None else str(client and client[0])

    async def read_body(self) -> bytes:
        """The whole body; of JSON, no more brackets than the largest batch of pairs has."""
        if self._whole is None:
            pieces, marks, more = [], (0, 0), True
            while more:
                message = await self.receive()
                piece, more = message.get("body", b""), message.get("more_body", False)
                pieces.append(piece)
                # Here and not of the whole: the memory alone that takes would hold up everybody.
                if self.kind not in (OCTETS, NPZ) and (more or len(pieces) > 1 or len(piece) > SMALL):
                    marks = count_marks(piece, self.services.settings.max_batch_pairs, marks)
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            self._whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            self.scope["pairmark.body_read"] = True
        return self._whole

    async def parsed(self, parse: Callable[[bytes], T]) -> T:
        """What the body holds, read where that takes no time from others."""
        body = await self.read_body()
        seconds = len(body) / _BYTES_A_SECOND.get(self.kind, 1.0)
        if seconds <= SHORT_S:
            return parse(body)
        if self.kind != JSON:
            return await self.work.run(seconds, lambda: parse(body))
        if seconds > MODERATE_S:
            self.work.take()
        return await self.services.reading.run(lambda: parse(body))


def media_type(fields: Mapping[bytes, bytes]) -> str:
    """The type of a body; without one it is JSON."""
    kind = fields.get(b"content-type", b"application/json")
    return JSON if kind == b"application/json" else kind.decode("latin-1").partition(";")[0].strip().lower()


@lru_cache(256)
def _wants_octets(accept: bytes, *, may_be_raw: bool) -> bool:
    """Whether who accepts these types gets raw numbers; refuses who takes neither these, where there are any, nor
    JSON."""
    wanted = {one.partition(";")[0].strip() for one in accept.decode("latin-1").lower().split(",")}
    if may_be_raw and OCTETS in wanted and JSON not in wanted:
        return True
    if wanted.isdisjoint((JSON, "application/*", "*/*", "")):
        types = f"{JSON} or {OCTETS}" if may_be_raw else JSON
        raise NotAcceptable(f"Accept is {accept.decode('latin-1')[:100]!r}; this route answers with {types}")
    return False


class JsonAnswer(Response):
    """An answer in JSON as it is: the class above would spend more on its headers than most requests do on scoring."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-length", b"%d" % len(self.body)), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


Handler = TypeVar("Handler", bound=Callable[..., Any])
_NOBODY: Final = nullcontext()
"""Who reads changes nothing that the audit log would tell."""
WITHIN_PAGE: Final = "pairmark.within_page"
"""Marks what a page of the console asks in this process: the page itself is logged."""
BINARY: Final = {"type": "string", "format": "binary"}


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a route needs and limits.

    Attributes
    ----------
    access : the scope, on the resource in the path if there is one.
    reading : a POST that changes nothing, so that a key which may only read may send it.
    of_items : it changes items of a gallery and not the gallery itself.
    renames : it changes what names or keys mean, so that its answer waits until every process sees that.
    query, body : what a plain route reads, for the OpenAPI document.
    bodies : media types that are read beside JSON. raw : whether it answers in octets too, who asks for them.
    table : how a file in a form stands for lists of the JSON body, which is ``body``.
    """

    access: Access
    limits: BodyLimits = CONTROL
    reading: bool = False
    of_items: bool = False
    renames: bool = False
    query: Any = None
    body: Any = None
    bodies: tuple[str, ...] = ()
    raw: bool = False
    table: TableForm | None = None

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Media types of bodies."""
        return (JSON, *self.bodies) if self.table is None else (JSON, *self.bodies, FORM)

    def form_schema(self, table: TableForm) -> dict[str, Any]:
        """The form with a file, for the OpenAPI document; its fields are the members that are not in the file."""
        columns = f"CSV or Parquet by its name, with the columns {table.expected}"
        members = self.body.model_json_schema()["properties"].items()
        lists = (table.objects, table.parent, *table.columns.values())
        fields = {name: field for name, field in members if name not in lists}
        return {
            "type": "object",
            "properties": {"file": {**BINARY, "description": columns}, **fields},
            "required": ["file", *(name for name in fields if self.body.model_fields[name].is_required())],
        }


def needs(access: Access, **declared: Any) -> Callable[[Handler], Handler]:
    """Declare below ``@router.get(...)`` what a handler needs: see `Needs`."""

    def declare(handler: Handler) -> Handler:
        vars(handler)["needs"] = Needs(access=access, **declared)
        return handler

    return declare


def content(*media_types: str, schema: Mapping[str, Any] = BINARY) -> dict[int | str, dict[str, Any]]:
    """``responses`` of a route that answers with something other than JSON."""
    return {200: {"content": {kind: {"schema": schema} for kind in media_types}}}


Picture = Annotated[Format, Path(description="`svg` or `png`")]
PICTURES: Final = content(*MEDIA_TYPES.values())
"""``responses`` of a route that draws a `Picture`."""


class _Name(PathConvertor):
    """A name in an address, with or without a tenant, however its slash is encoded."""

    regex = NAME_PATTERN


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
        extra: dict[str, Any] = {}
        if self.needs.access != "open":
            extra["security"] = [{"bearer": []}, {"key": []}]
            extra["x-required-scope"] = "any" if self.needs.access == "metrics" else self.needs.access
        bodies: dict[str, Any] = {kind: {"schema": BINARY} for kind in self.needs.bodies}
        if self.needs.table is not None:
            bodies[FORM] = {"schema": self.needs.form_schema(self.needs.table)}
        if bodies:
            extra["requestBody"] = {"content": bodies}
        responses = {**RESPONSES, **(options["responses"] or {})}
        super().__init__(path, endpoint, **{**options, "openapi_extra": extra, "responses": responses})

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
        is_timed = self.needs.limits.timed

        async def guarded(request: Request) -> Response:
            scope = request.scope
            services: Services = scope["app"].state.services
            receive = await self.admitted(services, scope, request.receive)
            seconds = services.settings.request_timeout_s if is_timed else None
            # Pages ask on within their turn; uploads and long work have places of their own; whoever watches the
            # service is told at once, also while everybody waits.
            is_free = (
                self.is_page
                or self.needs.access in ("open", "metrics")
                or WITHIN_PAGE in scope
                or not is_timed
            )
            turn = nullcontext() if is_free else services.handled()
            with acting_as(actor_of(scope)):
                async with asyncio.timeout(seconds), turn:
                    answer = await handler(Request(scope, receive))
                    if self.needs.renames:
                        await services.runtime.catalogue.after_change()
                    return answer

        return guarded

    async def admitted(self, services: Services, scope: Scope, receive: Receive) -> Receive:
        """Check all that can be checked before a body is read; returns what reads that within its bounds."""
        limits, settings = self.needs.limits, services.settings
        if "pairmark.head" in scope and not limits.timed:
            raise MethodNotAllowed("this address takes GET")
        await admit(services, scope, self.needs.access, scope.get("path_params", {}), self.level)
        if scope["query_string"] and self.needs.query is None:
            values = query_values(scope["query_string"])
            if not self.dependant.query_params:
                name = next(iter(values))[:100]
                raise InvalidInput(f"{name!r} is not a query parameter here; there is none", field=name)
        fields: dict[bytes, bytes] = scope["pairmark.fields"]
        kind = media_type(fields)
        table = self.needs.table if kind == FORM else None
        if table is not None:
            limits = UPLOAD
        limit: int = getattr(settings, limits.json if kind == JSON else limits.other)
        declared = fields.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit:
            raise too_large(str(int(declared)), limit, limits.instead)
        counts_marks = self.reads_json and kind == JSON
        if declared.isdigit() and limits.timed and not counts_marks:
            # The server gives no more than was declared.
            return receive
        bounded = bounded_receive(scope, receive, settings, limits, limit, counts_marks)
        return bounded if table is None else await self._as_json(services, scope, bounded, table)

    async def _as_json(self, services: Services, scope: Scope, receive: Receive, table: TableForm) -> Receive:
        """What reads the JSON body that a form with a file stands for."""
        http, fields = Request(scope, receive), self.needs.form_schema(table)["properties"]
        members: dict[str, Any] = {}
        try:
            form = await http.form()
        except HTTPException as error:
            raise InvalidInput(f"the form cannot be read: {error.detail}", field="body") from error
        async with AsyncExitStack() as stack:
            stack.push_async_callback(form.close)
            for name, value in form.multi_items():
                if name in members or name not in fields or isinstance(value, str) == (name == "file"):
                    raise InvalidInput(
                        f"{name[:100]!r} is not read here like this; expected {', '.join(fields)}, each once, and the "
                        "first as a file",
                        field=name[:100],
                    )
                members[name] = value
            if "file" not in members:
                raise InvalidInput(
                    f"file is missing; expected CSV or Parquet with the columns {table.expected}",
                    field="file",
                )
            file = members.pop("file")
            read = partial(services.datasets.as_json, file, members, table)
            body = await services.upload_places.run(read)
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        scope["pairmark.fields"][b"content-type"] = JSON.encode()
        scope["headers"] = list(scope["pairmark.fields"].items())

        async def again() -> Message:
            return messages.pop() if messages else await receive()

        return again


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
        # Without the framework between.
        self.app = self.answer

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The route as an application of its own."""
        scope["route"] = self
        services: Services = scope["app"].state.services
        receive = await self.admitted(services, scope, receive)
        seconds = services.settings.request_timeout_s if self.needs.limits.timed else None
        actor = _NOBODY if self.level == "read" else acting_as(actor_of(scope))
        with RequestWork(services.runtime.batch_place) as work, actor:
            call = Call(scope, receive, services, self.needs, work)
            begin = partial(self.endpoint, call, **call.path_params)
            turn = services.turns.begin(current_owner(), call.size)
            response = await finish_within(seconds, begin() if turn is None else _begun_at(turn, begin))
        await response(scope, receive, send)


async def _begun_at(turn: asyncio.Future[None], begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    await turn
    return await begin()


async def finish_within(seconds: float | None, work: Coroutine[Any, Any, T]) -> T:
    """The outcome of a coroutine, or `TimeoutError`.

    What never waits cannot be late, and a timer costs as much as the score of a pair: it is set when the work waits for
    the first time.
    """
    try:
        awaited = work.send(None)
    except StopIteration as end:
        outcome: T = end.value
        return outcome
    async with asyncio.timeout(seconds):
        return await _resumed(work, awaited)


@coroutine
def _resumed(work: Coroutine[Any, Any, T], awaited: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine that waits for something, in the task that begun it."""
    while True:
        # What arrives here, a cancellation too, is the coroutine's.
        try:
            step = partial(work.send, (yield awaited))
        except BaseException as error:
            step = partial(work.throw, error)
        try:
            awaited = step()
        except StopIteration as end:
            outcome: T = end.value
            return outcome
        finally:
            # An error names this frame, which must not name the error: together they would wait for the collector.
            del step


def actor_of(scope: Scope) -> Actor:
    key = scope.get("pairmark.key")
    return Actor(
        name=scope.get("pairmark.caller", "nobody"),
        tenant=None if key is None else key.grants.tenant,
        request_id=scope["pairmark.request_id"],
    )
