"""The memory limit of a job, and the memory it uses."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pairmark.service.settings import Settings

_SHARE = 0.9
_NEAR = 0.8
_CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LINUX = sys.platform.startswith("linux")


def memory_limit(settings: Settings) -> int:
    """Most bytes that one job may take: the setting, or nine tenths of what this machine or container has."""
    if settings.job_memory_bytes is not None:
        return settings.job_memory_bytes
    return int(_SHARE * machine_memory())


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container it runs in where that is less."""
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP:
        try:
            limit = min(limit, int(Path(name).read_text()))
        except (OSError, ValueError):
            # Absent, or "max".
            continue
    return limit


def confine_memory(limit: int) -> None:
    """Let this process have at most ``limit`` bytes of data: an allocation beyond them raises `MemoryError`.

    Where the system does not enforce it, only the worker's watch over `memory_in_use` does.
    """
    if _LINUX:
        _warm_blas()
        limit_memory(limit)


def limit_memory(limit: int) -> None:
    """As `confine_memory`, for a process in which BLAS has one thread or is not used."""
    if _LINUX:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _warm_blas() -> None:
    """Let NumPy's and SciPy's OpenBLAS take their buffers: where they cannot have them, they end the process."""
    import numpy as np
    from scipy.linalg.blas import dgemm

    square = np.ones((512, 512))
    _ = square @ square
    dgemm(1.0, square, square)


def release_memory_limit() -> None:
    """Lift what `confine_memory` set, so that a process that ran out can still report it."""
    if _LINUX:
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


def memory_in_use(group: int) -> int:
    """Bytes of memory that the processes of a process group hold; files that are mapped do not count on Linux."""
    if not _LINUX:
        return _resident(group)
    return _total(group, lambda process: _status(process, "RssAnon"))


class IdleClock:
    """How long a process group has taken no processor time (Linux only)."""

    def __init__(self) -> None:
        self._ticks, self._since = -1, 0.0

    def seconds(self, group: int) -> float:
        """Seconds since the first look that saw as much processor time as this one."""
        ticks, now = _total(group, _ticks), time.monotonic()
        if ticks != self._ticks:
            self._ticks, self._since = ticks, now
        return now - self._since


def _total(group: int, read: Callable[[int], int]) -> int:
    """Sum over a group's processes."""
    total = 0
    for folder in Path("/proc").iterdir():
        # Those that have ended, or belong to somebody else, are passed over.
        with suppress(OSError):
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                total += read(int(folder.name))
    return total


def _ticks(process: int) -> int:
    """Time in user and system mode: the 14th and the 15th field of ``stat``; a name in brackets is the second."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def is_near_limit(process: int, limit: int) -> bool | None:
    """Whether a process has asked for so much memory that its next request may have been refused; None: it ended."""
    try:
        asked_for = _status(process, "VmData") if _LINUX else 0
    except OSError:
        return None
    # A process that has ended and was not waited for yet has no such line.
    return asked_for > _NEAR * limit if asked_for else None


def _status(process: int, name: str) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _resident(group: int) -> int:
    output = subprocess.run(["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False).stdout
    rows = (line.split() for line in output.splitlines())
    return sum(int(row[1]) * 1024 for row in rows if len(row) == 2 and row[0] == str(group))
