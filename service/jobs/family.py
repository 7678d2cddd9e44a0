"""A child process that ends with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_LOOK_S = 1.0


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
