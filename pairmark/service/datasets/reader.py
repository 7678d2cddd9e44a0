"""From an uploaded file to a dataset's folder, whatever the format."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pairmark.models.core.inputs import OPEN_SET_FROM, like_labels, refuse_placeholders
from pairmark.schemas.datasets import (
    MAX_LISTED_FEATURES,
    MAX_LISTED_LABELS,
    DatasetRequest,
    Format,
    RecordColumnOut,
)
from pairmark.service.datasets.arrays import Npz, clipped, row_blocks, svmlight_rows
from pairmark.service.datasets.data import DatasetPairs
from pairmark.service.datasets.leaks import naming_features, naming_warning
from pairmark.service.datasets.limits import FileLimits, Upload
from pairmark.service.datasets.pairs import contradictions, pair_counts, read_pairs
from pairmark.service.datasets.profiles import text_features
from pairmark.service.datasets.rankings import RankingColumn
from pairmark.service.datasets.records import RecordTable, column_notes, read_records
from pairmark.service.datasets.tabular import Table, TableFile, plain_text
from pairmark.service.datasets.writer import MAX_RANKED, Block, DatasetWriter, Stored, as_text, name_list
from pairmark.service.errors import InvalidInput, TooLarge

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
    if rows > limits.rows:
        raise limits.exceeded("rows", f"{rows} rows", "rows")
    if len(request.ranking) > 1:
        raise InvalidInput("ranking: name one array of shape (rows, labels)", field="ranking")
    label = request.label or ("y" if "y" in npz and not request.unlabelled else None)
    array_of = {"labels": label, "groups": request.group, "times": request.time, "ids": request.id}
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
                **{field: clipped(values[start:stop]) for field, values in texts.items()},
            )

    sparse = not isinstance(X, np.ndarray)
    writer = DatasetWriter(out, limits, len(feature_columns), names, sparse=sparse, label_names=label_names)
    return writer, blocks(), []


def _names(npz: Npz, name: str, count: int) -> list[str] | None:
    if name not in npz:
        return None
    names = [as_text(value) or "" for value in clipped(npz.texts(name, count))]
    if len(set(names)) != count or not all(0 < len(text) <= 1_000 and "\x00" not in text for text in names):
        raise InvalidInput(f"array {name!r}: expected {count} different names", field=name)
    return names


def _from_svmlight(
    file: Path, out: Path, scratch: Path, request: DatasetRequest, limits: FileLimits
) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
    unused = {"ranking": request.ranking, "exclude": request.exclude, "id": request.id, "time": request.time}
    for field, value in unused.items():
        if value:
            raise InvalidInput(
                f"svmlight has no columns to name as {field}; send CSV, Parquet or npz", field=field
            )
    if request.label not in (None, "y", "target", "label"):
        raise InvalidInput("svmlight keeps the label in front of each line; leave `label` out", field="label")
    if request.group not in (None, "qid"):
        raise InvalidInput("svmlight keeps groups as qid; leave `group` out or send qid", field="group")
    X, y, query = svmlight_rows(plain_text(file, scratch, limits), limits)
    if request.group == "qid" and not query.size:
        raise InvalidInput("no line has a qid; expected `label qid:7 1:0.5`", field="group")
    labels = None if request.unlabelled else y.tolist()
    # The format has no way to leave a label out; 0 in front of every line is what others write then.
    writer = DatasetWriter(out, limits, int(X.shape[1]), sparse=True, zero_is_no_label=True)
    block = Block(X=X, labels=labels, groups=query.tolist() if query.size else None)
    return writer, iter([block]), []
