"""Choosing pair features by validation: which of them finds most same pairs at low false positive rates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairmark.models.core.base import Float32
from pairmark.models.core.blas import one_blas_thread
from pairmark.models.core.progress import preparing
from pairmark.models.evaluation.validation import JUDGED_FPR, validation_folds
from pairmark.models.pairs.splits import resolve_protocol
from pairmark.models.similarity.learned import PairFeatures
from pairmark.models.similarity.learning import MAX_CLASSES, MAX_WIDTH

TREES, PAIRS = 10, 50_000
"""Size of the models compared."""
FOLDS, JUDGED_ROWS = 4, 400


def candidates(X: Float32, codes: NDArray[np.int64]) -> list[PairFeatures]:
    """What may be chosen, simplest first: posteriors only where the classes to come are those learned from."""
    n_classes = int(codes.max()) + 1
    found: list[PairFeatures] = ["raw", "distances"]
    if X.shape[1] <= MAX_WIDTH:
        found.append("discriminant")
    found.append("kernel-discriminant")
    if resolve_protocol("auto", n_classes) == "closed-set":
        found += ["posteriors"] if n_classes <= MAX_CLASSES else []
    elif X.shape[1] <= MAX_WIDTH:
        found.append("whitened")
    return found


def choose(estimator: Any, X: Float32, codes: NDArray[np.int64], seed: int) -> PairFeatures:
    """The pair features under which small models of the same settings have the best mean TPR at low rates.

    Four folds hold identities out in turn from 30 identities on (open-set), else rows. One split decides by luck. The
    simplest within one standard error of the best, fold by fold, wins, and wins where too few are left to hold any out.
    """
    protocol = resolve_protocol("auto", int(codes.max()) + 1)
    random = np.random.default_rng(seed)
    folds = validation_folds(codes, protocol, random, repeats=1, n_folds=FOLDS, judged_rows=JUDGED_ROWS)
    if not folds:
        return "raw"
    found: dict[PairFeatures, NDArray[np.float64]] = {}
    for kind in candidates(X, codes):
        small: dict[str, Any] = {"pair_features": kind, "random_state": seed, "verbose": 0}
        given = estimator.get_params(deep=False)
        if "n_estimators" in given:
            small["n_estimators"] = min(TREES, given["n_estimators"])
        small["n_pairs"] = PAIRS if given["n_pairs"] is None else min(PAIRS, given["n_pairs"])
        reached = []
        for fold in folds:
            # Small matrices: several threads would only stand in each other's way.
            with preparing(f"choosing pair features: {kind}"), one_blas_thread():
                seen = np.unique(codes[fold.train], return_inverse=True)[1]
                model = clone(estimator).set_params(**small).fit(X[fold.train], seen)
            rows = X[fold.test]
            reached.append(float(fold.rates(model.score_against(rows, rows), JUDGED_FPR).mean()))
        found[kind] = np.array(reached)
    best = max(found, key=lambda kind: float(found[kind].mean()))
    for kind, reached_by in found.items():
        behind = found[best] - reached_by
        error = behind.std(ddof=min(1, behind.size - 1)) / np.sqrt(behind.size)
        if behind.mean() <= error:
            return kind
    return best
