"""Answers about datasets."""

from __future__ import annotations

from typing import Annotated, Any

from pairmark.wire.base import Declaration, Text

MAX_LISTED_LABELS = 100
MAX_LISTED_FEATURES = 1_000


class RecordColumnFields(Declaration):
    name: str
    type: str
    format: str | None
    reason: Annotated[str, Text("what speaks for the type")]
    examples: list[str]
    warnings: Annotated[list[str], Text("cells to look at, with row numbers from 1")]
    missing: int
    distinct: int


class DatasetFields(Declaration):
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
