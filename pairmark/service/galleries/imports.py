"""Bulk bodies as batches of checked rows: JSON, npz, CSV, Parquet. Memory stays flat in all but JSON.

One rule for all forms: rows that can be stored are stored, the others are reported with their 0-based place and
why. What is wrong with the body as a whole (a damaged file, a matrix of another width) refuses all of it.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.schema import MAX_CELL, Schema
from pairmark.schemas.galleries import ImportOptions
from pairmark.service.datasets.confined import FileLimits, read_confined
from pairmark.service.errors import InvalidInput
from pairmark.service.galleries.metadata import MAX_METADATA_BYTES
from pairmark.service.galleries.rows import (
    MAX_ID_BYTES,
    ItemForm,
    Matrix,
    RecordForm,
    RowChecks,
    RowErrors,
    Rows,
    VectorForm,
)

_CELLS, _ARRAY_CELLS = 2_000_000, 16_000_000
"""Numbers of a batch, at most: of a table, which are Python's for a while, and of an array."""
MAX_NESTED = 1_000
"""Lists and objects in one item of a JSON body: its vector, the lists of its cells, its metadata."""
MAX_COLONS = 20_000
"""Colons in one item of a JSON body: one of each cell of a record and of each field of metadata, few in texts."""
TypedCells = dict[str, tuple[str, str]]
"""Of a table, by the name of the column: SQL, and DuckDB's type."""
BATCH_ROWS = 16_384
"""Rows written in one transaction."""
KINDS = {
    "application/json": "json",
    "application/x-npz": "npz",
    "text/csv": "csv",
    "application/vnd.apache.parquet": "parquet",
    "application/x-parquet": "parquet",
}
_CHARACTERS = 64 * 1024 * 1024
"""Of all texts of a batch, at most."""
_CELL_CHARACTERS = 2_048
"""Of a record's cell, as batches are cut; one that is longer makes its batch larger."""
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN")
_TEXT = re.compile(r"VARCHAR|JSON|ENUM\(.*\)")


def json_batches(body: bytes | bytearray, form: ItemForm, errors: RowErrors) -> Iterator[Rows]:
    """``{"items": [{"id", "subject"?, "vector", "metadata"?}]}``."""
    try:
        texts = msgspec.json.decode(body, type=_Items).items
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"NaN" in body or b"Infinity" in body:
            raise InvalidInput(
                "the body is not JSON: it holds NaN or Infinity; expected finite numbers", field="items"
            ) from None
        raise InvalidInput(
            f'expected {{"items": [{{"id": .., "vector": [..]}}]}}: {error}', field="items"
        ) from None
    if not texts:
        raise InvalidInput("items is empty; expected at least one", field="items")
    checks = RowChecks(form, errors)
    for start in range(0, len(texts), BATCH_ROWS):
        # One by one, so that other threads run in between.
        batch = [_item(bytes(text)) for text in texts[start : start + BATCH_ROWS]]
        items = [item for item, _ in batch]
        vectors, problems = form.read_json([item.vector for item in items])
        yield checks.rows(
            start,
            [item.id for item in items],
            vectors,
            [item.subject for item in items],
            [item.metadata for item in items],
            bad=[wrong or problem for (_, wrong), problem in zip(batch, problems, strict=True)],
        )


class _Items(msgspec.Struct, forbid_unknown_fields=True):
    items: list[msgspec.Raw]


class _Item(msgspec.Struct, forbid_unknown_fields=True):
    id: Any = None
    subject: Any = None
    vector: Any = None
    metadata: Any = None


_ITEM = msgspec.json.Decoder(_Item)


def _item(text: bytes) -> tuple[_Item, str | None]:
    """An item as it was sent, and what is wrong with it, where something is."""
    if text.count(b"[") + text.count(b"{") > MAX_NESTED:
        return _Item(), "the item is nested too deeply; expected id, vector, subject, metadata"
    if text.count(b":") > MAX_COLONS:
        return (
            _Item(),
            f"the item has more than {MAX_COLONS} members; expected cells and few fields of metadata",
        )
    try:
        return _ITEM.decode(text), None
    except msgspec.ValidationError as error:
        return _Item(), f"the item is not an object of id, vector, subject, metadata: {error}"


def file_batches(
    kind: str,
    path: Path,
    scratch: Path,
    form: ItemForm,
    errors: RowErrors,
    options: ImportOptions,
    limits: FileLimits,
) -> Iterator[Rows]:
    """Rows of a file of that kind.

    Parameters
    ----------
    kind : ``npz``, ``csv`` or ``parquet``.
    scratch : an empty folder for what is unpacked.
    """
    checks = RowChecks(form, errors)
    if kind in ("csv", "parquet"):
        yield from _table(kind, path, scratch, form, checks, options, limits)
    elif isinstance(form, RecordForm):
        raise InvalidInput(
            "the body holds vectors, and the gallery records: expected JSON, CSV or Parquet", field="body"
        )
    else:
        yield from _npz(path, scratch, form.width, checks, limits)


