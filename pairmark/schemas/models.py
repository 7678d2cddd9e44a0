"""Learners, models, versions, what held-out data show of them, calibrations and evaluations."""

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
)

from pairmark.schemas.base import TWO_VERSIONS, Answer, Moment, QueryModel, Rate, Request
from pairmark.schemas.datasets import Promise
from pairmark.schemas.jobs import Listing, Protocol


class OverlapOut(Answer):
    """How much of a dataset is training data of the version."""

    rows: int = Field(description="number of rows that are in the training data too", examples=[0])
    identities: int = Field(description="number of identities that are in the training data too")
    first_rows: list[int] = Field(default_factory=list, description="0-based rows, the first 20 at most")
    first_identities: list[str] = Field(default_factory=list, description="the first 20 at most")


class RocBands(Answer):
    """Intervals of both rates, at each threshold alone."""

    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    guarantee: Literal["asymptotic"] = Field(
        "asymptotic",
        description="intervals come from resampled units",
    )
    fpr_low: list[float] = Field(description="lower ends for the false positive rates")
    fpr_high: list[float] = Field(description="upper ends for the false positive rates")
    tpr_low: list[float] = Field(description="lower ends for the true positive rates")
    tpr_high: list[float] = Field(description="upper ends for the true positive rates")


class RocOut(Answer):
    """The ROC on held-out pairs: rates of `score > threshold`."""

    fpr: list[float] = Field(description="false positive rates, ascending", examples=[[0.0, 0.01, 1.0]])
    tpr: list[float] = Field(
        description="true positive rates, in the same order", examples=[[0.41, 0.95, 1.0]]
    )
    thresholds: list[float] = Field(description="float32 values, descending", examples=[[8.1, 3.2, -7.5]])
    bands: RocBands | None = Field(None, description="confidence bands; null: none were computed")


class PrOut(Answer):
    """Precision and recall on held-out pairs, of `score > threshold`, each pair counted once."""

    recall: list[float] = Field(
        description="share of same pairs that match, ascending", examples=[[0.01, 0.95, 1.0]]
    )
    precision: list[float] = Field(
        description="share of matches that are same pairs, in the same order", examples=[[1.0, 0.97, 0.1]]
    )
    thresholds: list[float] = Field(description="float32 values, descending", examples=[[8.1, 3.2, -7.5]])
    best_f1: float = Field(description="the threshold with the best F1 on these pairs", examples=[3.4])


MAX_VERSION = 2**31 - 1
Guarantee = Literal["finite-sample", "finite-population", "asymptotic", "none"]
Unit = int | str
DECIDED_RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001)
"""Rates at which a key that may only decide is answered, where the model's policy lists no others."""
LONGEST_REASON = 500
"""Characters of a reason that are kept."""
Imported = Literal["signed", "unsigned"]
"""How a calibration came in a file."""

ProtocolUsed = Annotated[
    str,
    Field(
        description="`open-set`: people or things that new ones will join; `closed-set`: classes that are all "
        "there are",
        examples=["open-set"],
    ),
]


class LearnerOut(Answer):
    """A kind of learner."""

    kind: str = Field(description="kind of the learner, as in `GET /learners`", examples=["similarity-auto"])
    title: str = Field(
        description="its title, for people",
        examples=[
            "Automatic: compares cosine, PLDA, forests and others on held-out people, keeps the "
            "simplest of the best"
        ],
    )
    capabilities: list[str] = Field(
        description="some of `similarity`, `match`, `search`, `embed`, `classify`, `rank-labels`",
        examples=[["embed", "match", "search", "similarity"]],
    )
    needs: str = Field(
        description="what the dataset must contain: identities or rankings", examples=["identities"]
    )
    accepts_sparse: bool = Field(description="whether it takes sparse rows as they are", examples=[True])
    takes_unlabelled: bool = Field(description="whether a job may name a dataset in `unlabelled`")
    params: dict[str, Any] = Field(
        description="JSON Schema of `params` in POST /jobs",
        examples=[{"type": "object", "properties": {"budget_seconds": {"type": "number"}}}],
    )


class AliasOut(Answer):
    """Where an alias points. `revision` changes with every move: it is the alias's ETag."""

    model: str = Field(description="the model", examples=["people"])
    alias: str = Field(description="the alias, such as `production`", examples=["production"])
    version: int = Field(description="number of the version", examples=[1])
    revision: int = Field(description="changes with every move: the alias's ETag", examples=[2])
    updated_at: Moment = Field(description="when it was last changed")


