"""Work that ends when its client leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from pairmark.service.datasets.confined import CallerGone, Gone

T = TypeVar("T")


async def while_connected(http: Request, work: Callable[[Gone], Awaitable[T]]) -> T:
    """Await work that looks, now and then, whether the client has left; its body must have been read."""
    leaving = threading.Event()

    async def watch() -> None:
        while (await http.receive())["type"] != "http.disconnect":
            pass
        leaving.set()

    watching = asyncio.create_task(watch())
    try:
        return await work(leaving.is_set)
    except CallerGone as error:
        raise ClientDisconnect from error
    finally:
        # Also when this request is cancelled: the thread that works for it then has nobody to work for.
        leaving.set()
        watching.cancel()
