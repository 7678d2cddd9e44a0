"""The version of this code, stated once: pyproject.toml, both distributions and every lineage read it here."""

import functools
import subprocess
from pathlib import Path

VERSION = "0.2.0"
_HERE = Path(__file__).resolve().parent


@functools.cache
def commit() -> tuple[str | None, bool]:
    """The git commit this code is of, and whether tracked files differ from it, stored results of benchmarks aside.

    A wheel states the commit it was built from (``commit.txt``, written by setup.py); a checkout asks git.
    (None, False) where neither is known.
    """
    baked = _HERE / "commit.txt"
    if baked.exists():
        revision, _, state = baked.read_text(encoding="ascii").strip().partition(" ")
        return revision or None, state == "dirty"
    return checkout_commit(_HERE.parent)


def checkout_commit(folder: Path) -> tuple[str | None, bool]:
    """As `commit`, of the git checkout whose top level is ``folder``."""
    if not (folder / ".git").exists():
        return None, False

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=20, check=True
        ).stdout.strip()

    try:
        changed = git(
            "status", "--porcelain", "--untracked-files=no", "--", ".", ":(exclude)*/results/*.json"
        )
        return git("rev-parse", "HEAD"), bool(changed)
    except (OSError, subprocess.SubprocessError):
        return None, False


def code_version() -> str:
    """Version and commit, as lineage records them: ``0.2.0+g0123456789ab``, ``.dirty`` where files differ."""
    revision, dirty = commit()
    if revision is None:
        return VERSION
    return f"{VERSION}+g{revision[:12]}{'.dirty' if dirty else ''}"
