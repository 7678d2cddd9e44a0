"""From an uploaded file, whatever its format, to a dataset's folder, or to a preview of one."""

from __future__ import annotations

import io
import json
import math
import shlex
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.inputs import OPEN_SET_FROM, label_of, like_labels, refuse_placeholders
from pairmark.models.pairs.splits import contradictory_pairs
from pairmark.models.records.cells import canonical
from pairmark.models.records.inference import Inference, infer
from pairmark.models.records.schema import FieldType, RecordError, Schema
from pairmark.schemas.datasets import (
    MAX_LISTED_FEATURES,
    MAX_LISTED_LABELS,
    ColumnOut,
    DatasetRequest,
    Format,
    InspectionOut,
    RecordColumnOut,
)
from pairmark.service.datasets.confined import (
    UNREADABLE_HEAD,
    FileLimits,
    TableForm,
    Upload,
    checked_members,
    damage_refused,
)
from pairmark.service.datasets.data import DatasetPairs, naming_features, naming_warning
from pairmark.service.datasets.promises import dataset_promise, protocol_choices
from pairmark.service.datasets.tabular import (
    Column,
    Table,
    TableFile,
    fetched,
    inferred,
    plain_text,
    profiled,
    text_features,
)
from pairmark.service.datasets.writer import (
    MAX_RANKED,
    Block,
    DatasetWriter,
    RankingColumn,
    Stored,
    as_text,
    name_list,
)
from pairmark.service.errors import InvalidInput, PairmarkError, TooLarge
from pairmark.service.settings import MIB

_NUMBERED = 10
"""Rows from which numbers that go up by one are taken for a count of the rows."""
_RISING = 0.95
"""Share of the steps from row to row from which on a feature numbers the rows; few may repeat a number or miss one."""
_GLANCED = 1_000
"""Rows by which features that cannot be a count are told apart, before all rows are read."""
FORMATS: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
}


def format_of(request_format: Format | None, filename: str | None) -> Format:
    """The format that was named, or else that of the file's extension."""
    if request_format is not None:
        return request_format
    suffix = Path((filename or "").lower().removesuffix(".gz")).suffix
    if suffix not in FORMATS:
        raise InvalidInput(
            f"the file name does not say the format: {(filename or '')[-60:]!r}; expected format = csv, parquet, npz "
            f"or svmlight, or one of the extensions {', '.join(FORMATS)}",
            field="format",
        )
    return FORMATS[suffix]


def read_dataset(
    upload: Upload, out: Path, scratch: Path, *, spec: dict[str, Any]
) -> tuple[Stored, dict[str, Any]]:
    """Parse an upload into the empty folder ``out``: what was stored, and its summary for lists and details.

    Parameters
    ----------
    spec : what the caller wants recorded next to the data.
    """
    scratch.mkdir(exist_ok=True)
    kind, limits = upload.kind, upload.limits
    texts: list[str] = []
    notes: list[RecordColumnOut] | None = None
    row_of: tuple[dict[str, int], dict[str, int]] | None = None
    warnings: list[str] = []
    with ExitStack() as stack:
        if upload.is_table:
            header = upload.request.header
            file = TableFile(upload.file, scratch / "table", kind, limits, header=header)
            stack.enter_context(closing(file))
            if upload.request.columns is None:
                texts = text_features(file, upload.request)
                if texts or upload.right is not None:
                    upload = replace(upload, request=upload.request.model_copy(update={"columns": {}}))
        elif upload.request.columns is not None:
            raise InvalidInput(
                f"columns are those of CSV and Parquet; {kind} holds numbers: leave it out", field="columns"
            )
        request = upload.request
        labelled = bool(request.label or request.ranking or request.unlabelled or upload.pairs)
        if request.columns is not None:
            records, writer, notes = _from_records(upload, file, out, scratch)
            blocks, row_of = iter([records.block]), records.row_of
            if records.one_sided:
                warnings.append(
                    f"not compared, since only one of the tables has them: {name_list(records.one_sided)}. Name them "
                    "alike where they hold the same"
                )
            if not labelled and records.block.labels is None:
                _refuse_unlabelled("no column is of type identity or classes")
        elif upload.is_table:
            table = Table(file, request)
            if not labelled:
                _refuse_unlabelled(f"the columns are {name_list(table.roles.names)}")
            writer, blocks, warnings = _from_table(table, out, limits)
        elif kind == "npz":
            npz = Npz(upload.file, scratch, limits)
            if not labelled and "y" not in npz:
                _refuse_unlabelled(f"the arrays are {name_list(sorted(npz.names))}")
            writer, blocks, warnings = _from_npz(npz, out, request, limits)
        else:
            writer, blocks, warnings = _from_svmlight(upload.file, out, scratch, request, limits)
        stack.callback(writer.close)
        for block in blocks:
            writer.add(block)
        if writer.rows == 0:
            raise InvalidInput("the file has no rows; expected at least one row of data")
        read = None
        if upload.pairs is not None:
            path, form = upload.pairs
            left_of, right_of = row_of or (writer.row_of(), None)
            read = read_pairs(
                path, scratch / "pairs", form, limits, rows=writer.rows, row_of=left_of, right_row_of=right_of
            )
            warnings += contradictions(read)
        dataset = writer.finish(read, spec, None if row_of is None else len(row_of[0]))
    dataset.warnings[:0] = warnings
    if 0 < len(texts) < sum(each.type == "number" for each in notes or ()):
        dataset.warnings.append(
            f"read as records, since not only numbers are in {name_list(texts)}. Exclude such columns to learn from "
            f"vectors ({_exclusions(texts)})"
        )
    dataset.warnings += [f"column {each.name!r}: {line}" for each in notes or () for line in each.warnings]
    if upload.is_table and request.columns is None:
        dataset.warnings += _numbering_warnings(out, dataset.feature_names or [])
    summary = _summary(dataset, kind, request, spec, read)
    if notes is not None:
        summary["columns"] = [each.model_dump(mode="json") for each in notes]
        identity = next((each for each in notes if each.type in ("identity", "classes")), None)
        if identity is not None and dataset.label_counts.size and request.label is None:
            summary["label"], summary["label_role"] = identity.name, identity.type
    _check_labels(dataset, summary["label_role"])
    if dataset.label_counts.size and not dataset.sparse:
        X: Any = np.load(out / "X.npy", mmap_mode="r") if notes is None else records.block.X
        schema = None if notes is None else records.inference.schema
        names = dataset.feature_names or [f"x{at}" for at in range(dataset.features)]
        dataset.warnings += naming_warning(naming_features(X, np.load(out / "y.npy"), names, schema))
    return dataset, summary


