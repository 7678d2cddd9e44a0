"""From an uploaded file to a dataset's folder, whatever the format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from pairmark.service.datasets.arrays import Npz, row_blocks, svmlight_blocks
from pairmark.service.datasets.duplicates import duplicate_warnings
from pairmark.service.datasets.pairs import read_pairs
from pairmark.service.datasets.rankings import RankingColumn
from pairmark.service.datasets.schemas import DatasetRequest, Format
from pairmark.service.datasets.tabular import Table
from pairmark.service.datasets.text import plain_text
from pairmark.service.datasets.writer import MAX_RANKED, Block, DatasetWriter, Limits, Stored, as_text, listed
from pairmark.service.errors import InvalidInput, TooLarge

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
    upload: Path,
    out: Path,
    scratch: Path,
    *,
    kind: str,
    request: DatasetRequest,
    limits: Limits,
    spec: dict[str, Any],
    pairs: tuple[Path, str] | None = None,
) -> tuple[Stored, int, int]:
    """Parse ``upload`` into the empty folder ``out``.

    Parameters
    ----------
    kind : ``csv``, ``parquet``, ``npz`` or ``svmlight``.
    spec : what the caller wants recorded next to the data.
    pairs : a pairs file and its format.

    Returns
    -------
    what was stored, the number of explicit pairs, and how many of those are the same.

    Raises
    ------
    InvalidInput, TooLarge
        Naming what is wrong and how to fix it.
    """
    scratch.mkdir(exist_ok=True)
    labelled = bool(request.label or request.ranking or request.unlabelled or pairs)
    if request.points is not None and kind != "npz":
        raise InvalidInput("points names an array of an npz file; leave it out", field="points")
    if kind in ("csv", "parquet"):
        with closing(Table(upload, scratch, kind, request, limits)) as table:
            if not labelled:
                _refuse_unlabelled(f"the columns are {listed(table.roles.names)}")
            writer, blocks, warnings = _from_table(table, out, limits)
            return _write(writer, blocks, warnings, scratch, limits, spec, pairs)
    if kind == "npz":
        npz = Npz(upload, scratch, limits)
        if not labelled and "y" not in npz:
            _refuse_unlabelled(f"the arrays are {listed(sorted(npz.names))}")
        writer, blocks, warnings = _from_npz(npz, out, request, limits)
    else:
        writer, blocks, warnings = _from_svmlight(upload, out, scratch, request, limits)
    return _write(writer, blocks, warnings, scratch, limits, spec, pairs)


def _refuse_unlabelled(there: str) -> NoReturn:
    raise InvalidInput(
        f"no label is named and {there}: name the column of the identity or class as `label`, rankings as `ranking`, "
        "or a file of `pairs`; to store rows without any, "
        "for learners that use them, set unlabelled=true (--unlabelled)",
        field="label",
    )


def _write(
    writer: DatasetWriter,
    blocks: Iterator[Block],
    warnings: list[str],
    scratch: Path,
    limits: Limits,
    spec: dict[str, Any],
    pairs: tuple[Path, str] | None,
) -> tuple[Stored, int, int]:
    try:
        for block in blocks:
            writer.add(block)
        read = None
        if pairs is not None:
            row_of = writer.row_of() if writer.has_ids else None
            read = read_pairs(pairs[0], scratch / "pairs", pairs[1], limits, rows=writer.rows, row_of=row_of)
        stored = writer.finish(read, spec)
    finally:
        writer.close()
    stored.warnings[:0] = warnings
    stored.warnings += duplicate_warnings(writer.folder)
    return stored, 0 if read is None else read.same.size, 0 if read is None else int(read.same.sum())


def _from_table(table: Table, out: Path, limits: Limits) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
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
                f"columns named like the ranked labels are left out of the features: {listed(dropped)}"
            )
    elif table.roles.ranking:
        label_names = [table.roles.names[number] for number in table.roles.ranking]
        if len(label_names) > MAX_RANKED:
            raise TooLarge(f"the rankings order {len(label_names)} labels; at most {MAX_RANKED} are taken")
    names = table.feature_names
    writer = DatasetWriter(
        out,
        features=len(names),
        feature_names=names,
        sparse=False,
        limits=limits,
        has_labels=table.roles.label is not None,
        has_groups=table.roles.group is not None,
        has_times=table.roles.time is not None,
        has_ids=table.roles.id is not None,
        label_names=label_names,
    )
    return writer, table.blocks(ranking), warnings


def _from_npz(
    npz: Npz, out: Path, request: DatasetRequest, limits: Limits
) -> tuple[DatasetWriter, Iterator[Block], list[str]]:
    X = npz.points(request.points)
    rows, width = (int(size) for size in X.shape)
    if rows > limits.rows:
        raise TooLarge(f"{rows} rows; at most {limits.rows} are taken", limit=limits.rows)
    if len(request.ranking) > 1:
        raise InvalidInput("ranking: name one array of shape (rows, labels)", field="ranking")
    label = request.label or ("y" if "y" in npz and not request.unlabelled else None)
    labels = npz.texts(label, rows) if label else None
    groups = npz.texts(request.group, rows) if request.group else None
    times = npz.texts(request.time, rows) if request.time else None
    ids = npz.texts(request.id, rows) if request.id else None
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
    kept = [
        column
        for column in range(width)
        if (f"x{column}" if names is None else names[column]) not in request.exclude
    ]
    known = (
        set(names)
        if names is not None
        else {f"x{column}" for column in range(width)}
        if request.exclude
        else set()
    )
    for name in request.exclude:
        if name not in known and name not in npz:
            raise InvalidInput(f"exclude: there is no feature {name[:100]!r} in the npz", field="exclude")
    if len(kept) < width:
        names = [f"x{column}" if names is None else names[column] for column in kept]

    def blocks() -> Iterator[Block]:
        for start, part in row_blocks(X):
            stop = start + part.shape[0]
            yield Block(
                X=part if len(kept) == width else part[:, kept],
                labels=None if labels is None else labels[start:stop],
                groups=None if groups is None else groups[start:stop],
                times=None if times is None else times[start:stop],
                ids=None if ids is None else ids[start:stop],
                rankings=None if rankings is None else np.asarray(rankings[start:stop], dtype=np.float64),
            )

    writer = DatasetWriter(
        out,
        features=len(kept),
        feature_names=names,
        sparse=not isinstance(X, np.ndarray),
        limits=limits,
        has_labels=labels is not None,
        has_groups=groups is not None,
        has_times=times is not None,
        has_ids=ids is not None,
        label_names=label_names,
    )
    return writer, blocks(), []


def _names(npz: Npz, name: str, count: int) -> list[str] | None:
    if name not in npz:
        return None
    names = [as_text(value) or "" for value in npz.texts(name, count)]
    if len(set(names)) != count or not all(0 < len(text) <= 1_000 and "\x00" not in text for text in names):
        raise InvalidInput(f"array {name!r}: expected {count} different names", field=name)
    return names


def _from_svmlight(
    upload: Path, out: Path, scratch: Path, request: DatasetRequest, limits: Limits
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
    plain = plain_text(upload, scratch, 4 * limits.stored_bytes)
    features, has_groups, blocks = svmlight_blocks(plain, limits, scratch)
    if request.group == "qid" and not has_groups:
        raise InvalidInput("no line has a qid; expected `label qid:7 1:0.5`", field="group")
    writer = DatasetWriter(
        out,
        features=features,
        feature_names=None,
        sparse=True,
        limits=limits,
        has_labels=not request.unlabelled,
        has_groups=has_groups,
        # The format has no way to leave a label out; 0 in front of every line is what others write then.
        zero_is_no_label=True,
    )
    return writer, blocks, []
