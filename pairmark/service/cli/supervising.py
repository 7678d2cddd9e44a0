"""The training worker beside a service: started with it, started again when it ends, stopped with it."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pairmark.service.processes import isolated_environment

logger = logging.getLogger("pairmark.worker")
COMMAND = (sys.executable, "-P", "-m", "pairmark.service.cli", "worker", "--until-stdin-closes")
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0
STEADY_S = 60.0
"""After so long a run, the next restart comes at once again."""
GRACE_S = 30.0


class Supervisor:
    """Keeps one child process running.

    Parameters
    ----------
    command : what to run. Its stdin is a pipe that closes when this process ends, however it ends.
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = list(command)
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="worker-supervisor", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the child and wait for it."""
        with self._guard:
            self._stop.set()
            child = self._child
        if child is not None:
            child.terminate()
            try:
                child.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        self._thread.join()

    def _keep(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            start = time.monotonic()
            try:
                child = self._start()
            except OSError as error:
                child = None
                logger.error("the worker could not be started", extra={"reason": str(error)})
            if child is not None:
                status = child.wait()
                if child.stdin is not None:
                    child.stdin.close()
                if self._stop.is_set():
                    return
                ran = time.monotonic() - start
                pause = FIRST_PAUSE_S if ran >= STEADY_S else pause
                logger.error("the worker ended and is started again", extra={"status": status, "in_s": pause})
            if self._stop.wait(pause):
                return
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._guard:
            if self._stop.is_set():
                return None
            self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, env=isolated_environment())
            return self._child


@contextmanager
def worker_beside(enabled: bool) -> Iterator[None]:
    """A supervised training worker that ends when this process does, even when this one is killed."""
    if not enabled:
        yield
        return
    supervisor = Supervisor()
    supervisor.start()
    try:
        yield
    finally:
        supervisor.stop()
