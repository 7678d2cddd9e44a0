"""The process that runs one attempt at a job: ``python -m pairmark.service.attempt JOB ATTEMPT PARENT``.

A process of its own, so that a cancel can stop any fit at once, its memory goes back to the system, and a
crash in native code takes nothing else down. It exits with 0 when the job was ended (well or not), with
`FENCED` when the attempt was superseded, and with anything else when it could not end the job itself.
"""

from __future__ import annotations

import logging
import os
import re
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
from pairmark.service.jobs.queue import Claim, JobQueue
from pairmark.service.logs import configure_logging
from pairmark.service.processes import die_with_parent
from pairmark.service.settings import Settings

_SHARE = 0.9
_CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


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


def memory_in_use(group: int) -> int:
    """Bytes of memory that the processes of a process group hold; files that are mapped do not count on Linux."""
    if not sys.platform.startswith("linux"):
        rows = subprocess.run(
            ["ps", "-axo", "pgid=,rss="], capture_output=True, text=True, check=False
        ).stdout
        pairs = (line.split() for line in rows.splitlines())
        return sum(int(rss) * 1024 for pgid, rss in pairs if pgid == str(group))
    total = 0
    for folder in Path("/proc").iterdir():
        # Those that have ended, or belong to somebody else, are passed over.
        with suppress(OSError):
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                found = re.search(r"^RssAnon:\s+(\d+)", (folder / "status").read_text(), re.MULTILINE)
                total += 1024 * int(found[1]) if found else 0
    return total


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
    """Run it; returns the message for people when it failed. `Fenced` goes through."""
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
        if isinstance(error, MemoryError):
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
