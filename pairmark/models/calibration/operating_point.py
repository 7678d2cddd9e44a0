"""What an answer at one false positive rate is, and the refusal where the data support none."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from pairmark.models.pairs.samples import PairSample

Listing = Literal["all", "drawn", "random-people", "random-rows"]
Origin = Literal[
    "all",
    "random",
    "random-rows",
    "drawn",
    "independent",
    "population",
    "unknown",
    "unnamed",
    "assumed",
    "imported",
]
Guarantee = Literal["finite-sample", "finite-population", "asymptotic", "none"]
Assumption = Literal["people-alike", "pairs-drawn", "missing-at-random", "strangers-distinct"]
Status = Literal["drawn", "declared", "monitored", "unchecked"]
ROWS_MONITORED = (
    "rows one by one, by the size and spread of their features; each request of 50 rows or more by itself; the stream "
    "of rows, for drift, and for rows that lie in fewer directions"
)
"""What `people-alike` is monitored by where the rows of the calibration are known."""
GUARANTEES: dict[Guarantee, str] = {
    "finite-sample": "for new people (closed-set: for new samples of these classes), whatever their scores look like",
    "finite-population": "for one fixed list of pairs, of which people judged a random part",
    "asymptotic": "approximately, for new people: with hundreds, none of whom looks like everybody",
    "none": "nothing is guaranteed",
}
"""What holds with the confidence asked, by `guarantee`; `meaning_of` says it of one answer."""
LISTINGS = ("all", "drawn", "random-people", "random-rows")

_LISTED = (
    "score every pair of the calibration people; or draw pairs of people at random, or let Pairmark draw them, and "
    "declare it (listing='random-people' or 'drawn')"
)
_WANTING: dict[str, str] = {
    "unknown": "pairs are a list whose origin is not known, and a list that was chosen by looking at people can hide "
    f"those who match many: {_LISTED}",
    "random-rows": "pairs of samples were drawn at random, which favors people of many samples, and those of few may "
    "match many: draw pairs of people (listing='random-people'), or judge a random sample of one stated set of pairs "
    "(population)",
    "unnamed": "nothing says whom the pairs are of, and pairs that share a person are not independent: name the units, "
    "or declare that no two pairs share a person (independent=True)",
    "assumed": "nothing says whose the points are, so people were guessed from positive pairs: give labels, groups or "
    "units",
    "imported": "the calibration came in a file that no key of this service signed, so nothing says that these scores "
    "were measured: calibrate the version here, or import a file that is signed with PAIRMARK_IMPORT_KEY_FILE",
}
_ASSUMED: dict[str, str] = {
    "all": "the calibration {units} are a random sample of those to come",
    "drawn": "the calibration {units} are a random sample of those to come",
    "random": "the calibration {units} are a random sample of those to come, and their pairs were listed at random, "
    "without looking at {units}",
    "independent": "pairs are independent of each other and a random sample of those to come, as was declared",
}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What is declared of scored pairs; see `pairmark.models.calibration.calibration.Calibration.fit`."""

    protocol: str | None = None
    listing: str | None = None
    independent: bool = False
    population: int | None = None
    units_assumed: bool = False

    def origin(self, sample: PairSample) -> Origin:
        """What is known of the origin of the pairs, from what was scored and what was declared."""
        if self.listing not in (None, *LISTINGS):
            raise ValueError(
                f"listing is {self.listing!r}; expected None or one of {', '.join(map(repr, LISTINGS))}"
            )
        if self.population is not None:
            return "population"
        if sample.rows_independent:
            return "independent" if self.independent else "unnamed"
        if self.independent:
            raise ValueError(
                "independent pairs have no units in common: expected units or independent=True, not both"
            )
        if self.units_assumed:
            return "assumed"
        if sample.complete:
            return "all"
        if self.listing == "all":
            raise ValueError(
                f"listing is 'all', but not every two of the {sample.n_units} units are a scored pair; expected all "
                "pairs, or another listing"
            )
        names: dict[str | None, Origin] = {
            None: "unknown",
            "random-people": "random",
            "random-rows": "random-rows",
        }
        return names.get(self.listing, "drawn")


def nothing_guaranteed(origin: str) -> str | None:
    """Why pairs of an origin guarantee nothing and what would change that, a sentence; None where they do."""
    return f"Nothing is guaranteed: {_WANTING[origin]}" if origin in _WANTING else None


