"""Background work of a serving process for galleries: catching up, cleaning."""

from __future__ import annotations

import asyncio
import logging

from pairmark.service.api.services import Services
from pairmark.service.blobs.collect import sweep_unfinished
from pairmark.service.errors import NotReady, PairmarkError

log = logging.getLogger(__name__)

EVERY_S = 10.0
"""How often a process looks at the galleries it has open."""


async def keep_galleries(services: Services) -> None:
    """Remove what killed processes left behind, then look after galleries until cancelled."""
    galleries, swept = services.galleries, False
    while True:
        try:
            if not swept:
                await asyncio.to_thread(galleries.sweep)
                await asyncio.to_thread(sweep_unfinished, services.database, services.blobs)
                swept = True
            await asyncio.to_thread(galleries.views.keep_up)
            await asyncio.to_thread(services.thresholds.keep_up)
        except NotReady:
            log.info("the database is away; galleries are looked after later")
        except PairmarkError as error:
            log.warning("a gallery could not be looked after: %s", error.detail)
        except Exception:
            log.exception("looking after galleries failed; it is tried again")
        await asyncio.sleep(EVERY_S)
