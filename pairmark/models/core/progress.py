"""Around a fit: its progress, reported to a callback, its work in threads, and one BLAS thread where digits or speed
depend on their number.

A learner calls `report` as parts of its work finish; the caller (a job, a command line) opens `listening`
around the fit. Nobody listening costs nothing. A listener may raise to abandon the fit. A learner that chooses among
others calls `note` as each of them is judged.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, cast

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import ThreadpoolController

Listener = Callable[[float, str], None]
Reader = Callable[[str, dict[str, Any]], None]

_listener: ContextVar[Listener | None] = ContextVar("pairmark_progress", default=None)
_reader: ContextVar[Reader | None] = ContextVar("pairmark_notes", default=None)


@contextmanager
def listening(listener: Listener, notes: Reader | None = None) -> Iterator[None]:
    """Call ``listener(fraction, stage)`` for every report made inside the block, in this thread.

    Parameters
    ----------
    notes : called as ``notes(message, facts)`` for every note; None leaves who reads them as it is.
    """
    token, read = _listener.set(listener), _reader.set(notes or _reader.get())
    try:
        yield
    finally:
        _reader.reset(read)
        _listener.reset(token)


@contextmanager
def as_part(low: float, high: float, stage: str) -> Iterator[None]:
    """Let reports made inside the block, by lesser fits, count as this fit's way from ``low`` to ``high``."""
    outer = _listener.get()
    if outer is None:
        yield
        return
    outer(low, stage)
    with listening(lambda fraction, _: outer(low + (high - low) * fraction, stage)):
        yield


def report(fraction: float, stage: str) -> None:
    """Say that ``fraction`` (0 to 1) of the fit is done and name the stage it is in.

    Call it from the thread that runs ``fit``, never from joblib workers.
    """
    listener = _listener.get()
    if listener is not None:
        listener(min(max(fraction, 0.0), 1.0), stage)


def note(message: str, **facts: Any) -> None:
    """Tell a line about what was found out during the fit, with the same as JSON-able facts."""
    reader = _reader.get()
    if reader is not None:
        reader(message, facts)


@cache
def _libraries() -> ThreadpoolController:
    """NumPy's and SciPy's BLAS. Looking through all that a process has loaded takes milliseconds."""
    import scipy.linalg  # noqa: F401  (its BLAS is found below)

    return ThreadpoolController().select(user_api="blas")


def one_blas_thread() -> AbstractContextManager[Any]:
    """Within it, BLAS works on one thread in this process."""
    return cast(AbstractContextManager[Any], _libraries().limit(limits=1))


def in_threads(work: Callable[[Any], Any], jobs: Sequence[Any], n_jobs: int | None) -> Iterator[Any]:
    """What ``work`` makes of each job, in order, as soon as it is there."""
    if len(jobs) <= 1 or effective_n_jobs(n_jobs) == 1:
        return map(work, jobs)
    results: Iterator[Any] = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")(
        delayed(work)(job) for job in jobs
    )
    return results


def spread_seeds(random: np.random.RandomState, n: int) -> list[int]:
    """Seeds drawn before any parallel work, so that results don't depend on who does it."""
    return [int(seed) for seed in random.randint(0, np.iinfo(np.int64).max, size=n, dtype=np.int64)]