def assumptions(
    origin: str, *, monitored: str | None = None, records: bool = False, strangers: bool = False
) -> list[dict[str, str]]:
    """What an operating point supposes, each an ``assumption``, its ``status`` and, where something watches it, ``by``.

    Parameters
    ----------
    monitored : what watches that rows are like those of the calibration, in words; None: nothing does.
    records : whether pairs that lack columns are decided by thresholds of their own.
    strangers : whether some units are unlabeled rows.
    """
    statuses: dict[Assumption, Status] = {
        "people-alike": "monitored" if monitored else "unchecked",
        # Pairs that Pairmark drew, or all that there are: nobody had a choice to declare.
        "pairs-drawn": "unchecked"
        if origin in _WANTING
        else "drawn"
        if origin in ("all", "drawn")
        else "declared",
        **({"missing-at-random": "declared"} if records else {}),
        **({"strangers-distinct": "declared"} if strangers else {}),
    }
    watched = {"by": monitored} if monitored else {}
    return [
        {"assumption": name, "status": status, **(watched if name == "people-alike" else {})}
        for name, status in statuses.items()
    ]


def guarantee_of(method: str | None, origin: str) -> Guarantee:
    """What a method's answer from pairs of an origin guarantees."""
    if method in ("estimate", None) or origin in _WANTING:
        return "none"
    if method == "bootstrap":
        return "asymptotic"
    return "finite-population" if origin == "population" else "finite-sample"


def meaning_of(
    guarantee: Guarantee,
    origin: str,
    *,
    fpr: float,
    confidence: float,
    protocol: str,
    pairs: int | None,
    bound: float = 1.0,
) -> str:
    """What holds, for whom, and under which assumption; ``bound`` : of the rate at the threshold of an estimate."""
    rate, sure = f"{100 * fpr:.4g} %", f"{100 * confidence:.4g} %"
    if guarantee == "none":
        words = f"{nothing_guaranteed(origin) or 'Nothing is guaranteed: the threshold is an estimate'}."
        if origin in _WANTING or bound >= 1:
            return words
        return f"{words} With {sure} confidence, the rate at this threshold is at most {100 * bound:.3g} %."
    if guarantee == "finite-population":
        return (
            f"With {sure} confidence, at most {rate} of the negative pairs of this population of {pairs:,} pairs "
            "score above the threshold, if the judged pairs are a random sample of it. Nothing is said of other pairs."
        )
    pair_words = (
        "new pairs that are different"
        if origin == "independent"
        else "pairs of different new people (each pair of people counts once)"
        if protocol == "open-set"
        else "new pairs of different classes (each pair of samples counts once)"
    )
    assumed = _ASSUMED[origin].format(units="people" if protocol == "open-set" else "samples")
    limit = "" if guarantee == "finite-sample" else " The confidence is approached as units grow in number."
    return f"With {sure} confidence, at most {rate} of {pair_words} score above the threshold, if {assumed}.{limit}"


Method = Literal["finite-sample", "bootstrap", "estimate"]

