"""The process that runs one attempt at a job: ``python -m pairmark.service.attempt JOB ATTEMPT PARENT``.

A process of its own, so that a cancel can stop any fit at once, its memory goes back to the system, and a
crash in native code takes nothing else down. It exits with 0 when the job was ended (well or not), with
`FENCED` when the attempt was superseded, and with anything else when it could not end the job itself.
"""

from __future__ import annotations

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from pairmark.service.audit.actor import Actor, acting
from pairmark.service.blobs import Blobs, open_blobs
from pairmark.service.db import Database, open_database
from pairmark.service.errors import Fenced, NotReady, OutOfMemory, PairmarkError, TrainingFailed
from pairmark.service.jobs.claims import Claim
from pairmark.service.jobs.queue import JobQueue
from pairmark.service.logs import configure_logging
from pairmark.service.processes import die_with_parent
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


FENCED = 75
_NICENESS = 10
logger = logging.getLogger("pairmark.training")


class Runner(Protocol):
    """What runs an attempt at a job to its end."""

    def run(self, claim: Claim) -> object:
        """Do the work and end the job in one transaction; returns what was made."""


def main(arguments: list[str], runner: Callable[[Claim, Database, Blobs, Settings], Runner]) -> int:
    """Run one attempt at the job whose claim ``runner`` works on; returns the exit status."""
    job_id, attempt, parent = arguments[0], int(arguments[1]), int(arguments[2])
    die_with_parent(parent)
    # A service on the same machine goes first.
    os.nice(_NICENESS)
    # The worker decides when this process stops; a terminal's Ctrl-C reaches the worker too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = Settings()
    configure_logging(settings.log_level)
    db = open_database(settings)
    queue = JobQueue(db, settings)
    try:
        claim = queue.claim_of(job_id, attempt)
        work = runner(claim, db, open_blobs(settings), settings)
        limit = memory_limit(settings)
        confine_memory(limit)
        with acting(Actor(name=f"job {claim.job_id}", trace_id=claim.trace_id)):
            error = attempt_error(claim, work, limit)
        if isinstance(error, NotReady):
            queue.lost(claim, error.detail)
        elif error is not None:
            queue.fail(claim, error)
    except Fenced:
        return FENCED
    finally:
        db.dispose()
    return 0


def out_of_memory(limit: int) -> OutOfMemory:
    """The error of a job that needed more than ``limit`` bytes."""
    return OutOfMemory(
        f"ran out of memory at {limit / 2**30:.3g} GiB; train on fewer pairs or rows, or raise "
        "PAIRMARK_JOB_MEMORY_BYTES on workers that have more"
    )


def attempt_error(claim: Claim, runner: Runner, limit: int) -> PairmarkError | None:
    """Run it within ``limit`` bytes of memory; returns the message for people when it failed. `Fenced` goes through."""
    fields: dict[str, Any] = {"job": claim.job_id, "attempt": claim.attempt}
    if claim.trace_id is not None:
        fields["trace_id"] = claim.trace_id
    try:
        outcome = runner.run(claim)
    except Fenced:
        raise
    except PairmarkError as error:
        logger.warning("job failed", extra={**fields, "problem": error.slug})
        return error
    except Exception as error:
        # The interpreter itself may be refused memory, and then raises whatever comes. What the frames of the error
        # hold is not freed yet.
        is_refused = isinstance(error, MemoryError) or is_near_limit(os.getpid(), limit)
        release_memory_limit()
        if is_refused:
            logger.warning("job ran out of memory", extra={**fields, "limit_bytes": limit}, exc_info=error)
            return out_of_memory(limit)
        logger.exception("job failed unexpectedly", extra=fields)
        return TrainingFailed(
            f"something unexpected happened; the worker's log has the details under job {claim.job_id}"
        )
    logger.info("job succeeded", extra={**fields, "model": claim.model, "made": outcome})
    return None


_progress_log = logging.getLogger("pairmark.jobs")

_WRITE_EVERY_S = 0.5
_EVENT_STEP = 0.01


class Progress:
    """Progress of one attempt, whose ``stages`` say where each begins and ends on the job's way from 0 to 1."""

    def __init__(self, queue: JobQueue, claim: Claim, stages: Mapping[str, tuple[float, float]]) -> None:
        self._stages = stages
        self._queue = queue
        self._claim = claim
        self._stage = "starting"
        self._written_at = 0.0
        self._event_at = -1.0

    def stage(self, name: str) -> None:
        """A stage begins: always written. Raises `Fenced` when the attempt was superseded."""
        self._stage = name
        self._write(self._stages[name][0], "", event=True)

    def within(self, share: float, message: str = "") -> None:
        """A share of the stage is done: written when enough time has passed."""
        if time.monotonic() - self._written_at < _WRITE_EVERY_S:
            return
        low, high = self._stages[self._stage]
        fraction = low + (high - low) * min(max(share, 0.0), 1.0)
        self._write(fraction, message, event=fraction >= self._event_at + _EVENT_STEP)

    def log(self, message: str, facts: Mapping[str, Any] | None = None) -> None:
        """A line for people in the job's events, and the same as facts. Raises `Fenced` when superseded."""
        try:
            self._queue.log(self._claim, message, facts)
        except NotReady:
            self._away()

    def _write(self, fraction: float, message: str, *, event: bool) -> None:
        self._written_at = time.monotonic()
        if event:
            self._event_at = fraction
        try:
            self._queue.progress(
                self._claim, fraction=fraction, stage=self._stage, message=message, event=event
            )
        except NotReady:
            self._away()

    def _away(self) -> None:
        # Progress is for people; the work goes on while the database is away.
        _progress_log.warning(
            "progress was not written: the database does not answer", extra={"job": self._claim.job_id}
        )
