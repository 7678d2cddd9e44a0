"""How good predicted rankings are, on rows that learning did not see, with intervals that respect groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.bounds import t_reach
from pairmark.models.core.arrays import Float64, Int64
from pairmark.models.evaluation.rankings import consensus, kendall_tau

CONFIDENCE = 0.95


def split_rankings(
    n_rows: int,
    *,
    test_fraction: float = 0.2,
    groups: ArrayLike | None = None,
    random_state: int | None = None,
) -> tuple[Int64, Int64]:
    """Rows to learn from and rows to judge by, drawn at random, groups whole.

    Raises
    ------
    ValueError
        When there are too few rows (or groups) for two of each in either part.
    """
    units = np.arange(n_rows) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    n_units = int(units.max(initial=-1)) + 1
    held_out = max(round(test_fraction * n_units), 2)
    if n_units - held_out < 2:
        kind = "rows" if groups is None else "groups"
        raise ValueError(
            f"there are {n_units} {kind}; expected at least 4, two to learn from and two to test"
        )
    is_test = np.zeros(n_units, dtype=np.bool_)
    is_test[np.random.default_rng(random_state).permutation(n_units)[:held_out]] = True
    return np.flatnonzero(~is_test[units]), np.flatnonzero(is_test[units])


def ranking_metrics(
    predicted: ArrayLike,
    truth: ArrayLike,
    *,
    reference: ArrayLike | None = None,
    units: ArrayLike | None = None,
) -> dict[str, Any]:
    """Agreement of predicted positions with observed ones.

    Parameters
    ----------
    predicted : (n, k) positions without gaps; tied where the ranker abstained.
    truth : (n, k) positions; NaN = label absent, equal values = tied.
    reference : (m, k) rankings learned from: the one ranking that fits them best is judged beside.
    units : (n,) groups that rows depend within; default: every row stands for itself.

    Returns
    -------
    JSON-able: ``kendall_tau`` (tau-b, which is the plain tau where nothing is tied), ``pair_accuracy`` (share of the
    observed pairs of labels in the right order, a tie counting half), ``top_1`` (the first of the observed labels is
    one of the best) and perhaps ``constant_kendall_tau``, each ``{"value", "interval"}``; counts of rows.

    Raises
    ------
    ValueError
        When no row of ``truth`` orders two labels.
    """
    answers, observed = np.asarray(predicted, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    low, high = _extremes(observed)
    rows = np.flatnonzero(low < high)
    if not rows.size:
        raise ValueError("no held-out row orders two labels; bring more rows, or rankings of more labels")
    answers, observed, low = answers[rows], observed[rows], low[rows]
    owners = rows if units is None else np.unique(np.asarray(units)[rows], return_inverse=True)[1]

    def entry(values: Float64, lowest: float = 0.0) -> dict[str, Any]:
        return _mean_with_interval(values, owners, lowest)

    # A row whose observed labels the ranker left all tied says nothing of them: no agreement, not none to count.
    metrics: dict[str, Any] = {
        "kendall_tau": entry(np.nan_to_num(kendall_tau(answers, observed), nan=0.0), -1.0)
    }
    metrics["pair_accuracy"] = entry(_pairs_right(answers, observed))
    among = np.where(np.isnan(observed), np.inf, answers)
    first = among == among.min(axis=1, keepdims=True)
    best = observed == low[:, None]
    metrics["top_1"] = entry((first & best).sum(axis=1) / first.sum(axis=1))
    if reference is not None:
        constant = np.broadcast_to(consensus(reference), observed.shape)
        metrics["constant_kendall_tau"] = entry(np.nan_to_num(kendall_tau(constant, observed), nan=0.0), -1.0)
    return {
        **metrics,
        "n_rows": int(rows.size),
        "n_units": int(np.unique(owners).size),
        "confidence": CONFIDENCE,
        "intervals": "Student's t over " + ("rows" if units is None else "groups"),
    }


def pair_disagreement(predicted: ArrayLike, truth: ArrayLike) -> list[list[float | None]]:
    """How often the predicted order of two labels is not the observed one.

    Parameters
    ----------
    predicted, truth : (n, k) positions as `ranking_metrics` takes them.

    Returns
    -------
    (k, k), symmetric: the share of rows that order the two labels otherwise, a predicted tie counting half; None where
    no row orders them, and on the diagonal.
    """
    reported, true_positions = np.asarray(predicted, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if reported.shape != true_positions.shape or reported.ndim != 2:
        raise ValueError(
            f"predicted has shape {reported.shape} and truth {true_positions.shape}; expected (n, k) for both"
        )
    k = true_positions.shape[1]
    shares: list[list[float | None]] = [[None] * k for _ in range(k)]
    for a in range(k):
        for b in range(a + 1, k):
            observed = np.sign(true_positions[:, a] - true_positions[:, b])
            is_ordered = np.abs(observed) == 1
            if is_ordered.any():
                agreed = observed[is_ordered] * np.sign(reported[is_ordered, a] - reported[is_ordered, b])
                shares[a][b] = shares[b][a] = float((1 - agreed.mean()) / 2)
    return shares


def _extremes(positions: Float64) -> tuple[Float64, Float64]:
    absent = np.isnan(positions)
    return (np.where(absent, np.inf, positions).min(axis=1), np.where(absent, -np.inf, positions).max(axis=1))


def _pairs_right(answers: Float64, truth: Float64) -> Float64:
    right, n_ordered = np.zeros(len(truth)), np.zeros(len(truth))
    for label in range(truth.shape[1] - 1):
        # Comparisons with NaN are false, so absent labels are in no pair.
        for sign in (1.0, -1.0):
            is_before = sign * truth[:, label, None] < sign * truth[:, label + 1 :]
            gap = sign * (answers[:, label + 1 :] - answers[:, label, None])
            right += (is_before * np.where(gap > 0, 1.0, np.where(gap == 0, 0.5, 0.0))).sum(axis=1)
            n_ordered += is_before.sum(axis=1)
    return right / n_ordered


def _mean_with_interval(values: Float64, owners: Int64, lowest: float) -> dict[str, Any]:
    mean = float(values.mean())
    reach = t_reach((values - mean) / values.size, np.unique(owners, return_inverse=True)[1], CONFIDENCE)
    interval = None if reach is None else [max(mean - reach, lowest), min(mean + reach, 1.0)]
    return {"value": mean, "interval": interval}
