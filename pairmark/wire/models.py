"""Requests and answers about learners, models, versions and calibrations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pairmark.wire.base import Fields, Limits, Moment, Parameters, Text
from pairmark.wire.jobs import Groups, Listing, Protocol

LONGEST_REASON = 500
"""Characters of a reason that are kept."""
Imported = Literal["signed", "unsigned"]
"""How a calibration came in a file."""


class LearnerFields(Fields):
    kind: str
    title: str
    capabilities: Annotated[
        list[str], Text("some of `similarity`, `match`, `search`, `embed`, `classify`, `rank-labels`")
    ]
    needs: Annotated[str, Text("what the dataset must contain: identities or rankings")]
    accepts_sparse: bool
    takes_unlabelled: Annotated[bool, Text("whether a job may name a dataset in `unlabelled`")]
    ignores_unknown: Annotated[
        bool,
        Text(
            "whether sparse vectors may have columns that training did not have. They are ignored and "
            "counted in `pairmark_unknown_columns_total` at `/metrics`; other kinds refuse them"
        ),
    ]
    params: Annotated[dict[str, Any], Text("JSON Schema of `params` in POST /jobs")]


class AliasFields(Fields):
    model: str
    alias: str
    version: int
    revision: int
    updated_at: Moment


class CalibrationFields(Fields):
    id: str
    name: str
    model: Annotated[str | None, Text("null for scores of another system")]
    version: int | None
    dataset_sha256: str | None
    protocol: str
    summary: Annotated[dict[str, Any], Text("pairs, units, and the smallest rate each method supports")]
    imported: Annotated[
        Imported | None,
        Text(
            "whether it came in a file: `signed` with the service's import key, or `unsigned`, which "
            "guarantees nothing; null: it was made here"
        ),
    ] = None
    created_at: Moment


class LineageFields(Fields):
    dataset: str | None
    dataset_sha256: str | None
    job: str | None
    code_version: str
    artefact_sha256: str


class VersionSummaryFields(Fields):
    version: int
    kind: str
    capabilities: list[str]
    aliases: list[str]
    calibration_id: str | None
    created_at: Moment


class VersionFields(VersionSummaryFields):
    model: str
    title: str
    params: dict[str, Any]
    n_features: int
    feature_names: Annotated[list[str] | None, Text("at most the first 1,000")]
    metrics: Annotated[dict[str, Any], Text("measured on held-out pairs; intervals resample units")]
    lineage: LineageFields
    facts: Annotated[
        dict[str, Any],
        Text("sizes of the training, test and calibration parts, the protocol, and bytes on disk"),
    ]
    calibrations: list[CalibrationFields]
    promise: Any
    has_roc: bool
    has_tree: bool
    reviews: Annotated[list[str], Text("what reviews of decisions of this version alone have shown")] = []


class ModelFields(Fields):
    name: str
    created_at: Moment
    latest_version: int
    policy: Any
    aliases: list[AliasFields]
    versions: Annotated[
        list[VersionSummaryFields],
        Text("newest first, at most 100; for more, use `GET /models/{name}/versions`"),
    ]


class SeenPointFields(Fields):
    fpr: Annotated[float, Text("the requested rate")]
    calibration_id: Annotated[str, Text("the calibration that the threshold comes from")]
    threshold: float | None = None
    method: str | None = None
    confidence: float | None = None
    seen_fpr: Annotated[
        float | None, Text("share of different pairs that matched; every person has the same weight")
    ] = None
    seen_tpr: Annotated[
        float | None, Text("share of same pairs that matched; every person has the same weight")
    ] = None
    refused: Annotated[str | None, Text("why the calibration gives no threshold for this rate")] = None


class EvaluationFields(Fields):
    model: str
    version: int
    dataset: str
    dataset_sha256: str
    protocol: str
    metrics: dict[str, Any]
    roc: Any
    operating_points: list[SeenPointFields]
    overlap: Any
    inputs: Annotated[
        dict[str, int] | None,
        Text(
            "`rows` measured, and how many are `unlike` those of the calibration, so that their pairs never match"
        ),
    ] = None
    warnings: list[str]


class AliasParameters(Parameters):
    version: Any
    reason: Annotated[
        str | None,
        Limits(longest=LONGEST_REASON),
        Text(
            "why the alias moves; kept in its history and the audit log",
            help="The reason, for the alias's history and the audit log.",
        ),
    ] = None


class MeasureParameters(Parameters):
    dataset: Annotated[
        str,
        Limits(longest=200),
        Text("`name` or `name:version`; training data in it are counted and reported"),
    ]
    protocol: Annotated[
        Protocol, Text("`auto`: the protocol of the version's training", help="auto, open-set or closed-set.")
    ] = "auto"
    n_pairs: Annotated[
        int | None, Limits(minimum=2), Text("largest number of pairs to score; default: 200,000")
    ] = None
    groups: Groups = "together"
    random_state: Annotated[
        int, Limits(minimum=0, maximum=2**32 - 1), Text("draws the pairs that are measured")
    ] = 0


class VersionCalibrationParameters(MeasureParameters):
    dataset: Annotated[
        str,
        Limits(longest=200),
        Text("`name` or `name:version`; it must not contain training data of the version"),
    ]
    random_state: Annotated[
        int,
        Limits(minimum=0, maximum=2**32 - 1),
        Text("accepted for earlier callers: no seed moves a threshold"),
    ] = 0
    listing: Listing = None
    default: Annotated[
        bool | None, Text("use it for `/match` from now on; default: only if the version has no calibration")
    ] = None
