"""Bodies of requests in memory: large ones grow without being copied, so that they hold up no other request."""

from __future__ import annotations

from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap

RequestBody = bytes | bytearray | mmap
"""What has arrived, whole. Only large bodies are maps, of memory that no file stands behind."""
_LARGE = 1 << 20
"""From so many bytes on, a bytearray that grows takes milliseconds to move."""


class GrowingBody:
    """A body that arrives in parts.

    Attributes
    ----------
    size : bytes that have arrived.
    """

    def __init__(self, first: bytes) -> None:
        self.size = len(first)
        self._small = bytearray(first)
        self._large: mmap | None = None

    @property
    def is_large(self) -> bool:
        """Whether it has outgrown what moves at once."""
        return self._large is not None

    def add(self, part: bytes) -> None:
        """Take a part."""
        start, self.size = self.size, self.size + len(part)
        if self.size <= _LARGE:
            self._small += part
            return
        if self._large is None:
            self._large = _memory(max(4 * _LARGE, self.size))
            self._large[:start] = bytes(self._small)
            self._small = bytearray()
        elif self.size > len(self._large):
            self._large = _resized(self._large, max(2 * len(self._large), self.size))
        self._large[start : self.size] = part

    def finished(self) -> RequestBody:
        return self._small if self._large is None else _resized(self._large, self.size)


def _memory(size: int) -> mmap:
    # Shared memory, the default, has nothing behind what it grows by.
    return mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS)


def _resized(memory: mmap, size: int) -> mmap:
    try:
        memory.resize(size)
    except SystemError:
        # Systems without mremap, such as macOS.
        copied = _memory(size)
        copied[: min(size, len(memory))] = memory[:size]
        return copied
    return memory
