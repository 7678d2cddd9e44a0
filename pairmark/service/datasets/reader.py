"""From an uploaded file, whatever its format, to a dataset's folder."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.inputs import OPEN_SET_FROM, like_labels, refuse_placeholders
from pairmark.models.records.inference import Inference, infer, other_readings, parts_of
from pairmark.models.records.schema import COMPARED, FieldType, RecordError, Records, Schema, key_of
from pairmark.schemas.datasets import (
    MAX_LISTED_FEATURES,
    MAX_LISTED_LABELS,
    DatasetRequest,
    RecordColumnOut,
)
from pairmark.service.datasets.confined import Upload
from pairmark.service.datasets.data import LabelledData, exclusions, feature_warnings, load_data, name_list
from pairmark.service.datasets.files import Npz, in_lines, plain_text, row_blocks, svmlight_rows
from pairmark.service.datasets.lists import contradictions, facts_of_list, pair_counts, read_pairs
from pairmark.service.datasets.tabular import Table, TableFile, text_features
from pairmark.service.datasets.writer import (
    MAX_RANKED,
    Block,
    DatasetWriter,
    Rankings,
    as_text,
)
from pairmark.service.errors import InvalidInput


@dataclass(kw_only=True)
class _Source:
    """A file that is open: its rows, and what is known of it before they are read.

    Attributes
    ----------
    request : how it is read. features, names : how many there are, and what they are called, unless ``x0``, ``x1``, ...
    inference : of a table of records, what its columns were taken for. cells : all of them.
    row_of : row id -> row of the left and the right table, where there are two.
    """

    request: DatasetRequest
    blocks: Iterator[Block]
    features: int
    names: list[str] | None = None
    sparse: bool = False
    rankings: Rankings | None = None
    warnings: list[str] = field(default_factory=list)
    inference: Inference | None = None
    cells: Records | None = None
    row_of: tuple[dict[str, int], dict[str, int]] | None = None


def read_dataset(upload: Upload, out: Path, scratch: Path) -> tuple[LabelledData, dict[str, Any]]:
    """Parse an upload into the empty folder ``out``: what was stored, and its summary for lists and details."""
    try:
        source = _write_folder(upload, out, scratch)
    except InvalidInput as error:
        # Of two tables the rows are numbered through.
        header = upload.request.header
        raise (
            error
            if upload.right
            else in_lines(error, upload.file, upload.kind, scratch, upload.limits, header=header)
        ) from error
    data = load_data(out, dataset_id="", name="", version=0, sha256="", cells=source.cells)
    return data, _summary(data, upload, source)


def _write_folder(upload: Upload, out: Path, scratch: Path) -> _Source:
    """Write the dataset's folder; what was known before."""
    scratch.mkdir(exist_ok=True)
    with ExitStack() as stack:
        source = _open_source(upload, scratch, stack)
        schema = None if source.inference is None else source.inference.schema
        writer = DatasetWriter(
            out, upload.limits, source.features, source.names, sparse=source.sparse, schema=schema
        )
        for block in source.blocks:
            writer.add(block)
        if writer.rows == 0:
            raise InvalidInput("the file has no rows; expected at least one row of data")
        pairs, left_rows = None, None if source.row_of is None else len(source.row_of[0])
        if upload.pairs is not None:
            left_of, right_of = source.row_of or (writer.row_of(), None)
            pairs = read_pairs(
                *upload.pairs,
                scratch,
                upload.limits,
                rows=writer.rows,
                row_of=left_of,
                right_row_of=right_of,
                warnings=source.warnings,
            )
        writer.finish(pairs, rankings=source.rankings, left_rows=left_rows)
    return source


