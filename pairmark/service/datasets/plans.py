"""How many people and samples a false positive rate takes, before they are collected."""

from __future__ import annotations

import math
from typing import Any

from pairmark.models.calibration.promises import AMPLE_MULTIPLE, expected_tpr, units_needed
from pairmark.service.datasets.promises import takes, total_units

MULTIPLES = (1, 1.2, 1.5, 2, AMPLE_MULTIPLE)
"""Of the fewest people that a rate takes."""


def plan_people(fpr: float, confidence: float, samples: int, classes: int | None) -> dict[str, Any]:
    """What vectors of people take, ``samples`` each; or, with so many ``classes``, what closed-set use takes."""
    open_set = classes is None
    different = 1.0 if classes is None else 1 - 1 / classes
    units = units_needed(fpr, confidence, different_share=different)
    pairs = units_needed(fpr, confidence, rows_independent=True)
    needs = []
    for method, count in units.items():
        whole = None if count is None else total_units(count)
        # In open-set use the unit is a person, in closed-set use a sample.
        each = samples if open_set else 1
        needs.append(
            {
                "method": method,
                "calibration_people": count if open_set else None,
                "dataset_people": whole if open_set else None,
                "calibration_samples": None if count is None else each * count,
                "dataset_samples": None if whole is None else each * whole,
                "calibration_pairs": None if count is None else round(different * count * (count - 1) / 2),
                "independent_pairs": pairs[method],
            }
        )
    minimum = units["finite-sample"] or 0
    return {
        "fpr": fpr,
        "confidence": confidence,
        "protocol": "open-set" if open_set else "closed-set",
        "ample": AMPLE_MULTIPLE * minimum,
        "text": takes(fpr, minimum, "people" if open_set else "samples"),
        "needs": needs,
        "expected": [
            {"people": math.ceil(multiple * minimum), "tpr": expected_tpr(fpr, multiple)}
            for multiple in MULTIPLES
        ],
    }
