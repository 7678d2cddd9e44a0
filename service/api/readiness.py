"""Whether the database answers, within a time that holds whatever the database does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from pairmark.service.errors import NotReady

LIMIT_S = 1.5


class Readiness:
    """Asks the database in a thread of its own: one question at a time, however many wait for its answer.

    A frozen database blocks the thread that asks it for as long as it is frozen, and no other.

    Parameters
    ----------
    count : asks the database how many workers are alive.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._asked: Future[int] | None = None

    async def workers(self) -> int:
        """How many workers are alive.

        Raises
        ------
        NotReady
            When the database fails, or does not answer within `LIMIT_S`.
        """
        if self._asked is None or self._asked.done():
            self._asked = Future()
            threading.Thread(target=self._ask, args=(self._asked,), name="readiness", daemon=True).start()
        asked = self._asked
        try:
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(asked)), LIMIT_S)
        except TimeoutError as error:
            raise NotReady(f"the database has not answered within {LIMIT_S:g} s") from error

    def _ask(self, asked: Future[int]) -> None:
        try:
            asked.set_result(self._count())
        except NotReady as error:
            asked.set_exception(error)
        except Exception as error:
            asked.set_exception(
                NotReady(f"the database does not answer as it should: {type(error).__name__}")
            )
