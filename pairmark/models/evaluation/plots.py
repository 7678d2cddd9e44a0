"""Plots of scored pairs for notebooks and scripts: ``plot_roc(scores, same).save("roc.svg")``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pairmark.models.calibration.identification import cmc
from pairmark.models.evaluation import drawing
from pairmark.models.evaluation.drawing import Picture
from pairmark.models.evaluation.likelihood import cross_entropies, evidence
from pairmark.models.evaluation.pairs import det_curve, pair_report


def plot_roc(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    units: ArrayLike | None = None,
    confidence: float = 0.95,
    title: str = "",
    random_state: int | None = 0,
    ax: Any = None,
) -> Picture:
    """The ROC of scored pairs with its pointwise band, the false positive rate on a logarithmic axis.

    Parameters
    ----------
    scores, same, units : as `roc_curve_pairs`.
    confidence : of the band. random_state : of the draws that it comes from.
    ax : Matplotlib axes to draw in; None: a figure of its own.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import plot_roc
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> picture = plot_roc(scores, same, title="Held-out pairs")
    >>> picture.figure.axes[0].get_xlabel()
    'false positive rate'
    >>> picture.save("roc.svg")  # doctest: +SKIP
    """
    report = pair_report(scores, same, units, confidence=confidence, random_state=random_state)
    return drawing.draw_roc(report.roc(), title, ax=ax)


def plot_det(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    units: ArrayLike | None = None,
    confidence: float = 0.95,
    title: str = "",
    random_state: int | None = 0,
    ax: Any = None,
) -> Picture:
    """The DET curve on NIST's axes of normal deviates: false non-matches against false matches. See `plot_roc`.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import plot_det
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> picture = plot_det(scores, same, title="Held-out pairs")
    >>> picture.figure.axes[0].get_xlabel()
    'false match rate (%)'
    """
    report = pair_report(scores, same, units, confidence=confidence, random_state=random_state)
    return drawing.draw_det(det_curve(report.roc()), title, ax=ax)


def plot_histograms(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    bins: int = 64,
    threshold: float | None = None,
    title: str = "",
    ax: Any = None,
) -> Picture:
    """How scores of same and of different pairs are spread; ``threshold`` is marked.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import plot_histograms
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> picture = plot_histograms(scores, same, threshold=1.5)
    >>> picture.figure.axes[0].get_xlabel()
    'score'
    """
    values, is_same = np.asarray(scores, dtype=np.float64), np.asarray(same).astype(np.bool_)
    if values.ndim != 1 or values.shape != is_same.shape or not values.size or not np.isfinite(values).all():
        raise ValueError("scores and same: expected finite numbers and 0 or 1, one of each a pair")
    edges = np.histogram_bin_edges(values, bins)
    counts = {
        "edges": edges,
        "same": np.histogram(values[is_same], edges)[0],
        "different": np.histogram(values[~is_same], edges)[0],
    }
    thresholds = None if threshold is None else {"threshold": threshold}
    return drawing.draw_histograms(counts, title, thresholds=thresholds, ax=ax)


def plot_cmc(
    ranks: ArrayLike, *, max_rank: int = 20, confidence: float = 0.95, title: str = "", ax: Any = None
) -> Picture:
    """How often the right person is among the first k results; ``ranks`` of the own subject, from 1, one a probe.

    Examples
    --------
    >>> from pairmark import plot_cmc
    >>> picture = plot_cmc([1, 1, 2, 1, 5, 1, 3, 1], max_rank=5)  # where 8 searches listed the right person
    >>> picture.figure.axes[0].get_ylabel()
    'share of probes found within it'
    """
    return drawing.draw_cmc(cmc(ranks, max_rank, confidence), title, ax=ax)


def plot_calibration(
    log_lr: ArrayLike, same: ArrayLike, *, units: ArrayLike | None = None, title: str = "", ax: Any = None
) -> Picture:
    """Empirical cross-entropy of log likelihood ratios by prior, against the best rising map and no evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import LikelihoodRatios, plot_calibration
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> log_lr = LikelihoodRatios.fit(scores, same).log_lr(scores)
    >>> picture = plot_calibration(log_lr, same, title="Held-out pairs")
    >>> picture.figure.axes[0].get_xlabel()
    'prior odds, base-10 logarithm'
    """
    return drawing.draw_calibration(cross_entropies(evidence(log_lr, same, units)), title, ax=ax)