def _open_source(upload: Upload, scratch: Path, stack: ExitStack) -> _Source:
    """The file, read as its format and its columns say; it is open until the stack is left."""
    request, kind, limits = upload.request, upload.kind, upload.limits
    if not upload.is_table and request.columns is not None:
        raise InvalidInput(
            f"columns are those of CSV and Parquet; {kind} holds numbers: leave it out", field="columns"
        )
    if kind == "npz":
        return _from_npz(Npz(upload.file, scratch, limits), upload)
    if kind == "svmlight":
        return _from_svmlight(upload, scratch)
    file = TableFile(upload.file, scratch / "table", kind, limits, header=request.header)
    stack.enter_context(closing(file))
    warnings = list(file.warnings)
    # 1. What is no feature, though nobody excludes it: a data frame's index, and positions of labels that are ranked.
    index = _index(file, request)
    if index:
        warnings.append(f"left out, as the index of the data frame: {name_list(index)}")
        request = _exclude_columns(request, index)
    rankings = file.rankings(file.roles(request).ranking) if request.ranking else None
    if rankings is not None and len(request.ranking) == 1:
        # Files of rankings often carry each label's position too: as features those would give the answer away.
        positions = [name for name in rankings.labels if name in file.names and name not in request.roles]
        if positions:
            warnings.append(
                f"columns named like the ranked labels are left out of the features: {name_list(positions)}"
            )
            request = _exclude_columns(request, positions)
    # 2. Numbers alone are vectors; one column of anything else makes records of all.
    texts = text_features(file, request) if request.columns is None else []
    if request.columns is not None or texts or upload.right is not None:
        return _from_records(
            upload.model_copy(update={"request": request}), file, scratch, rankings, warnings, texts
        )
    table = Table(file, request)
    if not upload.is_labelled:
        warnings.append(_UNLABELLED)
    nameless = [file.names[n] for n in table.roles.features if file.names[n] == f"unnamed.{n}"]
    if nameless:
        warnings.append(
            f"columns without a name are used as features: {name_list(nameless)}; exclude them if they number rows"
        )
    names = table.feature_names
    return _Source(
        request=request,
        blocks=table.blocks(),
        features=len(names),
        names=names,
        rankings=rankings,
        warnings=warnings,
    )


def _index(file: TableFile, request: DatasetRequest) -> list[str]:
    """The index of a data frame, which is left out unless it is named."""
    return [
        name for name in file.names if name in file.index - (request.roles.keys() | (request.columns or {}))
    ]


def _exclude_columns(request: DatasetRequest, names: Sequence[str]) -> DatasetRequest:
    return request.model_copy(update={"exclude": [*request.exclude, *names]})


_UNLABELLED: Final = (
    "no label is named: the rows are stored without any, to link them or as strangers. To train or calibrate on them, "
    "upload them anew and name the column that says whose a row is as `identity` (--identity: new ones will join), "
    "`classes` (--classes: these and no others) or `label` (either), rankings as `ranking`, or a file of `pairs`"
)


def _summary(data: LabelledData, upload: Upload, source: _Source) -> dict[str, Any]:
    """JSON-able facts of what was written."""
    request, pairs = source.request, data.pairs
    warnings = source.warnings + ([] if pairs is None else contradictions(pairs))
    notes = [
        RecordColumnOut(**dict(note.column), **{name: vars(note)[name] for name in _NOTES})
        for note in ([] if source.inference is None else source.inference.notes)
    ]
    warnings += [f"column {note.name!r}: {line}" for note in notes for line in note.warnings]
    # What the label is called: by its name, by the type of a column of records, or by its place in files of arrays.
    label, role = request.label, request.label_role
    if label is None and data.y is not None:
        identity = next((note for note in notes if note.type in _ROLES["label"]), None)
        if identity is None:
            label = "y" if upload.kind == "npz" else "target"
        else:
            label, role = identity.name, "identity" if identity.type == "identity" else "classes"
    counts = np.bincount([] if data.y is None else data.y, minlength=len(data.identities)).astype(np.int64)
    # Pairs that were drawn at random from a longer list speak for that list, whoever their people are.
    listed = None if pairs is None or pairs.population is not None else facts_of_list(data, pairs)
    if data.y is not None:
        warnings += _label_warnings(data, counts, role)
    if not data.is_sparse:
        warnings += feature_warnings(data)
    top = np.lexsort((np.arange(counts.size), -counts))[:MAX_LISTED_LABELS]
    return {
        "format": upload.kind,
        "sparse": data.is_sparse,
        "feature_names": list(data.feature_names[:MAX_LISTED_FEATURES]),
        "label": label,
        "label_role": role,
        "n_labels": len(data.identities),
        "n_repeated_labels": int((counts >= 2).sum()),
        # A list, since JSONB forgets the order of keys.
        "label_counts": [[data.identities[code], int(counts[code])] for code in top],
        "n_groups": len(data.group_names),
        "ranking_labels": list(data.label_names),
        **pair_counts(pairs),
        **({} if listed is None else {"listed": listed}),
        **({"columns": [note.model_dump(mode="json") for note in notes]} if notes else {}),
        "warnings": warnings,
    }


