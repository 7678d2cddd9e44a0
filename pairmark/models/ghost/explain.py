"""What each meta-feature contributes to a distance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.models.core.contributions import LISTED
from pairmark.models.core.inputs import feature_names_of
from pairmark.models.ghost.classify import Weighing
from pairmark.models.ghost.space import Space


def contributions(
    estimator: Any,
    space: Space,
    weighing: Weighing,
    left: Float32,
    right: Float32,
    score: float,
    feature_names: Sequence[str] | None,
) -> dict[str, Any]:
    """Contributions that add up to one pair's score.

    Parameters
    ----------
    estimator : the fitted learner. space, weighing : its meta-features, and the weights in use.
    left, right : (1, d).
    feature_names : (d,) names to use; those of training when None.

    Returns
    -------
    ``distance``; ``contributions``, the largest first: ``meta_feature``, its ``weight`` (of the meta-feature divided
    by its mean), and the ``contribution`` to the score, never above 0; ``rest`` is what all others add.
    """
    features, names = feature_names_of(estimator, feature_names), estimator.meta_feature_names_
    gaps = np.abs(left[0].astype(np.float64) - right[0])
    entries: list[dict[str, Any]] = [
        {
            "meta_feature": features[column],
            "weight": float(estimator.weights_[column]),
            "left": float(left[0, column]),
            "right": float(right[0, column]),
            "contribution": 0.0 - float(weight * gaps[column]),
        }
        for column, weight in zip(weighing.columns, weighing.features, strict=True)
    ]
    A, B = space.points(left), space.points(right)
    by_name = dict(zip(names.tolist(), estimator.weights_.tolist(), strict=True))
    for name, weight in weighing.pairs.items():
        value = 0.0 - weight * float(space.pair_values(name, A, B)[0])
        entries.append(
            {
                "meta_feature": name,
                "weight": by_name[name],
                "left": None,
                "right": None,
                "contribution": value,
            }
        )
    entries.sort(key=lambda entry: (entry["contribution"], entry["meta_feature"]))
    largest = entries[:LISTED]
    remainder = sum(entry["contribution"] for entry in entries[LISTED:])
    return {"distance": 0.0 - score, "contributions": largest, "rest": float(remainder)}


def selection(
    estimator: Any, space: Space, feature_names: Sequence[str] | None, *, classifies: bool
) -> dict[str, Any]:
    """The weights that are left, the largest first: the model read as a selection of features.

    Returns
    -------
    ``weights``: the `LISTED` largest, ``meta_feature`` and ``weight``; ``n_weights`` of ``n_meta_features`` are not 0;
    ``exemplar_price``; and of a classifier ``strategy`` and ``validation``, each strategy's balanced accuracy on
    withheld rows.
    """
    names = estimator.meta_feature_names_.tolist()
    d = estimator.n_features_in_
    if feature_names is not None and space.meta_features.features and len(feature_names) == d:
        names[:d] = [str(name) for name in feature_names]
    order = np.argsort(-estimator.weights_, kind="stable")
    positive = [int(at) for at in order if estimator.weights_[at] > 0]
    summary: dict[str, Any] = {
        "weights": [
            {"meta_feature": names[at], "weight": float(estimator.weights_[at])} for at in positive[:LISTED]
        ],
        "n_weights": len(positive),
        "n_meta_features": len(names),
        "exemplar_price": estimator.exemplar_price_,
    }
    if classifies:
        summary["strategy"] = estimator.strategy_
        summary["validation"] = dict(estimator.validation_)
    return summary
