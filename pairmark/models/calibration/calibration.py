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
    The threshold that the data suggest (`pairmark.models.calibration.calibration`), which guarantees nothing, and
    the finite-sample bound that holds there.
``auto``
    finite-sample, or a refusal.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np

from pairmark.models.calibration.bootstrap import (
    CONFIDENCES,
    N_REPLICATES,
    BootstrapTable,
    bootstrap_table,
    confidence_row,
    empty_table,
    n_above,
)
from pairmark.models.calibration.finite_sample import (
    AllPairs,
    FiniteSample,
    ListedPairs,
    ScoredGraph,
    student_interval,
)
from pairmark.models.calibration.fitting import (
    OF_GROUP,
    Arrays,
    CalibrationFacts,
    Group,
    check_calibration,
    fit_arrays,
    fit_groups,
    group_facts,
    groups_state,
    guaranteed_groups,
    read_groups,
    reading_state,
    refusal,
)
from pairmark.models.calibration.guarantees import (
    FEWEST_NEGATIVES,
    FprBand,
    checked_rate,
    finite_sample_band,
    rate_interval,
    simultaneous_point,
    suggested_threshold,
    two_sided_point,
)
from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.calibration.operating_point import (
    METHODS,
    ROWS_MONITORED,
    Declared,
    Method,
    OperatingPoint,
    assumptions,
)
from pairmark.models.calibration.records import CalibrationRecords
from pairmark.models.core.arrays import ArrayLike, Float32, Int64, NDArray
from pairmark.models.pairs.samples import PairSample
from pairmark.models.pairs.sampling import HeldOutPairs

STATE_VERSION = 2
_PUBLIC_FACTS = (
    "protocol",
    "n_units",
    "n_independent",
    "n_negative_pairs",
    "n_same_pairs",
    "n_same_independent",
    "independent_rows",
    "different_share",
    "n_replicates",
    "origin",
    "inputs",
    "n_strangers",
)