def _label_warnings(data: LabelledData, counts: NDArray[np.int64], role: str) -> list[str]:
    """What is said of labels that are lone or spelled alike; those that cannot be identities or classes are refused."""
    if counts.size == 1:
        raise InvalidInput(
            f"every row has the same label ({data.identities[0][:50]!r}); expected at least two identities or classes. "
            "Rows without labels are stored where that is said (--unlabelled)",
            field="label",
        )
    if counts.max() < 2:
        raise InvalidInput(
            f"all {counts.size} labels differ; expected identities or classes with several rows each: is the label "
            "column an id?",
            field="label",
        )
    if role == "identity" or (role == "label" and counts.size >= OPEN_SET_FROM):
        try:
            refuse_placeholders(data.identities, counts, "rows")
        except ValueError as error:
            raise InvalidInput(str(error), field="label") from None
    lone, alike = int((counts == 1).sum()), like_labels(data.identities)
    warnings = [] if alike is None else [alike]
    if lone:
        warnings.append(
            f"{lone} of {counts.size} labels have a single row, which makes no pair that is the same"
        )
    return warnings


def _from_npz(npz: Npz, upload: Upload) -> _Source:
    request = upload.request
    X = npz.points()
    rows, width = (int(size) for size in X.shape)
    # 1. Roles: arrays that were named, and `y`, which is the label unless that is denied.
    label = request.label or ("y" if "y" in npz.arrays and not request.unlabelled else None)
    array_of = {"labels": label, "groups": request.group, "ids": request.id}
    texts = {field: npz.texts(name, rows) for field, name in array_of.items() if name}
    kept = {name: npz.texts(name, rows) for name in request.keep}
    # 2. Features by name, those that are excluded left out.
    names = _names(npz, "feature_names", width)
    titles = names or [f"x{column}" for column in range(width)]
    for name in request.exclude:
        if name not in titles and name not in npz.arrays:
            raise InvalidInput(f"exclude: there is no feature {name[:100]!r} in the npz", field="exclude")
    feature_columns = [column for column in range(width) if titles[column] not in request.exclude]
    if len(feature_columns) < width:
        names = [titles[column] for column in feature_columns]

    def blocks() -> Iterator[Block]:
        for start, part in row_blocks(X):
            stop = start + part.shape[0]
            yield Block(
                X=part if len(feature_columns) == width else part[:, feature_columns],
                kept={name: values[start:stop].tolist() for name, values in kept.items()},
                **{field: values[start:stop].tolist() for field, values in texts.items()},
            )

    return _Source(
        request=request,
        blocks=blocks(),
        features=len(feature_columns),
        names=names,
        sparse=not isinstance(X, np.ndarray),
        rankings=_array_of_rankings(npz, request.ranking, rows),
        warnings=[] if upload.is_labelled or label else [_UNLABELLED],
    )


