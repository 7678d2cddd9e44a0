"""A fitted metric as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.metric.estimator import MetricSimilarity


def to_state(estimator: MetricSimilarity) -> tuple[Arrays, dict[str, Any]]:
    """The whitening, where there is one."""
    if not estimator.whiten:
        return {}, {}
    return {"mean": estimator.mean_, "whitening": estimator.whitening_}, {}


def from_state(
    estimator: MetricSimilarity, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> MetricSimilarity:
    """The estimator, fitted with what `to_state` gave."""
    if estimator.whiten:
        # Copies, so that kernels meet one kind of array whether the file was mapped or read.
        estimator.mean_ = np.array(arrays["mean"], dtype=np.float64)
        estimator.whitening_ = np.array(arrays["whitening"], dtype=np.float64, order="C")
    return estimator._finish()
