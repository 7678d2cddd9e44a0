"""Distances and agreement between rankings, and aggregation of pairwise preferences into one ranking.

Rankings are rows of positions: ``positions[r, i]`` is label i's 0-based place in row r, smaller is better. NaN means
that the label is absent and equal values are tied, wherever a function does not say otherwise.

Intervals are those of figures that are sums over units.
"""

import math
from typing import Any, Literal

import numpy as np
from scipy.special import stdtrit

from pairmark.models.core.arrays import ArrayLike, Float64, Int64

CONFIDENCE = 0.95
"""Of the intervals of comparisons and of figures by rows."""


def t_interval(
    value: float, shares: Float64, owner: Int64, *, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float] | None:
    """Student's t interval of a figure at `CONFIDENCE`, its variance that of sums over owners; None for one owner.

    Parameters
    ----------
    shares : (n,) what each row adds to the figure's deviation (linearized ratio). owner : (n,) codes 0, 1, ...
    low, high : the figure's range.
    """
    n_owners = int(owner.max()) + 1
    if n_owners < 2:
        return None
    error = math.sqrt(float((np.bincount(owner, shares) ** 2).sum()) * n_owners / (n_owners - 1))
    reach = float(stdtrit(n_owners - 1, (1 + CONFIDENCE) / 2)) * error
    return max(value - reach, low), min(value + reach, high)


def mean_interval(
    values: Float64, owner: Int64, *, low: float = -math.inf, high: float = math.inf
) -> tuple[float, float] | None:
    """`t_interval` of the mean of rows."""
    mean = float(values.mean())
    return t_interval(mean, (values - mean) / values.size, owner, low=low, high=high)


Positions = Float64
Aggregation = Literal["borda", "copeland"]
_CELLS = 4_000_000


