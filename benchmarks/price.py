"""The price of a promise: the TPR at the promised threshold against an oracle's that knows the true rate.

People in growing numbers, 1 % asked at 95 %. ``python -m docs.figures`` draws what it finds.
"""

from __future__ import annotations

import os
from typing import Any

import joblib
import numpy as np
from scipy.stats import norm

from benchmarks.common import Claim, Preset, Result
from pairmark.models.calibration.calibration import Calibration
from pairmark.models.calibration.operating_point import InsufficientCalibrationData
from tests.models.pair_worlds import People

FPR, CONFIDENCE, EFFECT, SHIFT = 0.01, 0.95, 0.4, 4.0
SIZES = (100, 200, 300, 450, 600, 900, 1_500, 3_000, 6_000)
RESAMPLED_UP_TO = 900
METHODS = ("finite-sample", "bootstrap")


def run(preset: Preset) -> Result:
    """TPR by method and number of people."""
    n, n_pairs = (100, 60_000) if preset == "full" else (10, 20_000)
    oracle_threshold = float(norm.isf(FPR) * np.sqrt(1 + 2 * EFFECT**2))
    oracle = true_tpr(oracle_threshold)
    rows: list[dict[str, Any]] = []
    for m in SIZES:
        done = joblib.Parallel(n_jobs=min(2, os.cpu_count() or 1))(
            joblib.delayed(_thresholds)(m, n_pairs, draw) for draw in range(n)
        )
        for method in METHODS:
            found = [one[method] for one in done if one.get(method) is not None]
            # A method that answers rarely does so for draws that are not typical.
            enough = len(found) >= n / 2
            tprs = [true_tpr(t) for t in found]
            rows.append(
                {
                    "people": m,
                    "method": method,
                    "answered": len(found) / n if m <= RESAMPLED_UP_TO or method == "finite-sample" else None,
                    "TPR, median": float(np.median(tprs)) if enough else None,
                    "TPR, 10 %": float(np.quantile(tprs, 0.1)) if enough else None,
                    "TPR, 90 %": float(np.quantile(tprs, 0.9)) if enough else None,
                    "oracle": oracle,
                }
            )
    last = next(row for row in reversed(rows) if row["method"] == "finite-sample")
    return Result(
        rows=rows,
        claims=[
            Claim(
                what="finite-sample at 6,000 people: TPR lost to the oracle",
                goal="at most 0.05",
                measured=oracle - last["TPR, median"],
                holds=oracle - last["TPR, median"] <= 0.05,
            )
        ],
        facts={"fpr": FPR, "confidence": CONFIDENCE, "draws": n, "n_pairs": n_pairs},
    )


def true_tpr(threshold: float) -> float:
    """Share of same pairs above the threshold: twice one effect, noise, and what being the same adds."""
    return float(norm.sf((threshold - SHIFT) / np.sqrt(1 + 4 * EFFECT**2)))


def _thresholds(m: int, n_pairs: int, draw: int) -> dict[str, float | None]:
    rng = np.random.default_rng([m, draw])
    drawn = People(m=m, per=2, effect=EFFECT, n_pairs=n_pairs).draw(rng)
    calibration = Calibration.fit(
        drawn.scores,
        drawn.same,
        drawn.units,
        protocol="open-set",
        random_state=rng,
        n_replicates=1_000,
        n_jobs=1,
    )
    found: dict[str, float | None] = {}
    for method in METHODS:
        if method == "bootstrap" and m > RESAMPLED_UP_TO:
            continue
        try:
            found[method] = calibration.operating_point(FPR, CONFIDENCE, method).threshold
        except InsufficientCalibrationData:
            found[method] = None
    return found
