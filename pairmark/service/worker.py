"""Workers, and the processes in which they run jobs.

`Worker.run` claims, `_work` starts a child, `_watch` renews the lease until the child ends or has to, `_end` says to
the queue how it ended. The child, ``python -m pairmark.service.worker JOB ATTEMPT PARENT``, runs one attempt: a process
of its own, so that a cancel can stop any fit at once, its memory goes back to the system, and a crash in native code
takes nothing else down. It exits with `SUCCEEDED` or `FAILED` when the job was ended, with `FENCED` when the attempt
was superseded, and with anything else when it could not end the job itself.
"""

import logging
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pairmark.service.audit import Actor, acting_as
from pairmark.service.audit.log import AuditLog
from pairmark.service.blobs import Blobs, collect, open_blobs
from pairmark.service.db import Database, open_database
from pairmark.service.errors import (
    Fenced,
    JobTimeout,
    NotReady,
    OutOfMemory,
    PairmarkError,
    TrainingFailed,
    TrainingKilled,
)
from pairmark.service.jobs.leases import Claim, Leases
from pairmark.service.processes import child_environment, configure_logging, die_with_parent
from pairmark.service.settings import Settings

logger = logging.getLogger("pairmark.worker")
# Between two collections of leftovers; how long a killed child may take to go, and one whose job is over; and the
# longest pause between two looks at a child.
_COLLECT_EVERY_S = 3600.0
_REAP_S = 10.0
_LEAVE_S = 10.0
_POLL_S = 0.2
SUCCEEDED, FAILED, FENCED = 0, 65, 75
"""Exit status of an attempt that ended its job, well or not, or was superseded."""
_ENDS = {SUCCEEDED: "succeeded", FAILED: "failed"}


