"""Names of a classifier's classes, and its metrics on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.classification import classification_metrics
from pairmark.service.datasets.data import LabelledData
from pairmark.service.training.records import Indices, Scored


def class_names(spec: LearnerSpec, data: LabelledData, estimator: Any) -> list[str] | None:
    """Names of a classifier's classes, in the order of its probabilities.

    None where there is nothing to name: the kind does not classify, or it learned from listed pairs, whose groups
    have no names.
    """
    if "classify" not in spec.capabilities or data.pairs is not None or data.y is None:
        return None
    return [data.identities[int(code)] for code in estimator.classes_]


def classifier_metrics(scored: Scored) -> dict[str, Any]:
    """The report on held-out rows of learned classes, and what always naming the largest class would have done."""
    parts = scored.fitted.parts
    y = np.asarray(parts.loaded.data.y)
    column = class_columns(scored.fitted.estimator.classes_, len(parts.loaded.data.identities))
    assert scored.rows is not None
    return classification_metrics(
        scored.rows, column[y[parts.test_rows]], reference=column[y[parts.rows]], units=parts.row_units
    )


def class_columns(classes: Any, n_identities: int) -> Indices:
    """Column of each identity among learned classes, (n_identities,); -1 where it was not learned."""
    learned = np.asarray(classes, dtype=np.int64)
    column = np.full(n_identities, -1, dtype=np.int64)
    column[learned] = np.arange(learned.size)
    return column
