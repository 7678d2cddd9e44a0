"""Compile the kernels of calibrations and operating points ahead of the first request."""

import contextlib

import numpy as np

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.operating_point import InsufficientCalibrationData

_UNITS = 80
_RATE = 0.2


def warm_calibration() -> None:
    """Calibrate made-up scores of all pairs of units and of a list of pairs, and decide by each.

    From a warm kernel cache this takes a fraction of a second.
    """
    random = np.random.default_rng(0)
    rows = random.normal(size=(_UNITS, 3)).astype(np.float32)
    ranges = RowRanges.fit(rows, np.arange(_UNITS))
    assert ranges is not None
    # Items of a gallery are read from files, which numba tells apart.
    frozen = rows.copy()
    frozen.flags.writeable = False
    ranges.unlike(rows, rows)
    ranges.unlike(rows, frozen)
    ranges.unlike(frozen)
    left, right = np.triu_indices(_UNITS, 0)
    scores = random.normal(size=left.size) + 3.0 * (left == right)
    in_list = (random.random(left.size) < 0.3) | (left == right)
    units = np.stack([left, right], axis=1)
    for listed, methods in ((slice(None), ("finite-sample", "bootstrap")), (in_list, ("finite-sample",))):
        calibration = Calibration.fit(scores[listed], (left == right)[listed], units[listed])
        for method in methods:
            with contextlib.suppress(InsufficientCalibrationData):
                calibration.operating_point(_RATE, method=method)
