"""Fitted label rankers as named arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pairmark.models.core.spec import Arrays
from pairmark.models.label_ranking.auto import restore_candidate
from pairmark.models.label_ranking.base import restore, state_of
from pairmark.models.label_ranking.pair_models import TREE_ARRAYS, LogisticPairs, TreePairs, restore_pairs
from pairmark.models.label_ranking.trees import Trees


def trees_to_state(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Trees, and the training rankings that their leaves hold."""
    arrays, meta = state_of(estimator)
    arrays |= {name: getattr(estimator.trees_, name) for name in TREE_ARRAYS}
    arrays |= {"positions": estimator.positions_, "targets": estimator.targets_}
    return arrays, meta


def trees_from_state(
    estimator: Any, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> Any:
    """The estimator, fitted with what `trees_to_state` gave."""
    estimator.trees_ = Trees(**{name: arrays[name] for name in TREE_ARRAYS})
    estimator.positions_, estimator.targets_ = arrays["positions"], arrays["targets"]
    restore(estimator, arrays, meta)
    return estimator


def pairwise_to_state(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """The built-in pair models.

    Raises
    ------
    ValueError
        When the classifier is one of the user's own.
    """
    models = estimator.models_
    if not isinstance(models, LogisticPairs | TreePairs):
        raise ValueError(
            f"a PairwiseLabelRanker of {type(estimator.estimator).__name__} cannot be saved, since files hold plain "
            "arrays and no objects: use estimator='logistic', 'forest' or 'tree'"
        )
    arrays, meta = state_of(estimator)
    arrays |= {f"pairs_{name}": array for name, array in models.arrays().items()}
    arrays |= {
        "modelled": estimator.modelled_.astype(np.int64),
        "constant": estimator.constant_,
        "unseen_pairs": estimator.unseen_pairs_.astype(np.int64),
    }
    return arrays, meta


def pairwise_from_state(
    estimator: Any, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> Any:
    """The estimator, fitted with what `pairwise_to_state` gave."""
    estimator.models_ = restore_pairs(estimator.estimator, arrays)
    estimator.modelled_ = np.asarray(arrays["modelled"], dtype=np.intp)
    estimator.constant_ = np.asarray(arrays["constant"])
    estimator.unseen_pairs_ = np.asarray(arrays["unseen_pairs"], dtype=np.intp)
    restore(estimator, arrays, meta)
    return estimator


def auto_to_state(estimator: Any) -> tuple[Arrays, dict[str, Any]]:
    """Every kept candidate's arrays, named by its number, and the weights."""
    arrays, meta = state_of(estimator)
    for number, member in enumerate(estimator.members_.values()):
        arrays |= {f"member{number}_{name}": np.asarray(array) for name, array in member.arrays().items()}
    meta |= {
        "members": list(estimator.members_),
        "weights": estimator.weights_,
        "tau": estimator.tau_,
        "blend_tau": estimator.blend_tau_,
        "aggregation": estimator.aggregation_,
    }
    return arrays, meta


def auto_from_state(
    estimator: Any, arrays: Mapping[str, np.ndarray[Any, Any]], meta: Mapping[str, Any]
) -> Any:
    """The estimator, fitted with what `auto_to_state` gave."""
    estimator.members_ = {}
    for number, name in enumerate(meta["members"]):
        start = f"member{number}_"
        own = {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}
        estimator.members_[name] = restore_candidate(name, own)
    # Adding up the blend in another order would change its last bits.
    estimator.weights_ = {name: float(meta["weights"][name]) for name in meta["members"]}
    estimator.tau_ = {name: float(tau) for name, tau in meta["tau"].items()}
    estimator.blend_tau_ = float(meta["blend_tau"])
    estimator.aggregation_ = str(meta["aggregation"])
    restore(estimator, arrays, meta)
    return estimator
