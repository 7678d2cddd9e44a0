"""Previews an upload without storing it: columns with roles, rows, identities and the smallest supported rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from pairmark.service.datasets.arrays import Npz
from pairmark.service.datasets.limits import Limits
from pairmark.service.datasets.profiles import Column, inferred, profiled
from pairmark.service.datasets.promises import Promise, ProtocolChoice, dataset_promise, protocol_choices
from pairmark.service.datasets.reader import read_dataset
from pairmark.service.datasets.schemas import DatasetRequest, Format
from pairmark.service.errors import InvalidInput, TooLarge


class ColumnOut(BaseModel):
    """A column (in npz: an array) and its role."""

    name: str
    kind: str = Field(description="number, text or vector; for npz, the array's type and shape")
    role: str = Field(
        description="feature, points, identity, classes, label, ranking, group, time, id or excluded"
    )
    inferred: bool = Field(description="whether the role was guessed instead of requested")
    distinct: int | None = Field(
        description="approximate number of different values in the first 20,000 rows; for the label column, the "
        "exact number in all rows"
    )
    empty: int | None
    examples: list[str]


class InspectionOut(BaseModel):
    """What would be read from a file. Nothing was stored."""

    format: Format
    columns: list[ColumnOut] = Field(description="at most the first 1,000")
    request: dict[str, Any] = Field(
        description="the roles to send to `POST /datasets`, together with `name` and `file`"
    )
    rows: int | None
    features: int | None
    n_labels: int | None
    label_counts: dict[str, int]
    ranking_labels: list[str]
    warnings: list[str]
    promise: Promise | None = Field(
        description="the smallest false positive rate that a job on this file could guarantee by default"
    )
    choices: list[ProtocolChoice] = Field(
        default_factory=list, description="what the labels may be, where a job would have to ask; else empty"
    )
    problem: str | None = Field(description="why the file would be refused as it is, and how to fix it")


def inspected(
    upload: Path,
    work: Path,
    *,
    kind: Format,
    request: DatasetRequest,
    limits: Limits,
    pairs: tuple[Path, str] | None = None,
) -> InspectionOut:
    """Read a file as `Datasets.add` would, roles that are not named inferred where that is possible."""
    scratch = work / "scratch"
    scratch.mkdir()
    asked, columns = request, _columns(upload, scratch, kind, request, limits)
    if kind in ("csv", "parquet"):
        profiles = profiled(upload, scratch, kind, request.header, limits)
        request = inferred(profiles, request)
        columns = [_column(one, request, asked) for one in profiles]
    out = work / "dataset"
    out.mkdir()
    chosen = request.model_dump(exclude={"name"}, exclude_defaults=True)
    if request.label_role != "label":
        del chosen["label"]
    try:
        stored, summary = read_dataset(
            upload, out, work / "read", kind=kind, request=request, limits=limits, spec={}, pairs=pairs
        )
    except (InvalidInput, TooLarge) as error:
        return InspectionOut(
            format=kind,
            columns=columns,
            request=chosen,
            rows=None,
            features=None,
            n_labels=None,
            label_counts={},
            ranking_labels=[],
            warnings=[],
            promise=None,
            problem=error.detail,
        )
    for column in columns:
        # The label is counted over all rows; the others by a sketch of the first ones.
        if column.name == request.label and column.distinct is not None:
            column.distinct = summary["n_labels"]
    return InspectionOut(
        format=kind,
        columns=columns,
        request=chosen,
        rows=stored.rows,
        features=stored.features,
        n_labels=summary["n_labels"],
        label_counts=dict(summary["label_counts"]),
        ranking_labels=summary["ranking_labels"],
        warnings=stored.warnings,
        promise=dataset_promise(summary, stored.rows),
        choices=protocol_choices(summary, stored.rows),
        problem=None,
    )


def _column(column: Column, request: DatasetRequest, asked: DatasetRequest) -> ColumnOut:
    return ColumnOut(
        name=column.name,
        kind=column.kind,
        role=_role(column.name, request),
        inferred=_role(column.name, request) != _role(column.name, asked),
        distinct=column.distinct,
        empty=column.empty,
        examples=list(column.examples),
    )


def _columns(
    upload: Path, scratch: Path, kind: str, request: DatasetRequest, limits: Limits
) -> list[ColumnOut]:
    """The arrays of an npz; what svmlight holds needs no telling."""
    if kind != "npz":
        return []
    folder = scratch / "arrays"
    folder.mkdir()
    points = request.points or "X"
    return [
        ColumnOut(
            name=name,
            kind=f"{dtype} {shape}",
            role="points"
            if name == points
            else request.label_role
            if name == (request.label or "y")
            else _role(name, request),
            inferred=request.label is None and name == "y",
            distinct=None,
            empty=None,
            examples=[],
        )
        for name, dtype, shape in Npz(upload, folder, limits).shapes()
    ]


def _role(name: str, request: DatasetRequest) -> str:
    roles = {
        request.label: request.label_role,
        request.group: "group",
        request.time: "time",
        request.id: "id",
    }
    if name in request.ranking:
        return "ranking"
    if name in request.exclude:
        return "excluded"
    return roles.get(name, "feature")
