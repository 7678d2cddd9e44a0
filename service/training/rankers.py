"""Rankings of held-out rows, and how good they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.ranking_metrics import ranking_metrics
from pairmark.service.training.records import Indices, Scored

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
    return ranking_metrics(
        scored.rows,
        truth[parts.test_rows],
        reference=truth[parts.rows],
        units=parts.row_units,
    )
