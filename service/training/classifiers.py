"""Training of classifiers: what their classes are called, and how good they are on held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.classification import classification_metrics
from pairmark.service.datasets.data import LabelledData

Indices = NDArray[np.int64]

_BLOCK = 4_096


def class_names(spec: LearnerSpec, data: LabelledData, estimator: Any) -> list[str] | None:
    """Names of a classifier's classes, in the order of its probabilities.

    None where there is nothing to name: the kind does not classify, or it learned from listed pairs, whose groups
    have no names.
    """
    if "classify" not in spec.capabilities or data.pairs is not None or data.y is None:
        return None
    return [data.identities[int(code)] for code in estimator.classes_]


def classifier_metrics(
    data: LabelledData, X: Any, estimator: Any, train: Indices, test: Indices
) -> dict[str, Any]:
    """The report on held-out rows of learned classes, and what always naming the largest class would have done."""
    y = np.asarray(data.y)
    classes = np.asarray(estimator.classes_, dtype=np.int64)
    column = np.full(len(data.identities), -1, dtype=np.int64)
    column[classes] = np.arange(classes.size)
    probabilities = np.concatenate(
        [
            np.asarray(estimator.predict_proba(X[test[start : start + _BLOCK]]))
            for start in range(0, test.size, _BLOCK)
        ]
    )
    return classification_metrics(
        probabilities,
        column[y[test]],
        reference=column[y[train]],
        units=None if data.groups is None else np.asarray(data.groups)[test],
    )
