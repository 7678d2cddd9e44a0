"""Why two records score as they do, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float32, Float64
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.schema import Schema

_SHOWN = ("missing", "exact", "Jaro-Winkler", "tokens, lower share", "equal", "days between", "ratio", "kilometres",
          "numbers, Jaccard", "model tokens, best")  # fmt: skip
"""Comparisons that people can read."""


def cell_values(schema: Schema, left: Any, right: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    left_values, right_values = schema.values(np.stack([left, right]))
    return left_values, right_values


def explained(
    comparators: Comparators, left: Any, right: Any, features: Float32, contributions: Float64, score: float
) -> dict[str, Any]:
    """Contributions by field, the largest first; see `RecordSimilarity.explain`."""
    cells = cell_values(comparators.schema, left, right)
    fields: dict[str, dict[str, Any]] = {}
    for (field, feature), value, part in zip(comparators.features, features, contributions[:-1], strict=True):
        entry = fields.setdefault(
            field,
            {"field": field, "left": cells[0].get(field), "right": cells[1].get(field), "contribution": 0.0,
             "comparisons": {}},
        )  # fmt: skip
        entry["contribution"] += float(part)
        if feature in _SHOWN and not np.isnan(value) and not (feature == "missing" and value == 0):
            entry["comparisons"][feature] = round(float(value), 4)
    ordered = sorted(fields.values(), key=lambda entry: (-abs(entry["contribution"]), entry["field"]))
    return {"score": score, "base": float(contributions[-1]), "fields": ordered}
