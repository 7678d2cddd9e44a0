"""Calls, written once for both clients.

A method of the clients is a generator of steps: requests to send, pauses, pieces of a stream to read. `Client`
performs the steps and returns what the generator returns; `AsyncClient` awaits them. `operation` marks such a method,
`stream` one that hands out values as they come.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import httpx

from pairmark.client.errors import Unreachable, problem_of

if TYPE_CHECKING:
    from pairmark.client.transport import AsyncTransport, SyncTransport

P = ParamSpec("P")
T = TypeVar("T")
Steps = Generator[Any, Any, T]

LONGEST_RETRY_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Request:
    """Send it; gives the whole response, or with ``streamed`` its head."""

    method: str
    path: str
    options: dict[str, Any] = field(default_factory=dict)
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """Read on in a streamed response; gives a line (or at most 1 MiB), None at its end."""

    response: httpx.Response
    lines: bool = False


@dataclass(frozen=True, slots=True)
class ReadAll:
    """Read the rest of a streamed response and close it."""

    response: httpx.Response


@dataclass(frozen=True, slots=True)
class Close:
    """Close a streamed response."""

    response: httpx.Response


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for this many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand out one value of a stream."""

    value: Any


class operation(Generic[P, T]):
    """A method of both clients: ``client.method(...)`` returns T, the asynchronous one an awaitable of it."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: SyncTransport, owner: Any) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncTransport, owner: Any) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        steps = self.steps
        if client is None:
            return steps

        @functools.wraps(steps)
        def call(*arguments: P.args, **options: P.kwargs) -> Any:
            return client.perform(steps(client, *arguments, **options))

        return call


class stream(Generic[P, T]):
    """A method of both clients that gives an iterator of T, the asynchronous one an asynchronous iterator."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps
        self.__doc__ = steps.__doc__

    @overload
    def __get__(self, client: SyncTransport, owner: Any) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncTransport, owner: Any) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, owner: Any) -> Callable[..., Any]: ...
    def __get__(self, client: Any, owner: Any) -> Any:
        steps = self.steps
        if client is None:
            return steps

        @functools.wraps(steps)
        def call(*arguments: P.args, **options: P.kwargs) -> Any:
            return client.hand_out(steps(client, *arguments, **options))

        return call


def retry_wait(response: httpx.Response, attempt: int) -> float:
    """Seconds before a busy service is asked again: its Retry-After, else longer each time."""
    try:
        asked = float(response.headers.get("Retry-After", ""))
    except ValueError:
        asked = 0.5 * 2**attempt
    return min(max(asked, 0.0), LONGEST_RETRY_WAIT_S)


def ask(client: Any, method: str, path: str, **options: Any) -> Steps[httpx.Response]:
    """One request: retried while the service is busy, raised as a `ClientError` when it refuses."""
    for attempt in range(client.retries + 1):
        try:
            response: httpx.Response = yield Request(method, path, options)
        except httpx.TransportError as error:
            raise Unreachable(f"{client.url} does not answer ({type(error).__name__}: {error})") from error
        if response.status_code not in (429, 503) or attempt == client.retries or "files" in options:
            break
        yield Pause(retry_wait(response, attempt))
    if response.status_code >= 300:
        raise problem_of(response)
    return response


def opened(path: str, **options: Any) -> Steps[httpx.Response]:
    """A streamed answer to a GET, its head read; raised as a `Problem` when the service refuses."""
    response: httpx.Response = yield Request("GET", path, options, streamed=True)
    if response.status_code >= 300:
        yield ReadAll(response)
        raise problem_of(response)
    return response


def each(steps: Steps[T], take: Callable[[Any], object]) -> Steps[T]:
    """The steps of a stream, whose values go to ``take`` instead of being handed out."""
    reply: Any = None
    error: BaseException | None = None
    while True:
        try:
            step = steps.send(reply) if error is None else steps.throw(error)
        except StopIteration as done:
            answer: T = done.value
            return answer
        reply, error = None, None
        if isinstance(step, Emit):
            take(step.value)
            continue
        try:
            reply = yield step
        except Exception as raised:
            error = raised
