"""Records the git commit in what is built; all else is in pyproject.toml."""

import os
import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildWithCommit(build_py):
    """Adds ``pairmark/commit.txt``: from PAIRMARK_COMMIT (image builds have no .git), else from git."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        checkout_commit = runpy.run_path(str(ROOT / "pairmark" / "version.py"))["checkout_commit"]
        given = os.environ.get("PAIRMARK_COMMIT")
        revision, dirty = (given, False) if given else checkout_commit(ROOT)
        if revision:
            target = Path(self.build_lib) / "pairmark" / "commit.txt"
            target.write_text(f"{revision} {'dirty' if dirty else 'clean'}\n", encoding="ascii")


setup(cmdclass={"build_py": BuildWithCommit})
