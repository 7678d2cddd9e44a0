"""What an answer at one false positive rate is, and the refusal where the data support none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from pairmark.models.calibration.origins import Guarantee, guarantee_of, meaning_of

Method = Literal["finite-sample", "bootstrap", "estimate"]

METHODS = ("auto", "finite-sample", "bootstrap", "estimate")
ANSWERING: tuple[Method, ...] = ("finite-sample", "bootstrap", "estimate")


class InsufficientCalibrationData(ValueError):
    """The calibration data cannot support that false positive rate.

    Attributes
    ----------
    smallest_fpr : method -> smallest rate that would be answered at this confidence; None where none would.
    required_units : method -> units that the asked rate takes, all their pairs scored (for ``bootstrap``
        about).
    alternatives : other method -> what it would answer, the fields of an operating point with its ``guarantee``;
        ``{"refused": True, "smallest_fpr": ...}`` where it would not either.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import InsufficientCalibrationData, operating_point
    >>> people = np.column_stack([np.arange(40), np.arange(40) + 40])
    >>> scores = np.linspace(0, 1, 40)
    >>> try:
    ...     operating_point(scores, np.zeros(40), 0.001, units=people, listing="random")
    ... except InsufficientCalibrationData as error:
    ...     print(round(error.smallest_fpr["finite-sample"], 3), error.required_units["finite-sample"])
    0.072 5990
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
    origin : how the pairs came about: ``all``, every pair of the units; ``drawn`` by Pairmark; listed at ``random``;
        inside of ``blocks``; ``independent`` of each other, as declared; a random sample of a ``population``; or, so
        that nothing is guaranteed, ``unknown``, ``unnamed`` (nothing says whom a pair is of) or ``assumed`` (people
        were guessed).
    simultaneous : whether the promise holds for all rates at once; else for this one, fixed before scores were seen.
    candidate : with ``simultaneous``, this version's number among those calibrated on the same data, for all of which
        the promise holds at once, whichever is chosen; None where it is of this one alone.
    fnr, fnr_threshold, fnr_upper_bound : the false negative rate asked for, the threshold at or below which a pair is
        called different, and the bound of that rate; ``confidence`` is then that both bounds hold. None without.
    review_same, review_different : with ``fnr``, the shares of same and of different calibration pairs whose score is
        between the two thresholds. None without, and ``review_same`` where no same pairs were given.
    population : with ``finite-population``, its ``pairs`` and how many of them were ``judged``; None without.
    guarantee : ``finite-sample``, ``finite-population``, ``asymptotic`` or ``none``; what each says is in
        `pairmark.models.calibration.origins.GUARANTEES`.
    meaning : the guarantee in words: what holds, for whom, and under which assumption.

    Examples
    --------
    >>> import numpy as np
    >>> from pairmark import operating_point
    >>> same = np.repeat([1, 0], 500)
    >>> scores = np.random.default_rng(0).normal(size=1000) + 3 * same
    >>> point = operating_point(scores, same, 0.05, independent=True)
    >>> point.guarantee, point.fpr_upper_bound <= 0.05, round(point.tpr, 2)
    ('finite-sample', True, 0.89)
    >>> matches = scores.astype("float32") > point.threshold
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
    origin: str = "all"
    simultaneous: bool = False
    candidate: int | None = None
    fnr: float | None = None
    fnr_threshold: float | None = None
    fnr_upper_bound: float | None = None
    review_same: float | None = None
    review_different: float | None = None
    population: dict[str, int] | None = None
    guarantee: Guarantee = field(init=False)
    meaning: str = field(init=False)

    def __post_init__(self) -> None:
        guarantee = guarantee_of(self.method, self.origin)
        object.__setattr__(self, "guarantee", guarantee)
        words = meaning_of(
            guarantee,
            self.origin,
            fpr=self.fpr,
            confidence=self.confidence,
            protocol=self.protocol,
            pairs=self.population["pairs"] if self.population else None,
        )
        object.__setattr__(self, "meaning", words)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name."""
        values = asdict(self)
        values["tpr_interval"] = None if self.tpr_interval is None else list(self.tpr_interval)
        return values
