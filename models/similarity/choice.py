"""Choosing pair features by validation: which of them finds most same pairs at a low false positive rate."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from pairmark.models.core.base import Float32
from pairmark.models.core.progress import preparing
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import sample_pairs
from pairmark.models.pairs.splits import resolve_protocol
from pairmark.models.similarity.learned import PairFeatures
from pairmark.models.similarity.learning import MAX_CLASSES, MAX_WIDTH

TREES, PAIRS, JUDGED = 10, 50_000, 40_000
"""Size of the models compared, and how many held-out pairs judge them."""
AT_FPR = 0.01
"""Low, because that is where decisions are made, and high enough for `JUDGED` pairs to measure."""


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
    """The pair features under which a small model of the same settings has the best TPR at an FPR of `AT_FPR`.

    A quarter of the identities is held out from 30 identities on (open-set), else a quarter of each one's rows. The
    simplest wins a tie, and wins where too few are left to hold any out.
    """
    inside = _kept(codes, np.random.default_rng(seed))
    learned, judged = np.flatnonzero(inside), np.flatnonzero(~inside)
    pairs = sample_pairs(codes[judged], JUDGED, random_state=seed) if judged.size > 1 else None
    enough = pairs is not None and pairs.same.any() and not pairs.same.all()
    if pairs is None or not enough or not _has_both_kinds(codes[learned]):
        return "raw"
    left, right = X[judged[pairs.left]], X[judged[pairs.right]]
    best = -1.0
    found: PairFeatures = "raw"
    for kind in candidates(X, codes):
        small: dict[str, Any] = {"pair_features": kind, "random_state": seed, "verbose": 0}
        given = estimator.get_params(deep=False)
        if "n_estimators" in given:
            small["n_estimators"] = min(TREES, given["n_estimators"])
        small["n_pairs"] = PAIRS if given["n_pairs"] is None else min(PAIRS, given["n_pairs"])
        with preparing(f"choosing pair features: {kind}"):
            model = clone(estimator).set_params(**small).fit(X[learned], codes[learned])
        fpr, tpr, _ = roc_curve_pairs(model.pair_score(left, right), pairs.same, sample_weight=pairs.weight)
        reached = float(tpr[fpr <= AT_FPR].max(initial=0.0))
        if reached > best:
            best, found = reached, kind
    return found


def _kept(codes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.bool_]:
    n = int(codes.max()) + 1
    if resolve_protocol("auto", n) == "open-set":
        return np.asarray((rng.permutation(n) >= n // 4)[codes])
    order = rng.permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]
    inside = np.ones(codes.size, dtype=np.bool_)
    inside[order[::4]] = False
    return inside


def _has_both_kinds(codes: NDArray[np.int64]) -> bool:
    sizes = np.bincount(codes)
    return int(np.count_nonzero(sizes)) >= 2 and int(sizes.max()) >= 2
