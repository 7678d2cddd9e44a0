"""Thresholds at a fixed false positive rate, with the guarantee that goes with them.

For a fixed score and held-out pairs, a threshold t is chosen such that P(FPR(t) > alpha) <= 1 - confidence,
over the draw of the sampling units. FPR(t) = P(score > t | different) falls in t, so it is enough to test
each t by itself and take the smallest one admitted: if the choice is wrong, then it lies below the first
threshold that keeps alpha, and the test was wrong at that single point.

``finite-sample``
    Holds for every distribution and every sample size: see `pairmark.models.calibration.finite_sample`.
``bootstrap``
    Asymptotic: see `pairmark.models.calibration.bootstrap`. Its admission counts the pairs above the threshold, so it
    answers more readily where people who match everybody happen to be missing from the sample; no rule on sizes alone
    is known to correct that, so it answers only where it is asked for, or where a policy allows it.
``estimate``
    The threshold that the data suggest, which promises nothing (`pairmark.models.calibration.estimate`), and the
    finite-sample bound that holds there.
``auto``
    finite-sample, or a refusal.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pairmark.models.calibration.bands import STEPS_PER_DECADE, FprBand, bootstrap_band, finite_sample_band
from pairmark.models.calibration.bootstrap import (
    CONFIDENCES,
    N_REPLICATES,
    BootstrapTable,
    bootstrap_table,
    confidence_row,
)
from pairmark.models.calibration.bounds import (
    MOST_BLOCKS,
    order_pairs_needed,
    order_rank,
    order_upper,
    small_sample_interval,
)
from pairmark.models.calibration.estimate import suggested_threshold
from pairmark.models.calibration.finite_sample import FiniteSample
from pairmark.models.calibration.likelihood_ratios import LikelihoodRatios
from pairmark.models.calibration.listed_product import ListedPairs
from pairmark.models.calibration.matching_product import AllPairs, ScoredGraph
from pairmark.models.calibration.promises import candidate_share, checked_rate, units_needed
from pairmark.models.calibration.schema import check_calibration
from pairmark.models.pairs.samples import PairSample, matched_scores, pair_sample

Method = Literal["finite-sample", "bootstrap", "estimate"]
Guarantee = Literal["finite-sample", "asymptotic", "none"]
Arrays = dict[str, NDArray[Any]]

METHODS = ("auto", "finite-sample", "bootstrap", "estimate")
GUARANTEES: dict[str, Guarantee] = {
    "finite-sample": "finite-sample",
    "bootstrap": "asymptotic",
    "estimate": "none",
}
STATE_VERSION = 1
_MOST_STEPS = 60
"""Rates that a bound at a fixed threshold is looked for among: down to one in a million."""


class InsufficientCalibrationData(ValueError):
    """The calibration data cannot support that false positive rate.

    Attributes
    ----------
    smallest_fpr : method -> smallest rate that would be answered at this confidence; None where none would.
    required_units : method -> units that the asked rate takes, all their pairs scored (for ``bootstrap``
        about).
    alternatives : other method -> what it would answer, the fields of an operating point with its ``guarantee``;
        ``{"refused": True, "smallest_fpr": ...}`` where it would not either.
    """

    def __init__(
        self,
        detail: str,
        *,
        smallest_fpr: Mapping[str, float | None],
        required_units: Mapping[str, int | None],
        alternatives: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.smallest_fpr = dict(smallest_fpr)
        self.required_units = dict(required_units)
        self.alternatives = {name: dict(answer) for name, answer in (alternatives or {}).items()}

    def __reduce__(self) -> tuple[Any, ...]:
        """An error of a worker process reaches its caller whole: keyword-only arguments are no part of ``args``."""
        facts = {name: getattr(self, name) for name in ("smallest_fpr", "required_units", "alternatives")}
        return partial(type(self), **facts), self.args


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """A threshold and what is known of it. A pair matches when ``score > threshold``, in float32.

    Attributes
    ----------
    fpr : the false positive rate that was asked for.
    threshold : a float32 value.
    fpr_upper_bound : upper confidence bound of the rate at the threshold, valid after the threshold was chosen; at most
        ``fpr``, except for ``estimate``, where it is finite-sample and 1 where nothing can be said.
    confidence : of the bound.
    method : ``finite-sample``, ``bootstrap`` or ``estimate``.
    tpr : share of same pairs above the threshold; None when no same pairs were given.
    tpr_interval : two-sided Wilson interval at ``confidence`` with Student's quantile, on the independent blocks of
        same pairs (open-set: identities), which is wider than an interval that pretends pairs are independent.
    n_units : sampling units (identities or samples; rows when independent) behind the false positive rate.
    n_negative_pairs : scored pairs that are different.
    protocol : ``open-set`` or ``closed-set``.
    observed_fpr : the rate at the threshold on the calibration pairs (units weighed equally).
    n_independent : pairs that share no unit, which ``finite-sample`` counts.
    units : ``given``; ``independent``, each pair by itself; or ``assumed``: guessed, since nothing said who the points
        belong to, so nothing is guaranteed.
    simultaneous : whether the promise holds for all rates at once; else for this one, fixed before scores were seen.
    candidate : with ``simultaneous``, this version's number among those calibrated on the same data, for all of which
        the promise holds at once, whichever is chosen; None where it is of this one alone.
    fnr, fnr_threshold, fnr_upper_bound : the false negative rate asked for, the threshold at or below which a pair is
        called different, and the bound of that rate; ``confidence`` is then that both bounds hold. None without.
    review_same, review_different : with ``fnr``, the shares of same and of different calibration pairs whose score is
        between the two thresholds. None without, and ``review_same`` where no same pairs were given.
    guarantee : of the rate asked: ``finite-sample``, whatever the distribution of scores; ``asymptotic``, the
        confidence is approached as units grow in number; or ``none``.
    """

    fpr: float
    threshold: float
    fpr_upper_bound: float
    confidence: float
    method: Method
    tpr: float | None
    tpr_interval: tuple[float, float] | None
    n_units: int
    n_negative_pairs: int
    protocol: str
    observed_fpr: float
    n_independent: int
    units: str = "given"
    simultaneous: bool = False
    candidate: int | None = None
    fnr: float | None = None
    fnr_threshold: float | None = None
    fnr_upper_bound: float | None = None
    review_same: float | None = None
    review_different: float | None = None
    guarantee: Guarantee = field(init=False)

    def __post_init__(self) -> None:
        held = "none" if self.units == "assumed" else GUARANTEES[self.method]
        object.__setattr__(self, "guarantee", held)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name."""
        values = asdict(self)
        values["tpr_interval"] = None if self.tpr_interval is None else list(self.tpr_interval)
        return values


