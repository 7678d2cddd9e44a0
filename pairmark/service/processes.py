"""How Pairmark starts other Python processes, and ends them with their parent."""

from __future__ import annotations

import ctypes
import os
import signal
import site
import sys
import threading
import time
from pathlib import Path

from pydantic import SecretStr

import pairmark
from pairmark.service.settings import Settings

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


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
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
