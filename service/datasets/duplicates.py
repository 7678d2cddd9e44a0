"""Near-duplicate rows of a stored dataset, in words. Nothing is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.suspects import near_duplicates

SHOWN = 3


def duplicate_warnings(folder: Path) -> list[str]:
    """What a stored dataset of dense rows says about near-duplicates.

    Parameters
    ----------
    folder : of the dataset, whole.
    """
    if not (folder / "X.npy").exists():
        return []
    X: Any = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False)
    y = np.load(folder / "y.npy", allow_pickle=False) if (folder / "y.npy").exists() else None
    found = near_duplicates(X, y)
    reported = []
    if len(found.across):
        reported.append(
            f"{len(found.across)} pair(s) of rows are nearly equal and have different labels{_first(found.across)}: "
            "one person under two names, or a wrong label? Promises count them as different; nothing was removed"
        )
    if len(found.within):
        reported.append(
            f"{len(found.within)} pair(s) of rows"
            + ("" if y is None else " of one label")
            + f" are nearly equal{_first(found.within)}: a copy says nothing new; nothing was removed"
        )
    return reported


def _first(pairs: NDArray[np.int64]) -> str:
    first = ", ".join(f"{left} and {right}" for left, right in pairs[:SHOWN].tolist())
    return f" (first rows {first}, counted from 0)"
