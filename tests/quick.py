"""``make quick``: the tests that a change reaches, nearest first, while the time lasts."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.imports import ROOT, affected_tests

BUDGET_S = 75.0
"""Seconds after which no further test starts; the one under way ends."""
MOST_FILES = 25


class Budget:
    """Ends the run when its time is up, in the order the files were given."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.left: list[str] = []
        self.over = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Undo the shuffling of files: near ones come first."""
        given = {name.split("::")[0]: at for at, name in enumerate(config.args)}
        items.sort(key=lambda item: given.get(os.path.relpath(item.path, ROOT), len(given)))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count."""
        if self.left and self.left[0] == nodeid:
            self.left.pop(0)

    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Remember what is to be run."""
        self.left = [item.nodeid for item in session.items]

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Stop before a test that would start late."""
        if time.monotonic() - self.started > BUDGET_S:
            self.over = True
            item.session.shouldstop = f"{BUDGET_S:g} s are over"


def changed_files() -> list[str]:
    """Files that differ from the common ancestor with main, committed or not, and new ones."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words, "-z"], cwd=ROOT, capture_output=True, check=False)
        return [name for name in os.fsdecode(done.stdout).split("\0") if name] if not done.returncode else []

    base = subprocess.run(
        ["git", "merge-base", "HEAD", "main"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    names = {*git("diff", "--name-only", base or "HEAD"), *git("ls-files", "--others", "--exclude-standard")}
    return sorted(names)


def main(arguments: list[str]) -> int:
    """Run them; further arguments go to pytest."""
    changed = changed_files()
    tests = affected_tests(changed)
    if not tests and not arguments:
        print(
            f"{len(changed)} files differ from main; no test imports them"
            if changed
            else "nothing differs from main"
        )
        return 0
    near = tests[:MOST_FILES]
    print(
        f"{len(changed)} files differ from main and reach {len(tests)} test files; the nearest {len(near)}:",
        flush=True,
    )
    budget = Budget()
    status = pytest.main(["-q", "-x", *near, *arguments], plugins=[budget])
    if budget.over and status in (pytest.ExitCode.OK, pytest.ExitCode.INTERRUPTED):
        print(
            f"passed so far; {len(budget.left)} tests further away were not reached: make test runs them all"
        )
        return 0
    return int(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
