"""Learning from explicit pairs: each pair is a training set of two points (docs/ghost.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pairmark.models.core.arrays import Bool, Float32, Float64
from pairmark.models.ghost.learning import GhostWeights, Iteration, Steps, penalty, slope_of_penalty

if TYPE_CHECKING:
    from pairmark.models.ghost.estimator import Ghost

MAX_PAIRS = 100_000
"""Pairs learned from; of more, so many are drawn."""


def learn_from_pairs(
    table: Float32,
    n_features: int,
    same: Bool,
    weight: Float64,
    settings: Ghost,
    *,
    over: float,
    margin: float,
) -> tuple[GhostWeights, list[Iteration]]:
    """Minimise the exact loss of all two-point training sets.

    With the exemplars' price b, a same pair loses ``[d - b + over]+`` and a different one ``[b + margin - d]+``: these
    are max over x of E(truth) - E(x) + Delta(x) for two points, so no slaves are needed.

    Parameters
    ----------
    table : (n, K) meta-features of each pair.
    weight : (n,) share of each pair in the loss.
    over, margin : alpha W for two exemplars in one cluster (0 when balanced), and alpha + beta.
    """
    n = table.shape[0]
    weights = GhostWeights(features=np.ones(n_features), meta_features=np.ones(table.shape[1] - n_features))
    # Start at the scale of the margin, between the typical pair of each kind.
    size = float(table.sum(axis=1, dtype=np.float64) @ weight / weight.sum())
    weights.features *= margin / max(size, 1e-12)
    weights.meta_features *= margin / max(size, 1e-12)
    weights.exemplar = margin / 2
    best, lowest, history, steps = weights, np.inf, [], Steps(table.shape[1])
    for _ in range(settings.max_iter * settings.n_updates):
        distance = (table @ weights.flat.astype(np.float32)).astype(np.float64)
        losses = np.where(same, distance - weights.exemplar + over, weights.exemplar + margin - distance)
        loss = float(weight @ np.maximum(losses, 0.0))
        objective = loss + penalty(weights, settings)
        history.append(
            Iteration(
                objective=objective,
                energy=loss,
                dual=0.0,
                rounded=0.0,
                n_weights=int((weights.flat > 0).sum()),
            )
        )
        if objective < lowest:
            best, lowest = weights, objective
        push: Any = weight * (losses > 0) * np.where(same, 1.0, -1.0)
        slope = (push.astype(np.float32) @ table).astype(np.float64) + slope_of_penalty(weights, settings)
        updated = np.maximum(weights.flat - steps.of(slope, n) * margin / max(size, 1e-12), 0.0)
        price = float(-push.sum())
        weights = GhostWeights(
            features=updated[:n_features],
            meta_features=updated[n_features:],
            exemplar=max(weights.exemplar - margin * steps.of_price(price / n, 1.0), 0.0),
        )
    return best, history
