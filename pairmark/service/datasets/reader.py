"""From an uploaded file, whatever its format, to a dataset's folder."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.inputs import OPEN_SET_FROM, like_labels, refuse_placeholders
from pairmark.models.records.cells import canonical
from pairmark.models.records.inference import Inference, infer
from pairmark.models.records.schema import FieldType, RecordError, Schema
from pairmark.schemas.datasets import (
    MAX_LISTED_FEATURES,
    MAX_LISTED_LABELS,
    DatasetRequest,
    RecordColumnOut,
)
from pairmark.service.datasets.confined import (
    UNREADABLE_HEAD,
    FileLimits,
    Upload,
    checked_members,
    damage_refused,
)
from pairmark.service.datasets.data import DatasetPairs
from pairmark.service.datasets.pairs import contradictions, facts_of_list, pair_counts, read_pairs
from pairmark.service.datasets.tabular import (
    Table,
    TableFile,
    plain_text,
    text_features,
)
from pairmark.service.datasets.troubles import exclusions, naming_warnings, numbering_warnings
from pairmark.service.datasets.writer import (
    MAX_RANKED,
    Block,
    DatasetWriter,
    RankingColumn,
    Stored,
    as_text,
    name_list,
)
from pairmark.service.errors import InvalidInput, TooLarge


@dataclass(kw_only=True)
class _Source:
    """A file that is open: its rows, what writes them, and what is known of it.

    Attributes
    ----------
    request : how it is read. notes : what each column of a table of records was taken for.
    records : the cells of such a table, with their schema. texts : columns for which a table is one.
    """

    request: DatasetRequest
    writer: DatasetWriter
    blocks: Iterator[Block]
    warnings: list[str] = field(default_factory=list)
    notes: list[RecordColumnOut] | None = None
    records: RecordTable | None = None
    texts: list[str] = field(default_factory=list)

    @property
    def row_of(self) -> tuple[dict[str, int], dict[str, int]] | None:
        """Row id -> row of the left and the right table, where there are two."""
        return None if self.records is None else self.records.row_of

    def pairs(self, upload: Upload, scratch: Path) -> DatasetPairs | None:
        """The pairs that go with the rows, once these were read."""
        if upload.pairs is None:
            return None
        (path, form), n_rows = upload.pairs, self.writer.rows
        left_of, right_of = self.row_of or (self.writer.row_of(), None)
        return read_pairs(
            path, scratch / "pairs", form, upload.limits, rows=n_rows, row_of=left_of, right_row_of=right_of
        )


def read_dataset(
    upload: Upload, out: Path, scratch: Path, *, spec: dict[str, Any]
) -> tuple[Stored, dict[str, Any]]:
    """Parse an upload into the empty folder ``out``: what was stored, and its summary for lists and details.

    Parameters
    ----------
    spec : what the caller wants recorded next to the data.
    """
    scratch.mkdir(exist_ok=True)
    with ExitStack() as stack:
        source = _opened(upload, out, scratch, stack)
        stack.callback(source.writer.close)
        for block in source.blocks:
            source.writer.add(block)
        if source.writer.rows == 0:
            raise InvalidInput("the file has no rows; expected at least one row of data")
        pairs = source.pairs(upload, scratch)
        dataset = source.writer.finish(pairs, spec, None if source.row_of is None else len(source.row_of[0]))
    dataset.warnings[:0] = source.warnings + ([] if pairs is None else contradictions(pairs))
    # The list of warnings is the summary's too.
    dataset.warnings += _warnings_of_columns(source)
    summary = _summary(dataset, upload.kind, source.request, spec, pairs)
    if pairs is not None and pairs.population is None:
        summary["listed"] = facts_of_list(pairs, out, dataset.warnings)
    if source.notes is not None:
        summary |= _facts_of_columns(source.notes, source.request, dataset)
    _check_labels(dataset, summary["label_role"])
    dataset.warnings += _warnings_of_features(source, dataset, out)
    return dataset, summary


def _opened(upload: Upload, out: Path, scratch: Path, stack: ExitStack) -> _Source:
    """The file, read as its format and its columns say; it is open until the stack is left."""
    request, kind, limits = upload.request, upload.kind, upload.limits
    if upload.is_table:
        file = TableFile(upload.file, scratch / "table", kind, limits, header=request.header)
        stack.enter_context(closing(file))
        texts = text_features(file, request) if request.columns is None else []
        if request.columns is not None or texts or upload.right is not None:
            request = request.model_copy(update={"columns": request.columns or {}})
            return _from_records(replace(upload, request=request), file, out, scratch, texts)
        table = Table(file, request)
        if not upload.is_labelled:
            _refuse_unlabelled(f"the columns are {name_list(table.roles.names)}")
        return _from_table(table, out, request, limits)
    if request.columns is not None:
        raise InvalidInput(
            f"columns are those of CSV and Parquet; {kind} holds numbers: leave it out", field="columns"
        )
    if kind == "npz":
        npz = Npz(upload.file, scratch, limits)
        if not upload.is_labelled and "y" not in npz:
            _refuse_unlabelled(f"the arrays are {name_list(sorted(npz.names))}")
        return _from_npz(npz, out, request, limits)
    return _from_svmlight(upload.file, out, scratch, request, limits)


def _facts_of_columns(
    notes: Sequence[RecordColumnOut], request: DatasetRequest, dataset: Stored
) -> dict[str, Any]:
    """What a summary says of the columns of records, and of the label where one of them is it without being named."""
    facts: dict[str, Any] = {"columns": [each.model_dump(mode="json") for each in notes]}
    identity = next((each for each in notes if each.type in ("identity", "classes")), None)
    if identity is not None and dataset.label_counts.size and request.label is None:
        facts |= {"label": identity.name, "label_role": identity.type}
    return facts


def _warnings_of_columns(source: _Source) -> list[str]:
    """What the columns of records look like, and why they are records."""
    notes, texts = source.notes or [], source.texts
    warnings = [f"column {each.name!r}: {line}" for each in notes for line in each.warnings]
    if not 0 < len(texts) < sum(each.type == "number" for each in notes):
        return warnings
    as_records = (
        f"read as records, since not only numbers are in {name_list(texts)}. Exclude such columns to learn from "
        f"vectors ({exclusions(texts)})"
    )
    return [as_records, *warnings]


def _warnings_of_features(source: _Source, dataset: Stored, folder: Path) -> list[str]:
    """What the stored features give away."""
    if dataset.sparse:
        return []
    records = source.records
    X: Any = np.load(folder / "X.npy", mmap_mode="r") if records is None else records.block.X
    schema = None if records is None else records.inference.schema
    names = dataset.feature_names or [f"x{at}" for at in range(dataset.features)]
    warnings = numbering_warnings(X, names, schema)
    if dataset.label_counts.size:
        warnings += naming_warnings(X, np.load(folder / "y.npy"), names, schema)
    return warnings


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


def _from_table(table: Table, out: Path, request: DatasetRequest, limits: FileLimits) -> _Source:
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
    return _Source(request=request, writer=writer, blocks=table.blocks(ranking), warnings=warnings)


def _from_records(upload: Upload, file: TableFile, out: Path, scratch: Path, texts: list[str]) -> _Source:
    records, request = read_records(upload, file, scratch), upload.request
    schema = records.inference.schema
    names = [column.name for column in schema.fields]
    writer = DatasetWriter(
        out, upload.limits, len(names), names, schema=schema, label_names=records.label_names
    )
    if not upload.is_labelled and records.block.labels is None:
        _refuse_unlabelled("no column is of type identity or classes")
    warnings = []
    if records.one_sided:
        warnings.append(
            f"not compared, since only one of the tables has them: {name_list(records.one_sided)}. Name them alike "
            "where they hold the same"
        )
    return _Source(
        request=request,
        writer=writer,
        blocks=iter([records.block]),
        warnings=warnings,
        notes=column_notes(records.inference),
        records=records,
        texts=texts,
    )


def _from_npz(npz: Npz, out: Path, request: DatasetRequest, limits: FileLimits) -> _Source:
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
    return _Source(request=request, writer=writer, blocks=blocks())


def _names(npz: Npz, name: str, count: int) -> list[str] | None:
    if name not in npz:
        return None
    names = [as_text(value) or "" for value in npz.texts(name, count).tolist()]
    if len(set(names)) != count or not all(0 < len(text) <= 1_000 and "\x00" not in text for text in names):
        raise InvalidInput(f"array {name!r}: expected {count} different names", field=name)
    return names


def _from_svmlight(
    file: Path, out: Path, scratch: Path, request: DatasetRequest, limits: FileLimits
) -> _Source:
    unused = {"ranking": request.ranking, "exclude": request.exclude, "id": request.id}
    for role, value in unused.items():
        if value:
            raise InvalidInput(
                f"svmlight has no columns to name as {role}; send CSV, Parquet or npz", field=role
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
    return _Source(request=request, writer=writer, blocks=iter([block]))


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
    if size > limits.stored_bytes:
        raise limits.exceeded("stored_bytes", f"the rows hold {size} bytes of text", "bytes")
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
    return file.all_cells(file.columns.roles(DatasetRequest(name=request.name, columns=named)).index)


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
    if rows == 0:
        raise InvalidInput("the file has no rows; expected lines such as `3 1:0.5 7:2`", field="file")
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
