"""Requests and answers about datasets."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Parameters, Read, Text

MAX_LISTED_LABELS = 100
MAX_LISTED_FEATURES = 1_000


class RecordColumnFields(Fields):
    name: str
    type: str
    format: str | None
    reason: Annotated[str, Text("what speaks for the type")]
    examples: list[str]
    warnings: Annotated[list[str], Text("cells to look at, with row numbers from 1")]
    missing: int
    distinct: int


class DatasetFields(Fields):
    id: str
    name: str
    version: int
    sha256: Annotated[str, Text("SHA-256 of the uploaded file")]
    format: str
    rows: int
    features: int
    sparse: bool
    feature_names: Annotated[list[str], Text(f"the first {MAX_LISTED_FEATURES}")]
    label: Annotated[str | None, Text("the column or array of the identities; null: the rows are unlabelled")]
    label_role: str
    n_labels: Annotated[int, Text("distinct identities or classes")]
    n_repeated_labels: Annotated[int, Text("identities with at least two rows")]
    label_counts: Annotated[dict[str, int], Text(f"rows of the {MAX_LISTED_LABELS} most frequent labels")]
    n_groups: int
    ranking_labels: Annotated[list[str], Text("the labels that are ranked; empty without rankings")]
    n_pairs: Annotated[int, Text("number of explicit pairs")]
    n_same_pairs: int
    n_drawn_different: Annotated[
        int, Text("explicit pairs that were drawn at random (`drawn_from`) and are different")
    ] = 0
    population: Annotated[
        int | None, Text("number of pairs that they were drawn from; null: no pair was drawn")
    ] = None
    warnings: list[str]
    columns: Annotated[
        list[RecordColumnFields] | None,
        Text("the columns of a table of records with their types; null: the dataset holds vectors"),
    ] = None
    promise: Any
    choices: list[Any]
    size_bytes: Annotated[int, Text("size of the stored files")]
    created_at: str
    chosen: Annotated[
        bool, Text("whether the pairs were chosen by looking at them: they may train, and calibrate nothing")
    ] = False
    existing: Annotated[bool, Text("true: the newest version already has the same content")] = False


Format = Literal["csv", "parquet", "npz", "svmlight"]


def not_blank(value: Any) -> Any:
    """None for a form's field that is blank."""
    return None if isinstance(value, str) and not value.strip() else value


def _as_list(value: Any) -> Any:
    """Forms send lists as JSON or as names joined by commas."""
    if value is None:
        return []
    if isinstance(value, str):
        if value.lstrip().startswith("["):
            try:
                return json.loads(value)
            except (ValueError, RecursionError):
                pass
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


ColumnName = Annotated[str | None, Read(not_blank)]
ColumnNames = Annotated[list[str], Read(_as_list)]


class ReadingParameters(Parameters):
    format: Annotated[
        Format | None,
        Read(not_blank),
        Text(
            "csv, parquet, npz or svmlight; default: by the file's extension (.csv, .tsv, .parquet, .npz, "
            ".svm; .gz too)",
            help="csv, parquet, npz or svmlight. Default: by the file's extension.",
        ),
    ] = None
    identity: Annotated[
        ColumnName,
        Text(
            "column of the people or things that the rows are of, where new ones will join: open-set, "
            "whatever their number (npz: an array such as `y`; svmlight: `target`)",
            help="Column of people or things that new ones will join (open-set).",
        ),
    ] = None
    classes: Annotated[
        ColumnName,
        Text(
            "column of the classes of the rows, where there will be these and no others: closed-set "
            "(npz: an array such as `y`; svmlight: `target`)",
            help="Column of classes: these and no others will occur (closed-set).",
        ),
    ] = None
    label: Annotated[
        ColumnName,
        Text(
            "column of the identity or class, where you do not say which: jobs then take 30 values or more "
            "for identities, and ask below that. Never guessed in CSV and Parquet; npz: the array `y` "
            "if there is one; svmlight: the target (0 in front of every line: the rows are unlabelled)",
            help="Column of either. With fewer than 30 values, train asks which.",
        ),
    ] = None
    ranking: Annotated[
        ColumnNames,
        Text(
            "one column of rankings such as `b>a>c`, `b>a=c` or `b>c`; or several position columns (in forms joined by "
            "commas), one a label, smaller is better, empty = absent; npz: a (rows, labels) array of positions",
            help="Ranking column, or (repeated) the position columns.",
        ),
    ] = []
    group: Annotated[
        ColumnName,
        Text(
            "column of groups that are never split between training and held-out data",
            help="Column of groups. A split keeps the rows of a group together.",
        ),
    ] = None
    time: Annotated[
        ColumnName,
        Text(
            "column with the time of each row, as numbers or ISO 8601 dates; reports then state missed "
            "matches by the time between two samples",
            help="Column with the time of each row: numbers, or dates in ISO 8601.",
        ),
    ] = None
    id: Annotated[
        ColumnName,
        Text(
            "column of row ids, which a pairs file may refer to",
            help="Column of row ids that a pairs file refers to.",
        ),
    ] = None
    exclude: Annotated[
        ColumnNames,
        Text("columns to leave out (in forms joined by commas)", help="Column to leave out (repeatable)."),
    ] = []
    columns: Any
    header: Annotated[
        bool,
        Text(
            "CSV: whether the first line contains column names",
            help="CSV: the first line is data, not column names.",
        ),
    ] = True


class DatasetParameters(ReadingParameters):
    unlabelled: Annotated[
        bool,
        Text(
            "accept rows without labels, rankings or pairs, for learners that also use unlabelled rows; "
            "labels in the file are ignored",
            help="Accept rows without labels, for learners that use them.",
        ),
    ] = False
