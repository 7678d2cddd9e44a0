"""Near-duplicate rows of a stored dataset, in words. Nothing is removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.suspects import near_duplicates

SHOWN = 3


def duplicate_warnings(folder: Path) -> list[str]:
    """What a stored dataset of dense rows says about near-duplicates; ``folder`` is the dataset's."""
    if not (folder / "X.npy").exists():
        return []
    X: Any = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False)
    y = np.load(folder / "y.npy", allow_pickle=False) if (folder / "y.npy").exists() else None
    across, within = near_duplicates(X, y)
    reported = []
    if len(across):
        reported.append(
            f"nearly equal rows with different labels: {_counted(across)}. Check for a wrong label, or for one "
            "person under two names. Guarantees count these rows as different people. Nothing was removed"
        )
    if len(within):
        reported.append(
            f"nearly equal rows{'' if y is None else ' with the same label'}: {_counted(within)}. "
            "A copy adds no information. Nothing was removed"
        )
    return reported


def _counted(pairs: NDArray[np.int64]) -> str:
    shown = ", ".join(f"{left} and {right}" for left, right in pairs[:SHOWN].tolist())
    first = "first: " if len(pairs) > SHOWN else ""
    return f"{len(pairs)} pair{'s' if len(pairs) > 1 else ''} ({first}rows {shown}, counted from 0)"
