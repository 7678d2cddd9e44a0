"""Fitted label rankers as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from models.label_ranking.base import restore, state_of
from models.label_ranking.trees import Trees
from models.spec import Arrays

_TREE_ARRAYS = ("roots", "feature", "threshold", "left", "right", "member_start", "members", "mass")


def trees_to_state(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Trees, and the training rankings that their leaves hold."""
    arrays, meta = state_of(estimator)
    arrays |= {name: getattr(estimator.trees_, name) for name in _TREE_ARRAYS}
    arrays |= {"positions": estimator.positions_, "targets": estimator.targets_}
    return arrays, meta


def trees_from_state(
    estimator: Any, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> Any:
    """The estimator, fitted with what `trees_to_state` gave."""
    estimator.trees_ = Trees(**{name: arrays[name] for name in _TREE_ARRAYS})
    estimator.positions_, estimator.targets_ = arrays["positions"], arrays["targets"]
    restore(estimator, arrays, meta)
    return estimator