class Worker:
    """Runs jobs one after another until asked to stop.

    Parameters
    ----------
    settings : passed on to the children, whatever the environment says.
    name : for the jobs' history; default ``host:pid``.
    """

    def __init__(self, settings: Settings, name: str | None = None) -> None:
        self.settings = settings
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._db = open_database(settings)
        self._blobs = open_blobs(settings)
        self._leases = Leases(self._db, settings)
        self._memory = memory_limit(settings)
        self._collected = 0.0
        self._marked_at = -math.inf

    def run(
        self, stop: threading.Event | None = None, *, drain: bool = False, only_job: str | None = None
    ) -> int:
        """Work until ``stop`` is set; a job under way is then given back to the queue. With ``drain``, return when
        nothing is left to claim; with ``only_job``, after that job, if nobody else holds it. Returns how many attempts
        ran."""
        stop, attempts = stop or threading.Event(), 0
        logger.info("worker started", extra={"worker": self.name})
        with acting_as(Actor(name=f"worker {self.name}")):
            try:
                while not stop.is_set():
                    self._mark_alive()
                    self._collect_leftovers()
                    claim = None
                    with self._logging_failure("no job could be claimed"):
                        claim = self._leases.claim(self.name, only_job)
                    if claim is not None:
                        attempts += 1
                        self._work(claim, stop)
                    elif drain or only_job is not None:
                        break
                    else:
                        stop.wait(self.settings.poll_s)
            finally:
                with self._logging_failure("the worker could not sign off"):
                    self._leases.leave(self.name)
                self._db.dispose()
                logger.info("worker stopped", extra={"worker": self.name, "attempts": attempts})
        return attempts

    @contextmanager
    def _logging_failure(self, complaint: str) -> Iterator[None]:
        """Go on when the block fails, say because the database is away; the log says so."""
        try:
            yield
        except PairmarkError as error:
            logger.warning(complaint, extra={"worker": self.name, "reason": error.detail[:500]})

    def _mark_alive(self, *, now: bool = False) -> None:
        """Say that this worker is alive, three times a lease."""
        if not now and time.monotonic() - self._marked_at < self.settings.lease_s / 3:
            return
        self._marked_at = time.monotonic()
        with self._logging_failure("heartbeat failed"):
            self._leases.mark_alive(self.name)

    def _collect_leftovers(self) -> None:
        """Remove what killed processes left in storage, at the start and once an hour."""
        if self._collected and time.monotonic() - self._collected < _COLLECT_EVERY_S:
            return
        self._collected = time.monotonic()
        with self._logging_failure("what killed processes left in storage was not removed"):
            collect(self._db, self._blobs)
            if self.settings.audit_retention_days is not None:
                AuditLog(self._db).prune(self.settings.audit_retention_days)

    def _work(self, claim: Claim, stop: threading.Event) -> None:
        fields: dict[str, object] = {"worker": self.name, "job": claim.job_id, "attempt": claim.attempt}
        logger.info("attempt started", extra={**fields, "learner": claim.learner})
        arguments = [claim.job_id, str(claim.attempt), str(os.getpid())]
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "pairmark.service.worker", *arguments],
            env=child_environment(self.settings),
            stdin=subprocess.DEVNULL,
            # A group of its own, to be ended whole; in the same session, since Linux compares priorities within one.
            process_group=0,
        )
        begin, self._peak, killed_before = time.monotonic(), 0, memory_kills()
        try:
            limit_error = self._watch(claim, child, stop)
        finally:
            if child.poll() is None:
                _kill(child)
        self._mark_alive(now=True)
        outcome = "superseded"
        try:
            wanting = memory_kills() > killed_before
            outcome = self._end(claim, child.returncode, limit_error, stopped=stop.is_set(), wanting=wanting)
        except Fenced:
            pass
        except PairmarkError as error:
            # If the child had not ended the job, its lease runs out and another attempt is made.
            logger.warning("the attempt is left to its lease", extra={**fields, "reason": error.detail})
            outcome = "lost"
        facts = {"seconds": round(time.monotonic() - begin, 1), "peak_bytes": self._peak}
        logger.info("attempt ended", extra={**fields, "outcome": outcome, **facts})

    def _watch(
        self, claim: Claim, child: subprocess.Popen[bytes], stop: threading.Event
    ) -> PairmarkError | None:
        """Keep the lease until the child has ended or has to; returns the error of a limit that it reached."""
        renew_every = self.settings.lease_s / 4
        start = next_renewal = time.monotonic()
        while True:
            try:
                # First of all: what else is done here must not keep the lease waiting.
                if time.monotonic() >= next_renewal:
                    is_cancelled = self._leases.renew(claim)
                    next_renewal = time.monotonic() + renew_every
                else:
                    is_cancelled = self._leases.is_cancelled(claim)
                if is_cancelled is None:
                    # Superseded, or the child has just ended the job and is on its way out.
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(timeout=_LEAVE_S)
                    return None
                if stop.is_set() or is_cancelled:
                    return None
            except PairmarkError as error:
                # While the database is away nobody can take the job over either, and writes stay fenced.
                logger.warning("heartbeat failed", extra={"job": claim.job_id, "reason": error.detail})
            limit_error = self._limit_passed(child, time.monotonic() - start)
            if limit_error is not None:
                return limit_error
            with suppress(subprocess.TimeoutExpired):
                # The pause between two looks, which a child that ends cuts short.
                child.wait(timeout=min(self.settings.poll_s, _POLL_S, renew_every))
                return None

    def _limit_passed(self, child: subprocess.Popen[bytes], seconds: float) -> PairmarkError | None:
        """The limit that an attempt has passed."""
        longest = self.settings.job_timeout_s
        if longest is not None and seconds > longest:
            return JobTimeout(
                f"the attempt took longer than {longest:g} s; train on fewer pairs or rows, or raise "
                "PAIRMARK_JOB_TIMEOUT_S"
            )
        in_use = memory_in_use(child.pid)
        self._peak = max(self._peak, in_use)
        return out_of_memory(self._memory) if in_use > self._memory else None

    def _end(
        self, claim: Claim, status: int, limit_error: PairmarkError | None, *, stopped: bool, wanting: bool
    ) -> str:
        """Say to the queue how an attempt ended, unless it did so itself or another worker has the job; returns it in a
        word. ``wanting`` : the system ended processes for want of memory meanwhile."""
        if status:
            # What it was writing is nobody's now.
            self._blobs.sweep()
        is_cancelled = self._leases.is_cancelled(claim)
        if is_cancelled is None:
            # The claim no longer stands: by its status the child ended the job itself, or another attempt has it.
            return _ENDS.get(status, "superseded")
        # What a limit or a person said comes first; how the process ended says something only where neither did.
        if limit_error is not None:
            self._leases.fail(claim, limit_error)
            return "failed"
        if is_cancelled:
            self._leases.cancelled(claim)
            return "cancelled"
        if stopped:
            self._leases.release(claim, "its worker was stopped")
            return "released"
        if status >= 0:
            detail = f"its process ended with status {status}; the worker's log has the details"
            self._leases.lost(claim, detail)
            return "lost"
        if wanting:
            detail = "the system ended its process for want of memory"
            self._leases.lost(claim, detail, OutOfMemory)
        else:
            detail = f"its process was ended by {signal.Signals(-status).name}"
            self._leases.lost(claim, detail, TrainingKilled)
        return "killed"


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started, and wait for it."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
    child.wait(timeout=_REAP_S)


