"""Fair shares: an owner's long work waits for its own, and not for that of others."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pairmark.service.errors import RateLimited
from pairmark.service.places import Places
from pairmark.service.shares import own


def test_who_fills_all_its_places_keeps_nobody_else_waiting() -> None:
    async def ask() -> None:
        places, release = Places("test", 1, 3), threading.Event()

        async def long(owner: str) -> str:
            own(owner)
            return await places.run(lambda: str(release.wait(30)) and owner)

        mine = [asyncio.create_task(long("a")) for _ in range(3)]
        await asyncio.sleep(0.05)
        own("a")
        with pytest.raises(RateLimited, match="3 long batches"):
            await places.run(lambda: None)
        own("b")
        assert await asyncio.wait_for(places.run(lambda: 5), 5) == 5
        # Who leaves while waiting gives its place back.
        mine[2].cancel()
        await asyncio.sleep(0.05)
        own("a")
        more = asyncio.create_task(places.run(lambda: 7))
        release.set()
        assert await asyncio.wait_for(asyncio.gather(*mine[:2], more), 5) == ["a", "a", 7]
        places.close()

    asyncio.run(ask())
