"""Scoring many pairs of a dataset with a fitted learner, in blocks that bound memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32
from pairmark.models.core.base import SCORE_BLOCK
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.core.subjects import SampleSets
from pairmark.service.errors import InvalidInput

_MIB = 1024 * 1024


def taken_by(spec: LearnerSpec, X: Any, max_dense_bytes: int) -> Any:
    """The points as the learner takes them: sparse ones are made dense for a learner that needs it.

    Raises
    ------
    InvalidInput
        When the dense form would exceed the bound.
    """
    if isinstance(X, np.ndarray) or spec.accepts_sparse:
        return X
    rows, width = X.shape
    n_bytes = rows * width * 4
    if n_bytes > max_dense_bytes:
        raise InvalidInput(
            f"{spec.kind} takes dense vectors, and {rows} of {width} features need {n_bytes // _MIB} MiB, beyond the "
            f"bound of {max_dense_bytes // _MIB} MiB (PAIRMARK_MAX_DENSE_BYTES): choose a learner that takes "
            "sparse input, use fewer features or rows, or raise the bound",
            field="dataset",
        )
    return np.asarray(X.toarray(), dtype=np.float32)


def widened(X: Any, width: int) -> Any:
    """Sparse rows with so many columns: further ones are cut off, missing ones are empty. Dense rows as they are."""
    if isinstance(X, np.ndarray) or X.shape[1] == width:
        return X
    if X.shape[1] > width:
        return X[:, :width]
    return csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], width))


def in_blocks(
    predict: Callable[[Any], Any], X: Any, rows: NDArray[np.int64], size: int = 65_536
) -> NDArray[np.float64]:
    """What is predicted for some rows, (n, labels), ``size`` at a time."""
    starts = range(0, rows.size, size)
    return np.concatenate([np.asarray(predict(X[rows[start : start + size]])) for start in starts])


def score_subject_pairs(
    estimator: Any, subjects: SampleSets, left: NDArray[np.int64], right: NDArray[np.int64], aggregation: str
) -> Float32:
    """Scores of pairs of subjects by their numbers, (n,) float32."""
    numbers = np.unique(subjects.index)
    place = np.searchsorted(numbers, subjects.index)
    # Only the rows that were drawn are read, and prepared once for all pairs.
    prepared = estimator._prepared_subjects(
        SampleSets(rows=subjects.rows[numbers], index=place, counts=subjects.counts), aggregation
    )
    scores = np.empty(left.size, dtype=np.float32)
    for start in range(0, left.size, SCORE_BLOCK):
        part = slice(start, start + SCORE_BLOCK)
        scores[part] = estimator._subject_score(
            prepared.take(left[part]), prepared.take(right[part]), aggregation
        )
    return scores