class Calibration:
    """What held-out scores say about every threshold; built once, then asked for operating points.

    Made by `fit` or `from_state`. Answers take microseconds and are the same after saving and loading.

    Attributes
    ----------
    facts : what is kept beside arrays.
    inputs : what the rows of the calibration are like; None where that was not kept.
    records : its pairs of records; None for vectors, and where they were not kept.
    groups : of its units, within which rates hold, too; empty where none were named.
    """

    def __init__(
        self,
        arrays: Mapping[str, NDArray[Any]],
        facts: CalibrationFacts,
        sample: PairSample | None = None,
    ) -> None:
        self._arrays = dict(arrays)
        self.facts = facts
        self._sample = sample
        self._bands: dict[float, FprBand | None] = {}
        # The distinct scores of different pairs, descending.
        self._thresholds: Float32 = self._arrays["thresholds"]
        product: AllPairs | ListedPairs | None = None
        if not facts.counted:
            # Pairs that are not independent of each other.
            graph = ScoredGraph.from_arrays(self._arrays)
            product = (AllPairs if graph.cell.size else ListedPairs)(graph, self._arrays["above"])
        self._finite = FiniteSample(
            above=self._arrays["above"],
            n=facts.n_independent,
            n_matched=facts.n_matched,
            different_share=facts.different_share,
            counts_rows=facts.counted,
            product=product,
            population=facts.population,
            n_same=facts.n_same_pairs,
        )
        self.inputs = RowRanges.from_arrays(self._arrays, vars(facts))
        self.records = CalibrationRecords.from_arrays(self._arrays, facts.as_dict())
        self.groups: tuple[Group, ...] = ()

    @classmethod
    def fit(
        cls,
        scores: ArrayLike,
        same: ArrayLike,
        units: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        n_replicates: int = N_REPLICATES,
        **declared: Any,
    ) -> Self:
        """Calibrate on scored held-out pairs.

        Which pairs were scored must depend neither on people nor on scores, nor (closed-set) on labels, and the units
        must be a random sample: `pairmark.models.pairs.splits` sees to both. What is not so, and what nobody says,
        is answered with ``guarantee`` ``none``.

        Nothing is random: the same rows give the same thresholds to the bit, whatever units are called. Another order
        of the rows may move a threshold a little; the order must not depend on scores.

        Parameters
        ----------
        scores : (n_pairs,) higher is more similar; taken as float32.
        same : (n_pairs,) 0 or 1. Without a same pair there is no TPR.
        units : (n_pairs, 2) the sampling unit on each side (identity in open-set use, where same-identity
            pairs carry the same unit twice; sample in closed-set use), or None. A frame or a tuple of two columns
            (lists, arrays, Series, categoricals) will do.
        groups : (n_pairs, 2) the group of each side's unit, or two columns: rates then hold for pairs within each group
            that has enough units, too, all at once. An empty or missing value: of no group.
        n_replicates : bootstrap replicates, at least 1,000 (the 99 % bound is an order statistic of them).
        declared : what `Declared` holds:
        protocol : inferred when None: closed-set if any same pair carries two different units. Of units that somebody
            else names, `check_protocol` asks for it.
        listing : which pairs of the units these are: ``all``; ``random-people``, pairs of people drawn without looking
            at what they have; ``random-rows``, pairs of their samples, which guarantee nothing; ``drawn``
            by `pairmark.models.pairs`; None: unknown, unless they are all.
        independent : with no ``units``, that no two pairs share a person.
        population : the pairs are a random sample, drawn without replacement, of so many, and the guarantee is about
            these, whatever depends on what. Units are not needed.
        units_assumed : the units are a guess.

        Raises
        ------
        ValueError
            For scores that are not finite or all equal, or lower for positive pairs than for nearly all negative ones,
            shapes that do not fit, no different pair, one unit, a listing
            that the pairs contradict, a population smaller than the sample, a unit of two groups.
        """
        declaration = Declared(**declared)
        if groups is not None and declaration.population is not None:
            raise ValueError("groups are of people, a population is of pairs: expected one of both")
        sample, arrays, facts = fit_arrays(scores, same, units, declaration, n_replicates)
        calibration = cls(arrays, facts, sample)
        if groups is not None:
            calibration.groups = fit_groups(calibration, scores, same, units, groups)
        return calibration

    @classmethod
    def of_pairs(
        cls,
        scores: ArrayLike,
        X: Any,
        pairs: HeldOutPairs,
        *,
        scorer: Any = None,
        training: Any = None,
        test: HeldOutPairs | None = None,
    ) -> Self:
        """Calibrate on scored pairs of rows of ``X``, and keep what these rows are like, or their records.

        Parameters
        ----------
        scorer : the fitted model: records are scored without the columns that are likely to be asked for. None: later.
        training, test : as `RowRanges.of_pairs` takes them.
        """
        calibration = cls.fit(scores, pairs.same, pairs.units, groups=pairs.groups, **pairs.origin)
        folds = None if pairs.folds is None else np.unique(pairs.folds).size
        calibration.facts = replace(calibration.facts, n_strangers=pairs.n_strangers, folds=folds)
        if pairs.groups is not None:
            names, codes = np.unique(pairs.groups.ravel(), return_inverse=True)
            units, first = np.unique(pairs.units.ravel(), return_index=True)
            calibration._arrays |= {"group_units": units, "group_codes": codes[first].astype(np.int64)}
            calibration.facts = replace(calibration.facts, group_names=names.tolist())
        calibration.with_inputs(RowRanges.of_pairs(X, pairs, training=training, test=test))
        records = CalibrationRecords.of(X, pairs)
        if records is not None and scorer is not None:
            records = records.with_patterns(scorer)
        return calibration.with_records(records)

    def to_state(self) -> tuple[Arrays, dict[str, Any]]:
        """Plain arrays and JSON-able facts; `from_state` gives the same answers to the last bit."""
        table = {f"bootstrap_{name}": array for name, array in vars(self._bootstrap).items()}
        of_groups, group_list = groups_state(self.groups)
        facts = replace(self.facts, groups=group_list or None)
        return self._arrays | table | of_groups, {"state_version": STATE_VERSION, **facts.as_dict()}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> Self:
        """Rebuild from `to_state`; arrays may be memory-mapped and read-only.

        Raises
        ------
        ValueError
            When the state was written by newer code or lacks parts.
        """
        with reading_state("the calibration", meta, STATE_VERSION):
            check_calibration(arrays, len(CONFIDENCES))
            table = {name: arrays[f"bootstrap_{name}"] for name in ("thresholds", "upper", "admitted")}
            facts = CalibrationFacts.from_meta(meta)
            # The arrays of later versions are kept as they are.
            own_arrays = {
                name: array
                for name, array in arrays.items()
                if not name.startswith("bootstrap_") and not OF_GROUP.match(name)
            }
            calibration = cls(own_arrays, replace(facts, groups=None))
            calibration._bootstrap = BootstrapTable(**table)
            calibration.groups = read_groups(cls, arrays, facts.groups or ())
            return calibration

    def without_bootstrap(self) -> Self:
        """This calibration, which answers by its finite-sample bound alone."""
        self._bootstrap, self._sample = empty_table(), None
        return self

    def groups_of(self, units: Int64) -> NDArray[np.str_] | None:
        """The names of the groups of units, as `of_pairs` numbered them; None where there are no groups."""
        names = self.facts.group_names
        if names is None:
            return None
        people: Int64 = self._arrays["group_units"]
        place = np.minimum(np.searchsorted(people, units), people.size - 1)
        return np.where(people[place] == units, np.array(names)[self._arrays["group_codes"][place]], "")

    def with_inputs(self, ranges: RowRanges | None) -> Self:
        """This calibration, which knows from now on what its rows are like."""
        if ranges is not None:
            self._arrays |= ranges.arrays()
            self.facts = replace(self.facts, inputs=ranges.facts)
            self.inputs = ranges
        return self

    def with_records(self, records: CalibrationRecords | None) -> Self:
        """This calibration, which knows from now on the records of its pairs."""
        if records is not None:
            self._arrays |= records.arrays()
            self.facts = replace(self.facts, records=records.facts, records_aggregation=records.aggregation)
            self.records = records
        return self

    def check_protocol(self) -> None:
        """Refuse a protocol that was inferred where the units do not settle it: ids of photos would be samples of
        stated classes.

        Raises
        ------
        ValueError
            When no same pair carries one unit twice, as identities do.
        """
        if not ((self.facts.n_same_pairs and self.protocol == "open-set") or self.facts.independent_rows):
            raise ValueError(
                f"protocol is missing, and the {self.facts.n_units} units do not settle it: no same pair carries one "
                "unit twice. Expected 'open-set' where units are identities, people or things that new ones will join, "
                "or 'closed-set' where they are samples of classes to which none will be added"
            )

    def without_guarantee(self) -> Self:
        """The same calibration with the origin ``imported``: it answers as before, and guarantees nothing."""
        imported = copy.copy(self)
        imported.facts = replace(self.facts, origin="imported")
        return imported

    @property
    def protocol(self) -> str:
        """``open-set`` or ``closed-set``."""
        return self.facts.protocol

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
        simultaneous : serve from `fpr_band`: the guarantee then holds for all rates that are ever asked for at once,
            not only for one that was fixed beforehand.
        candidate : with ``simultaneous``, the number from 1 of this version among those calibrated on the same data:
            the guarantee then holds for all of them at once, however many come later, so that any may be chosen by what
            its calibration says. It is made at confidence 1 - (1 - confidence) / (candidate (candidate + 1)).
        fnr : a false negative rate gives a second threshold, at or below which pairs are different; pairs between the
            two are to be reviewed. Both guarantees hold together at the confidence asked: each by itself at
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
        if (fnr is not None or simultaneous) and method not in ("auto", "finite-sample"):
            option = "simultaneous" if fnr is None else "fnr"
            raise ValueError(f"{option} goes with method 'finite-sample' (or 'auto'), not {method!r}")
        if fnr is not None:
            return two_sided_point(self, fpr, checked_rate(fnr, "fnr"), confidence, simultaneous, candidate)
        if simultaneous:
            return simultaneous_point(self, fpr, confidence, candidate)
        methods = [method]
        if method == "auto":
            methods = ["finite-sample", "bootstrap"] if allow_asymptotic else ["finite-sample"]
        for name in methods:
            if (point := self.answer(name, fpr, confidence)) is not None:
                return point
        raise refusal(self, fpr, confidence, methods)

    def answers(self, fpr: float, confidence: float) -> bool:
        """Whether the finite-sample bound supports a rate."""
        return self._finite.answers(fpr, confidence)

    def smallest_fpr(self, confidence: float = 0.95) -> dict[str, float | None]:
        """Method -> smallest rate that is answered; None where no rate is."""
        confidence = checked_rate(confidence, "confidence")
        # Of the bootstrap's table nothing is made for a confidence that it has no row of.
        asymptotic = None if confidence_row(confidence) is None else self._bootstrap.smallest(confidence)
        return {"finite-sample": self._finite.smallest(confidence), "bootstrap": asymptotic}

    def fpr_band(self, confidence: float = 0.95) -> FprBand | None:
        """A step-wise finite-sample upper bound of the false positive rate that holds at every threshold at once; None
        where the data support none."""
        confidence = checked_rate(confidence, "confidence")
        if confidence not in self._bands:
            self._bands[confidence] = finite_sample_band(self._finite, self._thresholds, confidence)
        return self._bands[confidence]

    def suggested(self, rate: float) -> np.float32:
        """The threshold that these scores suggest for a rate, which guarantees nothing."""
        rates = np.minimum(1.0, self._arrays["above"] / self.facts.different_share)
        return suggested_threshold(self._thresholds, rates, rate, self.facts.n_independent)

    def summary(self) -> dict[str, Any]:
        """JSON-able facts: sizes, protocol, and the smallest rate by confidence and method."""
        facts = {name: getattr(self.facts, name) for name in _PUBLIC_FACTS}
        facts["smallest_fpr"] = {f"{c:.2f}": self.smallest_fpr(c) for c in CONFIDENCES}
        return facts

    def answer(self, method: str, fpr: float, confidence: float) -> OperatingPoint | None:
        """A method's threshold and the bound of its rate; None where the data support none."""
        if method == "finite-sample":
            return self._finite_point(fpr, confidence)
        answer = self._bootstrap.lookup(fpr, confidence) if method == "bootstrap" else None
        if method == "estimate":
            threshold, band = self.suggested(fpr), self.fpr_band(confidence)
            # The threshold depends on the scores, so only a bound that holds at all thresholds at once holds there.
            answer = threshold, 1.0 if band is None else band.bound(threshold)
        return None if answer is None else self.point_at(*answer, fpr, confidence, cast(Method, method))

    def _finite_point(self, fpr: float, confidence: float) -> OperatingPoint | None:
        """The greatest of the thresholds for all pairs and for those within each guaranteed group."""
        level, guaranteed = guaranteed_groups(self, fpr, confidence)
        answer = self.finite_threshold(fpr, level)
        if answer is None:
            return None
        threshold, bound = answer
        for group in self.groups:
            if group.name in guaranteed and group.calibration is not None:
                within = group.calibration.finite_threshold(fpr, level)
                # By its size it is answered.
                assert within is not None
                threshold = max(threshold, within[0])
        return self.point_at(threshold, bound, fpr, confidence, "finite-sample", guaranteed)

    def finite_threshold(self, fpr: float, level: float) -> tuple[np.float32, float] | None:
        """The lowest threshold for a rate, groups apart, and the bound of its rate; None where it is not supported."""
        choice = self._finite.choose(fpr, level)
        return None if choice is None else (np.float32(self._thresholds[choice[0]]), choice[1])

    def point_at(
        self,
        threshold: np.float32,
        bound: float,
        fpr: float,
        confidence: float,
        method: Method,
        guaranteed: tuple[str, ...] | None = None,
    ) -> OperatingPoint:
        interval = None
        # Pairs with a row unlike these do not match: their share was measured on other people.
        like_share = 1.0 - (self.facts.inputs or {}).get("positive_pairs_flagged", 0.0)
        tpr = self.share_of_positives(threshold)
        if tpr is not None:
            tpr *= like_share
            n = self.facts.n_same_independent
            interval = student_interval(tpr, n, n, confidence)
        return OperatingPoint(
            fpr=fpr,
            threshold=float(threshold),
            fpr_upper_bound=bound if method == "estimate" else min(bound, fpr),
            assumes=assumptions(
                self.facts.origin,
                monitored=None if self.inputs is None else ROWS_MONITORED,
                records=self.records is not None,
                strangers=self.facts.n_strangers > 0,
            ),
            n_strangers=self.facts.n_strangers,
            fpr_interval=rate_interval(self.observed_rate(threshold), self.facts.n_independent, confidence)
            if method == "estimate" and self.facts.n_independent < FEWEST_NEGATIVES
            else None,
            confidence=confidence,
            method=method,
            tpr=tpr,
            tpr_interval=interval,
            n_units=self.facts.n_units,
            groups=group_facts(
                self.groups, threshold, fpr, confidence, guaranteed=guaranteed, like_share=like_share
            )
            or None,
            n_negative_pairs=self.facts.n_negative_pairs,
            protocol=self.protocol,
            observed_fpr=self.observed_rate(threshold),
            observed_fpr_by_samples=self._share_above(self._thresholds, "rows_above", threshold),
            # Pairs that share no unit. That of `summary` is `FiniteSample.n`: what an average over all pairs is worth.
            n_independent=self._finite.n_matched,
            origin=self.facts.origin,
            population=None
            if self._finite.population is None
            else {
                "pairs": self._finite.population,
                "judged": self.facts.n_negative_pairs + self.facts.n_same_pairs,
            },
        )

    @property
    def independent_positives(self) -> Float32:
        """Scores of positive pairs that share no unit, lowest first; none where they were not kept."""
        return self._arrays.get("matched_same", np.empty(0, dtype=np.float32))

    def share_of_positives(self, threshold: np.float32) -> float | None:
        """The share of positive pairs above a threshold; None where there are none."""
        return self._share_above(self._arrays["same_scores"], "same_above", threshold)

    def _share_above(self, scores: Float32, shares: str, threshold: np.float32) -> float | None:
        """The share above a threshold of what is above each of some scores; None where that was not kept."""
        above = self._arrays.get(shares)
        if above is None or not above.size:
            return None
        at = n_above(scores, threshold)
        return min(1.0, float(above[at])) if at < above.size else 1.0

    @cached_property
    def _bootstrap(self) -> BootstrapTable:
        """The bootstrap's table, which takes longest: made when it is first asked for."""
        if self._sample is None or self.facts.origin == "population":
            return empty_table()
        return bootstrap_table(self._sample, n_replicates=self.facts.n_replicates)

    def observed_rate(self, threshold: np.float32) -> float:
        """The share of negative pairs above a threshold, units weighed equally."""
        return self._finite.rate(min(n_above(self._thresholds, threshold), self._thresholds.size - 1))
