"""Background work of a serving process for galleries: catching up, moving, cleaning."""

from __future__ import annotations

import asyncio
import logging

from pairmark.service.api.services import Services
from pairmark.service.blobs.collect import sweep_unfinished
from pairmark.service.errors import NotReady, PairmarkError

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""How often a process looks at the galleries it has open, and for galleries to move."""


async def keep_galleries(services: Services, *, sweep: bool) -> None:
    """Run until cancelled; ``sweep``: remove what killed processes left behind first."""
    galleries, loop = services.galleries, asyncio.get_running_loop()
    woken = asyncio.Event()

    def wake() -> None:
        loop.call_soon_threadsafe(woken.set)

    galleries.on_move = wake
    if not sweep:
        await woken.wait()
    while True:
        woken.clear()
        try:
            if sweep:
                await asyncio.to_thread(galleries.sweep)
                await asyncio.to_thread(sweep_unfinished, services.database, services.blobs)
                sweep = False
            await asyncio.to_thread(galleries.views.keep_up)
            await asyncio.to_thread(services.thresholds.keep_up)
            for state in await asyncio.to_thread(galleries.moving):
                version = await services.runtime.version_for(
                    f"{state.next_model}:{state.next_version}", "search"
                )
                await asyncio.to_thread(galleries.move, state, version)
        except NotReady:
            log.info("the database is away; galleries are looked after later")
        except PairmarkError as error:
            log.warning("a gallery could not be looked after: %s", error.detail)
        except Exception:
            log.exception("looking after galleries failed; it is tried again")
        try:
            await asyncio.wait_for(woken.wait(), EVERY_S)
        except TimeoutError:
            continue
