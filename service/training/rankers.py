"""Rankings of held-out rows, and how good they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.evaluation.ranking_metrics import pair_disagreement, ranking_metrics
from pairmark.service.training.records import Scored

MAX_LABELS = 40
"""Labels up to which each two of them are looked at by themselves."""


def ranker_metrics(scored: Scored) -> dict[str, Any]:
    """The report on held-out rows, and what one ranking for all would have done there."""
    parts = scored.fitted.parts
    truth = np.asarray(parts.loaded.data.rankings)
    assert scored.rows is not None
    seen = truth[parts.test_rows]
    metrics = ranking_metrics(scored.rows, seen, reference=truth[parts.rows], units=parts.row_units)
    if seen.shape[1] <= MAX_LABELS:
        metrics["pair_disagreement"] = pair_disagreement(scored.rows, seen)
    return metrics
