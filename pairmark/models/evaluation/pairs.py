"""How well a score separates same and different held-out pairs, with intervals that respect sampling units.

Rates follow `score > threshold`, strictly. In open-set use identities weigh equally: rows of one pair of
identities are averaged first, then pairs of identities (for the TPR: rows of one identity, then identities),
so that somebody with many samples does not decide the curve. In closed-set use, and for independent rows,
pairs weigh equally.
"""

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import joblib
import numpy as np

from pairmark.models.calibration.finite_sample import student_interval
from pairmark.models.core.arrays import ArrayLike, Bool, Float32, Float64, Int64, NDArray
from pairmark.models.evaluation.kernels import measure_pairs
from pairmark.models.pairs.samples import PairSample, Side, pair_sample

FPR_TARGETS = (0.001, 0.01, 0.1)
MAX_POINTS = 1_000
N_REPLICATES = 500
_BLOCK = 16
RESOLVED = 3.0
"""Different pairs above the threshold, at least, that a rate takes."""
MIN_CLUSTERS = 10
"""Draws of fewer blocks vary too little to be shown."""
_NO_RECORD = np.empty(0, dtype=np.int64)
CURVE_NAMES = ("fpr", "tpr", "thresholds")
BAND_NAMES = ("fpr_low", "fpr_high", "tpr_low", "tpr_high")


@dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    """What was measured on the test pairs.

    Attributes
    ----------
    metrics : JSON-able. ``auc``, ``eer``, and by rate ``tpr_at_fpr`` and ``fnmr_at_fmr`` (its complement, in
        ISO 19795-1 words), each ``{"value", "interval": [low, high]}``; sizes, protocol, confidence and how
        intervals were made. At a rate below 3 divided by the number of different pairs, of which these show
        nothing, value and interval are None, with ``"resolved": false``.
    fpr, tpr, thresholds : (n,) the ROC, at most about 1,000 points, every step kept at the low end.
    bands : ``fpr_low, fpr_high, tpr_low, tpr_high``, each (n,): intervals at each threshold by itself.
    confidence : of intervals and bands.
    """

    metrics: dict[str, Any]
    fpr: Float64 = field(repr=False)
    tpr: Float64 = field(repr=False)
    thresholds: Float32 = field(repr=False)
    bands: dict[str, Float64] = field(repr=False)
    confidence: float

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The ROC as named arrays, to be stored."""
        roc: dict[str, NDArray[Any]] = {"fpr": self.fpr, "tpr": self.tpr, "thresholds": self.thresholds}
        return {**roc, **self.bands}

    def roc(self) -> dict[str, Any]:
        """The ROC as JSON-able lists, with its bands."""
        return roc_lists(self.arrays(), self.confidence)


def roc_lists(
    arrays: Mapping[str, NDArray[Any]], confidence: float, max_points: int | None = None
) -> dict[str, Any]:
    """What `EvaluationReport.arrays` gave, as lists; reports of earlier releases lack bands.

    With ``max_points`` at most so many thresholds, first and last among them: half even, half dense at low rates.
    """
    n = arrays["fpr"].size
    points = np.arange(n)
    if max_points is not None and n > max_points:
        half = max_points // 2
        low = np.geomspace(1, n - 1, half).astype(np.int64)
        even = np.linspace(0, n - 1, max_points - half).astype(np.int64)
        points = np.unique(np.concatenate([[0], low, even]))[:max_points] if half else even
    lists = {name: arrays[name][points].tolist() for name in (*CURVE_NAMES, *BAND_NAMES) if name in arrays}
    bands = {name: lists.pop(name) for name in BAND_NAMES if name in lists}
    return {**lists, "bands": {"confidence": confidence, **bands} if bands else None}


def roc_curve_pairs(
    scores: ArrayLike,
    same: ArrayLike,
    *,
    units: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> tuple[Float64, Float64, Float32]:
    """ROC of a pair score: the rates of ``score > threshold`` at every distinct score.

    Parameters
    ----------
    scores : (n_pairs,) higher is more similar; taken as float32.
    same : (n_pairs,) 0 or 1, both present.
    units : (n_pairs, 2) sampling units. With identities on both sides (open-set: same-identity pairs carry
        the same unit twice) all pairs of identities weigh equally in the FPR and all identities in the TPR.
    sample_weight : (n_pairs,) weights of rows, within those groups.

    Returns
    -------
    fpr, tpr : (n_thresholds,) float64, not decreasing, from (0, 0) to (1, 1).
    thresholds : (n_thresholds,) float32, strictly decreasing; the last lies just below every score.

    Raises
    ------
    ValueError
        As `operating_point`, and when there is no same pair.

    Examples
    --------
    >>> from pairmark import roc_curve_pairs
    >>> fpr, tpr, thresholds = roc_curve_pairs([0.9, 0.8, 0.3, 0.1], [1, 0, 1, 0])
    >>> fpr, tpr
    (array([0. , 0. , 0.5, 0.5, 1. ]), array([0. , 0.5, 0.5, 1. , 1. ]))
    """
    return _roc(pair_sample(scores, same, units, sample_weight=sample_weight, both_kinds=True))


def rates_at(
    scores: ArrayLike,
    same: ArrayLike,
    threshold: float,
    *,
    units: ArrayLike | None = None,
    protocol: str | None = None,
) -> tuple[float | None, float | None]:
    """False and true positive rate of one threshold, weighed as `pair_report` weighs them; None without such pairs."""
    sample, cut = pair_sample(scores, same, units, protocol=protocol), np.array([threshold], dtype=np.float32)
    fpr, tpr = (
        float(_above(side, cut)[0]) if len(side) else None for side in (sample.different, sample.same)
    )
    return fpr, tpr


def pair_report(
    scores: ArrayLike,
    same: ArrayLike,
    units: ArrayLike | None = None,
    *,
    protocol: str | None = None,
    clusters: Int64 | None = None,
    confidence: float = 0.95,
    fpr_targets: Sequence[float] = FPR_TARGETS,
    n_replicates: int = N_REPLICATES,
    random_state: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
) -> EvaluationReport:
    """ROC, AUC, EER and TPR at fixed FPRs on held-out pairs.

    Intervals are percentiles over ``n_replicates`` draws of the sampling units with replacement (a pair of
    units drawn c and c' times weighs c c', a unit's own pairs in open-set use c), two-sided, each by itself.
    An interval is widened to Wilson's for as many observations as the draws say that the figure is worth (at least the
    same pairs that share no unit), so that perfect separation of a few people is not taken for certainty.
    They are asymptotic; guarantees are made by `pairmark.models.calibration.calibration`.

    Parameters
    ----------
    scores, same, units : as `roc_curve_pairs`.
    protocol : inferred from units when None, as in `pairmark.operating_point`.
    clusters : (n_pairs, 2) the block of each side, where the list has some: if there are at least `MIN_CLUSTERS`, these
        are drawn, too, and the wider of the two intervals counts.
    confidence : of intervals and bands.
    fpr_targets : rates at which the TPR is reported: the largest TPR of a threshold whose FPR is at most
        that.
    random_state : of the intervals. ``n_jobs`` threads do not change them.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence}; expected a number strictly between 0 and 1")
    targets = np.array(sorted(fpr_targets), dtype=np.float64)
    sample = pair_sample(scores, same, units, protocol=protocol, both_kinds=True)
    fpr, tpr, thresholds = _roc(sample)
    points = _thin(fpr, tpr)
    designs = designs_of(sample, clusters)
    pairs = designs[0]
    record = np.searchsorted(-pairs.scores, -thresholds[points], side="left").astype(np.int64)
    point, _ = pairs.measure(pairs.weight, targets, record)
    seeds = np.random.SeedSequence(int(np.random.default_rng(random_state).integers(0, 2**62)))
    blocks = [min(_BLOCK, n_replicates - start) for start in range(0, n_replicates, _BLOCK)]
    intervals, curves = [], []
    for design in designs:
        results = joblib.Parallel(n_jobs=n_jobs, prefer="threads")(
            joblib.delayed(_replicates)(design, sample.rows_independent, targets, record, width, seed)
            for width, seed in zip(blocks, seeds.spawn(len(blocks)), strict=True)
        )
        # Figures, (n_replicates, n_figures), and curves, (n_replicates, 2, n), of draws of the units or blocks.
        figures, draws = (np.concatenate(parts) for parts in zip(*results, strict=True))
        intervals.append(intervals_of(point, figures, sample, confidence))
        curves.append(np.quantile(draws, _levels(confidence), axis=0))
    # FPR first, then TPR: a low and a high curve of each.
    widest = np.stack([np.min(curves, axis=0)[0], np.max(curves, axis=0)[1]])
    return EvaluationReport(
        metrics=_metrics(point, widest_of(intervals), targets, sample, confidence)
        | {"intervals": _draws_in_words(designs, sample, clusters, confidence, n_replicates)},
        fpr=fpr[points],
        tpr=tpr[points],
        thresholds=thresholds[points],
        bands=dict(zip(BAND_NAMES, widest.swapaxes(0, 1).reshape(4, -1), strict=True)),
        confidence=confidence,
    )


