"""``pairmark`` processes that are forked, so that each saves the seconds that its imports take.

A *fork server* (``python -m tests.forking FD``) imports once what ``pairmark serve`` does, and forks a process for each
command: that has the command's environment and files, and runs ``pairmark.service.cli`` as ``python -m`` would. Its
parent is the fork server, which ends with the tests and reports its exit status. A test of imports, of memory or of
command lines in ``/proc`` starts a process with `subprocess`.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
CLI = "pairmark.service.cli"
READ_LATE = ("PAIRMARK_", "OTEL_", "PYTEST_", "PYTHONSAFEPATH")
"""Variables that nothing reads while it is imported; where others differ, a process has to import for itself."""
MESSAGE_BYTES = 2**20


def start(
    words: Sequence[str], *, env: Mapping[str, str], stdout: int = 1, stderr: int = 2
) -> subprocess.Popen[bytes]:
    """Start ``pairmark WORDS`` in the repository's root; its stdin is a pipe.

    Parameters
    ----------
    env : the whole environment. stdout, stderr : file descriptors.
    """
    if sys.platform == "linux":
        line, read_early = fork_server()
        if read_early == _early(env):
            return Forked(line, words, env, stdout, stderr)
    command = [sys.executable, "-m", CLI, *words]
    return subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(READ_LATE)}


class Forked(subprocess.Popen[bytes]):
    """A process of the fork server, to be used as one of `subprocess`."""

    def __init__(
        self, line: socket.socket, words: Sequence[str], env: Mapping[str, str], stdout: int, stderr: int
    ) -> None:
        self.args, self.returncode, self.stdout, self.stderr = list(words), None, None, None
        self._wire, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reads, writes = os.pipe()
        self.stdin = open(writes, "wb", buffering=0)  # noqa: SIM115
        with its:
            socket.send_fds(line, [b"."], [its.fileno(), reads, stdout, stderr])
        os.close(reads)
        self._wire.send(json.dumps([self.args, dict(env)]).encode())
        self.pid = int(self._wire.recv(MESSAGE_BYTES))

    def poll(self) -> int | None:
        """The exit status once the process has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; returns the exit status."""
        if self.returncode is None:
            if not select.select([self._wire], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self.returncode = int(self._wire.recv(MESSAGE_BYTES))
            self._wire.close()
        return self.returncode


@cache
def fork_server() -> tuple[socket.socket, dict[str, str]]:
    """The line to this process's fork server, which the first one who asks starts, and what it may have read."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    line, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", "tests.forking", str(its.fileno())]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL
        )

    def end() -> None:
        line.close()
        process.wait()

    atexit.register(end)
    return line, _early(environment)


def _import() -> None:
    from pairmark.service.deferred import defer_unused

    defer_unused()
    import pairmark.migrations
    import pairmark.service.api.connections
    import pairmark.service.cli
    import pairmark.service.jobs.worker
    import pairmark.service.server  # noqa: F401


def _fork_commands(line: socket.socket) -> tuple[socket.socket, list[int]]:
    """Fork a process for each message; returns, in such a process alone, what came with it."""
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ends: list[socket.socket | int] = [line, *running]
        for end in select.select(ends, [], [])[0]:
            if end is not line:
                process, wire = running.pop(end)
                os.close(end)
                with wire, suppress(OSError):
                    wire.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
                continue
            _, files, _, _ = socket.recv_fds(line, 1, 4)
            if not files:
                for process, _ in running.values():
                    os.kill(process, signal.SIGKILL)
                sys.exit()
            wire = socket.socket(fileno=files[0])
            process = os.fork()
            if not process:
                line.close()
                for descriptor, (_, other) in running.items():
                    os.close(descriptor)
                    other.close()
                return wire, files[1:]
            for descriptor in files[1:]:
                os.close(descriptor)
            wire.send(str(process).encode())
            running[os.pidfd_open(process)] = (process, wire)


def _become(wire: socket.socket, files: Sequence[int]) -> None:
    """Run a command in place of the fork server."""
    with wire:
        words, environment = json.loads(wire.recv(MESSAGE_BYTES))
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = words
    runpy.run_module(CLI, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _import()
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, (
        "threads do not survive a fork"
    )
    gc.freeze()
    _become(*_fork_commands(socket.socket(fileno=int(sys.argv[1]))))
