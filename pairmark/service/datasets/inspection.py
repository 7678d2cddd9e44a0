"""What an upload would become: a preview of a dataset, with the roles that nobody named inferred."""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from pairmark.schemas.datasets import ColumnOut, InspectionOut, RecordColumnOut
from pairmark.service.datasets.confined import Upload
from pairmark.service.datasets.promises import dataset_promise, protocol_choices
from pairmark.service.datasets.reader import Npz, read_dataset
from pairmark.service.datasets.tabular import Column, TableFile, inferred, profiled
from pairmark.service.errors import InvalidInput, TooLarge

_FEATURE = "feature"


def inspected(upload: Upload, work: Path) -> InspectionOut:
    """Read a file as `Datasets.add` would, roles that are not named inferred where that is possible."""
    requested_roles = upload.request.roles
    scratch, out = work / "scratch", work / "dataset"
    scratch.mkdir()
    out.mkdir()
    if upload.is_table:
        with closing(
            TableFile(upload.file, scratch, upload.kind, upload.limits, header=upload.request.header)
        ) as file:
            profiles = profiled(file)
        if upload.request.columns is None:
            upload = replace(upload, request=inferred(profiles, upload.request))
        roles = upload.request.roles
        columns = [_column_out(profile, roles, requested_roles) for profile in profiles]
    else:
        columns = _arrays(upload, scratch)
    request = upload.request
    form = request.model_dump(exclude={"name"}, exclude_defaults=True)
    if request.label_role != "label":
        del form["label"]
    try:
        dataset, summary = read_dataset(upload, out, work / "read", spec={})
    except (InvalidInput, TooLarge) as error:
        return InspectionOut(
            format=upload.kind,
            columns=columns,
            request=form,
            rows=None,
            features=None,
            n_labels=None,
            label_counts={},
            ranking_labels=[],
            warnings=[],
            promise=None,
            problem=error.detail,
        )
    if summary.get("columns") is not None:
        notes = [RecordColumnOut(**each) for each in summary["columns"]]
        named = requested_roles.keys() | (request.columns or {}).keys()
        columns = [_record_column(each, request.roles, named) for each in notes]
        # A type that is sent makes values of words such as N/A: those columns are inferred again.
        form["columns"] = {
            each.name: f"date:{each.format}" if each.format else each.type
            for each in notes
            if not each.placeholders or each.name in (request.columns or {})
        }
    columns = [
        # The label is counted over all rows; the others by a sketch of the first ones.
        column.model_copy(update={"distinct": summary["n_labels"]})
        if column.name == request.label and column.distinct is not None
        else column
        for column in columns
    ]
    return InspectionOut(
        format=upload.kind,
        columns=columns,
        request=form,
        rows=dataset.rows,
        features=dataset.features,
        n_labels=summary["n_labels"],
        label_counts=dict(summary["label_counts"]),
        ranking_labels=summary["ranking_labels"],
        warnings=dataset.warnings,
        promise=dataset_promise(summary, dataset.rows),
        choices=protocol_choices(summary, dataset.rows),
        problem=None,
    )


def _record_column(note: RecordColumnOut, roles: Mapping[str, str], named: Set[str]) -> ColumnOut:
    return ColumnOut(
        name=note.name,
        kind=note.format or note.type,
        role=roles.get(note.name, "excluded" if note.type == "ignore" else note.type),
        inferred=note.name not in named,
        distinct=note.distinct,
        empty=note.missing,
        examples=note.examples,
    )


def _column_out(column: Column, roles: Mapping[str, str], requested_roles: Mapping[str, str]) -> ColumnOut:
    return ColumnOut(
        name=column.name,
        kind=column.kind,
        role=roles.get(column.name, _FEATURE),
        inferred=roles.get(column.name, _FEATURE) != requested_roles.get(column.name, _FEATURE),
        distinct=column.distinct,
        empty=column.empty,
        examples=list(column.examples),
    )


def _arrays(upload: Upload, scratch: Path) -> list[ColumnOut]:
    """The arrays of an npz; what svmlight holds needs no telling."""
    if upload.kind != "npz":
        return []
    request = upload.request
    folder = scratch / "arrays"
    folder.mkdir()
    roles = request.roles
    return [
        ColumnOut(
            name=name,
            kind=f"{dtype} {shape}",
            role="points"
            if name == "X"
            else request.label_role
            if name == (request.label or "y")
            else roles.get(name, _FEATURE),
            inferred=request.label is None and name == "y",
            distinct=None,
            empty=None,
            examples=[],
        )
        for name, dtype, shape in Npz(upload.file, folder, upload.limits).shapes()
    ]
