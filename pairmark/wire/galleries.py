"""Answers about galleries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Record, Text
from pairmark.wire.scoring import ModelUsedFields


class GalleryModelFields(ModelUsedFields):
    name: str
    version: int
    kind: str | None = None


class GalleryFields(Record):
    name: str
    model: Annotated[GalleryModelFields, Text("the version that searches it")]
    moving_to: Annotated[GalleryModelFields | None, Text("the version for which it is being indexed")] = None
    dimension: int
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


class RowErrorFields(Record):
    row: Annotated[int, Text("0-based index in the request")]
    id: str | None = None
    detail: str


class UpsertFields(Record):
    upserted: int
    errors: Annotated[list[RowErrorFields], Text("the first 1,000 rows that were not stored")]
    n_errors: Annotated[int, Text("number of rows that were not stored")]


class ItemFields(Record):
    id: str
    subject: str | None = None
    metadata: dict[str, Any] | None = None
    vector: list[float] | None = None


class ReceiptFields(Record):
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


class HitFields(Record):
    id: Annotated[str | None, Text("the item's id; null if the subject was compared as a whole")]
    subject: str | None
    items: Annotated[int | None, Text("number of the subject's items, if it was compared as a whole")] = None
    score: Annotated[float | None, Text("absent for keys that may only decide")] = None
    match: bool | None = None
    decision: Annotated[Literal["match", "review"] | None, Text("with `fnr`")] = None


class SearchFields(Record):
    model: GalleryModelFields
    results: list[list[HitFields]]
    aggregation: Annotated[str | None, Text("how subjects were compared as a whole")] = None
    operating_point: dict[str, Any] | None = None
    warning: str | None = None


class VerificationFields(Record):
    model: GalleryModelFields
    subject: str
    match: Annotated[bool, Text("score > threshold, compared in float32")]
    decision: Annotated[
        Literal["match", "review", "different"] | None,
        Text(
            "with `fnr`. If the best of several items decides, the false negative rate is at most that of "
            "one item"
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
        float,
        Text(
            "bound for the whole verification; if the best item decides, the bound of one comparison times "
            "the number of items"
        ),
    ]
    warning: str | None = None
