"""What adds up to one pair's score, the largest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Float64

LISTED = 1_000
"""Features listed one by one; the contributions of the rest are added up."""


def by_feature(
    names: Sequence[str], left: NDArray[Any], right: NDArray[Any], parts: Float64
) -> tuple[list[dict[str, Any]], float]:
    """The largest contributions that are not 0, and their sum.

    Returns
    -------
    of each the ``feature``, its ``left`` and ``right`` value, and its ``contribution``
    """
    numbers = [int(i) for i in np.argsort(-np.abs(parts), kind="stable")[:LISTED] if parts[i] != 0]
    rows = [
        {
            "feature": names[i],
            "left": float(left[i]),
            "right": float(right[i]),
            "contribution": float(parts[i]),
        }
        for i in numbers
    ]
    return rows, float(parts[numbers].sum()) if numbers else 0.0
