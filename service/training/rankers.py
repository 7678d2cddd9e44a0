"""Rankings of held-out rows, and how good they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.ranking_metrics import pair_disagreement, ranking_metrics
from pairmark.service.training.records import Indices, Scored

MAX_LABELS = 40
"""Labels up to which each two of them are looked at by themselves."""
_BLOCK = 65_536


def ranked(estimator: Any, X: Any, rows: Indices) -> NDArray[np.float64]:
    """Predicted positions of some rows, (n, labels), in blocks."""
    return np.concatenate(
        [
            np.asarray(estimator.predict(X[rows[start : start + _BLOCK]]))
            for start in range(0, rows.size, _BLOCK)
        ]
    )


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
