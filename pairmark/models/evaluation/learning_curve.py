"""What more people would bring: the TPR of models that learned from more and more of them, and the trend of it."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from sklearn.base import clone

from pairmark.models.core.arrays import Int64
from pairmark.models.evaluation.pairs import LINE, Format, picture
from pairmark.models.evaluation.validation import SHOWN_FROM, shown_rates, tpr_at, validation_folds

SHARES: Final = (0.25, 0.5, 0.75, 1.0)
FEWEST = 4
"""People to train on, at least."""
AHEAD: Final = (1.0, 1.5, 2.0)
"""Multiples of the people there are that the trend is followed to."""


def learning_curve(
    estimator: Any,
    X: Any,
    y: Int64,
    fpr: float,
    random_state: int = 0,
    progress: Callable[[float], object] = lambda share: None,
) -> list[dict[str, Any]]:
    """TPR at a false positive rate by the number of people who train.

    Four folds hold people out; in each, models learn from the same people in the same order, a quarter of them to all,
    and find pairs of those held out, who are always the same.

    Parameters
    ----------
    estimator : a similarity, cloned for each fit, so that all have its seed.
    X, y : (n, d) rows and (n,) codes of people, 0, 1, ...

    Returns
    -------
    ``{"people", "tpr", "deviation", "measured"}`` by people: measured, with the standard deviation over folds; then
    a + b log(people), fitted to those by least squares and kept within 0 and 1. It is a trend, and guarantees nothing.

    Raises
    ------
    ValueError
        Where held-out people do not resolve the rate, or fewer than two shares of the people can train.
    """
    random = np.random.default_rng(random_state)
    folds = [fold for fold in validation_folds(y, "open-set", random, repeats=1) if not fold.closed]
    # People who train in every fold.
    n_trained = min((np.unique(y[fold.train]).size for fold in folds), default=0)
    counts = np.unique([max(FEWEST, round(share * n_trained)) for share in SHARES])
    if not folds or counts.size < 2:
        raise ValueError(f"{np.unique(y).size} people; expected twelve or more, with two rows each")
    rates = np.empty((counts.size, len(folds), 1))
    for number, fold in enumerate(folds):
        people = y[fold.train]
        # Those with two rows and more first: without them there is nothing to learn from.
        order = random.permutation(np.unique(people))
        order = order[np.argsort(np.bincount(people)[order] < 2, kind="stable")]
        left, right = np.triu_indices(fold.test.size, 1)
        is_same = fold.test_codes[left] == fold.test_codes[right]
        for row, count in enumerate(counts.tolist()):
            rows = fold.train[np.isin(people, order[:count])]
            scores = clone(estimator).fit(X[rows], y[rows]).score_pairs(X, fold.test[left], fold.test[right])
            rates[row, number] = tpr_at(scores[is_same], scores[~is_same], (fpr,))
            progress((number * counts.size + row + 1) / (len(folds) * counts.size))
    means = [shown_rates(of_count, folds, (fpr,)).get(fpr) for of_count in rates]
    if None in means:
        least = SHOWN_FROM / float(np.median([fold.n_independent for fold in folds]))
        raise ValueError(f"people held out do not show the TPR at a rate below {least:.2g}")
    b, a = np.polyfit(np.log(counts), np.array(means, dtype=np.float64), 1)
    deviations = rates.std(axis=(1, 2)).tolist()
    ahead = [round(factor * np.unique(y).size) for factor in AHEAD]
    trend = [float(np.clip(a + b * np.log(people), 0, 1)) for people in ahead]
    points = [
        *zip(counts.tolist(), means, deviations, [True] * counts.size, strict=True),
        *zip(ahead, trend, [None] * len(ahead), [False] * len(ahead), strict=True),
    ]
    return [dict(zip(("people", "tpr", "deviation", "measured"), point, strict=True)) for point in points]


def draw_learning_curve(points: Sequence[Mapping[str, Any]], format: Format, title: str = "") -> bytes:
    """What was measured as a line with the deviation of its folds, the trend dashed."""
    measured = [point for point in points if point["measured"]]
    trend = [measured[-1], *(point for point in points if not point["measured"])]
    stream = io.BytesIO()
    with picture(stream, format, title, "people who train") as axes:
        x, tpr, deviation = ([point[name] for point in measured] for name in ("people", "tpr", "deviation"))
        axes.errorbar(x, tpr, yerr=deviation, color=LINE, marker="o", label="measured on others")
        axes.plot(
            *([point[name] for point in trend] for name in ("people", "tpr")),
            color=LINE,
            linestyle="--",
            label="trend",
        )
        axes.legend(loc="lower right")
    return stream.getvalue()