class Calibration:
    """What held-out scores say about every threshold; built once, then asked for operating points.

    Made by `fit` or `from_state`. Answers take microseconds and are the same after saving and loading.

    Attributes
    ----------
    likelihood_ratios : what scores are worth as evidence; None without same pairs, or where it was not kept yet.
    """

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any], table: BootstrapTable | None
    ) -> None:
        self._arrays = dict(arrays)
        self._meta = dict(meta)
        self._table = table
        self._sample: PairSample | None = None
        self._n_jobs: int | None = None
        self._lock = threading.Lock()
        self._thresholds: NDArray[np.float32] = self._arrays["thresholds"]
        self._bands: dict[tuple[str, float], FprBand | None] = {}
        facts = meta.get("likelihood_ratios")
        self.likelihood_ratios = None if facts is None else LikelihoodRatios.from_state(self._arrays, facts)
        graph = ScoredGraph.from_arrays(self._arrays)
        self._finite = FiniteSample(
            above=self._arrays["above"],
            n=int(meta["n_independent"]),
            different_share=float(meta["different_share"]),
            exact_binomial=bool(meta["exact_binomial"]),
            # Calibrations stored before there was a matching answer by the average alone, as they always did.
            matched=self._arrays.get("matched"),
            n_matched=meta.get("n_matched"),
            disjoint=bool(meta.get("disjoint", False)),
            product=None
            if graph is None
            else (AllPairs if graph.cell.size else ListedPairs)(
                graph, self._arrays["above"], seed=int(meta["seed"])
            ),
            protocol=str(meta["protocol"]),
        )

    @classmethod
    def fit(
        cls,
        scores: ArrayLike,
        same: ArrayLike,
        units: ArrayLike | None = None,
        *,
        protocol: str | None = None,
        sample_weight: ArrayLike | None = None,
        random_state: int | np.random.Generator | None = None,
        n_replicates: int = N_REPLICATES,
        n_jobs: int | None = None,
        units_assumed: bool = False,
    ) -> Self:
        """Calibrate on scored held-out pairs.

        Which pairs were scored must not depend on scores, nor (closed-set) on labels, and the units must be a
        random sample: `pairmark.models.pairs.splits` sees to both.

        Parameters
        ----------
        scores : (n_pairs,) higher is more similar; taken as float32.
        same : (n_pairs,) 0 or 1. Without a same pair there is no TPR.
        units : (n_pairs, 2) the sampling unit on each side (identity in open-set use, where same-identity
            pairs carry the same unit twice; sample in closed-set use), or None for independent rows.
        protocol : inferred when None: closed-set if any same pair carries two different units.
        sample_weight : (n_pairs,) design weights, chosen without looking at scores: the false positive rate
            is then that of pairs drawn in proportion to them. The largest must bound all that the design can
            give.
        random_state : of the bootstrap. A generator is drawn from once.
        n_replicates : bootstrap replicates, at least 1,000 (the 99 % bound is an order statistic of them).
        n_jobs : threads for the bootstrap; results do not depend on it.
        units_assumed : the units are a guess: answers say so, and guarantee nothing.

        Raises
        ------
        ValueError
            For scores that are not finite or all equal, shapes that do not fit, no different pair, one unit.
        """
        if n_replicates < 1000:
            raise ValueError(f"n_replicates is {n_replicates}; expected at least 1000")
        sample = pair_sample(scores, same, units, protocol=protocol, sample_weight=sample_weight)
        thresholds, above = sample.different.steps()
        mate_scores, mate_above = sample.same.steps()
        seed = int(np.random.default_rng(random_state).integers(0, 2**62))
        matched, n_matched, matched_same = None, None, np.sort(sample.same.scores)
        if not sample.independent and not sample.weighted:
            found = matched_scores(sample, np.random.default_rng([seed, 1]))
            n_matched, matched_same = found.n_pairs, found.same
            matched = np.searchsorted(-thresholds, -found.different).astype(np.int64)
        meta: dict[str, Any] = {
            "state_version": STATE_VERSION,
            "protocol": sample.protocol,
            "n_units": sample.n_units,
            "n_independent": sample.different.n_blocks,
            "n_negative_pairs": len(sample.different),
            "n_same_pairs": len(sample.same),
            "n_same_independent": sample.same.n_blocks,
            "independent_rows": sample.independent,
            "weighted": sample.weighted,
            "different_share": _different_share(sample),
            "exact_binomial": sample.independent and not sample.weighted,
            "units": "assumed" if units_assumed else "independent" if sample.independent else "given",
            "n_matched": n_matched,
            "disjoint": n_matched == len(sample.different) + len(sample.same)
            if sample.protocol == "closed-set"
            else n_matched == len(sample.different),
            "n_replicates": n_replicates,
            "seed": seed,
        }
        arrays: Arrays = {
            "thresholds": thresholds,
            "above": above,
            "same_scores": mate_scores,
            "same_above": mate_above,
        }
        if matched is not None:
            arrays["matched"] = matched
        if not sample.weighted:
            arrays["matched_same"] = matched_same
        if len(sample.same):
            ratios, meta["likelihood_ratios"] = LikelihoodRatios.of_sample(sample).to_state()
            arrays |= ratios
        graph = ScoredGraph.of(sample, thresholds)
        if graph is not None:
            arrays |= graph.arrays()
        made = cls(arrays, meta, None)
        made._sample, made._n_jobs = sample, n_jobs
        return made

    def to_state(self) -> tuple[Arrays, dict[str, Any]]:
        """Plain arrays and JSON-able facts; `from_state` gives the same answers to the last bit."""
        table = self._bootstrap()
        arrays = {
            **self._arrays,
            "bootstrap_thresholds": table.thresholds,
            "bootstrap_upper": table.upper,
            "bootstrap_admitted": table.admitted,
        }
        if table.simultaneous is not None:
            arrays["bootstrap_simultaneous"] = table.simultaneous
        return arrays, dict(self._meta)

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """Rebuild from `to_state`; arrays may be memory-mapped and read-only.

        Raises
        ------
        ValueError
            When the state was written by newer code or lacks parts.
        """
        try:
            if int(meta["state_version"]) > STATE_VERSION:
                raise ValueError(
                    f"the calibration has state version {meta['state_version']}, this code reads up to "
                    f"{STATE_VERSION}: upgrade pairmark"
                )
            check_calibration(arrays, len(CONFIDENCES))
            table = BootstrapTable(
                thresholds=arrays["bootstrap_thresholds"],
                upper=arrays["bootstrap_upper"],
                admitted=arrays["bootstrap_admitted"],
                simultaneous=arrays.get("bootstrap_simultaneous"),
            )
            kept = {name: arrays[name] for name in ("thresholds", "above", "same_scores", "same_above")}
            kept |= {
                name: array
                for name, array in arrays.items()
                if name[:7] == "matched" or name[:6] == "graph_" or name in ("lr_scores", "lr_values")
            }
            return cls(kept, meta, table)
        except KeyError as error:
            raise ValueError(f"the calibration lacks {error}: expected what to_state() returned") from error

    @property
    def units(self) -> str:
        """``given``, ``independent`` or ``assumed``, as in `OperatingPoint`; as far as is known of old calibrations."""
        return str(self._meta.get("units", "independent" if self._meta["independent_rows"] else "given"))

    @property
    def protocol(self) -> str:
        """``open-set`` or ``closed-set``."""
        return str(self._meta["protocol"])

    def operating_point(
        self,
        fpr: float,
        confidence: float = 0.95,
        method: str = "auto",
        *,
        allow_asymptotic: bool = False,
        simultaneous: bool = False,
        candidate: int | None = None,
        fnr: float | None = None,
    ) -> OperatingPoint:
        """The lowest threshold that keeps the false positive rate at this confidence.

        Parameters
        ----------
        fpr : alpha, strictly between 0 and 1.
        confidence : strictly between 0 and 1; for ``bootstrap`` one of 0.90, 0.95, 0.99.
        method : ``auto``, ``finite-sample``, ``bootstrap`` or ``estimate``.
        allow_asymptotic : whether ``auto`` may answer by ``bootstrap`` where ``finite-sample`` refuses: a policy that
            somebody has decided on.
        simultaneous : serve from `fpr_band`: the promise then holds for all rates that are ever asked for at once, not
            only for one that was fixed beforehand.
        candidate : with ``simultaneous``, the number from 1 of this version among those calibrated on the same data:
            the promise then holds for all of them at once, however many come later, so that any may be chosen by what
            its calibration says. It is made at confidence 1 - (1 - confidence) / (candidate (candidate + 1)).
        fnr : a false negative rate gives a second threshold, at or below which pairs are different; pairs between the
            two are to be reviewed. Both promises hold together at the confidence asked: each by itself at
            1 - (1 - confidence) / 2. Finite-sample only.

        Raises
        ------
        InsufficientCalibrationData
            When the data cannot support that rate; nothing is extrapolated.
        ValueError
            When a value is out of range.
        """
        fpr, confidence = checked_rate(fpr, "fpr"), checked_rate(confidence, "confidence")
        if method not in METHODS:
            raise ValueError(f"method is {method!r}; expected one of {', '.join(map(repr, METHODS))}")
        if method == "bootstrap" and confidence_row(confidence) is None:
            raise ValueError(
                f"confidence is {confidence:g}; the bootstrap is kept for 0.90, 0.95 and 0.99 only"
            )
        if fnr is not None:
            return self._two_sided(fpr, checked_rate(fnr, "fnr"), confidence, method, simultaneous, candidate)
        if simultaneous:
            return self._simultaneous(fpr, confidence, method, candidate)
        if method == "auto":
            tried = ["finite-sample", "bootstrap"] if allow_asymptotic else ["finite-sample"]
        else:
            tried = [method]
        for name in tried:
            point = self._answer(name, fpr, confidence)
            if point is not None:
                return point
        raise self._refusal(fpr, confidence, tried)

    def smallest_fpr(self, confidence: float = 0.95) -> dict[str, float | None]:
        """Method -> smallest rate that is answered; None where no rate is."""
        confidence = checked_rate(confidence, "confidence")
        return {
            "finite-sample": self._finite.smallest(confidence),
            "bootstrap": self._bootstrap().smallest(confidence)
            if confidence_row(confidence) is not None
            else None,
        }

    def rate_bound(self, threshold: float | np.float32, confidence: float = 0.95) -> float:
        """Finite-sample upper bound of the false positive rate at a threshold fixed without a look at these pairs.

        The least of the rates 10^(-k / 10) such that it and all larger ones are rejected at the threshold; 1 where none
        is. If the true rate is p, the bound is below p only where the largest of these rates that p reaches was
        rejected, which has probability at most 1 - confidence.
        """
        confidence = checked_rate(confidence, "confidence")
        at = n_above(self._thresholds, np.float32(threshold))
        bound = 1.0
        for step in range(1, _MOST_STEPS):
            rate = 10 ** (-step / STEPS_PER_DECADE)
            chosen = self._finite.choose(rate, confidence)
            if chosen is None or chosen[0] < at:
                break
            bound = rate
        return bound

    def required_units(self, fpr: float, confidence: float = 0.95) -> dict[str, int | None]:
        """Method -> units that ``fpr`` takes, all their pairs scored (rows, when rows are independent).

        For ``finite-sample`` exact (closed-set: enough in 99 % of draws); for ``bootstrap`` the number from which its
        rule can be expected to hold.
        """
        per_row = bool(self._meta["independent_rows"])
        needed = units_needed(
            fpr,
            confidence,
            different_share=self._finite.different_share,
            independent_rows=per_row,
            weighted=bool(self._meta["weighted"]),
        )
        reached, here = self._bootstrap().smallest(confidence), int(self._meta["n_units"])
        if needed["bootstrap"] is not None and reached is not None and reached > fpr:
            # These data fall short by more than chance: scale what they reach (pairs grow with units squared).
            scaled = math.ceil(min(here * (reached / fpr) ** (1.0 if per_row else 0.5), MOST_BLOCKS))
            needed["bootstrap"] = max(needed["bootstrap"], scaled)
        return needed

    def curve(self, confidence: float = 0.95, max_points: int = 500) -> dict[str, Any]:
        """Rates and bounds by threshold, for people: at most ``max_points`` thresholds, dense at low rates.

        Returns
        -------
        JSON-able dict of lists: ``thresholds`` (descending), ``fpr``, ``tpr`` (None without same pairs),
        ``fpr_upper_bound`` by method (None where it is not available), and the ``confidence`` of each bound
        by itself (they are pointwise).
        """
        confidence = checked_rate(confidence, "confidence")
        picked = spaced(self._finite.above, max_points)
        table, row = self._bootstrap(), confidence_row(confidence)
        asymptotic: list[float | None] = []
        for t in self._thresholds[picked]:
            # The bound of the next grid threshold below holds here too.
            at = n_above(table.thresholds, t)
            known = row is not None and at < table.thresholds.size and bool(table.admitted[at])
            asymptotic.append(float(table.upper[row, at]) if known and row is not None else None)
        has_same = bool(self._meta["n_same_pairs"])
        return {
            "thresholds": [float(t) for t in self._thresholds[picked]],
            "fpr": [self._finite.rate(int(k)) for k in picked],
            "tpr": [self._share_above(t) for t in self._thresholds[picked]] if has_same else None,
            "fpr_upper_bound": {
                "finite-sample": [self._finite.upper(int(k), confidence) for k in picked],
                "bootstrap": asymptotic,
            },
            "confidence": confidence,
            "bands": "pointwise",
        }

    def fpr_band(self, confidence: float = 0.95, method: str = "auto") -> FprBand | None:
        """A step-wise upper bound of the false positive rate that holds at every threshold at once.

        Parameters
        ----------
        method : ``finite-sample``, which ``auto`` means too, or ``bootstrap`` (asymptotic; confidence 0.90, 0.95 or
            0.99).

        Returns
        -------
        The band, or None where the data support none.
        """
        confidence = checked_rate(confidence, "confidence")
        if method not in ("auto", "finite-sample", "bootstrap"):
            raise ValueError(f"method is {method!r}; expected 'auto', 'finite-sample' or 'bootstrap'")
        key = (method, confidence)
        if key not in self._bands:
            if method == "auto":
                self._bands[key] = self.fpr_band(confidence, "finite-sample")
            elif method == "finite-sample":
                self._bands[key] = finite_sample_band(self._finite, self._thresholds, confidence)
            else:
                self._bands[key] = bootstrap_band(self._bootstrap(), confidence)
        return self._bands[key]

    def log10_fpr(
        self, scores: ArrayLike, confidence: float = 0.95, method: str = "auto"
    ) -> NDArray[np.float64]:
        """How rare a score is among different pairs, in powers of ten: comparable across models and versions.

        -2 says: with this confidence, at most one different pair in 100 scores that high or higher, and the same
        holds for all scores at once. Values are steps of `fpr_band`, never interpolated, and never below its floor
        (about `smallest_fpr`): a higher score than any seen is worth no more than the data show.

        Parameters
        ----------
        scores : (n,) taken as float32.
        confidence, method : as `fpr_band`.

        Returns
        -------
        (n,) float64, at most 0; all 0 where the data support no band.
        """
        with np.errstate(over="ignore"):
            values = np.atleast_1d(np.asarray(scores)).astype(np.float32)
        if np.isnan(values).any():
            raise ValueError("scores hold NaN; expected numbers")
        band = self.fpr_band(confidence, method)
        return np.zeros(values.shape) if band is None else band.log10(values)

    def summary(self) -> dict[str, Any]:
        """JSON-able facts: sizes, protocol, and the smallest rate by confidence and method."""
        facts = {name: self._meta[name] for name in _PUBLIC_FACTS}
        facts["units"] = self.units
        facts["score_range"] = [float(self._thresholds[-1]), float(self._thresholds[0])]
        facts["smallest_fpr"] = {f"{c:.2f}": self.smallest_fpr(c) for c in CONFIDENCES}
        return facts

    def _simultaneous(
        self, fpr: float, confidence: float, method: str, candidate: int | None
    ) -> OperatingPoint:
        if method == "estimate":
            raise ValueError(
                "simultaneous goes with a promise; expected method 'finite-sample' or 'bootstrap'"
            )
        kept: Method = "bootstrap" if method == "bootstrap" else "finite-sample"
        if candidate is not None and kept == "bootstrap":
            raise ValueError(
                "the bootstrap is not kept at the confidence that several versions at once take; expected method "
                "'finite-sample'"
            )
        share = 1.0 if candidate is None else candidate_share(candidate)
        band = self.fpr_band(1 - share * (1 - confidence), kept)
        step = -1 if band is None else int(np.searchsorted(band.fpr, fpr, side="right")) - 1
        if band is None or step < 0:
            floor = None if band is None else band.smallest_fpr
            raise InsufficientCalibrationData(
                f"no rate of {fpr:g} at confidence {confidence:g} holds together with all others"
                + ("" if candidate is None else f" and for {candidate} versions calibrated on the same data")
                + f": {kept} reaches "
                + ("none" if floor is None else f"{floor:.3g}")
                + ". Ask for a higher rate, or without simultaneous",
                smallest_fpr={kept: floor},
                required_units={},
            )
        threshold = np.float32(band.thresholds[step])
        at = n_above(self._thresholds, threshold)
        point = self._point(threshold, at, float(band.fpr[step]), fpr, confidence, kept)
        return replace(point, simultaneous=True, candidate=candidate)

    def _two_sided(
        self,
        fpr: float,
        fnr: float,
        confidence: float,
        method: str,
        simultaneous: bool,
        candidate: int | None,
    ) -> OperatingPoint:
        """Two promises that hold together, by Bonferroni's inequality."""
        if method not in ("auto", "finite-sample"):
            raise ValueError(f"fnr goes with method 'finite-sample' (or 'auto'), not {method!r}")
        each = 1 - (1 - confidence) / 2
        upper = self.operating_point(
            fpr, each, "finite-sample", simultaneous=simultaneous, candidate=candidate
        )
        # The other promise is to hold for as many candidates.
        each = 1 - (1 - each) * (candidate_share(candidate) if simultaneous and candidate else 1.0)
        same = self._arrays.get("matched_same")
        if same is None or not same.size:
            raise ValueError(
                "fnr takes same pairs, which this calibration does not keep: calibrate anew, with unweighted pairs"
            )
        rank = order_rank(same.size, fnr, each)
        if rank is None:
            needed = order_pairs_needed(fnr, each)
            raise InsufficientCalibrationData(
                f"{same.size} independent same pairs cannot support a false negative rate of {fnr:g} at confidence "
                f"{each:g}, which each rate needs so that both hold at {confidence:g}: the smallest supported rate is "
                f"{order_upper(0, same.size, each):.3g}; {fnr:g} takes {needed:,} people with two samples. Ask for a "
                "higher rate, or calibrate with more people",
                smallest_fpr=self.smallest_fpr(each),
                required_units={"finite-sample": needed},
            )
        rank = min(rank, same.size - 1)
        # A rate of scores strictly below the rank's score is what the order statistic bounds.
        lower = min(float(np.nextafter(same[rank], np.float32(-np.inf))), upper.threshold)
        cut = np.float32(lower)
        at = min(n_above(self._thresholds, cut), self._thresholds.size - 1)
        return replace(
            upper,
            confidence=confidence,
            fnr=fnr,
            fnr_threshold=lower,
            fnr_upper_bound=min(fnr, order_upper(rank, same.size, each)),
            review_same=None if upper.tpr is None else max(self._share_above(cut) - upper.tpr, 0.0),
            review_different=max(self._finite.rate(at) - upper.observed_fpr, 0.0),
        )

    def _answer(self, method: str, fpr: float, confidence: float) -> OperatingPoint | None:
        if method == "bootstrap":
            return self._asymptotic(fpr, confidence)
        if method == "estimate":
            return self._estimate(fpr, confidence)
        chosen = self._finite.choose(fpr, confidence)
        if chosen is None:
            return None
        at, bound = chosen
        return self._point(np.float32(self._thresholds[at]), at, bound, fpr, confidence, "finite-sample")

    def _estimate(self, fpr: float, confidence: float) -> OperatingPoint:
        rates = np.minimum(1.0, self._arrays["above"] / self._finite.different_share)
        threshold = suggested_threshold(self._thresholds, rates, fpr)
        # The threshold depends on the scores, so only a bound that holds at all thresholds at once holds there.
        band = self.fpr_band(confidence, "finite-sample")
        bound = 1.0 if band is None else band.bound(threshold)
        return self._point(
            threshold, n_above(self._thresholds, threshold), bound, fpr, confidence, "estimate"
        )

    def _asymptotic(self, fpr: float, confidence: float) -> OperatingPoint | None:
        found = self._bootstrap().lookup(fpr, confidence)
        if found is None:
            return None
        threshold, bound = found
        return self._point(
            threshold, n_above(self._thresholds, threshold), bound, fpr, confidence, "bootstrap"
        )

    def _point(
        self, threshold: np.float32, at: int, bound: float, fpr: float, confidence: float, method: Method
    ) -> OperatingPoint:
        at = min(at, self._thresholds.size - 1)
        tpr, interval = None, None
        if self._meta["n_same_pairs"]:
            tpr = self._share_above(threshold)
            n = int(self._meta["n_same_independent"])
            interval = small_sample_interval(tpr, n, n, confidence, least=n)
        return OperatingPoint(
            fpr=fpr,
            threshold=float(threshold),
            fpr_upper_bound=bound if method == "estimate" else min(bound, fpr),
            confidence=confidence,
            method=method,
            tpr=tpr,
            tpr_interval=interval,
            n_units=int(self._meta["n_units"]),
            n_negative_pairs=int(self._meta["n_negative_pairs"]),
            protocol=self.protocol,
            observed_fpr=self._finite.rate(at),
            n_independent=self._finite.n if self._finite.n_matched is None else self._finite.n_matched,
            units=self.units,
        )

    def _share_above(self, threshold: np.float32) -> float:
        above = self._arrays["same_above"]
        at = n_above(self._arrays["same_scores"], threshold)
        return min(1.0, float(above[at])) if at < above.size else 1.0

    def _bootstrap(self) -> BootstrapTable:
        with self._lock:
            if self._table is None:
                assert self._sample is not None
                self._table = bootstrap_table(
                    self._sample,
                    n_replicates=int(self._meta["n_replicates"]),
                    seed=int(self._meta["seed"]),
                    n_jobs=self._n_jobs,
                )
                self._sample = None
            return self._table

    def _refusal(self, fpr: float, confidence: float, tried: list[str]) -> InsufficientCalibrationData:
        smallest, required = self.smallest_fpr(confidence), self.required_units(fpr, confidence)
        unit = (
            "pairs"
            if self._meta["independent_rows"]
            else ("identities" if self.protocol == "open-set" else "samples")
        )
        said = []
        for name in tried:
            floor, needed = smallest[name], required[name]
            supports = "no rate" if floor is None else f"rates of {floor:.3g} and above"
            takes = (
                ""
                if needed is None
                else f"; {fpr:g} takes {'about ' if name == 'bootstrap' else ''}{needed:,} {unit}"
            )
            said.append(f"{name} supports {supports}{takes}")
        alternatives: dict[str, dict[str, Any]] = {}
        for name in ("finite-sample", "bootstrap", "estimate"):
            if name not in tried:
                point = self._answer(name, fpr, confidence)
                alternatives[name] = (
                    {"refused": True, "guarantee": GUARANTEES[name], "smallest_fpr": smallest[name]}
                    if point is None
                    else point.as_dict()
                )
        return InsufficientCalibrationData(
            f"{int(self._meta['n_units']):,} held-out {unit} ({int(self._meta['n_negative_pairs']):,} different pairs) "
            f"cannot support a false positive rate of {fpr:g} at confidence {confidence:g}: {'. '.join(said)}. Ask for "
            f"a higher rate, or calibrate with more {unit}",
            smallest_fpr=smallest,
            required_units=required,
            alternatives=alternatives,
        )


