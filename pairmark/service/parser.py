"""The process that readers of uploads are forked from: ``python -m pairmark.service.parser SOCKET``.

See `pairmark.service.datasets.confined` for who talks to it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import duckdb  # noqa: F401, so that no reader has to

from pairmark.service.blobs.local import storage_errors
from pairmark.service.datasets.confined import FileLimits, Upload
from pairmark.service.datasets.reader import inspected, read_dataset
from pairmark.service.errors import PairmarkError
from pairmark.service.galleries.items.imports import send_batches
from pairmark.service.processes import die_with_parent

_HUNG_UP = select.POLLHUP | select.POLLERR | select.POLLNVAL


def main(control: socket.socket) -> None:
    """Fork a reader for each socket that arrives; kill it when that hangs up; end with the service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What is loaded by now is shared with readers for as long as nobody writes to it.
    gc.freeze()
    readers: dict[int, int] = {}
    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        for descriptor, event in poll.poll():
            if descriptor == control.fileno():
                _, sockets, _, _ = socket.recv_fds(control, 1, 1)
                if not sockets:
                    for process in readers.values():
                        os.kill(process, signal.SIGKILL)
                    return
                readers[sockets[0]] = _forked(sockets[0], [control, ended, wake])
                # Hanging up is always reported.
                poll.register(sockets[0], 0)
            elif descriptor == ended.fileno():
                ended.recv(4_096)
            elif event & _HUNG_UP and descriptor in readers:
                os.kill(readers[descriptor], signal.SIGKILL)
                poll.unregister(descriptor)
        for wire, process in list(readers.items()):
            if (ended_by := _end(process)) is None:
                continue
            if ended_by:
                with contextlib.suppress(OSError):
                    os.write(wire, b'\n{"ended_by": %d}\n' % ended_by)
            del readers[wire]
            with contextlib.suppress(KeyError):
                poll.unregister(wire)
            os.close(wire)


def _end(process: int) -> int | None:
    """The signal that ended a reader, 0 for none; None while it runs."""
    ended_process, status = os.waitpid(process, os.WNOHANG)
    return os.WTERMSIG(status) if ended_process else None


def _forked(wire: int, inherited: list[socket.socket]) -> int:
    parent = os.getpid()
    process = os.fork()
    if process:
        return process
    # Nothing of the fork server may run in a reader, its clean-up included.
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for end in inherited:
            end.close()
        die_with_parent(parent)
        with socket.socket(fileno=wire) as own, own.makefile("rw", encoding="ascii") as stream:
            _read(stream)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _read(stream: TextIO) -> None:
    task = json.loads(stream.readline())
    limits = FileLimits(**task.pop("limits"))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (task.pop("file_bytes"), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = math.ceil(limits.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    _limit_memory(limits.memory_bytes)

    def send(message: Mapping[str, Any]) -> None:
        stream.write(json.dumps(message) + "\n")
        stream.flush()

    send({"begun": True})
    try:
        with storage_errors("reading the file"):
            send({"result": _FUNCTIONS[task.pop("function")](stream, send, limits, **task)})
    except PairmarkError as error:
        send({"error": error.slug, "detail": error.detail, "facts": error.facts})
    except MemoryError:
        _limit_memory(resource.getrlimit(resource.RLIMIT_DATA)[1])
        refusal = limits.exceeded("memory_bytes", "reading the file needs too much memory", "bytes of memory")
        send({"error": refusal.slug, "detail": refusal.detail, "facts": refusal.facts})
    except Exception:
        traceback.print_exc()
        send({"failed": True})


def _limit_memory(limit: int) -> None:
    """Let this process have at most so many bytes of data: an allocation beyond them raises `MemoryError`."""
    if sys.platform.startswith("linux"):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _dataset(
    stream: TextIO,
    send: object,
    limits: FileLimits,
    *,
    out: str,
    scratch: str,
    spec: dict[str, Any],
    **task: Any,
) -> dict[str, Any]:
    dataset, summary = read_dataset(Upload.of(limits, **task), Path(out), Path(scratch), spec=spec)
    return {"rows": dataset.rows, "features": dataset.features, "summary": summary}


def _inspection(
    stream: TextIO, send: object, limits: FileLimits, *, work: str, **task: Any
) -> dict[str, Any]:
    return inspected(Upload.of(limits, **task), Path(work)).model_dump(mode="json")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dataset": _dataset,
    "inspection": _inspection,
    "items": send_batches,
}

if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    # DuckDB's bindings would list what they leave behind.
    os._exit(0)
