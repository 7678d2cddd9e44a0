"""How Pairmark's processes log, start others, end with their parents, and reach a cluster."""

import ctypes
import json
import logging
import os
import signal
import site
import sys
import threading
import time
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import SecretStr

import pairmark
from pairmark.service.errors import NotReady
from pairmark.service.settings import Settings

CONNECT_S = 30
"""For a job to reach the cluster."""
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonFormatter(logging.Formatter):
    """A record as JSON: time, level, logger, message, what `extra` added, and a traceback where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{whole}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _OF_EVERY_RECORD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


def configure_logging(level: str) -> None:
    """Send every log of this process to stderr as JSON lines; ``level`` is a name such as INFO."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in ("httpx", "alembic", "matplotlib", "numba"):
        logging.getLogger(name).setLevel(logging.WARNING)


def import_scikit_learn() -> None:
    """Import scikit-learn without `scipy.stats`, a fifth of a start and of its memory; before other threads import.

    Its base class imports that for one function that nothing here calls, which finds the whole module all the same:
    `scipy` imports its parts when they are asked for.
    """
    if "scipy.stats" in sys.modules or "sklearn" in sys.modules:
        return
    sys.modules["scipy.stats"] = ModuleType("scipy.stats")
    try:
        # A release that needs more of it at once is imported later, as ever.
        with suppress(ImportError):
            import_module("sklearn.base")
    finally:
        del sys.modules["scipy.stats"]


_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def is_alive(pid: int) -> bool:
    """Whether a process of that number runs, whoever's it is."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def isolated_environment() -> dict[str, str]:
    """This process's environment, in which Python imports nothing from the current folder.

    A file ``http.py`` or ``numbers.py`` there would otherwise stand in for the standard library's, in the process that
    is started and in those that it starts.
    """
    environment = dict(os.environ)
    environment["PYTHONSAFEPATH"] = "1"
    # An empty entry means the current folder, too.
    path = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if entry]
    root = Path(pairmark.__file__).resolve().parent.parent
    # A checkout that is not installed is found only where it is named; a site folder must not come before the
    # standard library.
    if root not in {
        Path(folder).resolve() for folder in [*site.getsitepackages(), site.getusersitepackages()]
    }:
        path.insert(0, str(root))
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(path)
    return environment


def child_environment(settings: Settings) -> dict[str, str]:
    """This process's environment with the settings as they are, less the key of the command line."""
    environment = {
        name: value for name, value in isolated_environment().items() if not name.startswith("PAIRMARK_")
    }
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if value is None or isinstance(value, SecretStr):
            continue
        # Relative folders mean the worker's current folder; the child shares it, but be explicit.
        text = str(value.absolute()) if isinstance(value, Path) else str(value)
        environment[f"PAIRMARK_{name.upper()}"] = text
    return environment


def die_with_parent(parent: int) -> None:
    """Make this process end, however suddenly its parent does.

    The kernel sends SIGKILL on Linux; everywhere, a thread looks at the parent's id once a second, since a
    process whose parent died is handed to another.

    Parameters
    ----------
    parent : process id of the parent, passed by the parent, because it may be gone before this line runs.
    """
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


_M_ARENA_MAX = -8
_ARENAS = 4
"""Pools of the C library that threads allocate from: it would make many, and each keeps what was freed."""


def bound_arenas() -> None:
    """Have the threads of this process share a few pools of memory, unless ``MALLOC_ARENA_MAX`` says how many."""
    if "MALLOC_ARENA_MAX" not in os.environ:
        # Only glibc has such pools.
        with suppress(AttributeError):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def return_memory() -> None:
    """Give the system back what this process has freed. Needs a thread: it may take some milliseconds."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def dask_client(address: str, seconds: float) -> Any:
    """A client of the cluster.

    Raises
    ------
    NotReady
        When its scheduler does not answer within so many seconds, or Dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise NotReady(
            "PAIRMARK_DASK_SCHEDULER is set but Dask is not installed: pip install 'pairmark[dask]', or unset it"
        ) from error
    try:
        with warnings.catch_warnings():
            # A cluster of slightly other versions works or fails on its own; the job's log is no place for its table.
            warnings.simplefilter("ignore")
            return Client(address, timeout=seconds)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        # A runtime error says that only one of the two asks for encryption.
        raise NotReady(
            f"the Dask scheduler {address!r} does not answer within {seconds:g} s ({error}); start it, or unset "
            "PAIRMARK_DASK_SCHEDULER"
        ) from error
