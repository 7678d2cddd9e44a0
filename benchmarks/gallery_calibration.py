"""Galleries that stay calibrated: the promise after a gallery has grown.

A gallery is calibrated with 3,000 strangers at FPIR 5 % and grows by a tenth; failures are counted of the threshold as
it was and of the one that follows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.common import Claim, Preset, Result
from pairmark.models.calibration.identification import GalleryCalibration

PROBES, RATE = 3_000, 0.05


def run(preset: Preset) -> Result:
    """Quick: 400 calibrations; full: 2,000."""
    n = 2_000 if preset == "full" else 400
    rows = promise(n)
    failed = rows[1]["value"]
    most = float(binom.ppf(0.999, n, RATE)) / n
    what = "FPIR 5 %, 3,000 probes, after +10 %: kept probes fail"
    goal = f"at most .05 and chance ({most:.3f})"
    return Result(rows=rows, claims=[Claim(what=what, goal=goal, measured=failed, holds=failed <= most)])


def promise(n: int) -> list[dict[str, Any]]:
    """Failures in n calibrations of galleries of 1,000 that grow by 100; strangers' true rates are known."""
    broken = {"as calibrated": 0, "following": 0}
    strangers = 40_000
    for draw in range(n):
        if draw % 100 == 0:
            rng = np.random.default_rng([17, draw])
            gallery = rng.standard_normal((1_100, 8)).astype(np.float32)
            people = rng.standard_normal((strangers, 8)).astype(np.float32)
            before = np.concatenate([(some @ gallery[:1000].T).max(axis=1) for some in np.split(people, 40)])
            added = np.concatenate([(some @ gallery[1000:].T).max(axis=1) for some in np.split(people, 40)])
            after = np.maximum(before, added)
            ordered = np.sort(after)
        # A draw with replacement from these strangers has exactly their rate.
        chosen = rng.integers(strangers, size=PROBES)
        for name, best in (("as calibrated", before[chosen]), ("following", after[chosen])):
            threshold = GalleryCalibration(best, gallery_size=1_100).operating_point(RATE).threshold
            true = 1 - np.searchsorted(ordered, np.float32(threshold), side="right") / strangers
            broken[name] += bool(true > RATE)
    return [
        {"what": f"fails after +10 %, threshold {name}", "value": count / n} for name, count in broken.items()
    ]
