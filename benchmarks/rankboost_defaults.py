"""RankBoost as it comes, beside L2 logistic regression as it comes: AUC and average precision on held-out rows.

The defaults (criterion, rounds, bags) were chosen by cross-validation on training rows. Three seeds, medians.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks import _sparse
from benchmarks.common import Claim, Preset, Result
from pairmark.models import RankBoostKernel


def run(preset: Preset) -> Result:
    """Quick and full are the same: a minute of one core."""
    rows, claims = [], []
    for name, load in (("rcv1", _sparse.rcv1), ("a9a", _sparse.a9a), ("sms", _sparse.sms)):
        data = load()
        found = []
        for seed in range(3):
            begun = time.process_time()
            model = RankBoostKernel(random_state=seed).fit(data.X, data.y)
            cpu = time.process_time() - begun
            found.append((*_quality(data.y_test, model.decision_function(data.X_test)), cpu))
        auc, precision, cpu = np.median(found, axis=0)
        begun = time.process_time()
        peer = LogisticRegression(max_iter=1000).fit(data.X, data.y)
        peer_cpu = time.process_time() - begun
        peer_auc, peer_precision = _quality(data.y_test, peer.decision_function(data.X_test))
        rows += [
            {"data": name, "contestant": "RankBoost, defaults", "AUC": auc, "AP": precision, "CPU s": cpu},
            {
                "data": name,
                "contestant": "logistic, L2",
                "AUC": peer_auc,
                "AP": peer_precision,
                "CPU s": peer_cpu,
            },
        ]
        for what, measured, floor in (
            ("AUC", auc - peer_auc, -0.005),
            ("AP", precision - peer_precision, -0.02),
        ):
            claims.append(
                Claim(
                    what=f"{name}: {what} of RankBoost less that of logistic regression",
                    goal=f"at least {floor}",
                    measured=float(measured),
                    holds=bool(measured >= floor),
                )
            )
    return Result(rows=rows, claims=claims)


def _quality(labels: np.ndarray, scores: np.ndarray) -> tuple[float, float]:
    return float(roc_auc_score(labels, scores)), float(average_precision_score(labels, scores))