def _array_of_rankings(npz: Npz, names: Sequence[str], rows: int) -> Rankings | None:
    if not names:
        return None
    if len(names) > 1:
        raise InvalidInput("ranking: name one array of shape (rows, labels)", field="ranking")
    positions = npz.get(names[0], 2, rows)
    if positions.dtype.kind not in "fiu":
        raise InvalidInput(f"array {names[0]!r} holds {positions.dtype}; expected positions", field="ranking")
    count = int(positions.shape[1])
    if not 2 <= count <= MAX_RANKED:
        raise InvalidInput(f"rankings order {count} labels; expected 2 to {MAX_RANKED}", field="ranking")
    labels = _names(npz, "label_names", count) or [str(number) for number in range(count)]
    return Rankings(labels, np.asarray(positions, dtype=np.float64))


def _names(npz: Npz, name: str, count: int) -> list[str] | None:
    if name not in npz.arrays:
        return None
    names = [as_text(value) or "" for value in npz.texts(name, count).tolist()]
    if len(set(names)) != count or not all(0 < len(text) <= 1_000 and "\x00" not in text for text in names):
        raise InvalidInput(f"array {name!r}: expected {count} different names", field=name)
    return names


def _from_svmlight(upload: Upload, scratch: Path) -> _Source:
    request = upload.request
    for role in ("ranking", "exclude", "keep", "id"):
        if getattr(request, role):
            raise InvalidInput(
                f"svmlight has no columns to name as {role}; send CSV, Parquet or npz", field=role
            )
    if request.label not in (None, "y", "target", "label"):
        raise InvalidInput("svmlight keeps the label in front of each line; leave `label` out", field="label")
    if request.group not in (None, "qid"):
        raise InvalidInput("svmlight keeps groups as qid; leave `group` out or send qid", field="group")
    X, y, query = svmlight_rows(plain_text(upload.file, scratch, upload.limits)[0])
    if request.group == "qid" and not query.size:
        raise InvalidInput("no line has a qid; expected `label qid:7 1:0.5`", field="group")
    block = Block(
        X=X,
        labels=None if request.unlabelled else y.tolist(),
        groups=query.tolist() if query.size else None,
    )
    return _Source(request=request, blocks=iter([block]), features=int(X.shape[1]), sparse=True)


_ROLES: dict[str, tuple[FieldType, ...]] = {
    "label": ("identity", "classes"),
    "group": ("group",),
    "id": ("id",),
}
"""Types of the columns of each role; the first is what a column gets that is named for it."""
_NOTES = ("reason", "examples", "warnings", "missing", "placeholders", "distinct")


def _from_records(
    upload: Upload,
    file: TableFile,
    scratch: Path,
    rankings: Rankings | None,
    warnings: list[str],
    texts: Sequence[str],
) -> _Source:
    """CSV or Parquet as records; `InvalidInput` names row and column of a cell that is not of its column's type.

    ``texts`` : the columns for which a table is one of records, where that was not said.
    """
    request, limits = upload.request, upload.limits
    table, n, one_sided = _tables(upload, file, scratch)
    n_rows = len(next(iter(table.values())))
    if n_rows == 0:
        raise InvalidInput("the file has no rows; expected at least one row of data")
    size = sum(len(cell) for cells in table.values() for cell in cells if isinstance(cell, str))
    if size > limits.stored_bytes:
        raise limits.exceeded("stored_bytes", f"the rows hold {size} bytes of text", "bytes")
    try:
        inference = infer(table, dict.fromkeys(one_sided, "ignore") | _types(request))
        schema = inference.schema
        cells = schema.read(table, other_readings(table, schema, _types(request)))
    except RecordError as error:
        first = error.problems[0]
        facts = {} if first["row"] is None else {"row": first["row"]}
        raise InvalidInput(str(error), column=first["column"], **facts) from error
    empty = schema.empty_rows(cells)
    if empty.size:
        raise InvalidInput(
            f"row {empty[0] + 1} {schema.no_cell}: leave out the {empty.size:,} of {n_rows:,} rows",
            row=int(empty[0]) + 1,
        )
    columns = {role: _column(schema, role, types, request) for role, types in _ROLES.items()}
    if request.unlabelled:
        columns["label"] = None
    elif columns["label"] is None and not upload.is_labelled:
        warnings.append(_UNLABELLED)
    values: dict[str, Any] = {f"{role}s": table[name] for role, name in columns.items() if name is not None}
    row_of = None if upload.right is None else _rows_by_id(values, n, n_rows)
    kept = {name: table[name] for name in request.keep}
    if one_sided:
        warnings.append(
            f"not compared, since only one of the tables has them: {name_list(one_sided)}. Name them alike where they "
            "hold the same"
        )
    if 0 < len(texts) < sum(column.type == "number" for column in schema.columns):
        warnings.append(
            f"read as records, since not only numbers are in {name_list(texts)}. Exclude such columns to learn from "
            f"vectors ({exclusions(texts)})"
        )
    return _Source(
        request=request,
        blocks=iter([Block(X=cells, kept=kept, **values)]),
        features=len(schema.fields),
        names=[column.name for column in schema.fields],
        rankings=rankings,
        warnings=warnings,
        inference=inference,
        cells=cells,
        row_of=row_of,
    )


