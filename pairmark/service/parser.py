"""The process that readers of uploads are forked from: ``python -m pairmark.service.parser SOCKET``.

See `pairmark.service.datasets.confined` for who talks to it.
"""

import gc
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

import duckdb  # noqa: F401, so that no reader has to

from pairmark.service.datasets.confined import FileLimits, Upload
from pairmark.service.datasets.inspection import inspect_upload
from pairmark.service.datasets.lists import write_as_json
from pairmark.service.datasets.reader import read_dataset
from pairmark.service.errors import PairmarkError, storage_errors
from pairmark.service.galleries.imports import write_batches


def main(control: socket.socket) -> None:
    """Fork a reader for each socket that arrives; end with the service."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The kernel forgets readers that have ended.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # What is loaded by now is shared with readers for as long as nobody writes to it.
    gc.freeze()
    while True:
        _, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not sockets:
            return
        with socket.socket(fileno=sockets[0]) as wire:
            if not os.fork():
                control.close()
                _run(wire)


def _run(wire: socket.socket) -> NoReturn:
    # Nothing of the fork server may run in a reader, its clean-up included.
    status = 1
    try:
        threading.Thread(target=_end_with, args=[wire.fileno()], daemon=True).start()
        with wire.makefile("rw", encoding="ascii") as stream:
            _read(stream)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def _end_with(wire: int) -> None:
    """End this process when nobody is at the other end of its socket."""
    poll = select.poll()
    # Hanging up is always reported.
    poll.register(wire, 0)
    poll.poll()
    os._exit(1)


def _read(stream: TextIO) -> None:
    task = json.loads(stream.readline())
    limits = FileLimits(**task.pop("limits"))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (task.pop("file_bytes"), hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    seconds = math.ceil(limits.seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    _limit_memory(limits.memory_bytes)

    stream.write(f"{os.getpid()}\n")
    stream.flush()
    answer: dict[str, Any] = {"failed": True}
    try:
        with storage_errors("reading the file"):
            answer = {"result": _FUNCTIONS[task.pop("function")](limits, **task)}
    except PairmarkError as error:
        answer = {"error": error.slug, "detail": error.detail, "facts": error.facts}
    except MemoryError:
        _limit_memory(resource.getrlimit(resource.RLIMIT_DATA)[1])
        refusal = limits.exceeded("memory_bytes", "reading the file needs too much memory", "bytes of memory")
        answer = {"error": refusal.slug, "detail": refusal.detail, "facts": refusal.facts}
    except Exception:
        traceback.print_exc()
    stream.write(json.dumps(answer) + "\n")


def _limit_memory(limit: int) -> None:
    """Let this process have at most so many bytes of data: an allocation beyond them raises `MemoryError`."""
    if sys.platform.startswith("linux"):
        resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _dataset(limits: FileLimits, *, out: str, scratch: str, **task: Any) -> dict[str, Any]:
    data, summary = read_dataset(Upload(limits=limits, **task), Path(out), Path(scratch))
    return {"rows": len(data), "features": data.n_features, "summary": summary}


def _inspection(limits: FileLimits, *, work: str, **task: Any) -> dict[str, Any]:
    return inspect_upload(Upload(limits=limits, **task), Path(work)).model_dump(mode="json")


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "dataset": _dataset,
    "inspection": _inspection,
    "items": write_batches,
    "table": write_as_json,
}

if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
    # DuckDB's bindings would list what they leave behind.
    os._exit(0)