def _check_labels(dataset: Stored, role: str) -> None:
    """Refuse people who are called ``N/A`` and the like, and warn of labels that are spelled alike."""
    if role == "identity" or (role == "label" and len(dataset.identities) >= OPEN_SET_FROM):
        try:
            refuse_placeholders(dataset.identities, dataset.label_counts, "rows")
        except ValueError as error:
            raise InvalidInput(str(error), field="label") from None
    alike = like_labels(dataset.identities)
    if alike is not None:
        dataset.warnings.append(alike)


def _refuse_unlabelled(there: str) -> NoReturn:
    raise InvalidInput(
        f"no label is named and {there}: name the column that says whose a row is as `identity` (--identity: new ones "
        "will join), `classes` (--classes: these and no others) or `label` (either), rankings as `ranking`, or a file "
        "of `pairs`; to store rows without any, for learners that use them, send `unlabelled` (--unlabelled)",
        field="label",
    )


def _summary(
    dataset: Stored, kind: str, request: DatasetRequest, spec: dict[str, Any], pairs: DatasetPairs | None
) -> dict[str, Any]:
    """JSON-able facts of what was written; ``spec`` are the roles that were asked for."""
    top = np.lexsort((np.arange(dataset.label_counts.size), -dataset.label_counts))[:MAX_LISTED_LABELS]
    names = dataset.feature_names or [f"x{column}" for column in range(min(dataset.features, 1_000))]
    return {
        "spec": spec,
        "format": kind,
        "sparse": dataset.sparse,
        "feature_names": names[:MAX_LISTED_FEATURES],
        "label": request.label or ({"npz": "y", "svmlight": "target"}.get(kind) if top.size else None),
        "label_role": request.label_role,
        "n_labels": len(dataset.identities),
        "n_repeated_labels": int((dataset.label_counts >= 2).sum()),
        # A list, since JSONB forgets the order of keys.
        "label_counts": [[dataset.identities[code], int(dataset.label_counts[code])] for code in top],
        "n_groups": len(dataset.group_names),
        "ranking_labels": dataset.label_names,
        **pair_counts(pairs),
        "warnings": dataset.warnings,
    }