def kendall_tau(a: ArrayLike, b: ArrayLike) -> Float64:
    """Kendall's tau-b between the rows of two arrays of positions.

    Parameters
    ----------
    a, b : (n, k) positions (or any numbers that order the labels); equal values are ties. NaN means that the
        label is absent: it is left out of that row, on both sides.

    Returns
    -------
    (n,) float64 in [-1, 1]: (concordant - discordant) / sqrt(pairs not tied in a * pairs not tied in b),
    Kendall 1945. NaN where that is 0/0: fewer than two labels in common, or all of them tied on one side.

    Raises
    ------
    ValueError
        When shapes differ, are not two-dimensional, or values are infinite.

    Examples
    --------
    >>> from pairmark import kendall_tau
    >>> kendall_tau([[0, 1, 2], [0, 1, 2]], [[0, 1, 2], [2, 1, 0]])  # the same order, and its reverse
    array([ 1., -1.])
    """
    left, right = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if left.ndim != 2 or left.shape != right.shape:
        raise ValueError(f"a and b have shapes {left.shape} and {right.shape}; expected (n, k) for both")
    if np.isinf(left).any() or np.isinf(right).any():
        raise ValueError("a and b hold infinities; expected positions, NaN where a label is absent")
    n, k = left.shape
    tau = np.full(n, np.nan)
    absent = np.isnan(left) | np.isnan(right)
    block = max(1, _CELLS // max(1, k * k))
    first, second = np.triu_indices(k, 1)
    for start in range(0, n, block):
        rows = slice(start, start + block)
        # A pair with an absent label is no pair: 0 counts as tied on both sides.
        is_absent = absent[rows, first] | absent[rows, second]
        sign_a, sign_b = (
            np.where(is_absent, 0.0, np.sign(side[rows, first] - side[rows, second]))
            for side in (left, right)
        )
        untied = np.abs(sign_a).sum(axis=1) * np.abs(sign_b).sum(axis=1)
        np.divide((sign_a * sign_b).sum(axis=1), np.sqrt(untied), out=tau[rows], where=untied > 0)
    return tau


def positions_of(scores: ArrayLike) -> Positions:
    """0-based positions of each row's scores, (n, k): highest first, ties by the labels' order."""
    order = np.argsort(-np.asarray(scores, dtype=np.float64), axis=1, kind="stable")
    return np.argsort(order, axis=1).astype(np.float64)


def mid_positions(positions: ArrayLike) -> Positions:
    """Positions with gaps closed and ties in the middle of the places they share; NaN stays.

    ``[3, 1, 1, nan]`` becomes ``[2, 0.5, 0.5, nan]``.
    """
    # Who ranks no labels need not load all of it: a fifth of a start.
    from scipy.stats import rankdata

    return np.asarray(rankdata(np.asarray(positions, dtype=np.float64), axis=1, nan_policy="omit") - 1.0)


def pairwise_shares(positions: ArrayLike) -> Float64:
    """Of the rows that show both labels, the share that puts the first before the second, (k, k).

    Ties count half each way. NaN where no row shows both; the diagonal is 0.
    """
    values = np.asarray(positions, dtype=np.float64)
    n, k = values.shape
    votes, n_compared = np.zeros((k, k)), np.zeros((k, k))
    block = max(1, _CELLS // max(1, k * k))
    for begin in range(0, n, block):
        part = values[begin : begin + block]
        before = (part[:, :, None] < part[:, None, :]) + 0.5 * (part[:, :, None] == part[:, None, :])
        present = ~np.isnan(part)
        votes += before.sum(axis=0)
        n_compared += present.T.astype(np.float64) @ present.astype(np.float64)
    shares = np.full((k, k), np.nan)
    np.divide(votes, n_compared, out=shares, where=n_compared > 0)
    np.fill_diagonal(shares, 0.0)
    return shares


def borda(before: Float64) -> Float64:
    """Borda scores, (n, k): the sum over the other labels of how surely a label comes before them.

    Parameters
    ----------
    before : (n, k, k) shares or probabilities that the first label comes before the second.
    """
    return np.asarray(before.sum(axis=2))


def consensus(positions: ArrayLike) -> Positions:
    """The one ranking, (1, k), that puts labels in the order of how often each goes before the others (Borda)."""
    # Two labels that no row shows together say nothing of each other: even.
    return positions_of(borda(np.nan_to_num(pairwise_shares(positions), nan=0.5)[None]))


def copeland(before: Float64) -> Positions:
    """Copeland positions in closed form, (n, k): how many labels beat each, half for those that draw with it.

    Labels with equally many defeats are tied. On a transitive tournament it is the tournament's own order.
    Algorithm 6 of the paper counts the same from 1, with ``g_ij = +1`` where i comes after j.
    """
    after = np.swapaxes(before, 1, 2)
    defeats = (after > before).sum(axis=2) + 0.5 * ((after == before).sum(axis=2) - 1)
    return np.asarray(defeats, dtype=np.float64)


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
        raise ValueError(
            f"there are {n_units} {'rows' if groups is None else 'groups'}; expected at least 4, two to learn from and "
            "two to test"
        )
    is_test = np.isin(units, np.random.default_rng(random_state).permutation(n_units)[:held_out])
    return np.flatnonzero(~is_test), np.flatnonzero(is_test)


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
    predicted : (n, k) positions without gaps.
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
    low = np.fmin.reduce(observed, axis=1)
    rows = np.flatnonzero(low < np.fmax.reduce(observed, axis=1))
    if not rows.size:
        raise ValueError("no held-out row orders two labels; bring more rows, or rankings of more labels")
    answers, observed, low = answers[rows], observed[rows], low[rows]
    owners = np.unique(rows if units is None else np.asarray(units)[rows], return_inverse=True)[1]

    def entry(values: Float64, lowest: float = 0.0) -> dict[str, Any]:
        return {
            "value": float(values.mean()),
            "interval": mean_interval(values, owners, low=lowest, high=1.0),
        }

    metrics: dict[str, Any] = {
        # A row whose observed labels the ranker left all tied says nothing of them: no agreement, not none to count.
        "kendall_tau": entry(np.nan_to_num(kendall_tau(answers, observed), nan=0.0), -1.0),
        "pair_accuracy": entry(_pairs_right(answers, observed)),
    }
    among = np.where(np.isnan(observed), np.inf, answers)
    first = among == among.min(axis=1, keepdims=True)
    metrics["top_1"] = entry((first & (observed == low[:, None])).sum(axis=1) / first.sum(axis=1))
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
