"""What an upload would become: a preview of a dataset, with the roles that nobody named inferred."""

import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pairmark.models.records.inference import ColumnNotes, is_id_name, notes_of
from pairmark.models.records.schema import number_of
from pairmark.schemas.datasets import ColumnOut, DatasetRequest, InspectionOut, RecordColumnOut
from pairmark.service.datasets.confined import Upload
from pairmark.service.datasets.files import Npz
from pairmark.service.datasets.guarantees import dataset_guarantee, protocol_choices
from pairmark.service.datasets.reader import read_dataset
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.datasets.writer import as_text
from pairmark.service.errors import InvalidInput, TooLarge

_FEATURE = "feature"
_LABEL = re.compile(
    r"(label|class|target|y|who|person|people|identity|subject|user|customer|client|employee|patient|member|name|species)"
    r"([ _.-]?(id|name))?",
    re.I,
)
_RANKING = re.compile(r"[^>=]+([>=][^>=]+)*>[^>]+")
_MOSTLY_DISTINCT = 0.9
"""Share of different values from which on a column that is named like an id is one."""


def inspect_upload(upload: Upload, work: Path) -> InspectionOut:
    """Read a file as `Datasets.add` would, roles that are not named inferred where that is possible."""
    requested_roles = upload.request.roles
    scratch, out = work / "scratch", work / "dataset"
    scratch.mkdir()
    out.mkdir()
    if upload.is_table:
        # 1. A sample says what columns look like, and what they are for where nobody said that.
        with closing(
            TableFile(upload.file, scratch, upload.kind, upload.limits, header=upload.request.header)
        ) as file:
            sample, kinds = file.sample(), dict(zip(file.names, file.kinds(), strict=True))
        sampled = [
            _Column(note, sample[note.column.name], kinds[note.column.name]) for note in notes_of(sample, {})
        ]
        if upload.request.columns is None:
            upload = upload.model_copy(update={"request": _with_guesses(upload.request, sampled)})
        roles = upload.request.roles
        columns = [
            ColumnOut(
                name=column.name,
                kind=column.kind,
                role=roles.get(column.name, _FEATURE),
                inferred=roles.get(column.name, _FEATURE) != requested_roles.get(column.name, _FEATURE),
                distinct=column.note.distinct,
                empty=column.note.missing,
                examples=list(column.note.examples),
            )
            for column in sampled
        ]
    else:
        columns = _arrays(upload, scratch)
    # 2. The whole file is read in that way; why it cannot be stands beside the columns as the sample had them.
    request = upload.request
    form = request.model_dump(exclude={"name"}, exclude_defaults=True)
    if request.label_role != "label":
        del form["label"]
    try:
        data, summary = read_dataset(upload, out, work / "read")
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
        # 3. Of records all rows have been looked at: what they say of a column goes before the sample.
        notes = [RecordColumnOut(**entry) for entry in summary["columns"]]
        named = requested_roles.keys() | (request.columns or {}).keys()
        columns = [
            ColumnOut(
                name=entry.name,
                kind=entry.format or entry.type,
                role=request.roles.get(entry.name, "excluded" if entry.type == "ignore" else entry.type),
                inferred=entry.name not in named,
                distinct=entry.distinct,
                empty=entry.missing,
                examples=entry.examples,
            )
            for entry in notes
        ]
        # A type that is sent makes values of words such as N/A: those columns are inferred again.
        form["columns"] = {
            entry.name: f"date:{entry.format}" if entry.format else entry.type
            for entry in notes
            if not entry.placeholders or entry.name in (request.columns or {})
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
        rows=len(data),
        features=data.n_features,
        n_labels=summary["n_labels"],
        label_counts=dict(summary["label_counts"]),
        ranking_labels=summary["ranking_labels"],
        warnings=summary["warnings"],
        promise=dataset_guarantee(summary, len(data)),
        choices=protocol_choices(summary, len(data)),
        problem=None,
    )


class _Column:
    """A column of a sample: its name, what it is taken for, and whether it holds numbers, vectors or texts."""

    def __init__(self, note: ColumnNotes, cells: Sequence[Any], kind: str) -> None:
        self.name, self.note, self.n = note.column.name, note, len(cells)
        texts = [as_text(cell) or "" for cell in cells if cell is not None]
        numbers = [number_of(text) for text in texts] if kind == "number" else []
        self.kind = "text" if kind == "number" and (not texts or None in numbers) else kind
        self.is_whole = all(number is None or number.is_integer() for number in numbers)
        orders = [text for text in texts if ">" in text]
        self.is_ranking = 2 * len(orders) > len(texts) and all(map(_RANKING.fullmatch, orders))

    @property
    def may_be_label(self) -> bool:
        """Whether values come again, as those of identities and classes do."""
        return self._is_discrete and 1 < self.note.distinct < self.n - self.note.missing

    @property
    def is_id(self) -> bool:
        """Whether a column only identifies rows."""
        unique = self.note.distinct >= _MOSTLY_DISTINCT * (self.n - self.note.missing)
        return self.note.column.type == "id" or (self._is_discrete and unique and is_id_name(self.name))

    @property
    def _is_discrete(self) -> bool:
        return self.kind == "text" or (self.kind == "number" and self.is_whole)


def _with_guesses(request: DatasetRequest, columns: Sequence[_Column]) -> DatasetRequest:
    """The request with the roles that it does not name: label or ranking, and row ids; other ids are left out."""
    free = [column for column in columns if column.name not in request.roles]
    changes: dict[str, Any] = {}
    if not request.label and not request.ranking and not request.unlabelled:
        rankings = [column.name for column in free if column.is_ranking]
        labels = [column for column in free if column.may_be_label]
        texts = [column.name for column in labels if column.kind == "text"]
        named = [column.name for column in labels if _LABEL.fullmatch(column.name)]
        if len(rankings) == 1:
            changes["ranking"] = rankings
        elif named or len(texts) == 1:
            changes["label"] = (named or texts)[0]
    taken = {changes.get("label"), *changes.get("ranking", [])}
    ids = [column.name for column in free if column.is_id and column.name not in taken]
    if not request.id and len(ids) == 1:
        changes["id"] = ids.pop()
    changes["exclude"] = [*request.exclude, *ids]
    return request.model_copy(update=changes)


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
            kind=f"{array.dtype} {array.shape}",
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
        for name, array in Npz(upload.file, folder, upload.limits).arrays.items()
    ]
