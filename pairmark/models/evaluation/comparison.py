"""Several scorers on the same held-out pairs (or rows), with paired intervals.

Everybody is judged on the same pairs and resampled with the same draws of sampling units, so what makes a test part
easy or hard for all of them cancels out of the differences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import joblib
import numpy as np
from scipy.sparse import issparse
from scipy.special import ndtri

from pairmark.models.calibration.finite_sample import wilson_interval
from pairmark.models.core.arrays import ArrayLike, Float64, Int64
from pairmark.models.evaluation.pairs import RESOLVED, SortedPairs, designs_of
from pairmark.models.evaluation.precision import cross_matches
from pairmark.models.evaluation.rankings import CONFIDENCE, consensus, mean_interval, t_interval
from pairmark.models.evaluation.validation import judged_rates
from pairmark.models.pairs.samples import pair_sample

N_REPLICATES = 200
_BLOCK = 10


@dataclass(frozen=True, kw_only=True)
class ScorerComparison:
    """One scorer among others.

    Attributes
    ----------
    value : what decides: the mean TPR at the judged rates, or the mean over rows.
    interval : of ``value``, at `CONFIDENCE`.
    difference : the reference's value minus this one's; 0 for the reference itself.
    difference_interval : paired, over the same draws of units.
    tpr_at_fpr : rate -> TPR, for pairs.
    """

    value: float
    interval: tuple[float, float] | None
    difference: float
    difference_interval: tuple[float, float] | None
    tpr_at_fpr: dict[str, float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name."""
        return {
            name: value for name, value in asdict(self).items() if name != "tpr_at_fpr" or value is not None
        }


def resolved_rates(n_different: int, target_fpr: float | None = None) -> tuple[float, ...]:
    """The rates at which scorers are compared: of those that a race is judged at, what so many different pairs resolve,
    as in `pair_report`; else the one that they do.

    Parameters
    ----------
    target_fpr : compare around this rate.
    """
    rates = tuple(rate for rate in judged_rates(target_fpr) if n_different * rate >= RESOLVED)
    return rates or (min(RESOLVED / n_different, 0.5),)


def measure_in_words(rates: Sequence[float]) -> str:
    """What `compare_pairs` decides by, in words."""
    return "mean TPR at FPR " + ", ".join(f"{100 * rate:.3g} %" for rate in rates)


def compare_pairs(
    scores: Mapping[str, ArrayLike],
    same: ArrayLike,
    units: ArrayLike,
    *,
    reference: str,
    rates: Sequence[float],
    protocol: str | None = None,
    clusters: Int64 | None = None,
    n_replicates: int = N_REPLICATES,
    random_state: int | None = None,
) -> dict[str, ScorerComparison]:
    """Mean TPR at fixed false positive rates of several scorers of the same pairs.

    Parameters
    ----------
    scores : name -> (n_pairs,) scores, higher is more similar.
    same, units, protocol, clusters : as `pairmark.models.evaluation.pairs.pair_report`; people weigh
        equally in open-set use.
    reference : the name that the others are compared with.
    rates : false positive rates, strictly between 0 and 1.

    Returns
    -------
    name -> how it did. Intervals are percentiles over draws of the units with replacement.
    """
    targets = np.array(sorted(rates), dtype=np.float64)
    designs = {
        name: designs_of(pair_sample(values, same, units, protocol=protocol, both_kinds=True), clusters)
        for name, values in scores.items()
    }
    point = {name: _tpr(pairs, pairs.weight, targets) for name, (pairs, *_) in designs.items()}
    seeds = np.random.SeedSequence(0 if random_state is None else random_state).spawn(n_replicates)
    blocks = [seeds[start : start + _BLOCK] for start in range(0, n_replicates, _BLOCK)]
    draws = []
    for scorers in zip(*designs.values(), strict=True):
        results = joblib.Parallel(n_jobs=None, prefer="threads")(
            joblib.delayed(_replicates)(scorers, block, targets) for block in blocks
        )
        draws.append(np.concatenate(results, axis=1))
    order = list(designs)
    return {
        name: ScorerComparison(
            value=float(point[name].mean()),
            interval=_percentiles([drawn[number] for drawn in draws]),
            difference=float(point[reference].mean() - point[name].mean()),
            difference_interval=_percentiles(
                [drawn[order.index(reference)] - drawn[number] for drawn in draws]
            ),
            tpr_at_fpr={f"{rate:g}": float(value) for rate, value in zip(targets, point[name], strict=True)},
        )
        for number, name in enumerate(order)
    }


