"""The clients: all calls together, blocking or asynchronous."""

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from pairmark.client.endpoints import Service
from pairmark.client.transport import connection

P = ParamSpec("P")
T = TypeVar("T")


class AsyncClient(Service):
    """The methods of `Client`, to be awaited; `links` and `pages` are asynchronous iterators.

    Use it in an ``async with`` block, or await ``close()``. Parameters are those of `Client`; ``transport`` is an
    asynchronous httpx transport. Files are read in the event loop's thread, a piece at a time.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        patience: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        address, headers = connection(url, api_key)
        http = httpx.AsyncClient(base_url=address, headers=headers, timeout=timeout, transport=transport)
        super().__init__(address, http.request, asyncio.sleep, retries, patience)
        self._aclose = http.aclose

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close connections."""
        await self._aclose()


def immediate(call: Callable[..., T]) -> Callable[..., Coroutine[Any, Any, T]]:
    """A blocking call as a coroutine, which never waits for an event loop."""

    async def work(*arguments: Any, **options: Any) -> T:
        return call(*arguments, **options)

    return work


def result_of(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits, as those of `immediate`."""
    try:
        work.send(None)
    except StopIteration as done:
        return cast(T, done.value)
    raise RuntimeError("a blocking call waited for an event loop")


def blocking_call(
    call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Client, P], T]":
    """A call that returns when it is done."""

    @functools.wraps(call)
    def method(client: "Client", /, *arguments: P.args, **options: P.kwargs) -> T:
        return result_of(call(client._calls, *arguments, **options))

    return method


def blocking_iterator(
    call: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> "Callable[Concatenate[Client, P], Iterator[T]]":
    """A call that hands out values as they come."""

    @functools.wraps(call)
    def method(client: "Client", /, *arguments: P.args, **options: P.kwargs) -> Iterator[T]:
        values = cast(AsyncGenerator[T, None], call(client._calls, *arguments, **options))
        try:
            while True:
                yield result_of(values.__anext__())
        except StopAsyncIteration:
            return
        finally:
            result_of(values.aclose())

    return method


class Client:
    """A synchronous client. Safe to share between threads; close it, or use it in a ``with`` block.

    Parameters
    ----------
    url : address of the service; default PAIRMARK_URL, else http://127.0.0.1:8000.
    api_key : default PAIRMARK_API_KEY.
    timeout : seconds that one request may take (uploads: without activity).
    retries : how often a 429 or 503 is tried again after its Retry-After (at most 30 s each).
    patience : seconds that the first request waits for a service of this machine to start.
    transport : an httpx transport, for tests and for the embedded service.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 3,
        patience: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url, headers = connection(url, api_key)
        http = httpx.Client(base_url=self.url, headers=headers, timeout=timeout, transport=transport)
        request, sleep = immediate(http.request), immediate(time.sleep)
        self._calls = Service(self.url, request, sleep, retries, patience)
        self._close = http.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections."""
        self._close()

    request = blocking_call(Service.request)
    pages = blocking_iterator(Service.pages)
    similarity = blocking_call(Service.similarity)
    match = blocking_call(Service.match)
    explain = blocking_call(Service.explain)
    rank_labels = blocking_call(Service.rank_labels)
    classify = blocking_call(Service.classify)
    embed = blocking_call(Service.embed)
    search = blocking_call(Service.search)
    verify = blocking_call(Service.verify)
    upsert = blocking_call(Service.upsert)
    put_gallery = blocking_call(Service.put_gallery)
    galleries = blocking_call(Service.galleries)
    gallery = blocking_call(Service.gallery)
    delete_gallery = blocking_call(Service.delete_gallery)
    erase = blocking_call(Service.erase)
    add_dataset = blocking_call(Service.add_dataset)
    inspect_dataset = blocking_call(Service.inspect_dataset)
    datasets = blocking_call(Service.datasets)
    dataset = blocking_call(Service.dataset)
    delete_dataset = blocking_call(Service.delete_dataset)
    train = blocking_call(Service.train)
    wait = blocking_call(Service.wait)
    job = blocking_call(Service.job)
    jobs = blocking_call(Service.jobs)
    cancel = blocking_call(Service.cancel)
    models = blocking_call(Service.models)
    model = blocking_call(Service.model)
    version = blocking_call(Service.version)
    report = blocking_call(Service.report)
    promote = blocking_call(Service.promote)
    set_policy = blocking_call(Service.set_policy)
    link = blocking_call(Service.link)
    links = blocking_iterator(Service.links)
    create_review = blocking_call(Service.create_review)
    review = blocking_call(Service.review)
    pairs_to_judge = blocking_call(Service.pairs_to_judge)
    judge = blocking_call(Service.judge)
    erase_refs = blocking_call(Service.erase_refs)
    calibrate = blocking_call(Service.calibrate)
    calibrate_scores = blocking_call(Service.calibrate_scores)
    evaluate = blocking_call(Service.evaluate)
    export_version = blocking_call(Service.export_version)
    import_version = blocking_call(Service.import_version)
    delete_version = blocking_call(Service.delete_version)
