"""Requests and answers about galleries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Limits, Parameters, Rate, Text
from pairmark.wire.scoring import Aggregation, ModelUsedFields, PointParameters


class GalleryModelFields(ModelUsedFields):
    name: str
    version: int
    kind: str | None = None


class GalleryFields(Fields):
    name: str
    model: Annotated[GalleryModelFields, Text("the version that searches it")]
    moving_to: Annotated[GalleryModelFields | None, Text("the version for which it is being indexed")] = None
    dimension: int
    columns: Annotated[
        dict[str, str] | None, Text("of records: the type of each column; null if the gallery holds vectors")
    ] = None
    items: int
    subjects: Annotated[int | None, Text("number of different subjects; absent in lists")] = None
    calibration: Annotated[
        str | None, Text("id of the newest calibration with the current version; absent in lists")
    ] = None
    evaluation: Annotated[str | None, Text("id of the newest evaluation; absent in lists")] = None
    sequence: Annotated[int, Text("a counter that increases with every row written or removed")]
    fields: Annotated[list[str], Text("metadata fields that a filter can use")]
    created_at: str
    updated_at: str


class RowErrorFields(Fields):
    row: Annotated[int, Text("0-based index in the request")]
    id: str | None = None
    detail: str


class UpsertFields(Fields):
    upserted: int
    errors: Annotated[list[RowErrorFields], Text("the first 1,000 rows that were not stored")]
    n_errors: Annotated[int, Text("number of rows that were not stored")]


class ItemFields(Fields):
    id: str
    subject: str | None = None
    metadata: dict[str, Any] | None = None
    vector: Annotated[list[float] | dict[str, Any] | None, Text("numbers, or the record")] = None


class ReceiptFields(Fields):
    gallery: str
    id: str | None = None
    subject: str | None = None
    items: Annotated[int, Text("number of items removed")]
    probes: Annotated[
        int,
        Text("number of the subject's kept probes that were removed from calibrations, with their scores"),
    ] = 0
    index_blocks: Annotated[
        int, Text("number of index files on this machine that contained the items and were removed")
    ]
    database: Annotated[str, Text("`sqlite` or `postgresql`")]
    database_complete: Annotated[bool, Text("whether the database's files no longer contain the data")]
    pending: Annotated[list[str], Text("what is still to be done, and when it happens")]
    models_with_training_rows: Annotated[
        list[GalleryModelFields],
        Text(
            "versions whose artefacts contain rows of their training data: train them again without the person"
        ),
    ]
    erased_at: str


class HitFields(Fields):
    id: Annotated[str | None, Text("the item's id; null if the subject was compared as a whole")]
    subject: str | None
    items: Annotated[int | None, Text("number of the subject's items, if it was compared as a whole")] = None
    score: Annotated[float | None, Text("absent for keys that may only decide")] = None
    match: bool | None = None
    decision: Annotated[Literal["match", "review"] | None, Text("with `fnr`")] = None


class CandidatesFields(Fields):
    scored: Annotated[int, Text("records that were scored for each query, those that share most with it")]
    recall: Annotated[
        float | None,
        Text(
            "share of items of subjects with several whose search scores another item of the subject, measured in "
            "this gallery in the background; null until then, or where no subject has two items"
        ),
    ]
    pairs: Annotated[int, Text("number of items that were searched for to measure it")]


class SearchFields(Fields):
    model: GalleryModelFields
    results: list[list[HitFields]]
    aggregation: Annotated[str | None, Text("how subjects were compared as a whole")] = None
    candidates: Annotated[
        CandidatesFields | None,
        Text("of a gallery of more records than are all scored; absent if everything was scored"),
    ] = None
    reasons: Annotated[
        list[str | None] | None,
        Text(
            "why a query matches nobody, whatever it scores: `unlike-calibration`; absent if none has a reason"
        ),
    ] = None
    unlike_items: Annotated[
        int | None, Text("enrolled items left out as unlike those of the calibration; absent if none")
    ] = None
    operating_point: dict[str, Any] | None = None
    warning: str | None = None
    warnings: Annotated[list[dict[str, str]] | None, Text("as of `/match`")] = None


class VerificationFields(Fields):
    model: GalleryModelFields
    subject: str
    match: Annotated[bool, Text("score > threshold, compared in float32; never where there is a `reason`")]
    reason: Annotated[str | None, Text("as of `/match`")] = None
    unlike: Annotated[list[str] | None, Text("which rows: `probe[0]`, `item ID`")] = None
    decision: Annotated[
        Literal["match", "review", "different"] | None,
        Text(
            "with `fnr`. If the best of several items decides, the false negative rate is at most that of one item"
        ),
    ] = None
    score: Annotated[
        float | None,
        Text(
            "score of the probe with the subject as a whole or, if `aggregation` is null, with its best "
            "item; absent for keys that may only decide"
        ),
    ] = None
    id: Annotated[str, Text("the item that scored best")]
    items: Annotated[int, Text("number of items compared")]
    operating_point: dict[str, Any]
    aggregation: Annotated[
        str | None, Text("how the subject was compared as a whole; null: its best item decided")
    ] = None
    fpr_upper_bound: Annotated[
        float | None,
        Text(
            "bound for the whole verification; if the best item decides, the bound of one comparison times "
            "the number of items; absent where nothing is guaranteed"
        ),
    ] = None
    warning: str | None = None
    warnings: Annotated[list[dict[str, str]] | None, Text("as of `/match`")] = None


class ImportParameters(Parameters):
    prefix: Annotated[str, Limits(longest=256), Text("raw float32: the prefix of all ids")] = ""
    first: Annotated[
        int, Limits(minimum=0, below=2**53), Text("raw float32: the number in the first row's id")
    ] = 0
    id: Annotated[str, Limits(longest=256), Text("CSV, Parquet: column of ids")] = "id"
    subject: Annotated[
        str,
        Limits(longest=256),
        Text("CSV, Parquet: column of subjects"),
    ] = "subject"
    metadata: Annotated[
        str | None, Limits(longest=4096), Text("CSV, Parquet: columns kept as metadata, joined by commas")
    ] = None


class SearchOptions(Parameters):
    k: Annotated[
        int,
        Limits(minimum=1),
        Text("largest number of results per query"),
    ] = 10
    filter: Annotated[
        dict[str, Any] | None,
        Text(
            'metadata that items must match: `{"site": "north"}`, `{"site": {"in": ["north", "south"]}}`, '
            '`{"year": {"gte": 2020, "lt": 2024}}`. It is applied before the search',
        ),
    ] = None
    group_by: Annotated[
        Literal["subject"] | None,
        Text("`subject`: one result per subject. Without `aggregation` it is the subject's best item"),
    ] = None
    aggregation: Annotated[
        Aggregation | None,
        Text(
            "with `group_by`: compare each subject as a whole, by all of its items; `auto` is what the version "
            "chose in training for different numbers of samples, else `plda` if the model has it, otherwise `mean`. "
            "`fpir` needs a calibration with the same `aggregation`"
        ),
    ] = None
    fpir: Annotated[
        Rate | None,
        Text(
            "return only matches, at this false positive identification rate of the whole search",
        ),
    ] = None
    fpr: Annotated[
        Rate | None,
        Text(
            "return only matches, at this false positive rate of each comparison",
        ),
    ] = None
    fnr: Annotated[
        Rate | None,
        Text(
            "with `fpr`: also limit the false negative rate of each comparison. Items between the two "
            "thresholds are returned for review. `confidence` is the confidence that both limits hold",
        ),
    ] = None
    confidence: Annotated[Rate, Text("the confidence with which the bound holds")] = 0.95
    refs: Any


class SearchParameters(SearchOptions):
    queries: Any


class VerifyParameters(PointParameters):
    aggregation: Annotated[
        Aggregation | None,
        Text(
            "compare the subject as a whole in this way, or refuse. Default: `auto` if the calibration "
            "supports the subject's number of items; otherwise the best item decides"
        ),
    ] = None
    fnr: Annotated[
        Rate | None,
        Text(
            "also limit the false negative rate: `decision` is `review` between the two thresholds, and both "
            "limits hold with `confidence`"
        ),
    ] = None


class ProbesParameters(Parameters):
    dataset: Annotated[
        str | None, Limits(longest=200), Text("`name` or `name:version`; its labels are subjects")
    ] = None
    vectors: Annotated[
        list[list[float]] | list[dict[str, Any]] | None, Text("n vectors of d numbers, or n records")
    ] = None
    subjects: Annotated[list[str] | None, Text("the subject of each vector")] = None
    random_state: Annotated[
        int, Limits(minimum=0, maximum=2**32 - 1), Text("seed that draws one probe per subject")
    ] = 0
    aggregation: Annotated[
        Aggregation | None,
        Text(
            "measure searches that compare subjects as a whole (`group_by: subject` with this `aggregation`)"
        ),
    ] = None


class GalleryCalibrationParameters(ProbesParameters):
    keep_probes: Annotated[
        bool,
        Text(
            "keep the probes' vectors (never shown; erased with their subject), so that thresholds follow every write "
            "and erasure. Without them, `fpir` is refused once more than a tenth of the gallery has changed"
        ),
    ] = True


class GalleryEvaluationParameters(ProbesParameters):
    max_rank: Annotated[int, Limits(minimum=1, maximum=100), Text("highest rank of the CMC")] = 20
    fpir: Annotated[list[Rate], Limits(longest=20), Text("false positive identification rates to report")] = [
        0.01,
        0.05,
        0.1,
    ]
    confidence: Rate = 0.95
    leave_one_out: Annotated[
        bool,
        Text(
            "also search for every enrolled subject among the others",
        ),
    ] = False
