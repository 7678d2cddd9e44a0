"""Error rates by the time between the two samples of a pair: people change, and templates age (ISO/IEC 19795-1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.calibration.bounds import wilson_interval
from pairmark.models.core.arrays import Bool, Float32, Float64, Int64

FMRS = (0.1, 0.01)
PARTS = 4
LEAST_PAIRS = 40
LEAST_UNITS = 10
CONFIDENCE = 0.95


def rates_by_time(
    scores: Float32,
    same: Bool,
    units: Int64,
    gap: Float64,
) -> dict[str, Any] | None:
    """Missed matches by the time between samples, in about equally many same pairs, at thresholds of all pairs.

    Parameters
    ----------
    scores, same : (n,) of held-out pairs. units : (n, 2) the person on each side, who weigh equally.
    gap : (n,) time between the two samples, NaN where it is not known.

    Returns
    -------
    JSON-able: ``confidence`` and ``at``: of each part the ``shortest`` and ``longest`` time, ``n_pairs``, ``n_units``
    and ``fnmr_at_fmr`` (rate -> value and interval). None where times of fewer than 40 same pairs are known, or all
    are equal.
    """
    same_rows = np.flatnonzero(same & np.isfinite(gap))
    impostors = np.sort(scores[~same])[::-1]
    rates = [rate for rate in FMRS if rate * impostors.size >= 10]
    if same_rows.size < LEAST_PAIRS or not rates:
        return None
    times = gap[same_rows]
    edges = np.unique(np.quantile(times, np.linspace(0, 1, PARTS + 1)))
    if edges.size < 3:
        return None
    # A part begins where the one before ends; the last one holds its end too.
    part = np.clip(np.searchsorted(edges, times, side="right") - 1, 0, edges.size - 2)
    at = []
    for number in range(edges.size - 1):
        part_rows = same_rows[part == number]
        people, place = np.unique(units[part_rows, 0], return_inverse=True)
        if people.size < LEAST_UNITS:
            continue
        fnmr = {}
        for rate in rates:
            missed = scores[part_rows] <= impostors[int(rate * impostors.size)]
            value = float((np.bincount(place, missed) / np.bincount(place)).mean())
            fnmr[f"{rate:g}"] = {
                "value": value,
                "interval": list(wilson_interval(value, int(people.size), CONFIDENCE)),
            }
        at.append(
            {
                "shortest": float(gap[part_rows].min()),
                "longest": float(gap[part_rows].max()),
                "n_pairs": int(part_rows.size),
                "n_units": int(people.size),
                "fnmr_at_fmr": fnmr,
            }
        )
    return {"confidence": CONFIDENCE, "at": at} if len(at) > 1 else None