def _numbering_warnings(folder: Path, names: Sequence[str]) -> list[str]:
    """What a stored table says about features that count its rows."""
    X: Any = np.load(folder / "X.npy", mmap_mode="r", allow_pickle=False)
    if len(X) < _NUMBERED or len(X) > 2**24:
        return []
    strides = np.diff(X[:: max(len(X) // _GLANCED, 1)], axis=0)
    numbering = [
        names[at]
        for at in np.flatnonzero((strides > 0).mean(axis=0) >= _RISING).tolist()
        if at < len(names) and (np.diff(X[:, at]) == 1).mean() >= _RISING
    ]
    if not numbering:
        return []
    return [
        f"features that number the rows: {name_list(numbering)}. Exclude them, unless order means something "
        f"({_exclusions(numbering)})"
    ]


def _exclusions(names: Sequence[str]) -> str:
    return " ".join(f"--exclude {shlex.quote(name)}" for name in names)


def _from_table(
    table: Table, out: Path, limits: FileLimits
) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
    warnings = list(table.roles.warnings)
    ranking = None
    label_names = None
    if len(table.roles.ranking) == 1:
        ranking = RankingColumn(table.ranking_texts())
        label_names = ranking.labels
        # Files of rankings often carry each label's position too: as features those would give the answer away.
        dropped = table.drop_features(set(ranking.labels))
        if dropped:
            warnings.append(
                f"columns named like the ranked labels are left out of the features: {name_list(dropped)}"
            )
    elif table.roles.ranking:
        label_names = [table.roles.names[number] for number in table.roles.ranking]
        if len(label_names) > MAX_RANKED:
            raise TooLarge(f"the rankings order {len(label_names)} labels; at most {MAX_RANKED} are taken")
    names = table.feature_names
    writer = DatasetWriter(out, limits, len(names), names, label_names=label_names)
    return writer, table.blocks(ranking), warnings


def _from_records(
    upload: Upload, file: TableFile, out: Path, scratch: Path
) -> tuple[RecordTable, DatasetWriter, list[RecordColumnOut]]:
    table = read_records(upload, file, scratch)
    schema = table.inference.schema
    names = [column.name for column in schema.fields]
    writer = DatasetWriter(
        out, upload.limits, len(names), names, schema=schema, label_names=table.label_names
    )
    return table, writer, column_notes(table.inference)


def _from_npz(
    npz: Npz, out: Path, request: DatasetRequest, limits: FileLimits
) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
    X = npz.points()
    rows, width = (int(size) for size in X.shape)
    if len(request.ranking) > 1:
        raise InvalidInput("ranking: name one array of shape (rows, labels)", field="ranking")
    label = request.label or ("y" if "y" in npz and not request.unlabelled else None)
    array_of = {"labels": label, "groups": request.group, "ids": request.id}
    texts = {field: npz.texts(name, rows) for field, name in array_of.items() if name}
    rankings = label_names = None
    if request.ranking:
        rankings = npz.get(request.ranking[0], 2, rows)
        if rankings.dtype.kind not in "fiu":
            raise InvalidInput(
                f"array {request.ranking[0]!r} holds {rankings.dtype}; expected positions", field="ranking"
            )
        count = int(rankings.shape[1])
        if not 2 <= count <= MAX_RANKED:
            raise InvalidInput(f"rankings order {count} labels; expected 2 to {MAX_RANKED}", field="ranking")
        label_names = _names(npz, "label_names", count) or [str(number) for number in range(count)]
    names = _names(npz, "feature_names", width)
    titles = names or [f"x{column}" for column in range(width)]
    feature_columns = [column for column in range(width) if titles[column] not in request.exclude]
    for name in request.exclude:
        if name not in titles and name not in npz:
            raise InvalidInput(f"exclude: there is no feature {name[:100]!r} in the npz", field="exclude")
    if len(feature_columns) < width:
        names = [titles[column] for column in feature_columns]

    def blocks() -> Iterator[Block]:
        for start, part in row_blocks(X):
            stop = start + part.shape[0]
            yield Block(
                X=part if len(feature_columns) == width else part[:, feature_columns],
                rankings=None if rankings is None else np.asarray(rankings[start:stop], dtype=np.float64),
                **{field: values[start:stop].tolist() for field, values in texts.items()},
            )

    sparse = not isinstance(X, np.ndarray)
    writer = DatasetWriter(out, limits, len(feature_columns), names, sparse=sparse, label_names=label_names)
    return writer, blocks(), []


def _names(npz: Npz, name: str, count: int) -> list[str] | None:
    if name not in npz:
        return None
    names = [as_text(value) or "" for value in npz.texts(name, count).tolist()]
    if len(set(names)) != count or not all(0 < len(text) <= 1_000 and "\x00" not in text for text in names):
        raise InvalidInput(f"array {name!r}: expected {count} different names", field=name)
    return names


def _from_svmlight(
    file: Path, out: Path, scratch: Path, request: DatasetRequest, limits: FileLimits
) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
    unused = {"ranking": request.ranking, "exclude": request.exclude, "id": request.id}
    for field, value in unused.items():
        if value:
            raise InvalidInput(
                f"svmlight has no columns to name as {field}; send CSV, Parquet or npz", field=field
            )
    if request.label not in (None, "y", "target", "label"):
        raise InvalidInput("svmlight keeps the label in front of each line; leave `label` out", field="label")
    if request.group not in (None, "qid"):
        raise InvalidInput("svmlight keeps groups as qid; leave `group` out or send qid", field="group")
    X, y, query = svmlight_rows(plain_text(file, scratch, limits))
    if request.group == "qid" and not query.size:
        raise InvalidInput("no line has a qid; expected `label qid:7 1:0.5`", field="group")
    labels = None if request.unlabelled else y.tolist()
    writer = DatasetWriter(out, limits, int(X.shape[1]), sparse=True)
    block = Block(X=X, labels=labels, groups=query.tolist() if query.size else None)
    return writer, iter([block]), []


_ROLES: dict[str, tuple[FieldType, ...]] = {
    "label": ("identity", "classes"),
    "group": ("group",),
    "id": ("id",),
}
"""Types of the columns of each role; the first is what a column gets that is named for it."""
_NOTES = ("reason", "examples", "warnings", "missing", "placeholders", "distinct")


class RecordTable(NamedTuple):
    """A table as it was read: its schema with what speaks for it, and all its rows."""

    inference: Inference
    block: Block
    label_names: list[str] | None = None
    row_of: tuple[dict[str, int], dict[str, int]] | None = None
    """Row id -> row of the left and the right table, where there are two."""
    one_sided: Sequence[str] = ()
    """Columns that only one of two tables has."""


def read_records(upload: Upload, file: TableFile, scratch: Path) -> RecordTable:
    """CSV or Parquet as records; `InvalidInput` names row and column of a cell that is not of its column's type."""
    request, limits = upload.request, upload.limits
    table, n, one_sided = _tables(upload, file, scratch)
    n_rows = len(next(iter(table.values())))
    if n_rows == 0:
        raise InvalidInput("the file has no rows; expected at least one row of data")
    size = sum(len(cell) for cells in table.values() for cell in cells if isinstance(cell, str))
    if n_rows > limits.rows or size > limits.stored_bytes:
        raise TooLarge(
            f"{n_rows} rows with {size} bytes of text; at most {limits.rows} rows and {limits.stored_bytes} bytes"
        )
    labels, positions = _rankings(table, request.ranking)
    # Files of rankings often carry each label's position too: as fields those would give the answer away.
    beside = table.keys() & set(labels or ())
    try:
        inference = infer(
            table, dict.fromkeys(one_sided, "ignore") | _types(request) | dict.fromkeys(beside, "ignore")
        )
        cells = inference.schema.read(table)
    except RecordError as error:
        first = error.problems[0]
        facts = {} if first["row"] is None else {"row": first["row"]}
        raise InvalidInput(str(error), column=first["column"], **facts) from error
    empty = inference.schema.empty_rows(cells)
    if empty.size:
        raise InvalidInput(
            f"row {empty[0] + 1} {inference.schema.no_cell}: leave out the {empty.size:,} of {n_rows:,} rows",
            row=int(empty[0]) + 1,
        )
    columns = {role: _column(inference.schema, role, types, request) for role, types in _ROLES.items()}
    if request.unlabelled:
        columns["label"] = None
    _refuse_missing(table, [name for role, name in columns.items() if name is not None])
    texts: dict[str, Any] = {f"{role}s": table[name] for role, name in columns.items() if name is not None}
    if upload.right is None:
        return RecordTable(inference, Block(X=cells, rankings=positions, **texts), labels)
    ids = texts.get("ids")
    if ids is None:
        raise InvalidInput(
            "two tables need a column of type id, which the pairs name rows by", field="columns"
        )
    sides = [
        {str(row_id): row for row, row_id in enumerate(ids) if (row >= n) == later} for later in (False, True)
    ]
    if len(sides[0]) + len(sides[1]) != n_rows:
        raise InvalidInput("row ids repeat within a table; expected a different one in every row", field="id")
    if sides[0].keys() & sides[1].keys():
        texts["ids"] = [f"{'right' if row >= n else 'left'}:{row_id}" for row, row_id in enumerate(ids)]
    block = Block(X=cells, rankings=positions, **texts)
    return RecordTable(inference, block, labels, (sides[0], sides[1]), one_sided)


def _tables(upload: Upload, file: TableFile, scratch: Path) -> tuple[dict[str, list[Any]], int, list[str]]:
    """The cells of one table, or of two with the second one's rows last; how many rows the first of two has; and
    columns that one of two lacks. Columns of two are one by name, else by spelling: ``Last Name`` is ``last_name``."""
    table = _cells(upload.request, file)
    if upload.right is None:
        return table, 0, []
    path, kind = upload.right
    header = upload.request.header
    with closing(TableFile(path, scratch / "right", kind, upload.limits, header=header)) as right:
        right_table = _cells(upload.request, right)
    name_of = {_spelling(name): name for name in table if name not in right_table}
    for name in [name for name in right_table if name not in table and _spelling(name) in name_of]:
        right_table[name_of.pop(_spelling(name))] = right_table.pop(name)
    n, m = (len(next(iter(side.values()))) for side in (table, right_table))
    names = dict.fromkeys([*table, *right_table])
    joined = {name: [*table.get(name, [None] * n), *right_table.get(name, [None] * m)] for name in names}
    return joined, n, sorted(table.keys() ^ right_table.keys())


def _spelling(name: str) -> str:
    return "".join(char for char in name.casefold() if char.isalnum())


def _types(request: DatasetRequest) -> dict[str, str]:
    """The types that a request names, by column."""
    by_column = {**dict.fromkeys(request.exclude, "ignore"), **(request.columns or {})}
    for role, types in _ROLES.items():
        name = getattr(request, role)
        if name is not None and by_column.get(name) not in types:
            by_column[name] = types[0]
    return by_column | dict.fromkeys(request.ranking, "ignore")


def _refuse_missing(table: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
    """Refuse labels, groups and ids that some rows lack."""
    for name in names:
        rows = [row for row, cell in enumerate(table[name], start=1) if not (as_text(cell) or "").strip()]
        if rows:
            raise InvalidInput(
                f"column {name!r}: {len(rows):,} of {len(table[name]):,} cells are empty, the first in row {rows[0]} "
                "(fill them in, or leave the rows out)",
                row=rows[0],
                column=name,
            )


def _rankings(table: Mapping[str, Sequence[Any]], names: Sequence[str]) -> tuple[list[str] | None, Any]:
    """Labels and their positions, of one column of rankings or a column of positions for each label."""
    if len(names) == 1:
        cells = [None if cell is None else str(cell) for cell in table[names[0]]]
        column = RankingColumn(sorted({cell for cell in cells if cell}))
        return column.labels, column.positions(cells, 0)
    if not names:
        return None, None
    positions = np.empty((len(table[names[0]]), len(names)))
    for at, name in enumerate(names):
        for row, cell in enumerate(table[name]):
            try:
                value = canonical(cell, "number")
            except ValueError as error:
                raise InvalidInput(
                    f"row {row + 1}, column {name!r} {error}", row=row + 1, column=name
                ) from None
            positions[row, at] = np.nan if value is None else value
    return list(names), positions


def column_notes(inference: Inference) -> list[RecordColumnOut]:
    """What each column was taken for, as answers show it."""
    return [
        RecordColumnOut(**dict(notes.column), **{name: vars(notes)[name] for name in _NOTES})
        for notes in inference.notes
    ]


def _cells(request: DatasetRequest, file: TableFile) -> dict[str, list[Any]]:
    # The index of a data frame is left out unless it is named.
    named = dict.fromkeys([*_types(request), *request.ranking], "ignore")
    return Table(file, request=DatasetRequest(name=request.name, columns=named), as_cells=True).cells()


def _column(schema: Schema, role: str, types: Sequence[FieldType], request: DatasetRequest) -> str | None:
    """The one column of a role: the one that was named, else the one whose type says so."""
    column_name: str | None = getattr(request, role)
    there = [name for kind in types for name in schema.of_type(kind)]
    if column_name is not None:
        return column_name
    if len(there) > 1:
        raise InvalidInput(
            f"columns {', '.join(map(repr, there[:5]))} are all of type {types[0]}; expected one: give the others "
            "another type",
            field="columns",
        )
    return there[0] if there else None


_CELLS = 2_000_000


class Npz:
    """The arrays of an ``.npz`` file, unpacked to disk and memory-mapped; objects are refused, nothing is unpickled."""

    def __init__(self, path: Path, scratch: Path, limits: FileLimits) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        damage = damage_refused("the npz file is truncated or damaged; save and send it again", "file")
        with damage, zipfile.ZipFile(path) as archive:
            members = checked_members(archive, limits.unpacked_bytes, limits.raised_by["unpacked_bytes"])
            for number, member in enumerate(members):
                name = member.filename.removesuffix(".npy")
                self._arrays[name] = _unpacked(archive, member, scratch / f"array{number}.npy", name)

    def __contains__(self, name: object) -> bool:
        return name in self._arrays

    @property
    def names(self) -> list[str]:
        return list(self._arrays)

    def shapes(self) -> list[tuple[str, str, str]]:
        """Name, type and shape of each array."""
        return [(name, str(array.dtype), str(array.shape)) for name, array in self._arrays.items()]

    def get(self, name: str, ndim: int, rows: int | None = None) -> NDArray[Any]:
        """One array of so many dimensions, and rows; `InvalidInput` when it is missing or of another shape."""
        if name not in self._arrays:
            raise InvalidInput(
                f"the npz has no array {name!r}; it has {', '.join(sorted(self._arrays)) or 'none'}",
                field="file",
            )
        array = self._arrays[name]
        if array.ndim != ndim or (rows is not None and array.shape[0] != rows):
            shape = f"{ndim} dimension(s)" + (
                "" if rows is None else f" and {rows} rows, as many as the points"
            )
            raise InvalidInput(f"array {name!r} has shape {array.shape}; expected {shape}", field=name)
        return array

    def texts(self, name: str, rows: int | None = None) -> NDArray[Any]:
        """A 1-dimensional array; a column vector is taken too."""
        array = self._arrays.get(name)
        if array is not None and array.ndim == 2 and array.shape[1] == 1:
            self._arrays[name] = array[:, 0]
        return self.get(name, 1, rows)

    def points(self) -> NDArray[Any] | csr_array:
        """The array ``X``, or the CSR arrays."""
        if "X" in self._arrays:
            X = self.get("X", 2)
            if X.dtype.kind not in "fiub":
                raise InvalidInput(f"array 'X' holds {X.dtype}; expected numbers", field="file")
            return X
        if "indptr" not in self._arrays:
            raise InvalidInput(
                f"the npz has arrays {', '.join(sorted(self._arrays)) or '(none)'}; expected 'X' of shape (rows, "
                "features), or 'data', 'indices', 'indptr' and 'shape' of a CSR matrix",
                field="file",
            )
        layout = self._arrays.get("format")
        if layout is not None and np.asarray(layout).item() not in (b"csr", "csr"):
            raise InvalidInput(
                "the sparse matrix is not CSR; convert it with .tocsr() and save again", field="file"
            )
        data, indices, indptr = (self.get(name, 1) for name in ("data", "indices", "indptr"))
        shape = self.get("shape", 1).tolist()
        try:
            sparse = csr_array((data, indices, indptr), shape=shape)
            sparse.check_format(full_check=True)
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidInput(
                f"data, indices, indptr and shape do not make a CSR matrix of numbers: {error}", field="file"
            ) from error
        if sparse.dtype.kind not in "fiub":
            raise InvalidInput(f"array 'data' holds {sparse.dtype}; expected numbers", field="file")
        return sparse


def row_blocks(X: NDArray[Any] | csr_array) -> Iterator[tuple[int, Any]]:
    """(first row, rows) in blocks of a few million numbers."""
    rows, width = X.shape
    if isinstance(X, np.ndarray):
        step = max(1, _CELLS // max(1, width))
    else:
        step = max(1, int(_CELLS * rows / max(1, X.nnz)))
    for start in range(0, rows, step):
        yield start, X[start : start + step]


def svmlight_rows(path: Path) -> tuple[csr_array, NDArray[Any], NDArray[Any]]:
    """Rows, labels and query ids (none where no line has one) of svmlight text; indices count from 0 or from 1, from 1
    when no index is 0."""
    # Costs a reader a second to import, and few uploads need it.
    from sklearn.datasets import load_svmlight_file

    try:
        X, y, query = load_svmlight_file(str(path), zero_based="auto", query_id=True, dtype=np.float64)
    except (ValueError, OverflowError, IndexError) as error:
        _refuse_svmlight(path, error)
    rows = X.shape[0]
    if X.nnz == 0 and not X.indices.size:
        raise InvalidInput("no line has a feature; expected lines such as `3 1:0.5 7:2`", field="file")
    if query.size not in (0, rows):
        raise InvalidInput("only some lines have a qid; expected it in all lines or in none", field="group")
    return csr_array(X), y, query


def _refuse_svmlight(path: Path, error: Exception) -> NoReturn:
    """Raise which line cannot be read: the file is halved until one is left."""
    from sklearn.datasets import load_svmlight_file

    lines = path.read_bytes().splitlines(keepends=True)
    first, n = 0, len(lines)
    while n > 1:
        half = n // 2
        try:
            load_svmlight_file(io.BytesIO(b"".join(lines[first : first + half])), zero_based=True)
        except (ValueError, OverflowError, IndexError):
            n = half
        else:
            first, n = first + half, n - half
    excerpt = lines[first][:60].decode("utf-8", "replace").strip()
    raise InvalidInput(
        f"line {first + 1} ({excerpt!r}) is not svmlight; expected `label index:value ...`, indices rising",
        line=first + 1,
    ) from error


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, name: str) -> NDArray[Any]:
    with archive.open(member) as packed, target.open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    try:
        array = np.load(target, mmap_mode="r", allow_pickle=False)
    except UNREADABLE_HEAD as error:
        raise InvalidInput(
            f"{name!r} in the npz is not a whole array of numbers or fixed-width strings (astype(str)); save and send "
            "it again",
            field=name,
        ) from error
    return np.asarray(array)


_LISTED = 20
"""Contradictory pairs that a warning names."""
_ROWS = 65_536
_TEXTS = ("left", "right", "left_unit", "right_unit")
_NUMBERS = {
    "same": "0 or 1",
    "weight": "a finite number, 0 or more",
    "drawn_from": "a whole number, 0 for a chosen pair",
}
_NAMES = "left, right, same and optionally weight, left_unit, right_unit and drawn_from"


def read_pairs(
    path: Path,
    scratch: Path,
    kind: str,
    limits: FileLimits,
    *,
    rows: int,
    row_of: dict[str, int] | None,
    right_row_of: dict[str, int] | None = None,
) -> DatasetPairs:
    """Read a CSV or Parquet file with columns ``left``, ``right``, ``same`` and perhaps ``weight``.

    ``drawn_from`` says that a pair was drawn at random of so many, which is one number throughout; 0: it was chosen.

    ``left_unit`` and ``right_unit``, numbers or texts, say which person each side belongs to, where the dataset has
    neither labels nor groups.

    Parameters
    ----------
    rows : how many points there are.
    row_of : row id -> row, where the dataset has an id column; else left and right are 0-based rows.
    right_row_of : the same for the right side, where that is a table of its own.
    """
    try:
        with closing(TableFile(path, scratch, kind, limits)) as file:
            return _checked(_columns_of(file, rows, {"left": row_of, "right": right_row_of or row_of}))
    except PairmarkError as error:
        raise type(error)(f"pairs file: {error.detail}", **{**error.facts, "field": "pairs"}) from error


def _columns_of(
    file: TableFile, rows: int, row_of: Mapping[str, dict[str, int] | None]
) -> dict[str, NDArray[Any]]:
    """The columns, rows and units as numbers."""
    names = file.columns.names
    units = [name for name in names if name in ("left_unit", "right_unit")]
    if not {"left", "right", "same"} <= set(names) <= {*_TEXTS, *_NUMBERS} or len(units) == 1:
        raise InvalidInput(f"columns are {name_list(names)}; expected a first line that names {_NAMES}")
    cells = [
        file.text(number) if name in _TEXTS else f"TRY_CAST({file.cells[number]} AS DOUBLE)"
        for number, name in enumerate(names)
    ]
    result = file.query(f"SELECT {', '.join(cells)} FROM {file.source}")
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in names}
    codes: dict[str, int] = {}
    first = 0
    for block in fetched(result, _ROWS, file.refuse):
        # Texts become row numbers block by block: all of them at once would take too much memory.
        for name, values in zip(names, zip(*block, strict=True), strict=True):
            if name in row_of:
                columns[name].append(_rows(values, name, rows, row_of[name], first))
            elif name in units:
                columns[name].append(_units(values, name, codes, first))
            else:
                columns[name].append(_numbers(values, name, first))
        first += len(block)
    if not first:
        raise InvalidInput("no pairs; expected columns left, right, same and one pair a line")
    whole = {name: np.concatenate(parts) for name, parts in columns.items()}
    if units:
        try:
            sides = np.concatenate([whole[name] for name in units])
            refuse_placeholders(codes, np.bincount(sides), "sides of pairs")
        except ValueError as error:
            raise InvalidInput(str(error)) from None
    return whole


def _checked(columns: Mapping[str, NDArray[Any]]) -> DatasetPairs:
    """The pairs, or `InvalidInput` that names the first that cannot be one."""
    left, right, same, weight = (columns.get(name) for name in ("left", "right", "same", "weight"))
    assert left is not None
    assert right is not None
    assert same is not None
    _refuse_first((same != 0) & (same != 1), "same", same)
    if weight is not None:
        _refuse_first(~(np.isfinite(weight) & (weight >= 0)), "weight", weight)
        if not weight.any():
            raise InvalidInput("every weight is 0; expected some above")
    own = np.flatnonzero(left == right)
    if own.size:
        _refuse(int(own[0]), "left and right are the same row; expected two rows")
    truth = same == 1
    if truth.all() or not truth.any():
        raise InvalidInput(
            f"every pair has same={int(truth[0])}; expected some that are the same and some that are not"
        )
    has_units = "left_unit" in columns
    return DatasetPairs(
        left=left,
        right=right,
        same=truth,
        weight=weight,
        units=np.stack([columns["left_unit"], columns["right_unit"]], axis=1) if has_units else None,
        drawn_from=_draws(columns["drawn_from"]) if "drawn_from" in columns else None,
    )


def pair_counts(pairs: DatasetPairs | None) -> dict[str, Any]:
    """What a dataset's summary says of its pairs."""
    drawn = None if pairs is None else pairs.drawn_from
    return {
        "n_pairs": 0 if pairs is None else pairs.same.size,
        "n_same_pairs": 0 if pairs is None else int(pairs.same.sum()),
        "n_drawn_different": 0 if pairs is None or drawn is None else int(((drawn > 0) & ~pairs.same).sum()),
        "population": None if pairs is None else pairs.population,
    }


def _draws(drawn_from: NDArray[Any]) -> NDArray[np.int64]:
    """How many pairs each was drawn from, held against the sample: one list, at least as long as what was drawn."""
    drawn = drawn_from != 0
    n = int(drawn.sum())
    population = drawn_from[drawn][0] if n else 0
    _refuse_first(
        ~(np.isfinite(drawn_from) & (drawn_from >= 0) & (drawn_from % 1 == 0)), "drawn_from", drawn_from
    )
    same_list = f"{population:g} as before: all that were drawn are of one list"
    _refuse_first(drawn & (drawn_from != population), "drawn_from", drawn_from, same_list)
    _refuse_first(drawn & (drawn_from < n), "drawn_from", drawn_from, f"at least {n}, as so many were drawn")
    return drawn_from.astype(np.int64)


def contradictions(pairs: DatasetPairs) -> list[str]:
    """A warning that lists pairs marked different whose rows are one person's by the others, if there are any."""
    wrong = contradictory_pairs(pairs.left, pairs.right, pairs.same, pairs.units)
    if not wrong.size:
        return []
    lines = ", ".join(f"{number + 1:,}" for number in wrong[:_LISTED])
    lines += f" and {wrong.size - _LISTED:,} more" if wrong.size > _LISTED else ""
    return [
        f"pairs marked different although other pairs make their rows one person's: {wrong.size:,}, row {lines}. An "
        "open-set job refuses them: correct them, or leave them out"
    ]


def _numbers(values: Sequence[Any], name: str, first: int) -> NDArray[np.float64]:
    if None in values:
        _refuse(first + values.index(None), f"{name} is no number; expected {_NUMBERS[name]}")
    return np.array(values, dtype=np.float64)


def _units(values: Sequence[Any], name: str, codes: dict[str, int], first: int) -> NDArray[np.int64]:
    """Codes of the units on one side of some pairs; new ones are added."""
    units = np.empty(len(values), dtype=np.int64)
    for pair, value in enumerate(values):
        text = as_text(value)
        if text is None or not text.strip():
            _refuse(first + pair, f"{name} is empty; expected a number or a text")
        units[pair] = codes.setdefault(label_of(text), len(codes))
    return units


def _rows(
    texts: Sequence[Any], side: str, rows: int, row_of: dict[str, int] | None, first: int
) -> NDArray[np.int64]:
    positions = np.empty(len(texts), dtype=np.int64)
    for pair, text in enumerate(texts, first):
        if row_of is not None:
            row = row_of.get(as_text(text) or "", -1)
            if row < 0:
                _refuse(pair, f"{side} is {str(text)[:50]!r}, which is not a row id of the dataset")
        else:
            word = (as_text(text) or "").strip()
            row = int(word) if word.isdecimal() and len(word) < 18 else -1
            if not 0 <= row < rows:
                _refuse(
                    pair,
                    f"{side} is {str(text)[:50]!r}; expected a row from 0 to {rows - 1} (to use row ids, name their "
                    "column as id)",
                )
        positions[pair - first] = row
    return positions


def _refuse_first(
    wrong: NDArray[np.bool_], name: str, values: NDArray[Any], expected: str | None = None
) -> None:
    if wrong.any():
        at = int(wrong.argmax())
        _refuse(at, f"{name} is {values[at]:g}; expected {expected or _NUMBERS[name]}")


def _refuse(pair: int, detail: str) -> NoReturn:
    raise InvalidInput(f"row {pair + 1}: {detail}", row=pair + 1)


_FEATURE = "feature"


def inspected(upload: Upload, work: Path) -> InspectionOut:
    """Read a file as `Datasets.add` would, roles that are not named inferred where that is possible."""
    requested_roles = _roles(upload.request)
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
        roles = _roles(upload.request)
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
        columns = [_record_column(each, _roles(request), named) for each in notes]
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
    roles = _roles(request)
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


def _roles(request: DatasetRequest) -> dict[str, str]:
    """The role of each column that has one; all others are features."""
    by_column = {
        request.label: request.label_role,
        request.group: "group",
        request.id: "id",
    }
    roles = {name: role for name, role in by_column.items() if name is not None}
    roles |= dict.fromkeys(request.exclude, "excluded")
    return roles | dict.fromkeys(request.ranking, "ranking")


_LONGEST_CELL = 1_024
_MOST_JSON = 32 * MIB
"""Of the lists that a table stands for: more of a body at once would keep the event loop too long."""
_TRUTHS = {"1": True, "true": True, "0": False, "false": False}
_CELLS_EXPECTED = {
    "score": "a finite number",
    "same": "1 or true (same), 0 or false (different)",
    "match": "1 or true (match), 0 or false (no match)",
}


def write_as_json(
    stream: object,
    send: object,
    limits: FileLimits,
    *,
    upload: str,
    scratch: str,
    kind: str,
    members: Mapping[str, str],
    form: Mapping[str, Any],
    out: str,
) -> None:
    """Write the JSON body that a CSV or Parquet file and the members beside it stand for."""
    table = TableForm(**form)
    most = limits.rows if table.most is None else table.most
    rows: list[tuple[Any, ...]] = []
    with closing(TableFile(Path(upload), Path(scratch), kind, limits)) as file:
        names = file.columns.names
        wrong = [f"{name!r} is missing" for name in table.columns if name not in (*names, *table.optional)]
        wrong += [f"{name[:60]!r} is not read here" for name in names if name not in table.columns]
        if wrong:
            raise InvalidInput(
                f"column {wrong[0]}; expected a first line that names {table.expected}; the file has "
                f"{name_list(names)}",
                field="file",
            )
        cells = [file.text(number, _LONGEST_CELL + 1) for number in range(len(names))]
        result = file.query(f"SELECT {', '.join(cells)} FROM {file.source}")
        for block in fetched(result, _ROWS, file.refuse):
            rows += block
            if len(rows) > most:
                raise TooLarge(f"the file has more than {most} rows; send it in parts", limit=most)
    if not rows:
        raise InvalidInput("the file has no rows; expected at least one", field="file")
    lists: dict[str, list[Any]] = {
        table.columns[name]: [_json_cell(name, value, row) for row, value in enumerate(column)]
        for name, column in zip(names, zip(*rows, strict=True), strict=True)
    }
    if table.objects is not None:
        objects = [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]
        lists = {table.objects: objects}
    body: dict[str, Any] = {**members, **lists}
    if table.within is not None:
        refs = list(zip(lists.pop("left"), lists.pop("right"), strict=True))
        body = {**members, table.within: {"refs": refs, **lists}}
    text = json.dumps(body)
    if len(text) > _MOST_JSON:
        raise TooLarge(
            f"the rows take {len(text)} bytes as JSON; at most {_MOST_JSON} are taken: send fewer rows, or shorter "
            "names",
            limit=_MOST_JSON,
        )
    Path(out).write_text(text)


def _json_cell(column: str, value: Any, row: int) -> Any:
    """A cell as JSON has it; None where it is empty."""
    text = as_text(value)
    if text is None:
        return None
    if column == "score":
        with suppress(ValueError):
            if math.isfinite(number := float(value)):
                return number
    elif column in ("same", "match") and text.lower() in _TRUTHS:
        return _TRUTHS[text.lower()]
    elif column not in ("same", "match") and len(text) <= _LONGEST_CELL:
        return text
    expected = _CELLS_EXPECTED.get(column, f"at most {_LONGEST_CELL} characters")
    raise InvalidInput(f"{column}[{row}] is {text[:50]!r}; expected {expected}", field=f"{column}[{row}]")