def _rows_by_id(values: dict[str, Any], n: int, n_rows: int) -> tuple[dict[str, int], dict[str, int]]:
    """Row id -> row of each of two tables, the first of ``n`` rows; ids that both have get their table's name."""
    ids = values.get("ids")
    if ids is None:
        raise InvalidInput(
            "two tables need a column of type id, which the pairs name rows by", field="columns"
        )
    left, right = (
        {str(row_id): row for row, row_id in enumerate(ids) if (row >= n) == later} for later in (False, True)
    )
    if len(left) + len(right) != n_rows:
        raise InvalidInput("row ids repeat within a table; expected a different one in every row", field="id")
    if left.keys() & right.keys():
        values["ids"] = [f"{'right' if row >= n else 'left'}:{row_id}" for row, row_id in enumerate(ids)]
    return left, right


def _tables(upload: Upload, file: TableFile, scratch: Path) -> tuple[dict[str, list[Any]], int, list[str]]:
    """The cells of one table, or of two with the second one's rows last; how many rows the first of two has; and
    columns that one of two lacks. Columns of two are one by name, else by spelling: ``Last Name`` is ``last_name``."""
    table = file.all_cells()
    if upload.right is None:
        return table, 0, []
    path, kind = upload.right
    header = upload.request.header
    with closing(TableFile(path, scratch / "right", kind, upload.limits, header=header)) as right:
        right_table = right.all_cells([right.names.index(name) for name in _index(right, upload.request)])
    name_of = {key_of(name): name for name in table if name not in right_table}
    for name in [name for name in right_table if name not in table and key_of(name) in name_of]:
        right_table[name_of.pop(key_of(name))] = right_table.pop(name)
    n, m = (len(next(iter(side.values()))) for side in (table, right_table))
    names = dict.fromkeys([*table, *right_table])
    joined = {name: [*table.get(name, [None] * n), *right_table.get(name, [None] * m)] for name in names}
    return joined, n, sorted(table.keys() ^ right_table.keys())


def _types(request: DatasetRequest) -> dict[str, str]:
    """The types that a request names, by column."""
    declared = request.columns or {}
    # No learner sees what is kept, whatever its type.
    kept = [name for name in request.keep if parts_of(declared.get(name, "text"))[0] in COMPARED]
    by_column = {**declared, **dict.fromkeys([*kept, *request.exclude], "ignore")}
    for role, types in _ROLES.items():
        name = getattr(request, role)
        if name is not None and by_column.get(name) not in types:
            by_column[name] = types[0]
    return by_column | dict.fromkeys(request.ranking, "ignore")


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