def designs_of(sample: PairSample, clusters: Int64 | None) -> "list[SortedPairs]":
    """The pairs by what is drawn for intervals: units; and blocks (``clusters`` as `pair_report` takes them) where
    there are enough, since neither draw is always the wider."""
    designs = [SortedPairs.of(sample)]
    if clusters is not None and np.unique(clusters).size >= MIN_CLUSTERS:
        designs.append(SortedPairs.of(sample, clusters))
    return designs


def widest_of(intervals: list[Float64]) -> Float64:
    """(n, 2) from the least low to the greatest high end."""
    return np.stack(
        [np.min(intervals, axis=0)[:, 0], np.max(intervals, axis=0)[:, 1]],
        axis=1,
    )


def intervals_of(point: Float64, figures: Float64, sample: PairSample, confidence: float) -> Float64:
    """(n_figures, 2) the interval of each figure, from its draws."""
    widened = [
        _widen(float(value), column, sample, confidence)
        for value, column in zip(point, figures.T, strict=True)
    ]
    return widest_of([np.quantile(figures, _levels(confidence), axis=0).T, np.array(widened)])


def _levels(confidence: float) -> list[float]:
    return [(1 - confidence) / 2, (1 + confidence) / 2]


def _metrics(
    point: Float64, intervals: Float64, targets: Float64, sample: PairSample, confidence: float
) -> dict[str, Any]:
    """AUC, EER and TPR by rate, each with its interval, and sizes."""
    entries: list[dict[str, Any]] = [
        {"value": float(value), "interval": interval.tolist()}
        for value, interval in zip(point, intervals, strict=True)
    ]
    n_different = len(sample.different)
    tpr_at: dict[str, dict[str, Any]] = {}
    fnmr_at: dict[str, dict[str, Any]] = {}
    for target, entry in zip(targets, entries[2:], strict=True):
        rate = f"{target:g}"
        if n_different * target < RESOLVED:
            tpr_at[rate] = fnmr_at[rate] = {"value": None, "interval": None, "resolved": False}
            continue
        low, high = entry["interval"]
        tpr_at[rate] = {**entry, "resolved": True}
        fnmr_at[rate] = {"value": 1 - entry["value"], "interval": [1 - high, 1 - low], "resolved": True}
    return {
        "auc": entries[0],
        "eer": entries[1],
        "tpr_at_fpr": tpr_at,
        "fnmr_at_fmr": fnmr_at,
        "protocol": sample.protocol,
        "n_units": sample.n_units,
        "n_negative_pairs": n_different,
        "n_same_pairs": len(sample.same),
        "confidence": confidence,
        "estimand": "every person counts the same, however many samples they have"
        if sample.protocol == "open-set" and not sample.rows_independent
        else "every pair counts the same",
    }


def _draws_in_words(
    designs: "list[SortedPairs]",
    sample: PairSample,
    clusters: Int64 | None,
    confidence: float,
    n_replicates: int,
) -> str:
    """What intervals know of."""
    unit = "identities" if sample.protocol == "open-set" else "samples"
    if sample.rows_independent:
        unit = "rows"
    elif len(designs) > 1:
        unit += f", one over {designs[1].n_units} blocks of the list"
    elif clusters is not None:
        unit += f" only, since the list has fewer than {MIN_CLUSTERS} blocks"
    return (
        f"{100 * confidence:.0f} % intervals, the wider of a bootstrap over {unit} ({n_replicates} draws) and Wilson's "
        "interval"
    )


