"""Learners of similarity, as scikit-learn estimators; free of HTTP, databases and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pairmark

if __name__ != "pairmark.models":
    # Reached by the link at the top of a checkout: every module would exist twice.
    raise ImportError(f"import pairmark.models, not {__name__}")

if TYPE_CHECKING:
    from pairmark.models.public import *  # noqa: F403, the names of its __all__


def __getattr__(name: str) -> Any:
    if name not in (*pairmark.__all__, "__all__"):
        raise AttributeError(f"module 'pairmark.models' has no attribute {name!r}")
    from pairmark.models import public

    return getattr(public, name)
