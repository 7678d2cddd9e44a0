"""Alembic migrations; they travel inside the wheel."""

from pathlib import Path

if __name__ != "pairmark.migrations":
    # Reached by the link at the top of a checkout: every module would exist twice.
    raise ImportError(f"import pairmark.migrations, not {__name__}")

HEAD = "0034"
"""The newest revision: a database that is at it needs no look at the scripts."""


def revisions() -> list[str]:
    """Every revision that this version knows, oldest first."""
    return sorted(path.name[:4] for path in (Path(__file__).parent / "versions").glob("[0-9]*.py"))
