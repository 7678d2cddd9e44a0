"""Fair shares: who asks, and how seats and turns are shared out among those who do.

An owner is a tenant, or a key of no tenant. Whoever asks alone gets everything; while others wait, each gets a share.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar

from pairmark.service.errors import RateLimited

T = TypeVar("T")
MOST_USES: Final = 1_000
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


class Seat:
    """A place that somebody holds; ``evict`` takes it back if that is still possible, and says whether it was."""

    __slots__ = ("evict", "owner")

    def __init__(self, owner: str, evict: Callable[[], bool]) -> None:
        self.owner, self.evict = owner, evict


class Seats:
    """A number of seats. When all are taken, a newcomer gets one of whoever has the most, unless it has as many."""

    def __init__(self, name: str, limit: int, refusal: str) -> None:
        self.limit = limit
        self._name, self._refusal = name, refusal
        self._lock = threading.Lock()
        self._seats: dict[str, list[Seat]] = {}

    def take(self, evict: Callable[[], bool]) -> Seat:
        """Take a seat. `RateLimited` when there is none to be had."""
        owner = current_owner()
        with self._lock:
            if sum(map(len, self._seats.values())) >= self.limit and not self._make_room(owner):
                raise self.refusal()
            seat = Seat(owner, evict)
            self._seats.setdefault(owner, []).append(seat)
        return seat

    def _make_room(self, owner: str) -> bool:
        largest = max(self._seats, key=lambda name: len(self._seats[name]), default=owner)
        seats = self._seats.get(largest, [])
        if len(seats) <= len(self._seats.get(owner, ())) + 1:
            return False
        for seat in reversed(seats):
            if seat.evict():
                seats.remove(seat)
                return True
        return False

    def leave(self, seat: Seat) -> None:
        """Give a seat back; one that was taken away changes nothing."""
        with self._lock:
            seats = self._seats.get(seat.owner, [])
            if seat in seats:
                seats.remove(seat)
            if not seats:
                self._seats.pop(seat.owner, None)

    def refusal(self) -> RateLimited:
        """What to raise where there is no seat."""
        note_limit(self._name, self.limit, 0)
        return RateLimited(f"{self.limit} {self._refusal}")


class Turn:
    """One piece of work that waits for its turn, or has it."""

    __slots__ = ("at_once", "granted", "owner", "since", "start")

    def __init__(self, owner: str, start: Callable[[Turn], object]) -> None:
        self.owner, self.start = owner, start
        self.at_once = self.granted = False
        self.since = 0.0


class Turns:
    """Turns of bounded number: next is the owner with the fewest, and of those the one that used the least time.

    Parameters
    ----------
    at_once : turns at a time. limit : turns at a time when owners come who have none: each gets one beyond ``at_once``.
    """

    def __init__(self, at_once: int, limit: int) -> None:
        self._at_once, self._limit = at_once, limit
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Turn]] = {}
        self._under_way: Counter[str] = Counter()
        self._seconds_used: dict[str, float] = {}

    def ask(self, owner: str, start: Callable[[Turn], object]) -> Turn:
        """A turn: granted ``at_once``, or ``start`` is called with it, in any thread, when it is."""
        turn = Turn(owner, start)
        with self._lock:
            if owner not in self._waiting and not self._under_way[owner]:
                # Nobody saves up turns while idle.
                busy = [
                    self._seconds_used.get(waiting_owner, 0.0)
                    for waiting_owner in {*self._waiting, *+self._under_way}
                ]
                if len(self._seconds_used) >= MOST_USES:
                    self._seconds_used.clear()
                self._seconds_used[owner] = max(self._seconds_used.get(owner, 0.0), min(busy, default=0.0))
            self._waiting.setdefault(owner, deque()).append(turn)
            following = self._granted()
            turn.at_once = turn.granted
        for granted_turn in following:
            if granted_turn is not turn:
                granted_turn.start(granted_turn)
        return turn

    def end(self, turn: Turn) -> None:
        """The turn is over, or no longer wanted."""
        with self._lock:
            if turn.granted:
                self._under_way[turn.owner] -= 1
                seconds = self._seconds_used.get(turn.owner, 0.0) + time.monotonic() - turn.since
                self._seconds_used[turn.owner] = seconds
            else:
                with suppress(KeyError, ValueError):
                    self._waiting[turn.owner].remove(turn)
                    self._forget_empty(turn.owner)
            following = self._granted()
        for granted_turn in following:
            granted_turn.start(granted_turn)

    def _granted(self) -> list[Turn]:
        granted = []
        while able := [owner for owner in self._waiting if self._has_room(owner)]:
            owner = min(able, key=lambda name: (self._under_way[name], self._seconds_used.get(name, 0.0)))
            turn = self._waiting[owner].popleft()
            self._forget_empty(owner)
            turn.granted, turn.since = True, time.monotonic()
            self._under_way[owner] += 1
            granted.append(turn)
        return granted

    def _has_room(self, owner: str) -> bool:
        total = self._under_way.total()
        return total < self._at_once or (not self._under_way[owner] and total < self._limit)

    def _forget_empty(self, owner: str) -> None:
        if not self._waiting[owner]:
            del self._waiting[owner]

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn and keep it for the block."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()

        def begin() -> None:
            if not mine.done():
                mine.set_result(None)

        turn = self.ask(current_owner(), lambda _: loop.call_soon_threadsafe(begin))
        try:
            if not turn.at_once:
                await mine
            yield
        finally:
            self.end(turn)
