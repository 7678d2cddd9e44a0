"""Reads uploads in processes of their own, which end when their memory or time is used up, or their client has left.

A *fork server* (`pairmark.service.parser`) imports once what reads files and then forks a process for each upload: that
takes milliseconds, and a reader that is killed takes nothing else down. It starts with the first upload.

Each upload has a socket of its own. The reader gets its task as a line of JSON and answers in such lines; when this
side closes the socket, the fork server kills the reader.
"""

from __future__ import annotations

import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from pairmark.service.datasets.limits import FileLimits
from pairmark.service.errors import InvalidInput, NotReady, PairmarkError, StorageFailed, TooLarge
from pairmark.service.processes import isolated_environment

_START_S = 60.0
"""How long the fork server may take to start."""
_WAIT = 4
"""A reader has so many seconds for each one of its processor: on a busy machine, files are not refused for that."""
_LOOK_S = 0.1
"""How often it is looked whether the client is still there."""
_PIECE = 1 << 16
_ERRORS: dict[str, type[PairmarkError]] = {
    kind.slug: kind for kind in (InvalidInput, TooLarge, StorageFailed)
}

Gone = Callable[[], bool]
"""Whether the client has left."""


class CallerGone(Exception):
    """The client left before its file was read."""


def stays() -> bool:
    """For a caller that waits in this process."""
    return False


def parsed(task: Mapping[str, Any], limits: FileLimits, has_left: Gone = stays) -> Any:
    """What a reader makes of a file: the result of the one function that ``task`` names.

    `InvalidInput`, `TooLarge` and `StorageFailed` as the reader raises them; `TooLarge` when it needs more memory or
    time than ``limits`` give; `CallerGone`.
    """
    with reading(task, limits, has_left) as reader:
        return reader.answer()["result"]


@contextmanager
def reading(task: Mapping[str, Any], limits: FileLimits, has_left: Gone = stays) -> Iterator[Reader]:
    """A reader at work on the task; it is killed when the block ends before it has."""
    own, its = socket.socketpair()
    with own:
        with its:
            _FORK_SERVER.adopt(its)
        # What bounds this process' files, a quota say, bounds those that are written for it.
        file_bytes = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        reader = Reader(own, limits, has_left)
        reader.tell({**task, "limits": asdict(limits), "file_bytes": file_bytes})
        yield reader


class Reader:
    """One process at work on a file; its time counts while it is waited for."""

    def __init__(self, wire: socket.socket, limits: FileLimits, has_left: Gone) -> None:
        self._wire, self._limits, self._has_left = wire, limits, has_left
        self._buffer = bytearray()
        self._seconds = _START_S
        wire.settimeout(_START_S)
        self._is_reading = False

    def tell(self, message: Mapping[str, Any]) -> None:
        try:
            self._wire.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            # It has ended; the next answer says how.
            return

    def answer(self) -> Any:
        """Its next message."""
        if not self._is_reading:
            self._message()
            self._is_reading, self._seconds = True, _WAIT * self._limits.seconds
        message = self._message()
        if "error" in message:
            raise _ERRORS[message["error"]](message["detail"], **message["facts"])
        if "failed" in message:
            raise RuntimeError("reading a file failed; the reader's traceback is in the log")
        return message

    def _message(self) -> Any:
        while b"\n" not in self._buffer:
            piece = self._piece()
            if not piece:
                if not self._is_reading:
                    raise NotReady("the process that reads uploads could not be started; try again shortly")
                raise self._limits.exceeded(
                    "memory_bytes",
                    "reading the file ended its process: it needs more memory, or is damaged",
                    "bytes of memory",
                )
            self._buffer += piece
        line, _, self._buffer = self._buffer.partition(b"\n")
        if not line:
            # The fork server closes a line that was cut short.
            return self._message()
        try:
            message = json.loads(line)
        except ValueError:
            return self._message()
        if message.get("ended_by") == signal.SIGXCPU:
            raise self._too_slow()
        return self._message() if "ended_by" in message else message

    def _too_slow(self) -> TooLarge:
        return self._limits.exceeded(
            "seconds", "reading the file takes too long", "seconds", ": send a smaller file, or npz"
        )

    def _piece(self) -> bytes:
        while True:
            if self._has_left():
                raise CallerGone
            before = time.monotonic()
            self._wire.settimeout(_LOOK_S)
            try:
                return self._wire.recv(_PIECE)
            except TimeoutError:
                pass
            except ConnectionError:
                return b""
            finally:
                self._seconds -= time.monotonic() - before
            if self._seconds > 0:
                continue
            if not self._is_reading:
                raise NotReady("the process that reads uploads does not start; try again shortly")
            raise self._too_slow()


class ForkServer:
    """The process that readers are forked from. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._wire: socket.socket | None = None

    def adopt(self, wire: socket.socket) -> None:
        """Have a reader started at the other end of this socket."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._start()
            assert self._wire is not None
            try:
                socket.send_fds(self._wire, [b"."], [wire.fileno()])
            except OSError as error:
                raise NotReady("the process that reads uploads has ended; try again") from error

    def _start(self) -> None:
        if self._wire is not None:
            self._wire.close()
        self._wire, its = socket.socketpair()
        # It has nothing to do with the service's secrets, and forks: it must have one thread.
        environment = {
            name: value
            for name, value in isolated_environment().items()
            if not name.startswith(("PAIRMARK_", "AWS_"))
        }
        with its:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pairmark.service.parser", str(its.fileno())],
                env={
                    **environment,
                    "OPENBLAS_NUM_THREADS": "1",
                    "OMP_NUM_THREADS": "1",
                    "MKL_NUM_THREADS": "1",
                },
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                # A group of its own: a terminal's Ctrl-C is for the service.
                process_group=0,
            )


_FORK_SERVER = ForkServer()
"""The one of this process; it starts with the first upload."""
