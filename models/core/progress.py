"""Progress of long fits, told to whoever listens.

A learner calls `report` as parts of its work finish; the caller (a job, a command line) opens `listening`
around the fit. Nobody listening costs nothing. A listener may raise to abandon the fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[float, str], None]

_listener: ContextVar[Listener | None] = ContextVar("pairmark_progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(fraction, stage)`` for every report made inside the block, in this thread."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def preparing(stage: str) -> Iterator[None]:
    """Let reports made inside the block, by lesser fits, count as being at the start of this one's work."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    with listening(lambda _, __: outer(0.0, stage)):
        yield


def report(fraction: float, stage: str) -> None:
    """Say that ``fraction`` (0 to 1) of the fit is done and name the stage it is in.

    Call it from the thread that runs ``fit``, never from joblib workers.
    """
    listener = _listener.get()
    if listener is not None:
        listener(min(max(fraction, 0.0), 1.0), stage)