def _npz(path: Path, scratch: Path, dimension: int, checks: RowChecks, limits: FileLimits) -> Iterator[Rows]:
    from pairmark.service.datasets.files import Npz

    npz = Npz(path, scratch, limits)
    extra = sorted(set(npz.arrays) - {"ids", "vectors", "subjects", "metadata"})
    if extra:
        raise InvalidInput(
            f"the npz has an array {extra[0][:60]!r}; expected ids, vectors, and optionally subjects and metadata",
            field=extra[0][:60],
        )
    vectors = npz.get("vectors", 2)
    n = vectors.shape[0]
    if vectors.dtype.kind not in "fiu":
        raise InvalidInput(f"array 'vectors' holds {vectors.dtype}; expected numbers", field="vectors")
    if not n:
        raise InvalidInput("vectors is empty; expected at least one row", field="vectors")
    if vectors.shape[1] != dimension:
        raise InvalidInput(
            f"vectors have {vectors.shape[1]} numbers; the gallery's have {dimension}",
            field="vectors",
            expected_dimension=dimension,
        )
    _check_rows(n, limits)
    ids = npz.get("ids", 1, n)
    subjects = npz.get("subjects", 1, n) if "subjects" in npz.arrays else None
    metadata = npz.get("metadata", 1, n) if "metadata" in npz.arrays else None
    for name, array in (("ids", ids), ("subjects", subjects), ("metadata", metadata)):
        if array is not None and array.dtype.kind not in ("US" if name == "metadata" else "USiu"):
            raise InvalidInput(f"array {name!r} holds {array.dtype}; expected text", field=name)
    step = min(BATCH_ROWS, max(1, _ARRAY_CELLS // dimension))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        yield checks.rows(
            start,
            _texts(ids[rows]),
            _float32(vectors[rows]),
            None if subjects is None else [text or None for text in _texts(subjects[rows])],
            None if metadata is None else [text or None for text in _texts(metadata[rows])],
        )


def _texts(array: NDArray[Any]) -> list[Any]:
    cells: list[Any] = array.tolist()
    if array.dtype.kind == "S":
        return [cell.decode("utf-8", "surrogateescape") for cell in cells]
    if array.dtype.kind in "iu":
        return [str(cell) for cell in cells]
    return cells


def _float32(array: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def _check_rows(n: int, limits: FileLimits) -> None:
    if n > limits.rows:
        raise limits.exceeded("rows", f"the body has {n} rows", "rows")


def _table(
    kind: str,
    path: Path,
    scratch: Path,
    form: ItemForm,
    checks: RowChecks,
    options: ImportOptions,
    limits: FileLimits,
) -> Iterator[Rows]:
    from pairmark.service.datasets.tabular import TableFile

    with closing(TableFile(path, scratch, kind, limits, guess=False)) as file:
        types = file.types or ["VARCHAR"] * len(file.cells)
        columns = dict(zip(file.names, zip(file.cells, types, strict=True), strict=True))
        cells = _cells(columns, form, options)
        start = 0
        characters = 2 * MAX_ID_BYTES + len(options.columns) * MAX_METADATA_BYTES
        if isinstance(form, RecordForm):
            width, characters = len(form.schema.fields), characters + len(cells) * _CELL_CHARACTERS
        else:
            width = form.width
        step = min(BATCH_ROWS, max(1, _CELLS // width), max(1, _CHARACTERS // characters))
        for rows in file.rows(cells, step):
            _check_rows(start + len(rows), limits)
            yield _table_batch(checks, start, rows, form, options.columns)
            start += len(rows)
        if not start:
            raise InvalidInput("the file has no rows; expected at least one", field="file")


def _cells(columns: TypedCells, form: ItemForm, options: ImportOptions) -> list[str]:
    """SQL of the id, the subject, the metadata, and the vector or the record's cells."""
    subject = None if options.subject == "subject" and "subject" not in columns else options.subject
    roles = [("id", options.id), ("subject", subject), *(("metadata", name) for name in options.columns)]
    for role, name in roles:
        if name is not None and name not in columns:
            raise InvalidInput(
                f"there is no column {name[:60]!r} for {role}; columns: {', '.join(list(columns)[:20])}",
                field=role,
            )
    # Columns that have a role are no numbers of the vector and no cells of the record.
    used = {name for _, name in roles}
    rest = {name: cell for name, cell in columns.items() if name not in used}
    items = _record_sql(rest, form.schema) if isinstance(form, RecordForm) else _vector_sql(rest, form.width)
    whose = "NULL" if subject is None else _bounded_text(columns[subject][0], MAX_ID_BYTES)
    facts = [_fact_sql(*columns[name]) for name in options.columns]
    return [_bounded_text(columns[options.id][0], MAX_ID_BYTES), whose, *facts, *items]


def _bounded_text(cell: str, longest: int) -> str:
    """SQL of a cell as text, cut where it is known to be too long."""
    return f"left(CAST({cell} AS VARCHAR), {longest + 1})"


def _fact_sql(cell: str, kind: str) -> str:
    """SQL of a metadata field: text that is cut, a number, or an empty list instead of what is refused anyway."""
    if _TEXT.fullmatch(kind):
        return _bounded_text(cell, MAX_METADATA_BYTES)
    return cell if _NUMBER.fullmatch(kind) else f"CASE WHEN {cell} IS NOT NULL THEN [] END"


def _record_sql(columns: TypedCells, schema: Schema) -> list[str]:
    fields = [column.name for column in schema.fields]
    unknown = sorted(set(columns) - {column.name for column in schema.columns})
    missing = [name for name in fields if name not in columns]
    for column, detail in [(name, "is none of the model's columns") for name in unknown] + [
        (name, "is not in the file") for name in missing
    ]:
        raise InvalidInput(
            f"column {column[:60]!r} {detail}; expected {', '.join(fields[:20])} (name others in metadata=)",
            field="file",
            column=column[:60],
        )
    cells = [columns[name] for name in fields]
    return [_bounded_text(cell, MAX_CELL) if _TEXT.fullmatch(kind) else cell for cell, kind in cells]


def _vector_sql(columns: TypedCells, dimension: int) -> list[str]:
    """SQL of a vector, cut where it is too long."""
    lists = [(name, cell) for name, (cell, kind) in columns.items() if kind.endswith("]")]
    if lists:
        name, cell = lists[0]
        if len(columns) > 1:
            raise InvalidInput(
                f"column {name[:60]!r} is a list, and there are other columns; name those in metadata=",
                field="file",
            )
        return [f"CAST({cell}[1:{dimension + 1}] AS FLOAT[])"]
    if len(columns) != dimension:
        raise InvalidInput(
            f"{len(columns)} columns are left for the vector; the gallery's vectors have {dimension} numbers "
            "(name columns that are not numbers in metadata=)",
            field="file",
            expected_dimension=dimension,
        )
    numbers = ", ".join(f"TRY_CAST({cell} AS FLOAT)" for cell, _ in columns.values())
    return [f"[{numbers}]"]


def _table_batch(
    checks: RowChecks, start: int, rows: Sequence[Any], form: ItemForm, metadata: tuple[str, ...]
) -> Rows:
    first = 2 + len(metadata)
    items: Matrix
    if isinstance(form, RecordForm):
        fields = enumerate(form.schema.fields, first)
        items, bad = form.read_table({column.name: [row[at] for row in rows] for at, column in fields})
    else:
        items, bad = form.read_json([row[first] for row in rows])
    facts: list[Any] | None = None
    if metadata:
        facts = [
            {name: value for name, value in zip(metadata, row[2:first], strict=True) if value is not None}
            for row in rows
        ]
    return checks.rows(start, [row[0] for row in rows], items, [row[1] for row in rows], facts, bad=bad)


def confined_batches(
    kind: str,
    path: Path,
    scratch: Path,
    form: ItemForm,
    errors: RowErrors,
    options: ImportOptions,
    limits: FileLimits,
) -> Generator[Rows, None, None]:
    """Batches as `file_batches` makes them, read by a process of its own: the whole file, before any is given."""
    task = {
        "function": "items",
        "kind": kind,
        "path": str(path),
        "scratch": str(scratch),
        "columns": form.columns,
        "width": form.width if isinstance(form, VectorForm) else 0,
        "options": ImportOptions.model_validate(options, from_attributes=True).model_dump(),
    }
    result = read_confined(task, limits)
    errors.count, errors.items = result["count"], result["items"]
    for number in range(result["batches"]):
        yield _read_batch(scratch / f"batch{number}", form)


def write_batches(
    limits: FileLimits,
    *,
    kind: str,
    path: str,
    scratch: str,
    columns: Sequence[Mapping[str, Any]] | None,
    width: int,
    options: Mapping[str, Any],
) -> dict[str, Any]:
    """What a reader does for `confined_batches`: each batch becomes a file, so that memory holds one of them."""
    errors, number, folder = RowErrors(), 0, Path(scratch)
    schema = None if columns is None else Schema.model_validate({"columns": columns})
    form = VectorForm(width) if schema is None else RecordForm(schema)
    batches = file_batches(
        kind, Path(path), folder, form, errors, ImportOptions.model_validate(options), limits
    )
    for number, rows in enumerate(batches, 1):
        bodies = rows.vectors.tobytes() if columns is None else form.bodies(rows.vectors)
        batch = (bodies, rows.ids, rows.subjects, rows.metadata, rows.places)
        (folder / f"batch{number - 1}").write_bytes(msgspec.msgpack.encode(batch))
    return {"batches": number, "count": errors.count, "items": errors.items}


def _read_batch(file: Path, form: ItemForm) -> Rows:
    bodies, ids, subjects, metadata, places = msgspec.msgpack.decode(file.read_bytes())
    file.unlink()
    vectors: Matrix
    if isinstance(form, RecordForm):
        vectors, _ = form.stored_cells(bodies)
    else:
        vectors = np.frombuffer(bodies, dtype=np.float32).reshape(-1, form.width)
    return Rows(ids=ids, subjects=subjects, metadata=metadata, places=places, vectors=vectors, form=form)
