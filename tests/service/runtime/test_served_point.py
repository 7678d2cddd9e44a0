"""A pair matches when its score is above the threshold, strictly, in float32: to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmark.service.runtime.operating_points import ServedPoint

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(threshold=FLOATS, scores=st.lists(FLOATS, max_size=20))
def test_matches_are_strictly_above(threshold: float, scores: list[float]) -> None:
    point = ServedPoint(threshold=np.float32(threshold), public={}, json=b"")
    with np.errstate(over="ignore"):
        beside = [np.nextafter(np.float32(threshold), np.float32(side)) for side in (-np.inf, np.inf)]
    values = [*scores, threshold, *(float(one) for one in beside if np.isfinite(one))]
    expected = [np.float32(value) > np.float32(threshold) for value in values]
    assert point.decide(np.array(values, dtype=np.float32)).astype(bool).tolist() == expected
