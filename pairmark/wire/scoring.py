"""Answers about scores, decisions, labels and rankings."""

from __future__ import annotations

from typing import Annotated, Any

from pairmark.wire.base import Record, Text
from pairmark.wire.models import Imported

ORIGIN_TEXT = (
    "how the calibration pairs came about: `all` pairs of the units, `drawn` by Pairmark, listed at "
    "`random`, inside of `blocks`, `independent` of each other, a random sample of a `population`; or, with "
    "nothing guaranteed, `unknown`, `unnamed` (no units), `assumed` (people were guessed) or "
    "`imported` (in a file that is not signed)"
)
IMPORTED_TEXT = (
    "whether the calibration came in a file: `signed`, or `unsigned`, which guarantees nothing; null: "
    "it was made here"
)


class ModelUsedFields(Record):
    name: str
    version: int
    kind: str | None


class OperatingPointFields(Record):
    fpr: Annotated[float, Text("the requested rate")]
    threshold: Annotated[float, Text("a float32 value")]
    fpr_upper_bound: Annotated[
        float,
        Text(
            "the true rate is at most this, with the stated confidence. For `method=estimate` it is the "
            "finite-sample bound at the threshold, or 1 if there is none"
        ),
    ]
    confidence: float
    method: Annotated[str, Text("finite-sample, bootstrap or estimate")]
    tpr: Annotated[float | None, Text("share of same pairs that match at this threshold")]
    tpr_interval: list[float] | None
    n_units: Annotated[
        int, Text("number of independent people (open-set) or samples (closed-set) that it is based on")
    ]
    n_negative_pairs: int
    observed_fpr: Annotated[float, Text("the rate on the calibration pairs at this threshold")]
    n_independent: Annotated[int, Text("number of pairs that share no unit; `finite-sample` counts these")]
    origin: Annotated[str, Text(ORIGIN_TEXT)]
    population: Annotated[
        dict[str, int] | None,
        Text(
            "whom the promise is about where that is a stated set: closed-set, the number of `classes` among "
            "which it holds; with `finite-population`, its `pairs`, and how many of them were `judged`"
        ),
    ] = None
    price: Annotated[
        dict[str, Any] | None,
        Text(
            "near the fewest units that the rate takes: `tpr` to expect over the random number that the "
            "service draws for these people, `low` and `high` (nine in ten lie between), and `steady_units`, the "
            "number of units from which it hardly plays a part; null elsewhere"
        ),
    ] = None
    number: Annotated[
        int | None,
        Text(
            "this calibration's number among those on people in common, from 1; a pointwise guarantee is not "
            "for the best of several"
        ),
    ] = None
    imported: Annotated[Imported | None, Text(IMPORTED_TEXT)] = None
    simultaneous: Annotated[
        bool, Text("whether the guarantee holds for all rates at once or only for this one")
    ]
    candidate: Annotated[
        int | None,
        Text("with `simultaneous`: this version's number among those calibrated on people in common"),
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
    aggregation: Annotated[str | None, Text("for subjects: how their samples are compared")] = None


class ExplanationFields(Record):
    model: ModelUsedFields
    score: float
    explanation: Annotated[
        dict[str, Any], Text("for trees, the path; for weighted metrics, the contributions of the features")
    ]


class ClassesFields(Record):
    model: ModelUsedFields
    labels: Annotated[list[str], Text("the most probable label of each point, as the dataset names it")]
    probabilities: Annotated[
        list[dict[str, float]], Text("for each point, the probability of every label; they sum to 1")
    ]


class RankingFields(Record):
    labels: list[str]
    positions: Annotated[
        dict[str, float],
        Text(
            "0-based positions; with `abstain`, labels without a clear order share the middle of their "
            "positions"
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


class RankingsFields(Record):
    model: ModelUsedFields
    rankings: list[RankingFields]