_SHARE = 0.9
# Of control groups of version 2, and of version 1.
_CGROUP = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_limit(settings: Settings) -> int:
    """Most bytes that one job may take: the setting, or nine tenths of what this machine has, or the container it runs
    in where that is less."""
    if settings.job_memory_bytes is not None:
        return settings.job_memory_bytes
    limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in _CGROUP:
        try:
            limit = min(limit, int(Path(name).read_text()))
        except (OSError, ValueError):
            # Absent, or "max".
            continue
    return int(_SHARE * limit)


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
                resident = re.search(r"^RssAnon:\s+(\d+)", (folder / "status").read_text(), re.MULTILINE)
                total += 1024 * int(resident[1]) if resident else 0
    return total


def memory_kills() -> int:
    """How many processes the system has ended for want of memory since it began; Linux alone counts them."""
    with suppress(OSError):
        count = re.search(r"^oom_kill (\d+)", Path("/proc/vmstat").read_text(), re.MULTILINE)
        return int(count[1]) if count else 0
    return 0


def out_of_memory(limit: int) -> OutOfMemory:
    """The error of a job that needed more than ``limit`` bytes."""
    return OutOfMemory(
        f"ran out of memory at {limit / 2**30:.3g} GiB; train on fewer pairs or rows, or raise "
        "PAIRMARK_JOB_MEMORY_BYTES on workers that have more"
    )


_NICENESS = 10
attempt_logger = logging.getLogger("pairmark.training")


def main(arguments: list[str]) -> int:
    """Run one attempt at a job; returns the exit status."""
    job_id, attempt, parent = arguments[0], int(arguments[1]), int(arguments[2])
    die_with_parent(parent)
    # A service on the same machine goes first.
    os.nice(_NICENESS)
    # The worker decides when this process stops; a terminal's Ctrl-C reaches the worker too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    settings = Settings()
    configure_logging(settings.log_level)
    db = open_database(settings)
    leases = Leases(db, settings)
    try:
        claim = leases.claim_of(job_id, attempt)
        work = runner_of(claim, db, open_blobs(settings), settings)
        limit = memory_limit(settings)
        with acting_as(Actor(name=f"job {claim.job_id}")):
            error = attempt_error(claim, work, limit)
        if error is None:
            return SUCCEEDED
        if isinstance(error, NotReady):
            # The database was away, which is no fault of the job's.
            leases.lost(claim, error.detail)
        else:
            leases.fail(claim, error)
    except Fenced:
        return FENCED
    finally:
        db.dispose()
    return FAILED


def attempt_error(claim: Claim, runner: Any, limit: int) -> PairmarkError | None:
    """Run it; returns the message for people when it failed. `Fenced` goes through."""
    fields: dict[str, Any] = {"job": claim.job_id, "attempt": claim.attempt}
    try:
        outcome = runner.run(claim)
    except Fenced:
        raise
    except PairmarkError as error:
        attempt_logger.warning("job failed", extra={**fields, "problem": error.slug})
        return error
    except Exception as error:
        if isinstance(error, MemoryError):
            attempt_logger.warning(
                "job ran out of memory", extra={**fields, "limit_bytes": limit}, exc_info=error
            )
            return out_of_memory(limit)
        attempt_logger.exception("job failed unexpectedly", extra=fields)
        return TrainingFailed(
            f"something unexpected happened; the worker's log has the details under job {claim.job_id}"
        )
    attempt_logger.info("job succeeded", extra={**fields, "model": claim.model, "made": outcome})
    return None


def runner_of(claim: Claim, db: Database, blobs: Blobs, settings: Settings) -> Any:
    if claim.task == "training":
        from pairmark.service.training.trainer import Trainer

        return Trainer(db, blobs, settings)
    from pairmark.service.links.jobs import Linker

    return Linker(db, blobs, settings)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    logging.shutdown()
    # What a large fit leaves behind takes the interpreter longer to take apart than the worker waits.
    os._exit(status)
