"""Records the git commit in what is built, and compiles kernels ahead if told to; all else is in pyproject.toml."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


COMPILES = os.environ.get("PAIRMARK_COMPILE") == "1"
"""For wheels of releases: takes minutes, needs the package's dependencies (``--no-build-isolation``), and fits one
version of Python and of numba on one kind of processor."""


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
        if COMPILES:
            self.compile_kernels(Path(self.build_lib).resolve())

    def compile_kernels(self, root: Path) -> None:
        """Warm every kernel from the built tree, and put what numba caches where `compiled` looks for it."""
        names = runpy.run_path(str(root / "pairmark" / "models" / "core" / "compiled.py"))
        environment = {**os.environ, "NUMBA_CPU_NAME": names["PORTABLE_CPU"], "NUMBA_CPU_FEATURES": ""}
        environment.pop("NUMBA_CACHE_DIR", None)
        warm = (
            f"import sys; sys.path.insert(0, {str(root)!r}); from pairmark.models.warmup import warm; warm()"
        )
        subprocess.run([sys.executable, "-c", warm], cwd=root, env=environment, check=True)
        for made in root.glob("pairmark/**/__pycache__/*.nb[ic]"):
            folder = made.parent.parent / names["SHIPPED"]
            folder.mkdir(exist_ok=True)
            made.rename(folder / made.name)


class OfOnePlatform(Distribution):
    """A distribution whose wheels are tagged with platform and Python where they hold machine code."""

    def has_ext_modules(self) -> bool:
        return COMPILES or super().has_ext_modules()


setup(cmdclass={"build_py": BuildWithCommit}, distclass=OfOnePlatform)