def compare_f1(
    scores: Mapping[str, ArrayLike], same: ArrayLike, units: ArrayLike, *, reference: str
) -> dict[str, ScorerComparison]:
    """F1 of several scorers of the same pairs, each cut where its F1 is best on the other half of the units.

    Parameters
    ----------
    scores, same, units, reference : as `compare_pairs` takes them.

    Returns
    -------
    name -> how it did. Intervals are Student's, of the linearized ratio by units: a pair counts with both of its units.
    """
    is_same, values, influences = np.asarray(same).astype(np.bool_), {}, {}
    ends = np.unique(np.asarray(units), return_inverse=True)[1].reshape(-1, 2)
    for name, given in scores.items():
        is_match = cross_matches(np.asarray(given, dtype=np.float32), is_same, ends)
        true, all_named = 2.0 * (is_match & is_same), 1.0 * is_match + is_same
        values[name] = float(true.sum() / max(all_named.sum(), 1.0))
        influences[name] = (true - values[name] * all_named) / max(all_named.sum(), 1.0)

    def around(value: float, influence: Float64, low: float) -> tuple[float, float] | None:
        return t_interval(value, np.tile(influence, 2), ends.T.ravel(), low=low, high=1.0)

    return {
        name: ScorerComparison(
            value=value,
            interval=around(value, influences[name], 0.0),
            difference=values[reference] - value,
            difference_interval=around(
                values[reference] - value, influences[reference] - influences[name], -1.0
            ),
        )
        for name, value in values.items()
    }


def compare_rows(
    values: Mapping[str, ArrayLike], *, reference: str, units: ArrayLike | None = None
) -> dict[str, ScorerComparison]:
    """Means over the same rows of several predictors, with Student's t intervals.

    Parameters
    ----------
    values : name -> (n_rows,) how well each row was predicted, e.g. Kendall's tau, or 0 and 1.
    units : (n_rows,) groups that rows depend within; default: every row stands for itself.
    """
    arrays = {name: np.asarray(rows, dtype=np.float64) for name, rows in values.items()}
    base = arrays[reference]
    owner = np.arange(base.size) if units is None else np.unique(np.asarray(units), return_inverse=True)[1]
    return {
        name: ScorerComparison(
            value=float(rows.mean()),
            interval=mean_interval(rows, owner),
            difference=float((base - rows).mean()),
            difference_interval=mean_interval(base - rows, owner),
        )
        for name, rows in arrays.items()
    }


def _replicates(
    scorers: Sequence[SortedPairs], seeds: Sequence[np.random.SeedSequence], targets: Float64
) -> Float64:
    """(n_scorers, n_seeds) mean TPR under the same draws of units, or blocks, for all."""
    out = np.empty((len(scorers), len(seeds)))
    for column, seed in enumerate(seeds):
        rng = np.random.default_rng(seed)
        weights: list[Float64 | None] = [None]
        # All scorers have the same pairs, so that none has a kind that another one lacks.
        while weights[0] is None:
            count = scorers[0].draw(rng)
            weights = [pairs.weights_at(pairs.times(count)) for pairs in scorers]
        out[:, column] = [
            _tpr(pairs, weight, targets).mean()
            for pairs, weight in zip(scorers, weights, strict=True)
            if weight is not None
        ]
    return out


def _tpr(pairs: SortedPairs, weight: Float64, targets: Float64) -> Float64:
    return pairs.measure(weight, targets)[0][2:]


def _percentiles(designs: Sequence[Float64]) -> tuple[float, float]:
    """The wider of the intervals of draws of units, and of blocks where there are some."""
    low, high = np.quantile(designs, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=1)
    return float(low.min()), float(high.max())


MAX_WHITENED = 1_024
"""Features up to which whitening is tried: its cost grows with their cube."""
MAX_ROWS = 20_000
"""Training rows that neighbors and logistic regressions look at; more are sampled."""
NEIGHBORS = 10
_CELLS = 20_000_000