@dataclass(frozen=True, kw_only=True)
class SortedPairs:
    """Pairs of both kinds, best score first, with the units that they depend on, or the blocks."""

    scores: Float32
    weight: Float64
    is_same: Bool
    ends: Int64
    units: Int64
    n_units: int

    @classmethod
    def of(cls, sample: PairSample, clusters: Int64 | None = None) -> "SortedPairs":
        """The pairs of a sample that holds both kinds; ``clusters`` : (n, 2) what they depend on instead of units."""
        sides = (sample.different, sample.same)
        scores = np.concatenate([side.scores for side in sides])
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        distinct_units, codes = np.unique(
            np.concatenate(
                [side.edge_units[side.edge] if clusters is None else clusters[side.row] for side in sides]
            ),
            return_inverse=True,
        )
        return cls(
            scores=scores,
            weight=np.concatenate([side.weight for side in sides])[order],
            is_same=np.repeat([False, True], [len(side) for side in sides])[order],
            # Number of rows up to the end of each group of equal scores.
            ends=np.append(np.flatnonzero(scores[1:] != scores[:-1]) + 1, scores.size).astype(np.int64),
            units=codes.reshape(-1, 2)[order].astype(np.int64),
            n_units=int(distinct_units.size),
        )

    def measure(
        self, weight: Float64, targets: Float64, record: Int64 = _NO_RECORD
    ) -> tuple[Float64, Float64]:
        """Of these row weights, (AUC, EER, TPR at each target), and (2, G) FPR and TPR after ``record`` rows."""
        figures, rates = np.empty(2 + targets.size), np.empty((2, record.size))
        measure_pairs(weight, self.is_same, self.ends, targets, record, figures, rates)
        return figures, rates

    def weights_at(self, times: Float64) -> Float64 | None:
        """Row weights for rows drawn so many times; None for a draw without one of the kinds, which has no ROC."""
        weight = self.weight * times
        return weight if weight[self.is_same].any() and weight[~self.is_same].any() else None

    def draw(self, rng: np.random.Generator) -> Float64:
        """How many times each unit is drawn, with replacement."""
        return rng.multinomial(self.n_units, np.full(self.n_units, 1 / self.n_units)).astype(np.float64)

    def resample(self, rng: np.random.Generator, *, independent: bool) -> Float64:
        """Row weights of a draw of the units, or of the rows where these are independent, that has both kinds."""
        weight = None
        # Only a handful of units is ever drawn without one of the kinds: draw again.
        while weight is None:
            weight = self.weights_at(
                rng.poisson(1.0, self.weight.size).astype(np.float64)
                if independent
                else self.times(self.draw(rng))
            )
        return weight

    def times(self, count: Float64) -> Float64:
        """How many times each row comes when units are drawn ``count`` times, a unit's own pairs as often as it."""
        left, right = self._sides
        padded = np.append(count, 1.0)
        return np.asarray(padded[left] * padded[right])

    @cached_property
    def _sides(self) -> tuple[Int64, Int64]:
        """Units of both sides; of a unit's own pairs the right one is the number after the last, which counts once."""
        left, right = np.ascontiguousarray(self.units.T)
        return left, np.where(left == right, self.n_units, right)


def _replicates(
    pairs: SortedPairs,
    independent: bool,
    targets: Float64,
    record: Int64,
    width: int,
    seed: np.random.SeedSequence,
) -> tuple[Float64, Float64]:
    rng = np.random.default_rng(seed)
    weights = (pairs.resample(rng, independent=independent) for _ in range(width))
    summaries, curves = zip(*(pairs.measure(weight, targets, record) for weight in weights), strict=True)
    return np.stack(summaries), np.stack(curves)


def _widen(value: float, draws: Float64, sample: PairSample, confidence: float) -> tuple[float, float]:
    """Wilson's interval for as many observations as the draws say that a figure is worth, with Student's quantile.

    At least as many as same pairs share no unit, which are independent; just those where the draws do not vary, since
    draws of units show no more than was seen: with everybody distinguished all of them say 1.
    """
    n_independent = max(2, sample.same.n_blocks)
    share, variance = min(1.0, max(0.0, value)), float(draws.var())
    # Draws of few units vary too little. This factor, found by simulation (thirty people with unequal numbers of
    # samples), brings the AUC's coverage from .92 to .95 there; it vanishes as units grow in number.
    variance *= 1 + 8 / max(8, sample.n_units)
    n_effective = n_independent if variance <= 0 else max(n_independent, int(share * (1 - share) / variance))
    return student_interval(share, n_effective, n_independent, confidence)


