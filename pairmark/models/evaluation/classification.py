"""How good a classifier is on rows that learning did not see, with intervals that respect groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from pairmark.models.calibration.bounds import t_reach, wilson_interval
from pairmark.models.core.arrays import Float64, Int64

CONFIDENCE = 0.95


def classification_metrics(
    probabilities: ArrayLike,
    truth: ArrayLike,
    *,
    reference: ArrayLike | None = None,
    units: ArrayLike | None = None,
) -> dict[str, Any]:
    """Accuracy and the like of predicted probabilities; the most probable class is the prediction.

    Parameters
    ----------
    probabilities : (n, k), rows sum to 1.
    truth : (n,) columns of the true classes; -1 for a class that was not learned, which is always an error.
    reference : classes learned from: what always naming the most frequent one would reach is reported beside it.
    units : (n,) groups that rows depend within; default: every row stands for itself.

    Returns
    -------
    JSON-able: ``accuracy`` and ``balanced_accuracy`` (the mean over true classes of the share that is found), each
    ``{"value", "interval"}``; ``log_loss`` over rows of learned classes (nats, probabilities below 1e-6 count as that);
    ``constant_accuracy`` with ``reference``; counts. Intervals: Wilson's, and for the balanced accuracy its normal
    one from shares smoothed by one of each kind; with ``units`` Student's t over them.
    """
    estimated, true = np.asarray(probabilities, dtype=np.float64), np.asarray(truth, dtype=np.int64)
    right = (estimated.argmax(axis=1) == true).astype(np.float64)
    classes, code, counts = np.unique(true, return_inverse=True, return_counts=True)
    recalls = np.bincount(code, right) / counts
    accuracy, balanced = float(right.mean()), float(recalls.mean())
    intervals: tuple[list[float] | None, list[float] | None]
    if units is None:
        intervals = (
            list(wilson_interval(accuracy, right.size, CONFIDENCE)),
            _balanced_interval(balanced, recalls * counts, counts),
        )
    else:
        owner = np.unique(np.asarray(units), return_inverse=True)[1]
        shares = (right - recalls[code]) / counts[code] / classes.size
        intervals = (
            _grouped(accuracy, (right - accuracy) / right.size, owner),
            _grouped(balanced, shares, owner),
        )
    metrics: dict[str, Any] = {
        "accuracy": {"value": accuracy, "interval": intervals[0]},
        "balanced_accuracy": {"value": balanced, "interval": intervals[1]},
    }
    rows = np.flatnonzero(true >= 0)
    if rows.size:
        truth_shares = np.maximum(estimated[rows, true[rows]], 1e-6)
        metrics["log_loss"] = float(-np.log(truth_shares).mean())
    if reference is not None:
        reference_codes = np.asarray(reference, dtype=np.int64)
        metrics["constant_accuracy"] = float((true == np.bincount(reference_codes).argmax()).mean())
    return {
        **metrics,
        "n_rows": int(true.size),
        "n_classes": int(classes.size),
        "n_rows_of_unknown_classes": int((true < 0).sum()),
        "confidence": CONFIDENCE,
    }


def _balanced_interval(value: float, n_right: Float64, counts: Int64) -> list[float]:
    # One more of each kind: a class whose few rows were all found is not known for sure.
    shares = (n_right + 1) / (counts + 2)
    error = float(np.sqrt((shares * (1 - shares) / counts).sum())) / counts.size
    reach = float(ndtri((1 + CONFIDENCE) / 2)) * error
    return [max(value - reach, 0.0), min(value + reach, 1.0)]


def _grouped(value: float, shares: Float64, owner: Int64) -> list[float] | None:
    reach = t_reach(shares, owner, CONFIDENCE)
    return None if reach is None else [max(value - reach, 0.0), min(value + reach, 1.0)]
