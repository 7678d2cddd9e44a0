"""The codes of a decision on a pair, as points, searches and reviews write them."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class DecisionCode(IntEnum):
    """What was decided of a pair; the name in lower case is that of answers."""

    DIFFERENT = 0
    MATCH = 1
    REVIEW = 2


DECISIONS: Final = tuple(code.name.lower() for code in DecisionCode)
"""Names of the codes, in their order."""
RAW_UNLIKE: Final = 3
"""Of a pair with a row unlike those of the calibration, in raw answers."""
RAW_TOO_LITTLE: Final = 4
"""Of a pair of records that nothing can be said of by the columns that both have."""