METHODS = ("auto", "finite-sample", "bootstrap", "estimate")
ANSWERING: tuple[Method, ...] = ("finite-sample", "bootstrap", "estimate")
OF_GUARANTEES = ("method", "confidence", "fpr_upper_bound", "fnr_upper_bound", "fpir_upper_bound")
"""Facts that are stated only with a guarantee."""


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
    ...     operating_point(
    ...         scores, np.zeros(40), 0.001, units=people, protocol="open-set", listing="random-people"
    ...     )
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
        ``fpr``. None, as the next two, where ``guarantee`` is ``none``; what is known of an estimate, ``meaning`` says.
    confidence : of the bound.
    method : ``finite-sample`` or ``bootstrap``.
    tpr : share of positive pairs above the threshold; None when no positive pairs were given.
    tpr_interval : two-sided Wilson interval at ``confidence`` with Student's quantile, on the independent blocks of
        positive pairs (open-set: identities), which is wider than an interval that pretends pairs are independent.
    n_units : sampling units (identities or samples; rows when independent) behind the false positive rate.
    n_negative_pairs : scored pairs that are different.
    protocol : ``open-set`` or ``closed-set``.
    observed_fpr : the rate at the threshold on the calibration pairs (units weighed equally).
    observed_fpr_by_samples : the same with every scored pair counted once, so that people count by their samples; None
        for a calibration that was made before it was kept.
    n_independent : pairs that share no unit, which ``finite-sample`` counts.
    origin : how the pairs came about: ``all``, every pair of the units; ``drawn`` by Pairmark; listed at ``random``;
        ``independent`` of each other, as declared; a random sample of a ``population``; or, so
        that nothing is guaranteed, ``unknown``, ``unnamed`` (nothing says whom a pair is of) or ``assumed`` (people
        were guessed).
    simultaneous : whether the guarantee holds for all rates at once; else for this one, fixed before scores were seen.
    candidate : with ``simultaneous``, this version's number among those calibrated on the same data, for all of which
        the guarantee holds at once, whichever is chosen; None where it is of this one alone.
    fnr, fnr_threshold, fnr_upper_bound : the false negative rate asked for, the threshold at or below which a pair is
        called different, and the bound of that rate; ``confidence`` is then that both bounds hold. None without.
    review_same, review_different : with ``fnr``, the shares of same and of different calibration pairs whose score is
        between the two thresholds. None without, and ``review_same`` where no positive pairs were given.
    population : with ``finite-population``, its ``pairs`` and how many of them were ``judged``; None without.
    guarantee : ``finite-sample``, ``finite-population``, ``asymptotic`` or ``none``; what each says is in
        `pairmark.models.calibration.operating_point.GUARANTEES`.
    meaning : the guarantee in words: what holds, for whom, and under which assumption.
    assumes : what it supposes, each an ``assumption`` and its ``status`` (``drawn`` by Pairmark, ``declared``,
        ``monitored``, with what is watched as ``by``, or ``unchecked``):
        ``people-alike``, that new people are like those who calibrated; ``pairs-drawn``, that pairs came about as
        ``origin`` says; ``missing-at-random``, of records: that what a missing cell would hold is no reason why it is.
    fpr_interval : of an estimate from fewer than 300 independent negative pairs, Clopper and Pearson's interval of
        the rate at the threshold.
    groups : where groups of people were named, of each: its ``group``, ``n_units``, observed ``fpr`` and ``tpr`` of
        pairs within it, and its ``guarantee``: ``finite-sample``, with ``fpr_upper_bound``, where the rate holds within
        it, too, all at once with ``confidence``; else ``none``, and ``needs``, how many people more it takes.
    n_strangers : of the units, how many are unlabeled rows, each taken for another person.

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
    fpr_upper_bound: float | None
    confidence: float | None
    method: Method | None
    tpr: float | None
    tpr_interval: tuple[float, float] | None
    n_units: int
    n_negative_pairs: int
    protocol: str
    observed_fpr: float
    n_independent: int
    observed_fpr_by_samples: float | None = None
    origin: str = "all"
    simultaneous: bool = False
    candidate: int | None = None
    fnr: float | None = None
    fnr_threshold: float | None = None
    fnr_upper_bound: float | None = None
    review_same: float | None = None
    review_different: float | None = None
    population: dict[str, int] | None = None
    assumes: list[dict[str, str]] = field(default_factory=list)
    fpr_interval: tuple[float, float] | None = None
    groups: list[dict[str, Any]] | None = None
    n_strangers: int = 0
    guarantee: Guarantee = field(init=False)
    meaning: str = field(init=False)

    def __post_init__(self) -> None:
        guarantee = guarantee_of(self.method, self.origin)
        words = meaning_of(
            guarantee,
            self.origin,
            fpr=self.fpr,
            confidence=self.confidence or 0.0,
            protocol=self.protocol,
            pairs=self.population["pairs"] if self.population else None,
            bound=self.fpr_upper_bound or 1.0,
        )
        if self.fpr_interval is not None:
            low, high = (100 * end for end in self.fpr_interval)
            words += (
                f" So few independent negative pairs hardly show it: {low:.2g} to {high:.2g} % "
                f"({100 * (self.confidence or 0):.4g} % interval)."
            )
        within = [str(entry["group"]) for entry in self.groups or () if entry["guarantee"] != "none"]
        if guarantee != "none" and within:
            words += f" So it is, at once, for pairs of people of one of the groups {', '.join(within)}."
        for name, fact in {
            "guarantee": guarantee,
            "meaning": words,
            "assumes": self.assumes or assumptions(self.origin),
            **dict.fromkeys(OF_GUARANTEES[:-1] if guarantee == "none" else ()),
        }.items():
            object.__setattr__(self, name, fact)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: the attributes by name, without those that only a guarantee has where there is none."""
        values = asdict(self)
        values |= {name: values[name] and list(values[name]) for name in ("tpr_interval", "fpr_interval")}
        return values if self.guarantee != "none" else without_guarantee(values)


def without_guarantee(facts: Mapping[str, Any], why: str | None = None) -> dict[str, Any]:
    """An operating point's facts where nothing is guaranteed; ``why`` in words, where they do not say so yet."""
    left = {name: fact for name, fact in facts.items() if name not in OF_GUARANTEES}
    if left.get("groups"):
        left["groups"] = [without_guarantee(entry) for entry in left["groups"]]
    return (
        left | {"guarantee": "none"} | ({} if why is None else {"meaning": f"Nothing is guaranteed: {why}."})
    )
