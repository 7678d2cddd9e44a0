"""Scores, decisions, classes and rankings."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    Field,
)

from pairmark.schemas.base import (
    EXPECTED,
    EXPECTED_SIDE,
    FAST,
    REFS_TEXT,
    Answer,
    Body,
    Dense,
    Number,
    QueryModel,
    Rate,
    Record,
    RefPair,
    Side,
    Vectors,
)
from pairmark.schemas.models import GroupOut, Guarantee, Imported

ORIGIN_TEXT = (
    "how the calibration pairs came about: `all` pairs of the units, `drawn` by Pairmark, listed at `random`, "
    "`independent` of each other, a random sample of a `population`; or, with nothing guaranteed, "
    "`random-rows` (pairs of samples were drawn), `unknown`, `unnamed` (no units), `assumed` (people were guessed) or "
    "`imported` (in a file that is not signed)"
)
IMPORTED_TEXT = (
    "whether the calibration came in a file: `signed`, or `unsigned`, which guarantees nothing; null: it was "
    "made here"
)

Aggregation = Literal["auto", "mean", "plda", "best", "median"]
MAX_COUNT = 2**31 - 1
NumberType = Literal["float32", "float16", "float64"]
"""Type of the numbers of an octet-stream."""


class PointsParameters(QueryModel):
    """Which model is asked, and the numbers of a binary body."""

    model: str | None = Field(None, description="the model; a JSON body may name it instead")
    dim: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="octet-stream: length of a vector; default: the model's"
    )
    dtype: NumberType = Field("float32", description="octet-stream: type of the numbers, little-endian")


class PairsParameters(PointsParameters):
    """Which model scores, how subjects of several samples are compared, and the shape of a binary body."""

    n_left: int | None = Field(
        None, ge=1, le=MAX_COUNT, description="octet-stream: number of left rows; default: half of all rows"
    )
    pairs: int | None = Field(
        None,
        ge=1,
        le=MAX_COUNT,
        description="octet-stream: number of pairs, which the length of the body is checked against",
    )
    aggregation: Aggregation = Field(
        "auto",
        description="how subjects are compared. `mean`, `best`, `median`: over all scores between samples of the two "
        "sides; `plda`: the exact score of a PLDA model; `auto`: what the version chose in training for these "
        "numbers of samples, else `plda` if the model has it, otherwise `mean`",
    )


Decision = Literal["best-f1"]


class PointOptions(QueryModel):
    """How an operating point is computed."""

    confidence: Rate = Field(0.95, description="the confidence with which the bound holds")
    method: Literal["auto", "finite-sample", "bootstrap", "estimate"] = Field(
        "auto",
        description="`auto` and `finite-sample` hold for every sample size, or are refused (a policy may let `auto` "
        "answer by `bootstrap`); `bootstrap` is asymptotic; `estimate` guarantees nothing and states the bound "
        "that holds at its threshold",
    )
    calibration: str | None = Field(None, description="id of a calibration; default: the version's own")


class PointParameters(PointOptions):
    """An operating point."""

    fpr: Rate = Field(description="the highest false positive rate that you accept", examples=[0.01])


class ThreeWayOptions(PointOptions):
    """How an operating point is computed, perhaps with a review zone."""

    fnr: Rate | None = Field(
        None,
        description="also limit the false negative rate: pairs between the two thresholds are for `review`, and both "
        "limits hold with `confidence`",
    )
    simultaneous: bool = Field(
        False,
        description="guarantee all rates, and all versions calibrated on the same dataset version, at once, so that "
        "you may choose among them",
    )


class ThreeWayParameters(ThreeWayOptions, PointParameters):
    """An operating point, perhaps with a review zone."""


class SimilarityParameters(PairsParameters):
    """Which model scores."""

    detail: bool = Field(
        False,
        description="add `unlike`: the pairs with a row unlike those who calibrated, and which row of theirs",
    )


class MatchParameters(PairsParameters, ThreeWayOptions):
    """Which model scores, and how it decides."""

    fpr: Rate | None = Field(
        None,
        description="the highest false positive rate that you accept; needed without `decision`",
        examples=[0.01],
    )
    decision: Decision | None = Field(
        None,
        description="instead of a rate, `best-f1`: the threshold with the best F1 on the held-out pairs of a version "
        "trained on records, by which nothing is guaranteed",
    )


class RankOptions(BaseModel):
    top: int | None = Field(None, ge=1, description="return only this many labels, best first")


class AskingBody(Body):
    """A request to a model."""

    model: str | None = Field(
        None, description="`name`, `name@alias` or `name:version`; optional if only one model can answer"
    )


class PairsFields(AskingBody):
    """What a request of pairs holds beside them."""

    refs: Annotated[list[RefPair], FAST] | None = Field(
        None, description=f"`/match`: your names of both sides of each pair, {REFS_TEXT}"
    )


class PairsBody(PairsFields):
    """Pairs to score: the same number of vectors (or subjects) on both sides, or a single one on one side."""

    left: Side = Field(description=EXPECTED_SIDE, examples=[[0.27, -0.15, 0.41, -0.05]])
    right: Side = Field(description=EXPECTED_SIDE, examples=[[0.03, -0.17, 0.72, 0.12]])


class FeaturesBody(AskingBody):
    """Points: one vector, or several."""

    features: Vectors = Field(description=EXPECTED, examples=[[0.27, -0.15, 0.41, -0.05]])


class ScoresBody(Body):
    """Scores of another system, to be decided with `calibration=`."""

    scores: Annotated[list[Number], Field(min_length=1), FAST] = Field(
        examples=[[0.91, 0.12]], description="one number per pair"
    )


class RankFields(AskingBody, RankOptions):
    """What a request of rankings holds beside the points."""


class RankBody(RankFields):
    """Points for which labels are ranked."""

    features: Dense | Annotated[list[Dense], Field(fail_fast=True)] | Record | list[Record] = Field(
        union_mode="left_to_right",
        description="points as a list of numbers or a list of lists, or by feature name as an object or a list of "
        "objects",
        examples=[[[5.1, 3.5, 1.4, 0.2]]],
    )


class ModelUsed(Answer):
    """The version that answered."""

    name: str = Field(description="its name", examples=["people"])
    version: int = Field(description="number of the version", examples=[1])
    kind: str = Field(description="kind of the learner, as in `GET /learners`", examples=["similarity-auto"])


class UnlikePair(Answer):
    """A pair with a row unlike those who calibrated."""

    pair: int = Field(description="0-based", examples=[0])
    rows: list[str] = Field(
        description="which rows: `left`, `right`, of subjects `left[2]`", examples=[["left"]]
    )


class AnswerWarning(Answer):
    """What limits the whole answer."""

    code: str = Field(description="which warning", examples=["inputs-moved"])
    detail: str = Field(description="what is wrong, for people", examples=[""])


UNSEEN = "`unseen-category`: a column holds values that training did not have"


class ScoresOut(Answer):
    """Similarities, one per pair, in order. Higher is more similar; swapping the sides does not change a bit."""

    model: ModelUsed = Field(description="the model")
    scores: list[float] = Field(description="float32 values", examples=[[3.9]])
    aggregation: str | None = Field(None, description="how subjects of several samples were compared")
    unlike: list[UnlikePair] | None = Field(
        None, description="with `detail`: pairs with a row unlike calibration's"
    )
    warnings: list[AnswerWarning] | None = Field(None, description=UNSEEN)


class MatchOut(Answer):
    """A decision about one pair."""

    score: float | None = Field(None, description="absent for keys that may only decide", examples=[3.9])
    match: bool = Field(
        description="score > threshold, strictly, compared in float32; never where there is a `reason`",
        examples=[True],
    )
    reason: str | None = Field(
        None,
        description="why it does not match whatever it scores: `unlike-calibration`, a row unlike those of the people "
        "who calibrated; `too-little-to-compare`, records of which the columns that both sides have say too little",
    )
    unlike: list[str] | None = Field(
        None, description="the rows that are: `left`, `right`, of subjects `left[2]`"
    )
    missing: list[str] | None = Field(
        None, description="with `too-little-to-compare`: the missing columns, any of which may help"
    )
    compared: list[str] | None = Field(
        None, description="of records that lack columns: those that both sides have, which are compared"
    )
    threshold: float | None = Field(
        None, description="with `compared`: the threshold for these columns, which decides instead"
    )
    decision: Literal["match", "review", "different"] | None = Field(None, description="with `fnr`")


class OperatingPointOut(Answer):
    """A threshold, and what is guaranteed at it."""

    fpr: float = Field(description="the requested rate", examples=[0.01])
    threshold: float = Field(description="a float32 value", examples=[3.2])
    fpr_upper_bound: float | None = Field(
        None,
        description="the true rate is at most this, with the stated confidence. Absent, as `confidence` and `method`, "
        "where nothing is guaranteed; `meaning` then says what is known of an estimate",
        examples=[0.00998],
    )
    confidence: float | None = Field(
        None, description="the confidence level, above 0 and below 1", examples=[0.95]
    )
    method: str | None = Field(None, description="finite-sample or bootstrap", examples=["finite-sample"])
    assumes: list[dict[str, str]] = Field(
        [],
        description="what it supposes: `people-alike` (new people are like those who calibrated), `pairs-drawn` (the "
        "calibration pairs came about as `origin` says), `missing-at-random` (records with missing cells), "
        "`strangers-distinct` (unlabeled rows are of one person each), each with its `status`: `drawn` (by Pairmark), "
        "`declared`, `monitored` (`by` says what is watched) or `unchecked`",
    )
    tpr: float | None = Field(
        description="share of positive pairs that match at this threshold", examples=[0.95]
    )
    tpr_interval: list[float] | None = Field(
        description="confidence interval of the true positive rate; null: no positive pairs",
        examples=[[0.93, 0.96]],
    )
    n_units: int = Field(
        description="number of independent people (open-set) or samples (closed-set) that it is based on",
        examples=[1196],
    )
    n_negative_pairs: int = Field(
        description="number of negative pairs among the calibration pairs", examples=[199000]
    )
    observed_fpr: float = Field(
        description="the rate on the calibration pairs at this threshold; each pair of people counts once",
        examples=[0.0041],
    )
    observed_fpr_by_samples: float | None = Field(
        None, description="the same with each scored pair counted once: people count by their samples"
    )
    n_independent: int = Field(
        description="number of pairs that share no unit; `finite-sample` counts these", examples=[598]
    )
    origin: str = Field(description=ORIGIN_TEXT, examples=["drawn"])
    population: dict[str, int] | None = Field(
        None,
        description="whom the guarantee is about where that is a stated set: closed-set, the number of `classes` among "
        "which it holds; with `finite-population`, its `pairs`, and how many of them were `judged`",
    )
    number: int | None = Field(
        None,
        description="this calibration's number among those on the same dataset version, from 1; a "
        "guarantee that is not simultaneous is not for the best of several",
    )
    imported: Imported | None = Field(None, description=IMPORTED_TEXT)
    simultaneous: bool = Field(
        description="whether the guarantee is for all rates and all versions calibrated on the same dataset version, "
        "or only for this rate and a version that was chosen without looking at its calibration"
    )
    candidate: int | None = Field(
        None,
        description="with `simultaneous`: this version's number among those calibrated on the same dataset version",
    )
    fnr: float | None = Field(None, description="the requested false negative rate")
    fnr_threshold: float | None = Field(
        None, description="a pair with this score or a lower one is different"
    )
    fnr_upper_bound: float | None = Field(
        None,
        description="upper bound of the false negative rate; both bounds hold with the stated confidence",
    )
    review_same: float | None = Field(
        None,
        description="with `fnr`: share of the same calibration pairs that are between the two thresholds",
    )
    review_different: float | None = Field(
        None,
        description="with `fnr`: share of the different calibration pairs that are between the two thresholds",
    )
    guarantee: Guarantee = Field(
        description="`finite-sample`: for new people (closed-set: for new samples of these classes), "
        "whatever their scores look like; `finite-population`: for one fixed list of pairs, of which people judged "
        "a random part; "
        "`asymptotic`: approximately, for new people: with hundreds, none of whom looks like everybody; `none`: "
        "nothing is guaranteed"
    )
    meaning: str = Field(
        description="the guarantee in words: what holds, for whom and under which assumption, or what would change it",
        examples=[
            "With 95 % confidence, at most 1 % of pairs of different new people score above the "
            "threshold, if the calibration people are a random sample of those to come."
        ],
    )
    protocol: str = Field(
        description="`open-set`: people or things that new ones will join; `closed-set`: classes that are all "
        "there are",
        examples=["open-set"],
    )
    calibration_id: str = Field(
        description="id of the calibration that the threshold comes from",
        examples=["c0a7e1b9d2f44c7f8e6a5b3d90112233"],
    )
    fpr_interval: list[float] | None = Field(
        None,
        description="of an `estimate` from fewer than 300 independent negative pairs: the interval of the rate at the "
        "threshold",
        examples=[[0.001, 0.07]],
    )
    groups: list[GroupOut] | None = Field(
        None,
        description="where the calibration named groups of people: what is known within each. Null: it named none",
    )
    n_strangers: int = Field(
        0, description="how many of the units are unlabeled rows, each taken for another person"
    )
    samples: list[int] | None = Field(
        None,
        description="for subjects: the numbers of samples that the decision is calibrated for, larger first",
    )
    aggregation: str | None = Field(
        None,
        description="for subjects: how their samples are compared",
    )


class BestF1Out(Answer):
    """A threshold by which nothing is guaranteed, and what was measured of it."""

    decision: Decision = Field(description="as asked", examples=["best-f1"])
    threshold: float = Field(description="a float32 value", examples=[3.4])
    guarantee: Literal["none"] = Field(description="always", examples=["none"])
    meaning: str = Field(
        description="what is known of it, in words",
        examples=["Nothing is guaranteed: the threshold has the best F1 on held-out pairs."],
    )
    assumes: list[dict[str, str]] = Field(description="always empty", examples=[[]])
    f1: dict[str, Any] = Field(
        description="on held-out pairs, with its interval",
        examples=[{"value": 0.93, "interval": [0.9, 0.95]}],
    )
    precision: dict[str, Any] = Field(
        description="the same of precision", examples=[{"value": 0.94, "interval": [0.91, 0.96]}]
    )
    recall: dict[str, Any] = Field(
        description="the same of recall", examples=[{"value": 0.92, "interval": [0.88, 0.95]}]
    )


class MatchesOut(Answer):
    """Decisions, one per pair, in order."""

    model: ModelUsed | None = Field(description="null for scores of another system")
    matches: list[MatchOut] = Field(description="whether each pair matches, in order")
    operating_point: OperatingPointOut | BestF1Out = Field(
        description="the threshold that decided, and what is guaranteed at it"
    )
    warnings: list[AnswerWarning] | None = Field(
        None,
        description="`inputs-moved`: rows are no longer like those of the calibration; `too-little-to-compare`: some "
        "pairs lack columns; `few-negatives`: an estimate from fewer than 300 independent "
        "negative pairs; `unseen-category`: a column holds values that training did not have",
    )


class ExplanationOut(Answer):
    """Why a pair has its score."""

    model: ModelUsed = Field(
        description="the model", examples=[{"name": "people", "version": 1, "kind": "metric"}]
    )
    score: float = Field(description="the similarity; higher is more similar", examples=[3.9])
    explanation: dict[str, Any] = Field(
        description="for trees, the path; for weighted metrics, the contributions of the features",
        examples=[
            {
                "metric": "cosine",
                "whitened": True,
                "rest": 0.19,
                "features": [{"feature": "c", "left": 0.6, "right": 0.8, "contribution": 0.48}],
            }
        ],
    )
    compared: list[str] | None = Field(
        None, description="of records that lack columns: those that both sides have, which make the score"
    )


class VectorsOut(Answer):
    """Vectors, one per point, in order."""

    model: ModelUsed = Field(description="the model")
    vectors: list[list[float]] = Field(description="float32 values", examples=[[[0.61, -0.2]]])


class ClassesOut(Answer):
    """Labels, one per point, in order."""

    model: ModelUsed = Field(
        description="the model", examples=[{"name": "digits", "version": 1, "kind": "similarity-forest"}]
    )
    labels: list[str] = Field(
        description="the most probable label of each point, as the dataset names it", examples=[["3"]]
    )
    probabilities: list[dict[str, float]] = Field(
        description="for each point, the probability of every label; they sum to 1",
        examples=[[{"3": 0.93, "8": 0.07}]],
    )


class Ranking(Answer):
    """The ranking of one point, best label first."""

    labels: list[str] = Field(
        description="the labels, best first", examples=[["virginica", "versicolor", "setosa"]]
    )
    positions: dict[str, int] = Field(
        description="0-based positions",
        examples=[{"virginica": 0, "versicolor": 1, "setosa": 2}],
    )
    scores: dict[str, float] = Field(
        description="scores of the labels; higher is better",
        examples=[{"virginica": 1.7, "versicolor": 0.2, "setosa": -1.9}],
    )


class RankingsOut(Answer):
    """Rankings, one per point, in order."""

    model: ModelUsed = Field(
        description="the model", examples=[{"name": "iris", "version": 1, "kind": "label-ranking-auto"}]
    )
    rankings: list[Ranking] = Field(description="one ranking per point, in order")
    warnings: list[AnswerWarning] | None = Field(None, description=UNSEEN)
