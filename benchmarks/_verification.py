"""What the verification benchmarks share: rates at thresholds, and peers that score pairs of rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import pair_features, sample_pairs

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
BLOCK = 50_000


@dataclass(frozen=True, kw_only=True)
class Rates:
    """AUC, equal error rate, and the true positive rate at each false positive rate asked for."""

    auc: float
    eer: float
    tpr: tuple[float, ...]


def rates(scores: np.ndarray, same: np.ndarray, at: tuple[float, ...]) -> Rates:
    """Rates of ``score > threshold``; every pair weighs the same."""
    fpr, tpr, _ = roc_curve_pairs(scores, same)
    gap = fpr - (1.0 - tpr)
    meet = int(np.searchsorted(gap, 0.0))
    lower = max(meet - 1, 0)
    rise = gap[meet] - gap[lower]
    part = -gap[lower] / rise if rise > 0 else 0.0
    return Rates(
        auc=float(np.trapezoid(tpr, fpr)),
        eer=float(fpr[lower] + part * (fpr[meet] - fpr[lower])),
        tpr=tuple(float(tpr[fpr <= rate].max()) for rate in at),
    )


def timed(
    fit: Callable[[np.ndarray, np.ndarray], Score], X: np.ndarray, y: np.ndarray
) -> tuple[Score, float]:
    """A score fitted to rows and identities, and the CPU seconds that took, of all threads."""
    started = time.process_time()
    score = fit(X, y)
    return score, time.process_time() - started


def in_blocks(score: Score, X: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Scores of pairs of rows of X, a bounded block at a time; our learners prepare each row once."""
    learner: Any = getattr(score, "__self__", None)
    if getattr(score, "__name__", "") == "pair_score" and hasattr(learner, "score_pairs"):
        return np.asarray(learner.score_pairs(X, left, right))
    return np.concatenate(
        [
            np.asarray(score(X[left[at : at + BLOCK]], X[right[at : at + BLOCK]]), dtype=np.float32)
            for at in range(0, len(left), BLOCK)
        ]
    )


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Row by row."""
    return np.einsum("ij,ij->i", a, b) / np.maximum(
        np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1), 1e-12
    )


def euclidean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Minus the distance, row by row."""
    return -np.linalg.norm(a - b, axis=1)


def boosted(
    X: np.ndarray, y: np.ndarray, *, n_pairs: int, n_trees: int, depth: int, seed: int, **more: float
) -> Score:
    """XGBoost's histogram trees on written-out pair features of as many same as different pairs."""
    from xgboost import XGBClassifier

    pairs = sample_pairs(y, n_pairs, random_state=seed)
    model = XGBClassifier(
        n_estimators=n_trees, max_depth=depth, tree_method="hist", n_jobs=1, random_state=seed,
        base_score=0.5, **more,
    )  # fmt: skip
    model.fit(pair_features(X[pairs.left], X[pairs.right]), pairs.same)
    return lambda a, b: model.predict(pair_features(a, b), output_margin=True)
