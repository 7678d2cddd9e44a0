"""Random order, cores that are shared, and one temporary folder a run that is gone afterwards, however the run ended.

The seed is printed; ``PAIRMARK_TEST_SEED=N`` repeats an order, ``PAIRMARK_KEEP_TMP=1`` keeps the folder to look at.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import pytest
from threadpoolctl import threadpool_limits

PREFIX = "pairmark-tests-"
# The system's own folder, not TMPDIR, which a run points into its folder; also short, for sockets.
HERE = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())
MEMORY = Path("/dev/shm")
"""Where tests keep their homes and SQLite databases: flushing each commit to a disk takes most of many tests' time."""
ENOUGH_BYTES = 6 * 2**30
LONGEST = (
    "test_mishaps.py",
    "test_serve.py",
    "test_blocks.py",
    "test_wheel.py",
    "test_console_pages.py",
    "test_walk.py",
)
"""Half a minute and more in one test, or in what a whole file shares."""


def pytest_configure(config: pytest.Config) -> None:
    """Settle the seed and the folder; the processes of pytest-xdist inherit both."""
    if hasattr(config, "workerinput"):
        return
    share_the_cores()
    os.environ.setdefault("PAIRMARK_TEST_SEED", str(secrets.randbelow(10**6)))
    locks = {}
    for place in {HERE, quick_place()}:
        sweep(place)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        folder.chmod(0o755)
        locks[folder] = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(locks[folder], fcntl.LOCK_EX)
        if place == HERE:
            # PostgreSQL's databases go here: they are many and large, and it is told not to flush them.
            os.environ["TMPDIR"] = str(folder)
            tempfile.tempdir = None
        if place == quick_place() and config.option.basetemp is None:
            config.option.basetemp = str(folder / "pytest")

    def remove() -> None:
        for folder, lock in locks.items():
            if os.environ.get("PAIRMARK_KEEP_TMP"):
                print(f"kept {folder}")
            else:
                stop_databases(folder)
                shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
        os.environ.pop("TMPDIR", None)
        tempfile.tempdir = None

    config.add_cleanup(remove)


@cache
def quick_place() -> Path:
    """A file system in memory that has room and runs programs, as a wheel's test does; else the disk."""
    try:
        found = os.statvfs(MEMORY)
    except OSError:
        return HERE
    roomy = found.f_bavail * found.f_frsize >= ENOUGH_BYTES and not found.f_flag & os.ST_NOEXEC
    return MEMORY if roomy and os.access(MEMORY, os.W_OK) else HERE


def share_the_cores() -> None:
    """One thread for BLAS and OpenMP in each process, and modules that are compiled once for all of them.

    There are more processes (of tests, servers, workers, jobs) than cores. Threads of BLAS that wait for one another
    while they spin make a small product take ten times as long. Without bytecode each process compiles our sources.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    # NumPy is loaded by now; in processes that are yet to start the variables do it.
    threadpool_limits(1)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def pytest_report_header() -> str:
    """How to repeat the order."""
    return f"random order: PAIRMARK_TEST_SEED={os.environ['PAIRMARK_TEST_SEED']}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle files, and tests within files; pytest then brings together what shares an expensive fixture.

    Files with the longest tests come first, so that none is left for the end, when other processes have nothing to do.
    """
    seed = os.environ["PAIRMARK_TEST_SEED"]

    def place(text: str) -> bytes:
        return hashlib.sha256(f"{seed} {text}".encode()).digest()

    items.sort(key=lambda item: (item.path.name not in LONGEST, place(str(item.path)), place(item.nodeid)))


def sweep(here: Path) -> list[Path]:
    """Remove folders of runs that are over, with databases that still run in them; returns what was removed.

    A live run holds a lock on a file in its folder, which the system lets go when its process dies.
    """
    swept = []
    for folder in here.glob(f"{PREFIX}*"):
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            # Made this moment by another run, or left by one killed at its very start.
            with contextlib.suppress(OSError):
                if time.time() - folder.stat().st_mtime > 3600:
                    shutil.rmtree(folder, ignore_errors=True)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            stop_databases(folder)
            shutil.rmtree(folder, ignore_errors=True)
            swept.append(folder)
        finally:
            os.close(descriptor)
    return swept


def stop_databases(folder: Path) -> None:
    """Stop PostgreSQL servers whose data lie in a folder; a run that was killed leaves its server behind."""
    for file in folder.rglob("postmaster.pid"):
        try:
            pid = int(file.read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, ValueError, IndexError):
            continue
        if str(folder).encode() in command:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)
            deadline = time.monotonic() + 5
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.05)
