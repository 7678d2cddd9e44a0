"""Summaries of stored datasets, for lists and details."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.service.datasets.schemas import MAX_LISTED_FEATURES, MAX_LISTED_LABELS
from pairmark.service.datasets.writer import Stored


def summary_of(stored: Stored, spec: dict[str, Any], *, n_pairs: int, n_same: int) -> dict[str, Any]:
    """JSON-able facts of what was written; ``spec`` are the roles that were asked for."""
    top = np.lexsort((np.arange(stored.label_counts.size), -stored.label_counts))[:MAX_LISTED_LABELS]
    labelled = spec["label"] or ({"npz": "y", "svmlight": "target"}.get(spec["format"]) if top.size else None)
    return {
        "spec": spec,
        "format": spec["format"],
        "sparse": stored.sparse,
        "feature_names": (
            stored.feature_names or [f"x{column}" for column in range(min(stored.features, 1_000))]
        )[:MAX_LISTED_FEATURES],
        "label": labelled,
        "n_labels": len(stored.identities),
        "n_repeated_labels": int((stored.label_counts >= 2).sum()),
        # A list, since JSONB forgets the order of keys.
        "label_counts": [[stored.identities[code], int(stored.label_counts[code])] for code in top],
        "n_groups": len(stored.group_names),
        "ranking_labels": stored.label_names,
        "n_pairs": n_pairs,
        "n_same_pairs": n_same,
        "warnings": stored.warnings,
    }