_PUBLIC_FACTS = (
    "protocol",
    "n_units",
    "n_independent",
    "n_negative_pairs",
    "n_same_pairs",
    "n_same_independent",
    "independent_rows",
    "weighted",
    "different_share",
    "n_replicates",
)


def operating_point(
    scores: ArrayLike,
    same: ArrayLike,
    fpr: float,
    *,
    units: ArrayLike | None = None,
    confidence: float = 0.95,
    method: str = "auto",
    random_state: int | np.random.Generator | None = None,
) -> OperatingPoint:
    """The lowest threshold at which the false positive rate is at most ``fpr``, with this confidence.

    Shorthand for `Calibration.fit` and `Calibration.operating_point`; see there for values and errors.

    Examples
    --------
    >>> point = operating_point(scores, same, 0.01, units=identities)  # doctest: +SKIP
    >>> matches = scores.astype("float32") > point.threshold  # doctest: +SKIP
    """
    checked_rate(fpr, "fpr")
    checked_rate(confidence, "confidence")
    calibration = Calibration.fit(scores, same, units, random_state=random_state)
    return calibration.operating_point(fpr, confidence, method)


def n_above(descending: NDArray[np.float32], threshold: np.float32) -> int:
    """How many entries are strictly above a threshold, without reading (a mapped file) from end to end."""
    return int(descending.size - np.searchsorted(descending[::-1], threshold, side="right"))


def spaced(ascending: NDArray[np.float64], max_points: int) -> NDArray[np.int64]:
    """Indices of at most ``max_points`` values, first and last among them: half even, half dense at the low end."""
    n = ascending.size
    if n <= max_points:
        return np.arange(n, dtype=np.int64)
    half = max_points // 2
    low = np.geomspace(1, n - 1, half).astype(np.int64)
    even = np.linspace(0, n - 1, max_points - half).astype(np.int64)
    return np.unique(np.concatenate([[0], low, even]))[:max_points] if half else even


def _different_share(sample: PairSample) -> float:
    if sample.weighted or sample.protocol == "closed-set":
        return sample.different.total()
    return 1.0
