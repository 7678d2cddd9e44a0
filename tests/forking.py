"""``pairmark`` processes that are forked, so that each saves the seconds that its imports take.

A *fork server* (``python -m tests.forking FD``) imports once what ``pairmark serve`` and ``worker`` do. Where a test's
process starts ``python -m`` with one of `MODULES`, the server forks a process instead (`Forked`), which gets the
environment, folder, files, group and parent that it would have had, and runs the module. What such a process starts
itself, and what a test starts with another option of Python, say ``-W``, imports for itself.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import inspect
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CLI = "pairmark.service.cli"
MODULES = (CLI, "pairmark.service.store.trial")
READ_EARLY = re.compile(r"PYTHON(?!SAFEPATH|PATH$)|NUMBA_|LD_|LC_|LANG|MALLOC_|.*_NUM_THREADS$")
"""Variables that are read while Python starts or imports; where others differ, a process has to import for itself."""
MESSAGE_BYTES = 2**20
ANY = "PAIRMARK_TESTS_FORK_ANY"
"""Where this variable is set, whatever Python runs is forked: scripts and ``-c`` as well."""
UNUSUAL = ("executable", "preexec_fn", "pass_fds", "shell", "gid", "gids", "uid")
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_PR_SET_CHILD_SUBREAPER = 36
_Popen: Any = subprocess.Popen
_lock = threading.Lock()


def start(
    words: Sequence[str], *, env: Mapping[str, str], stdout: int = 1, stderr: int = 2
) -> subprocess.Popen[bytes]:
    """Start ``pairmark WORDS`` in the repository's root; its stdin is a pipe.

    Parameters
    ----------
    env : the whole environment. stdout, stderr : file descriptors.
    """
    command = [sys.executable, "-m", CLI, *words]
    return Forked(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)


class Forked(_Popen):
    """As `subprocess.Popen`, which it stands in for: what can be forked starts sooner."""

    def _execute_child(self, args, *rest):
        by_name = inspect.signature(super()._execute_child).bind(args, *rest).arguments
        environment = dict(os.environ if by_name["env"] is None else by_name["env"])
        words = _words(args, environment)
        if (
            words is None
            or any(by_name[name] for name in UNUSUAL)
            or _early(environment) != _early(os.environ)
        ):
            return super()._execute_child(args, *rest)
        folder = os.path.abspath(by_name["cwd"] or ".")
        group = 0 if by_name["start_new_session"] else by_name["process_group"]
        ends = [by_name[name] for name in PIPES]
        files = [end if end != -1 else own for own, end in enumerate((ends[0], ends[3], ends[5]))]
        message = [words, environment, folder, group, by_name["start_new_session"]]
        self.pid, self._child_created = _fork(json.dumps(message).encode(), files), True
        return self._close_pipe_fds(*ends)


def _words(args: Any, environment: Mapping[str, str]) -> list[str] | None:
    """What follows Python in a command that can be forked."""
    if sys.platform != "linux" or isinstance(args, str | bytes | os.PathLike):
        return None
    words = [os.fspath(word) for word in args]
    if words[1:2] == ["-P"]:
        del words[1]
    is_ours = words[1:2] == ["-m"] and words[2] in MODULES
    is_any = ANY in environment and words[1:] and (words[1] in ("-c", "-m") or words[1][0] != "-")
    return words[1:] if words[0] == sys.executable and (is_ours or is_any) else None


def _early(environment: Mapping[str, str]) -> dict[str, str]:
    path = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry != str(ROOT)]
    read = {name: value for name, value in environment.items() if READ_EARLY.match(name)}
    return {**read, "PYTHONPATH": os.pathsep.join(path)}


def _fork(message: bytes, files: Sequence[int]) -> int:
    """Have a process forked that becomes a child of this one; returns its number."""
    with _lock:
        line = fork_server()
        # A process whose parent has ended becomes a child of this one, and of init again from then on.
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(line, [message], files)
            return int(line.recv(MESSAGE_BYTES))
        finally:
            prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@cache
def fork_server() -> socket.socket:
    """The line to this process's fork server, which the first one who asks starts."""
    line, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(its.fileno())],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
        )

    def end() -> None:
        line.close()
        process.wait()

    atexit.register(end)
    return line


def _import() -> None:
    import_module("pairmark.service.deferred").defer_unused()
    # By name: what reads imports would take every test for one of all these.
    for name in (
        "migrations",
        "service.api.connections",
        "service.cli",
        "service.jobs.worker",
        "service.server",
    ):
        import_module(f"pairmark.{name}")


def _serve(line: socket.socket) -> tuple[Any, list[int]]:
    """Fork a process for each message; returns, in such a process alone, what came with it."""
    while True:
        message, files, _, _ = socket.recv_fds(line, MESSAGE_BYTES, 3)
        if not files:
            sys.exit()
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            for descriptor in files:
                os.close(descriptor)
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.0005)
        words, environment, folder, group, is_session = json.loads(message)
        if is_session:
            os.setsid()
        elif group != -1:
            os.setpgid(0, group)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        with line:
            line.send(str(os.getpid()).encode())
        return words, files


def _become(words: list[str], files: Sequence[int]) -> None:
    """Run a module in place of the fork server."""
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if words[0] == "-m":
        sys.argv[1:] = words[2:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path.insert(0, "")
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv[:] = words
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _import()
    assert threading.active_count() == len(os.listdir("/proc/self/task")) == 1, (
        "threads do not survive a fork"
    )
    gc.freeze()
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
