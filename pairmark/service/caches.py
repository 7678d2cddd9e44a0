"""The cache that the service uses wherever it keeps what it worked out: versions, calibrations, operating points.

Its rule: what is cached never changes, and the least recently used goes first. What takes long to work out is looked up
(`get`), worked out and kept (`put`): two threads may both do so, to the same result. What threads have to share, a lock
say, is made once (`get_or_make`).
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most ``limit`` values by key; the least recently used one is dropped first. Threads may share it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # The first is the one that was used least recently.
        self._values: OrderedDict[Key, Value] = OrderedDict()
        # Taken again by `get_or_make`, whose ``make`` may also ask for other values.
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        """The value, which counts as a use; None where there is none."""
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def put(self, key: Key, value: Value) -> None:
        """Keep a value."""
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            if len(self._values) > self._limit:
                self._values.popitem(last=False)

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value, made once for all threads that ask; ``make`` is short, since others wait for it."""
        with self._lock:
            value = self.get(key)
            if value is None:
                value = make()
                self.put(key, value)
            return value

    def entries(self) -> list[tuple[Key, Value]]:
        """All there are now, the least recently used first."""
        with self._lock:
            return list(self._values.items())

    def drop(self, keys: Iterable[Key]) -> None:
        """Let go of some, those that are there."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)