class AliasChangeOut(Answer):
    """One move of an alias."""

    version: int = Field(description="number of the version", examples=[2])
    previous: int | None = Field(description="the version before; null: the alias was new", examples=[1])
    by: str = Field(description="who made the change", examples=["key 8c1f"])
    at: Moment = Field(description="when it happened")
    reason: str | None = Field(
        description="the reason given when the alias was moved; null: none was given",
        examples=["recognizes more at 1 %"],
    )


class AliasRequest(Request):
    """The version that an alias should point to."""

    version: int = Field(ge=1, le=MAX_VERSION, description="number of the version", examples=[2])
    reason: str | None = Field(
        None,
        max_length=LONGEST_REASON,
        description="why the alias moves; kept in its history and the audit log",
        examples=["recognizes more at 1 %"],
    )


class CalibrationOut(Answer):
    """A calibration: the held-out scores from which operating points are computed."""

    id: str = Field(description="its id", examples=["6f1ed002ab5595859014ebf0951522d9"])
    name: str = Field(description="its name", examples=["people:1"])
    model: str | None = Field(description="null for scores of another system", examples=["people"])
    version: int | None = Field(
        description="number of the version; null: scores of another system", examples=[1]
    )
    dataset_sha256: str | None = Field(
        description="SHA-256 of the dataset's file",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    protocol: ProtocolUsed
    summary: dict[str, Any] = Field(
        description="pairs, units, and the smallest rate each method supports",
        examples=[{"protocol": "open-set", "n_units": 1196, "origin": "drawn"}],
    )
    imported: Imported | None = Field(
        None,
        description="whether it came in a file: `signed` with the service's import key, or `unsigned`, which "
        "guarantees nothing; null: it was made here",
    )
    created_at: Moment = Field(description="when it was created")


class MeasureRequest(Request):
    """The data to measure a version on."""

    dataset: str = Field(
        max_length=200,
        description="`name` or `name:version`; training data in it are counted and reported",
        examples=["new-people:1"],
    )
    protocol: Protocol = Field("auto", description="`auto`: the protocol of the version's training")
    n_pairs: int | None = Field(None, ge=2, description="largest number of pairs to score; default: 200,000")


class CalibrationRequest(MeasureRequest):
    """The data to calibrate a version on."""

    dataset: str | None = Field(  # type: ignore[assignment]
        None,
        max_length=200,
        description="`name` or `name:version`; it must not contain training data of the version. Null: `strangers` "
        "alone calibrate, and nothing is known of the true positive rate",
        examples=["new-people:1"],
    )
    strangers: str | None = Field(
        None,
        max_length=200,
        description="a dataset of rows, each of another person, which the version did not learn from: they join the "
        "negative pairs. For open-set use",
    )
    groups: str | None = Field(
        None, max_length=200, description="a column of the dataset that puts each person into a group"
    )
    listing: Listing = None
    default: bool | None = Field(
        None,
        description="use it for `/match` from now on; default: only if the version has no calibration",
        examples=[True],
    )


class ScoresOptions(Request):
    """What is said of scores made elsewhere."""

    name: str = Field(max_length=100, description="a name for the calibration")
    protocol: Literal["open-set", "closed-set"] | None = Field(
        None,
        description="`open-set`: units are identities, which new ones will join; `closed-set`: units are samples of "
        "classes to which none will be added. Needed where no same pair has one unit twice",
    )
    independent: bool = Field(
        False,
        description="without units: you declare that no two pairs share a person, or depend on each other otherwise",
    )
    listing: Literal["all", "drawn", "random-people", "random-rows"] | None = Field(
        None,
        description="which pairs of the units these are. `all`: every pair; `drawn`: by Pairmark; "
        "`random-people`: pairs of people, drawn without looking at what they have; `random-rows`: pairs of their "
        "samples, drawn at random, which guarantees nothing unless `population` is given; null: unknown, unless "
        "they are all",
    )
    population: int | None = Field(
        None,
        ge=1,
        description="the pairs are a random sample, drawn without replacement, of so many pairs: the guarantee is "
        "then "
        "`finite-population`, about these pairs and no others, whatever depends on what. Units are not needed",
    )


class ScoresRequest(ScoresOptions):
    """Scores of pairs whose truth is known.

    Units are what was drawn independently: in open-set use the identity on each side (a same pair has the same identity
    twice), in closed-set use the sample. Nothing is guaranteed where nothing is known of units or of how the pairs were
    listed, unless every two units are a scored pair.
    """

    scores: list[float] = Field(
        min_length=1, description="higher is more similar", examples=[[0.91, 0.13, 0.4]]
    )
    same: list[int | bool] = Field(min_length=1, description="1: same, 0: different", examples=[[1, 0, 0]])
    left_unit: list[Unit] | None = Field(
        None, description="unit of each left side", examples=[["ada", "ada", "bob"]]
    )
    right_unit: list[Unit] | None = Field(
        None, description="unit of each right side", examples=[["ada", "bob", "eve"]]
    )


class Lineage(Answer, extra="allow"):
    """Where a version comes from. Trainings whose lineage differs only in job and time give equal artefacts."""

    dataset: str | None = Field(description="the dataset, `name:version`", examples=["people:1"])
    dataset_sha256: str | None = Field(
        description="SHA-256 of the dataset's file",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    job: str | None = Field(
        description="id of the job that trained it; null: no job of this service",
        examples=["6f1ed002ab5595859014ebf0951522d9"],
    )
    code_version: str = Field(description="version of Pairmark that trained it", examples=["0.3.0"])
    artefact_sha256: str = Field(
        description="SHA-256 of the artefact",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )


class VersionSummary(Answer):
    """A version's summary."""

    version: int = Field(description="number of the version", examples=[1])
    kind: str = Field(description="kind of the learner, as in `GET /learners`", examples=["similarity-auto"])
    capabilities: list[str] = Field(
        description="what it can do: some of `similarity`, `match`, `search`, `embed`, `classify`, `rank-"
        "labels`",
        examples=[["embed", "match", "search", "similarity"]],
    )
    aliases: list[str] = Field(description="aliases that point to this version", examples=[["production"]])
    calibration_id: str | None = Field(
        description="id of the calibration; null: there is none",
        examples=["c0a7e1b9d2f44c7f8e6a5b3d90112233"],
    )
    created_at: Moment = Field(description="when it was created")


class VersionOut(VersionSummary):
    """Everything about a version."""

    model: str = Field(description="the model", examples=["people"])
    title: str = Field(
        description="its title, for people",
        examples=[
            "Automatic: compares cosine, PLDA, forests and others on held-out people, keeps the "
            "simplest of the best"
        ],
    )
    params: dict[str, Any] = Field(description="parameters of the learner")
    n_features: int = Field(description="number of features", examples=[4])
    feature_names: list[str] | None = Field(
        description="at most the first 1,000", examples=[["a", "b", "c", "d"]]
    )
    metrics: dict[str, Any] = Field(
        description="measured on held-out pairs; intervals resample units",
        examples=[
            {
                "auc": {"value": 0.997, "interval": [0.995, 0.998]},
                "eer": {"value": 0.024, "interval": [0.02, 0.03]},
            }
        ],
    )
    lineage: Lineage = Field(description="the dataset, job and code that it comes from")
    facts: dict[str, Any] = Field(
        description="sizes of the training, test and calibration parts, the protocol, and bytes on disk",
        examples=[{"protocol": "open-set", "n_features": 4}],
    )
    calibrations: list[CalibrationOut] = Field(description="its calibrations")
    promise: Promise | None = Field(
        description="the smallest false positive rate that its calibration can guarantee, and how many more people "
        "the next power of ten needs; null if it cannot be computed from the sizes"
    )
    has_roc: bool = Field(description="whether it has a ROC curve", examples=[True])
    has_tree: bool = Field(description="whether it has trees to show")
    reviews: list[str] = Field([], description="what reviews of decisions of this version alone have shown")


class ReviewPolicy(Request):
    """Which decisions of a model are kept for reviews, and for how long."""

    share: float = Field(1.0, gt=0, le=1, description="the chance with which each decision is kept")
    per_hour: int = Field(
        1_000,
        ge=1,
        le=100_000,
        description="most decisions kept of an hour, on average: beyond, the chance of the whole hour is halved",
    )
    days: float = Field(30, gt=0, le=400, description="how long they are kept")
    sides: bool = Field(
        False, description="keep the two sides as they were sent, for reviewers to look at; else `refs` only"
    )


class Policy(Request):
    """What a model may guarantee, and what is kept of its decisions. A member that is left out stays as it is."""

    reviews: ReviewPolicy | None = Field(
        None,
        description="which decisions are kept for reviews; null: none, and those that were are deleted",
        examples=[{"share": 1.0, "days": 30}],
    )
    allow_asymptotic: bool | None = Field(
        None,
        description="whether `method=auto` may answer by the bootstrap, whose guarantee is asymptotic, when the "
        "finite-sample method refuses; null: as the server's setting says",
        examples=[False],
    )
    rates: list[Rate] | None = Field(
        None,
        min_length=1,
        max_length=20,
        description="false positive rates at which keys with `decide` alone are answered, so that no series of "
        f"questions brackets a score; null: {', '.join(f'{rate:g}' for rate in DECIDED_RATES)}",
    )
    missing: Literal["assume-random", "refuse"] = Field(
        "assume-random",
        description="what is decided of records that lack columns: by a threshold for the columns that are there, "
        "which assumes that what a missing cell would hold is no reason why it is missing; or `refuse`: they never "
        "match",
    )


class ModelOut(Answer):
    """A model: a name, its versions and its aliases."""

    name: str = Field(description="its name", examples=["people"])
    created_at: Moment = Field(description="when it was created")
    latest_version: int = Field(description="number of the newest version", examples=[1])
    policy: Policy = Field(description="what the model may guarantee, and what is kept of its decisions")
    aliases: list[AliasOut] = Field(description="aliases with the version that each points to")
    versions: list[VersionSummary] = Field(
        description="newest first, at most 100; for more, use `GET /models/{name}/versions`"
    )


class LeaderboardEntry(Answer):
    """One scorer, measured on the same held-out data as the others."""

    name: str = Field(description="its name", examples=["cosine"])
    role: Literal["model", "baseline"] = Field(description="`model` or `baseline`", examples=["baseline"])
    value: float = Field(description="the measured value", examples=[0.89])
    interval: list[float] | None = Field(
        description="lower and upper end of the confidence interval", examples=[[0.87, 0.91]]
    )
    difference: float = Field(description="the model's value minus this scorer's value", examples=[0.08])
    difference_interval: list[float] | None = Field(
        description="interval of the difference, paired over the same draws of people or rows",
        examples=[[0.05, 0.11]],
    )
    tpr_at_fpr: dict[str, float] | None = Field(
        None, description="by false positive rate: the true positive rate; null: not for this task"
    )
    learner: str | None = Field(None, description="the learner kind")
    params: dict[str, Any] | None = Field(None, description="parameters of the scorer; null: it has none")


class LeaderboardOut(Answer, extra="allow"):
    """A version compared with simple baselines, best first."""

    task: Literal["pairs", "rankings"] = Field(description="what is compared: pairs or rankings")
    judged_by: str = Field(
        description="name of the metric that orders the entries", examples=["mean TPR at FPR 0.1 %, 1 %"]
    )
    confidence: float = Field(description="the confidence level, above 0 and below 1", examples=[0.95])
    items: list[LeaderboardEntry] = Field(description="the entries of this page")
    left_out: list[dict[str, str]] = Field(
        description="baselines that could not be measured, with the reason"
    )
    best_baseline: str | None = Field(
        description="name of the best baseline; null: none was measured", examples=["cosine"]
    )
    beaten: bool = Field(description="whether a baseline is better than the model, by more than chance")
    verdict: str | None = Field(
        description="the comparison with the baselines, as a sentence",
        examples=[
            "better than every baseline on held-out data (mean TPR at FPR 0.1 %, 1 %: 0.970 against "
            "0.890 of cosine)"
        ],
    )
    race: Any = Field(None, description="the candidates that the learner compared by cross-validation")


class HardPair(Answer):
    """A held-out pair: 0-based rows of the version's dataset."""

    left: int = Field(description="0-based row of the left side", examples=[17])
    right: int = Field(description="0-based row of the right side", examples=[2203])
    score: float = Field(description="the similarity; higher is more similar", examples=[3.9])


class ErrorsOut(Answer):
    """Held-out pairs that a version gets wrong, hardest first."""

    model: str = Field(description="the model", examples=["people"])
    version: int = Field(description="number of the version", examples=[1])
    dataset: str | None = Field(description="the dataset that the rows belong to", examples=["people:1"])
    kind: Literal["false-match", "false-non-match"] = Field(
        description="which errors are listed", examples=["false-match"]
    )
    fpr: float | None = Field(description="the requested false positive rate; null: none", examples=[0.01])
    threshold: float | None = Field(
        description="the threshold of the operating point at `fpr`; null: pairs are not restricted to one threshold",
        examples=[3.2],
    )
    of: int = Field(description="number of scored pairs of that kind", examples=[199000])
    items: list[HardPair] = Field(description="the entries of this page")
    more: bool = Field(description="whether there are more errors than were kept or requested")


class RateAnswered(Answer):
    """The threshold of a version for one false positive rate, or why there is none."""

    fpr: float = Field(description="the false positive rate", examples=[0.01])
    threshold: float | None = Field(
        None,
        description="a pair matches when its score is above this float32 value; null: refused",
        examples=[3.2],
    )
    confidence: float | None = Field(
        None, description="the confidence level, above 0 and below 1", examples=[0.95]
    )
    method: str | None = Field(None, description="`finite-sample`, `bootstrap` or `estimate`; null: refused")
    refused: str | None = Field(None, description="why the calibration gives no threshold for this rate")


class GroupOut(Answer):
    """Pairs of people within one group, at a threshold."""

    group: str = Field(description="its value", examples=["north"])
    n_units: int = Field(description="people of the group who calibrate", examples=[412])
    fpr: float | None = Field(
        description="share of the negative calibration pairs within it above the threshold; null: there are none",
        examples=[0.004],
    )
    tpr: float | None = Field(description="that of positive pairs", examples=[0.94])
    guarantee: Guarantee = Field(
        description="`finite-sample`: the rate holds within this group, too; all such groups and the whole at once, "
        "with the stated confidence"
    )
    fpr_upper_bound: float | None = Field(None, description="with a guarantee: the rate asked for")
    needs: int | None = Field(
        None, description="without: how many more people of this group would give it one", examples=[86]
    )


class TprOfPeople(Answer):
    """The true positive rate to expect with so many people."""

    people: int = Field(description="people who calibrate", examples=[698])
    tpr: float = Field(description="the true positive rate to expect", examples=[0.71])


class PromisedRate(RateAnswered):
    """What a version guarantees at one false positive rate, or why it does not."""

    fpr_upper_bound: float | None = Field(
        None,
        description="the true rate is at most this, with the stated confidence; null: refused",
        examples=[0.00998],
    )
    guarantee: Guarantee | None = Field(
        None,
        description="`finite-sample`, `finite-population`, `asymptotic` or `none`; null: refused",
        examples=["finite-sample"],
    )
    assumes: list[dict[str, str]] | None = Field(
        None, description="what it supposes, as of an operating point; null: refused"
    )
    tpr: float | None = Field(None, description="the true positive rate")
    tpr_interval: tuple[float, float] | None = Field(
        None, description="confidence interval of the true positive rate; null: no positive pairs"
    )
    n_units: int | None = Field(
        None, description="number of independent units that the guarantee is based on; null: refused"
    )
    groups: list[GroupOut] | None = Field(
        None, description="where the calibration named groups of people: what is known within each"
    )
    smallest_fpr: float | None = Field(None, description="if refused: the smallest rate that is guaranteed")
    by_people: list[TprOfPeople] = Field(
        [],
        description="what more people would bring on this model's scores, an estimate; first for those there are or, "
        "if refused, for the minimum",
    )


class DifferenceOut(Answer):
    """One measure of two versions."""

    measure: Literal["tpr", "f1"] = Field(
        description="`tpr`: the mean true positive rate at `fpr`; `f1`: of records, each version cut where its F1 is "
        "best on other people"
    )
    fpr: list[float] | None = Field(description="with `tpr`: the rates", examples=[[0.01]])
    values: list[float] = Field(description="of both versions, in the order asked", examples=[[0.91, 0.94]])
    difference: float = Field(description="the second less the first", examples=[0.03])
    interval: tuple[float, float] | None = Field(
        description="of the difference, over the same draws of people; null: too few people",
        examples=[[0.01, 0.05]],
    )


class ComparisonOut(Answer):
    """Two versions on the same held-out people."""

    model: str = Field(description="the model", examples=["people"])
    versions: list[int] = Field(description="both versions", examples=[[1, 2]])
    dataset: str = Field(description="whose people they were compared on", examples=["people:1"])
    people: int = Field(
        description="people (closed-set: samples) whom neither version learned from nor was calibrated with",
        examples=[480],
    )
    pairs: int = Field(description="pairs of them that were scored", examples=[114960])
    confidence: float = Field(description="of the intervals", examples=[0.95])
    differences: list[DifferenceOut] = Field(description="by measure")


class CompareQuery(QueryModel):
    """Which versions, and at which rate."""

    versions: str = Field(pattern=TWO_VERSIONS, description="two version numbers", examples=["1,2"])
    fpr: Rate | None = Field(
        None, description="the false positive rate; default: those that the pairs resolve", examples=[0.01]
    )
    dataset: str | None = Field(
        None, max_length=200, description="whose people; default: the dataset of the second version"
    )


class ReportOut(Answer):
    """Everything that is known about a version, in one document."""

    version: VersionOut = Field(description="the version")
    limits: list[str] = Field(
        description="what the model cannot do",
        examples=[["A guaranteed rate holds for new people drawn like those of the calibration data."]],
    )
    promises: list[PromisedRate] = Field(
        description="guarantees at common rates, by the version's own calibration"
    )
    leaderboard: LeaderboardOut | None = Field(
        description="the comparison with baselines; null: there is none"
    )
    roc: RocOut | None = Field(description="the ROC curve; null: there is none")
    columns: list[dict[str, Any]] = Field(
        description="of records: what leaving columns out costs. `missing` names those that a side lacks; `share`, of "
        "the calibration pairs that lack just these; `tpr`, at `fpr` by the other columns; null: these say too little"
    )


class SeenOperatingPoint(RateAnswered):
    """One of a version's operating points, and the rates at its threshold on other data."""

    calibration_id: str = Field(
        description="the calibration that the threshold comes from",
        examples=["c0a7e1b9d2f44c7f8e6a5b3d90112233"],
    )
    seen_fpr: float | None = Field(
        None,
        description="share of negative pairs that matched; every person has the same weight",
        examples=[0.0052],
    )
    seen_tpr: float | None = Field(
        None,
        description="share of positive pairs that matched; every person has the same weight",
        examples=[0.94],
    )


class EvaluationOut(Answer):
    """A version measured on another dataset."""

    model: str = Field(description="the model", examples=["people"])
    version: int = Field(description="number of the version", examples=[1])
    dataset: str = Field(description="the dataset, `name:version`", examples=["people:1"])
    dataset_sha256: str = Field(
        description="SHA-256 of the dataset's file",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    protocol: ProtocolUsed
    metrics: dict[str, Any] = Field(
        description="the measured metrics, by name",
        examples=[
            {
                "auc": {"value": 0.997, "interval": [0.995, 0.998]},
                "eer": {"value": 0.024, "interval": [0.02, 0.03]},
            }
        ],
    )
    roc: RocOut = Field(description="the ROC curve; null: there is none")
    operating_points: list[SeenOperatingPoint] = Field(
        description="its operating points, and the rates at their thresholds on this dataset"
    )
    overlap: OverlapOut = Field(description="how much of the dataset is training data of the version")
    inputs: dict[str, int] | None = Field(
        None,
        description="`rows` measured, and how many are `unlike` those of the calibration, so that their pairs never "
        "match",
    )
    warnings: list[str] = Field(description="what to look at before relying on it")


class InputsOut(Answer):
    """The rows that a version decided on since the service started, held against those of its calibration."""

    rows: int = Field(description="rows that were decided on", examples=[340])
    unlike: int = Field(
        description="rows unlike those of the calibration, whose pairs never matched", examples=[12]
    )
    today: dict[str, int] = Field(
        description="`all` rows of the day (UTC), and those `unlike`", examples=[{"all": 340, "unlike": 12}]
    )
    moved: str | None = Field(
        description="how rows have moved since the calibration; decisions then carry no guarantee until the version "
        "is calibrated anew; null: nothing is known to have moved"
    )