def _roc(sample: PairSample) -> tuple[Float64, Float64, Float32]:
    thresholds = np.unique(np.concatenate([sample.different.scores, sample.same.scores]))[::-1]
    below = np.nextafter(thresholds[-1], np.float32(-np.inf))
    fpr, tpr = (np.append(_above(side, thresholds), 1.0) for side in (sample.different, sample.same))
    return fpr, tpr, np.append(thresholds, below).astype(np.float32)


def _above(side: Side, thresholds: Float32) -> Float64:
    """Share of the side's weight strictly above each threshold."""
    mass = np.concatenate([[0.0], np.cumsum(side.weight)])
    return np.asarray(mass[np.searchsorted(-side.scores, -thresholds, side="left")] / mass[-1])


def _thin(fpr: Float64, tpr: Float64) -> Int64:
    """Points to keep: even in FPR, even in TPR, and even in log FPR down to the first false positive."""
    if fpr.size <= MAX_POINTS:
        return np.arange(fpr.size, dtype=np.int64)
    lowest = float(fpr[np.searchsorted(fpr, 0.0, side="right")])
    share = MAX_POINTS // 4
    picks = [
        np.searchsorted(fpr, np.linspace(0, 1, share)),
        np.searchsorted(tpr, np.linspace(0, 1, share)),
        np.searchsorted(fpr, np.geomspace(lowest, 1, 2 * share - 2)),
        np.array([0, fpr.size - 1]),
    ]
    return np.unique(np.minimum(np.concatenate(picks), fpr.size - 1)).astype(np.int64)


Format = Literal["svg", "png"]

MEDIA_TYPES: Final = {"svg": "image/svg+xml", "png": "image/png"}

LINE, _GRID, _TEXT, _PAPER = "#2563eb", "#d4d4d8", "#27272a", "#ffffff"
_SMALLEST = 1e-7

# matplotlib shares font caches and mathtext parsers between figures, so one is drawn at a time.
_drawing = threading.Lock()


@contextmanager
def picture(
    stream: io.BytesIO, format: Format, title: str, x: str, y: str = "true positive rate"
) -> Iterator[Any]:
    """Axes for rates over ``x``, whose picture is in ``stream`` after the block; the same lines give the same bytes."""
    # Imported here: it costs half a second, which a worker that only scores need not pay.
    import matplotlib
    from matplotlib.figure import Figure

    with _drawing, matplotlib.rc_context({"svg.hashsalt": "pairmark", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.6, 4.2), layout="constrained", facecolor=_PAPER)
        axes = figure.add_subplot()
        yield axes
        axes.set_ylim(0.0, 1.02)
        axes.set_xlabel(x, color=_TEXT)
        axes.set_ylabel(y, color=_TEXT)
        # Names are written as they are: a dollar sign begins no formula.
        axes.set_title(title, fontsize=11, color=_TEXT, parse_math=False)
        axes.grid(visible=True, color=_GRID, linewidth=0.5)
        figure.savefig(stream, format=format, dpi=144, metadata={"Date": None} if format == "svg" else None)


def draw_roc(curve: Mapping[str, Any], format: Format, title: str = "") -> bytes:
    """The true positive rate against the false positive rate, which is on a logarithmic axis, where thresholds live.

    Parameters
    ----------
    curve : ``fpr``, ``tpr`` and, for the band, ``bands`` with ``tpr_low`` and ``tpr_high``.

    Returns
    -------
    The file's bytes; the same curve gives the same bytes.
    """
    fpr = np.asarray(curve["fpr"], dtype=np.float64)
    smallest = max(float(fpr[fpr > 0].min(initial=1e-3)), _SMALLEST)
    # A logarithmic axis has no place for 0: the curve enters from the left edge.
    x, bands = np.maximum(fpr, smallest), curve.get("bands")
    # What guessing does: TPR = FPR, which a logarithmic axis bends.
    chance = np.geomspace(smallest, 1.0, 201)
    stream = io.BytesIO()
    with picture(stream, format, title, "false positive rate") as axes:
        if bands is not None:
            axes.fill_between(
                x, bands["tpr_low"], bands["tpr_high"], step="post", color=LINE, alpha=0.22, linewidth=0
            )
        axes.step(x, curve["tpr"], where="post", color=LINE, linewidth=1.6)
        axes.plot(chance, chance, color=_GRID, linewidth=1, linestyle="--")
        axes.set_xscale("log")
        axes.set_xlim(smallest, 1.0)
    return stream.getvalue()


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
