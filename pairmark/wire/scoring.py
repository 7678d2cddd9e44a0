"""Requests and answers about scores, decisions, labels and rankings."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Limits, Parameters, Rate, Text
from pairmark.wire.models import Imported

ORIGIN_TEXT = (
    "how the calibration pairs came about: `all` pairs of the units, `drawn` by Pairmark, listed at `random`, inside "
    "of `blocks`, `independent` of each other, a random sample of a `population`; or, with nothing guaranteed, "
    "`unknown`, `unnamed` (no units), `assumed` (people were guessed) or `imported` (in a file that is not signed)"
)
IMPORTED_TEXT = (
    "whether the calibration came in a file: `signed`, or `unsigned`, which guarantees nothing; null: it was "
    "made here"
)


class ModelUsedFields(Fields):
    name: str
    version: int
    kind: str | None


class OperatingPointFields(Fields):
    fpr: Annotated[float, Text("the requested rate")]
    threshold: Annotated[float, Text("a float32 value")]
    fpr_upper_bound: Annotated[
        float | None,
        Text(
            "the true rate is at most this, with the stated confidence. Absent, as `confidence` and `method`, where "
            "nothing is guaranteed; `meaning` then says what is known of an estimate"
        ),
    ] = None
    confidence: float | None = None
    method: Annotated[str | None, Text("finite-sample or bootstrap")] = None
    assumes: Annotated[
        list[dict[str, str]],
        Text(
            "what it supposes: `people-alike` (new people are like those who calibrated), `pairs-drawn` (the "
            "calibration pairs came about as `origin` says), `missing-at-random` (records with missing cells), each "
            "with its `status`: `checked`, `declared` or `unchecked`"
        ),
    ] = ()  # type: ignore[assignment]
    tpr: Annotated[float | None, Text("share of same pairs that match at this threshold")]
    tpr_interval: list[float] | None
    n_units: Annotated[
        int, Text("number of independent people (open-set) or samples (closed-set) that it is based on")
    ]
    n_negative_pairs: int
    observed_fpr: Annotated[
        float, Text("the rate on the calibration pairs at this threshold; each pair of people counts once")
    ]
    observed_fpr_by_samples: Annotated[
        float | None, Text("the same with each scored pair counted once: people count by their samples")
    ] = None
    n_independent: Annotated[int, Text("number of pairs that share no unit; `finite-sample` counts these")]
    origin: Annotated[str, Text(ORIGIN_TEXT)]
    population: Annotated[
        dict[str, int] | None,
        Text(
            "whom the promise is about where that is a stated set: closed-set, the number of `classes` among "
            "which it holds; with `finite-population`, its `pairs`, and how many of them were `judged`"
        ),
    ] = None
    number: Annotated[
        int | None,
        Text(
            "this calibration's number among those on the same dataset version, from 1; a pointwise guarantee is not "
            "for the best of several"
        ),
    ] = None
    imported: Annotated[Imported | None, Text(IMPORTED_TEXT)] = None
    simultaneous: Annotated[
        bool, Text("whether the guarantee holds for all rates at once or only for this one")
    ]
    candidate: Annotated[
        int | None,
        Text("with `simultaneous`: this version's number among those calibrated on the same dataset version"),
    ] = None
    promise: Annotated[
        str,
        Text(
            "`pointwise`: the guarantee is for this rate and for a version that was chosen without looking "
            "at its calibration, for example by the test part; `simultaneous`: it is for all rates and all versions in "
            "the dataset's ledger"
        ),
    ]
    fnr: Annotated[float | None, Text("the requested false negative rate")] = None
    fnr_threshold: Annotated[float | None, Text("a pair with this score or a lower one is different")] = None
    fnr_upper_bound: Annotated[
        float | None,
        Text("upper bound of the false negative rate; both bounds hold with the stated confidence"),
    ] = None
    review_same: Annotated[
        float | None,
        Text("with `fnr`: share of the same calibration pairs that are between the two thresholds"),
    ] = None
    review_different: Annotated[
        float | None,
        Text("with `fnr`: share of the different calibration pairs that are between the two thresholds"),
    ] = None
    guarantee: str
    meaning: Annotated[
        str,
        Text(
            "the guarantee in words: what holds, for whom and under which assumption, or what would change it"
        ),
    ]
    protocol: str
    calibration_id: str
    samples: Annotated[
        list[int] | None,
        Text("for subjects: the numbers of samples that the decision is calibrated for, larger first"),
    ] = None
    aggregation: Annotated[
        str | None,
        Text("for subjects: how their samples are compared; `candidates`: of pairs among their rivals"),
    ] = None


class ExplanationFields(Fields):
    model: ModelUsedFields
    score: float
    explanation: Annotated[
        dict[str, Any], Text("for trees, the path; for weighted metrics, the contributions of the features")
    ]


class ClassesFields(Fields):
    model: ModelUsedFields
    labels: Annotated[list[str], Text("the most probable label of each point, as the dataset names it")]
    probabilities: Annotated[
        list[dict[str, float]], Text("for each point, the probability of every label; they sum to 1")
    ]


class RankingFields(Fields):
    labels: list[str]
    positions: Annotated[
        dict[str, float],
        Text(
            "0-based positions; with `abstain`, labels without a clear order share the middle of their positions"
        ),
    ]
    scores: Annotated[dict[str, float], Text("scores of the labels; higher is better")]
    confidence: Annotated[
        float | None, Text("with `detail`: expected share of pairs of labels in the right order")
    ] = None
    pairwise: Annotated[
        dict[str, dict[str, float]] | None,
        Text("with `detail`: probability that the outer label precedes the inner one"),
    ] = None


class RankingsFields(Fields):
    model: ModelUsedFields
    rankings: list[RankingFields]


Aggregation = Literal["auto", "mean", "plda", "best", "median"]
MAX_COUNT = 2**31 - 1
Number = Literal["float32", "float16", "float64"]
"""Type of the numbers of an octet-stream."""


class PairsParameters(Parameters):
    model: Annotated[
        str | None,
        Text("the model; a JSON body may name it instead", help="NAME, NAME@ALIAS or NAME:VERSION."),
    ] = None
    dim: Annotated[
        int | None,
        Limits(minimum=1, maximum=MAX_COUNT),
        Text("octet-stream: length of a vector; default: the model's"),
    ] = None
    n_left: Annotated[
        int | None,
        Limits(minimum=1, maximum=MAX_COUNT),
        Text("octet-stream: number of left rows; default: half of all rows"),
    ] = None
    pairs: Annotated[
        int | None,
        Limits(minimum=1, maximum=MAX_COUNT),
        Text("octet-stream: number of pairs, which the length of the body is checked against"),
    ] = None
    dtype: Annotated[Number, Text("octet-stream: type of the numbers, little-endian")] = "float32"
    left_samples: Annotated[
        int,
        Limits(minimum=1, maximum=MAX_COUNT),
        Text("octet-stream: rows per left subject; in npz, use the array `left_counts`"),
    ] = 1
    right_samples: Annotated[
        int,
        Limits(minimum=1, maximum=MAX_COUNT),
        Text("octet-stream: rows per right subject; in npz, use the array `right_counts`"),
    ] = 1
    aggregation: Annotated[
        Aggregation,
        Text(
            "how subjects are compared. `mean`, `best`, `median`: over all scores between samples of the two "
            "sides; `plda`: the exact score of a PLDA model; `auto`: what the version chose in training for these "
            "numbers of samples, else `plda` if the model has it, otherwise `mean`",
            help="How subjects of several samples are compared: auto, mean, plda, best or median.",
        ),
    ] = "auto"


class EvidenceParameters(Parameters):
    log_lr: Annotated[
        bool,
        Text(
            "add the natural log-likelihood ratio of each score, by the version's calibration",
        ),
    ] = False
    lr_method: Annotated[
        Literal["logistic", "pav", "own"],
        Text(
            "how scores become log-likelihood ratios. `pav`: the step function that fits the calibration pairs best; "
            "`logistic`: a linear function; `own`: the score itself (`plda`)",
        ),
    ] = "pav"


class BayesParameters(EvidenceParameters):
    prior: Annotated[
        Rate | None,
        Text(
            "decide by Bayes' rule instead of at a false positive rate: the probability that a pair is the same "
            "before its score is known. Give exactly one of `fpr` and `prior`",
        ),
    ] = None
    cost_ratio: Annotated[
        float | None,
        Limits(above=0, maximum=1e12),
        Text(
            "with `prior`: the cost of a false match divided by the cost of a missed match; default: 1",
        ),
    ] = None


class PointParameters(Parameters):
    fpr: Annotated[Rate, Text("the highest false positive rate that you accept", example=0.01)]
    confidence: Annotated[
        Rate, Text("the confidence with which the bound holds", help="Confidence of the guarantee.")
    ] = 0.95
    method: Annotated[
        Literal["auto", "finite-sample", "bootstrap", "estimate"],
        Text(
            "`auto` and `finite-sample` hold for every sample size, or are refused (a policy may let `auto` "
            "answer by `bootstrap`); `bootstrap` is asymptotic; `estimate` guarantees nothing and states the bound "
            "that holds at its threshold",
            help="auto, finite-sample, bootstrap or estimate.",
        ),
    ] = "auto"
    calibration: Annotated[str | None, Text("id of a calibration; default: the version's own")] = None


class ThreeWayParameters(PointParameters):
    fnr: Annotated[
        Rate | None,
        Text(
            "also limit the false negative rate: pairs between the two thresholds are for `review`, and both "
            "limits hold with `confidence`",
            help="Also bound the false negative rate: pairs in between are for review.",
        ),
    ] = None
    simultaneous: Annotated[
        bool,
        Text(
            "guarantee all rates, and all versions calibrated on the same dataset version, at once, so that "
            "you may choose among them",
            help="Guarantee all rates at once, so that you may choose among rates and versions.",
        ),
    ] = False


class PointOfVersionParameters(ThreeWayParameters):
    left_samples: Annotated[
        int | None, Limits(minimum=1), Text("samples on one side, if subjects are compared; default: 1")
    ] = None
    right_samples: Annotated[int | None, Limits(minimum=1), Text("samples on the other side; default: 1")] = (
        None
    )
    aggregation: Annotated[
        Aggregation, Text("how subjects are compared; `auto`: the version's own choice")
    ] = "auto"


class SimilarityParameters(PairsParameters, EvidenceParameters):
    detail: Annotated[
        bool, Text("add `unlike`: the pairs with a row unlike those who calibrated, and which row of theirs")
    ] = False
    calibration: Annotated[
        str | None, Text("with `log_lr`: id of a calibration; default: the version's own")
    ] = None


class MatchParameters(PairsParameters, ThreeWayParameters, BayesParameters):
    fpr: Annotated[
        Rate | None,
        Text(
            "the highest false positive rate that you accept. Give exactly one of `fpr` and `prior`; "
            "otherwise the request is refused (422)",
            help="The false positive rate that you choose, as 0.01 or 1%.",
            example=0.01,
        ),
    ] = None  # type: ignore[assignment]
    detail: Annotated[
        bool,
        Text(
            "add `log10_fpr` to each score: how rare it is among different pairs. It can be compared across models"
        ),
    ] = False


class CandidatesOptions(Parameters):
    dataset: Annotated[
        str,
        Limits(longest=200),
        Text(
            "the table or tables that the pairs are of, as `name` or `name:version`",
        ),
    ]
    fpr: Annotated[
        Rate | None,
        Text(
            "decide too: the highest false positive rate that you accept among the different pairs of the list",
        ),
    ] = None
    confidence: Annotated[Rate, Text("confidence of the guarantee")] = 0.95


class CandidatesParameters(CandidatesOptions):
    pairs: Annotated[
        list[Annotated[list[str], Limits(shortest=2, longest=2)]],
        Limits(shortest=1, longest=1_000_000),
        Text(
            "the row ids of both sides of each pair, left first; 0-based rows where the dataset has no ids",
            example=[["a1", "b7"]],
        ),
    ]


class RankOptions(Parameters):
    top: Annotated[
        int | None,
        Limits(minimum=1),
        Text("return only this many labels, best first"),
    ] = None
    detail: Annotated[
        bool,
        Text(
            "add the confidence of the ranking and of each pair of labels",
        ),
    ] = False
    abstain: Annotated[
        float | None,
        Limits(minimum=0.5, maximum=1.0),
        Text(
            "keep only preferences with at least this confidence; labels without a clear order share a place",
        ),
    ] = None


class RankParameters(RankOptions):
    model: Any
    features: Any