def pair_baselines(n_features: int, columns: dict[str, str] | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name -> kind and parameters of a learner that whoever trains another might have taken instead.

    Of records (``columns``) Fellegi-Sunter and boosted trees; of vectors cosine, Euclidean and, where it is cheap,
    whitened cosine.
    """
    if columns is not None:
        return {
            "Fellegi-Sunter": ("fellegi-sunter", {"columns": columns}),
            "boosted comparisons": ("record-trees", {"columns": columns, "n_estimators": 100}),
        }
    baselines: dict[str, tuple[str, dict[str, Any]]] = {
        name: ("metric", {"metric": name}) for name in ("cosine", "euclidean")
    }
    if n_features <= MAX_WHITENED:
        baselines["whitened cosine"] = ("metric", {"metric": "cosine", "whiten": True})
    return baselines


def ranking_baselines(X: Any, Y: ArrayLike, queries: Any, random_state: int = 0) -> dict[str, Float64]:
    """Positions that two rules predict for ``queries``.

    Parameters
    ----------
    X : (n, d) training rows. Y : (n, k) their positions, NaN = absent.
    queries : (m, d).

    Returns
    -------
    ``constant``: one ranking for all, by how often each label goes before the others; ``borda of neighbors``: the
    same over the `NEIGHBORS` nearest training rows, features scaled to unit variance. Each (m, k).
    """
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import StandardScaler

    rows, positions = X, np.asarray(Y, dtype=np.float64)
    constant = np.repeat(consensus(positions), queries.shape[0], axis=0)
    limit = min(MAX_ROWS, max(1_000, _CELLS // max(1, X.shape[1])))
    if X.shape[0] > limit:
        sampled_rows = np.random.default_rng(random_state).choice(X.shape[0], size=limit, replace=False)
        rows, positions = X[np.sort(sampled_rows)], positions[np.sort(sampled_rows)]
    scaler = StandardScaler(with_mean=not issparse(rows)).fit(rows)
    index = NearestNeighbors(n_neighbors=min(NEIGHBORS, rows.shape[0])).fit(scaler.transform(rows))
    near = index.kneighbors(scaler.transform(queries), return_distance=False)
    return {
        "constant": constant,
        "borda of neighbors": np.concatenate([consensus(positions[each]) for each in near]),
    }


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
    of_accuracy: tuple[float, float] | None = wilson_interval(accuracy, right.size, CONFIDENCE)
    of_balanced: tuple[float, float] | None = _balanced_interval(balanced, recalls * counts, counts)
    if units is not None:
        owner = np.unique(np.asarray(units), return_inverse=True)[1]
        shares = (right - recalls[code]) / counts[code] / classes.size
        of_accuracy = mean_interval(right, owner, low=0.0, high=1.0)
        of_balanced = t_interval(balanced, shares, owner, low=0.0, high=1.0)
    metrics: dict[str, Any] = {
        "accuracy": {"value": accuracy, "interval": of_accuracy},
        "balanced_accuracy": {"value": balanced, "interval": of_balanced},
    }
    rows = np.flatnonzero(true >= 0)
    if rows.size:
        metrics["log_loss"] = float(-np.log(np.maximum(estimated[rows, true[rows]], 1e-6)).mean())
    if reference is not None:
        most_frequent = np.bincount(np.asarray(reference, dtype=np.int64)).argmax()
        metrics["constant_accuracy"] = float((true == most_frequent).mean())
    return {
        **metrics,
        "n_rows": int(true.size),
        "n_classes": int(classes.size),
        "n_rows_of_unknown_classes": int((true < 0).sum()),
        "confidence": CONFIDENCE,
    }


def _balanced_interval(value: float, n_right: Float64, counts: Int64) -> tuple[float, float]:
    # One more of each kind: a class whose few rows were all found is not known for sure.
    shares = (n_right + 1) / (counts + 2)
    error = float(np.sqrt((shares * (1 - shares) / counts).sum())) / counts.size
    reach = float(ndtri((1 + CONFIDENCE) / 2)) * error
    return max(value - reach, 0.0), min(value + reach, 1.0)
