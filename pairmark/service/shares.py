"""Fair shares: who asks, and the seats that one owner may take.

An owner is a tenant, or a key of no tenant.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pairmark.service.errors import RateLimited

OWNERS = 4
"""So many owners may take all of their seats at once."""
BEGUN_AT_ONCE = 4
"""So many short requests of one owner begin in one pass of the event loop."""
_OWNER: ContextVar[str] = ContextVar("pairmark_owner", default="")
_LIMITS: ContextVar[list[tuple[str, int, int]] | None] = ContextVar("pairmark_limits", default=None)


def current_owner() -> str:
    """Who asks in this thread or task: ``tenant NAME`` or ``key ID``; empty: who needs no key."""
    return _OWNER.get()


def own(owner: str) -> None:
    """Do what follows in this task in the name of ``owner``."""
    _OWNER.set(owner)


def noting_limits() -> list[tuple[str, int, int]]:
    """The list that `note_limit` fills in this task and what it starts: name, limit and remainder."""
    limits: list[tuple[str, int, int]] = []
    _LIMITS.set(limits)
    return limits


def note_limit(name: str, limit: int, remaining: int) -> None:
    """Have the answer state a limit that its request came up to."""
    limits = _LIMITS.get()
    if limits is not None:
        limits.append((name, limit, remaining))


class Seats:
    """Seats of each owner, and `OWNERS` times as many in all."""

    def __init__(self, name: str, limit: int, refusal: str) -> None:
        self.limit = limit
        self._name, self._refusal = name, refusal
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()

    def take(self, owner: str) -> None:
        """Take a seat. `RateLimited` when there is none to be had."""
        with self._lock:
            if self._taken[owner] >= self.limit or self._taken.total() >= OWNERS * self.limit:
                note_limit(self._name, self.limit, 0)
                raise RateLimited(f"{self.limit} {self._refusal}")
            self._taken[owner] += 1

    def leave(self, owner: str) -> None:
        """Give a seat back."""
        with self._lock:
            self._taken[owner] -= 1
            if not self._taken[owner]:
                del self._taken[owner]

    @contextmanager
    def seat(self) -> Iterator[None]:
        """A seat of who asks, for the block."""
        owner = current_owner()
        self.take(owner)
        try:
            yield
        finally:
            self.leave(owner)


class Turns:
    """Lets requests of other owners come between those of one that sends many at once.

    A short request runs on the event loop, which looks for new ones only after all that have arrived: of one owner
    `BEGUN_AT_ONCE` begin in each pass of the loop, the others wait for the next ones, first come, first served.
    """

    def __init__(self) -> None:
        self._begun: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def begin(self, owner: str) -> None:
        """Wait until it is the turn of a request of the owner."""
        if not self._begun:
            asyncio.get_running_loop().call_soon(self._pass)
        self._begun[owner] += 1
        if self._begun[owner] > BEGUN_AT_ONCE:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, deque()).append(turn)
            await turn

    def _pass(self) -> None:
        self._begun.clear()
        for owner, waiting in list(self._waiting.items()):
            for _ in range(min(BEGUN_AT_ONCE, len(waiting))):
                turn = waiting.popleft()
                if not turn.done():
                    turn.set_result(None)
            # Who comes while others wait stands behind them.
            self._begun[owner] = BEGUN_AT_ONCE
            if not waiting:
                del self._waiting[owner]
        if self._begun:
            asyncio.get_running_loop().call_soon(self._pass)
