"""What a trainer gets: typed arrays, memory-mapped from the dataset's blob; and what their features give away, as
warnings: those that name the person, and those that number the rows."""

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.core.artefact import OUT_OF_FILES
from pairmark.models.records.schema import STRINGS, RecordColumn, Records, Schema
from pairmark.service.errors import CorruptArtefact

FACTS = "facts.json"
FACTS_VERSION = 1
_ROWS = 4_096
"""Rows that are made sparse at a time."""


@dataclass(frozen=True, kw_only=True)
class DatasetPairs:
    """Explicit pairs: 0-based rows on either side, whether they are the same, and perhaps weights and units.

    `units` are (n, 2) codes of the person, or whatever else was sampled, on either side. `drawn_from` (n,) says of how
    many pairs each was drawn at random; 0: it was chosen. All that were drawn are one sample of one list.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    same: NDArray[np.bool_]
    weight: NDArray[np.float64] | None
    units: NDArray[np.int64] | None = None
    drawn_from: NDArray[np.int64] | None = None

    @property
    def population(self) -> int | None:
        """The length of the list that pairs were drawn from; None where none was drawn."""
        return None if self.drawn_from is None else int(np.asarray(self.drawn_from).max()) or None


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """A dataset's rows and what is known of them.

    Attributes
    ----------
    X : (n, d) float32, finite; a read-only memory map, or CSR.
    feature_names : d names (``x0``, ``x1``, ... where the file had none).
    y : (n,) codes into `identities`, or None when unlabelled.
    identities : distinct labels, in numeric order when all are numbers, else alphabetical.
    groups, group_names : the same for groups.
    rankings : (n, k) float64 0-based positions of `label_names`; NaN = absent, equal = tied. Or None.
    pairs : explicit pairs, or None.
    row_ids : (n,) ids of the rows, or None.
    sha256 : of the uploaded file.
    schema : of a table, whose `X` holds the cells of records instead of numbers; or None.
    n_left : rows of the left one of two tables, which come first; None: there is one table.
    kept : columns that are no features, by name: (n,) codes, and the values that they number; "" where one is missing.
    """

    dataset_id: str
    name: str
    version: int
    sha256: str
    X: NDArray[np.float32] | csr_array
    given_feature_names: tuple[str, ...] | None
    y: NDArray[np.int64] | None
    identities: tuple[str, ...]
    groups: NDArray[np.int64] | None
    group_names: tuple[str, ...]
    rankings: NDArray[np.float64] | None
    label_names: tuple[str, ...]
    pairs: DatasetPairs | None
    row_ids: tuple[str, ...] | None
    schema: Schema | None = None
    n_left: int | None = None
    kept: Mapping[str, tuple[NDArray[np.int64], tuple[str, ...]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """d, the width of `X`."""
        return int(self.X.shape[1])

    @property
    def is_sparse(self) -> bool:
        """Whether `X` is CSR."""
        return not isinstance(self.X, np.ndarray)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        return self.given_feature_names or tuple(f"x{column}" for column in range(self.n_features))

    @cached_property
    def row_hashes(self) -> NDArray[np.bytes_]:
        """(n,) 16-byte digests of the rows' float32 values, equal for equal rows in whatever format they came.

        Two datasets overlap where their digests do: use `numpy.isin`.
        """
        if self.schema is not None:
            bodies = (repr(tuple(cells)).encode() for cells in self.X)
            return np.array([hashlib.blake2b(body, digest_size=16).digest() for body in bodies], dtype="S16")
        digests = np.empty(len(self), dtype="S16")
        # Dense rows are hashed as sparse ones, without zeros: a row has one digest, whatever format it came in.
        width = np.int64(self.n_features).tobytes()
        for start in range(0, len(self), _ROWS):
            block = csr_array(self.X[start : start + _ROWS])
            block.eliminate_zeros()
            for row, (begin, end) in enumerate(pairwise(block.indptr.tolist()), start):
                columns = block.indices[begin:end].astype(np.int64, copy=False)
                body = width + columns.tobytes() + block.data[begin:end].tobytes()
                digests[row] = hashlib.blake2b(body, digest_size=16).digest()
        return digests


def vector_of(data: LabelledData, row: int) -> list[float] | dict[str, Any]:
    """A row as JSON writes it: its numbers, of a sparse one ``indices`` and ``values``, of a record its cells."""
    if data.schema is not None:
        return next(data.schema.values(np.asarray(data.X[row : row + 1])))
    if isinstance(data.X, np.ndarray):
        dense: list[float] = data.X[row].tolist()
        return dense
    part = slice(int(data.X.indptr[row]), int(data.X.indptr[row + 1]))
    return {"indices": data.X.indices[part].tolist(), "values": data.X.data[part].tolist()}


def row_name(data: LabelledData, row: int) -> str:
    """A row as pairs name it: by its id, or by its number where there are none."""
    if data.row_ids is None:
        return str(row)
    name = data.row_ids[row]
    # Ids that both of two tables have are stored with their table's name in front.
    return name if data.n_left is None else name.removeprefix("left:" if row < data.n_left else "right:")


def load_data(
    folder: Path, *, dataset_id: str, name: str, version: int, sha256: str, cells: Records | None = None
) -> LabelledData:
    """Open a dataset's folder as `DatasetWriter` left it, or `CorruptArtefact`: it is none, or of a newer version.

    ``cells`` : of a table of records, where they are in memory already.
    """
    try:
        facts = json.loads((folder / FACTS).read_text())
        if facts["format_version"] > FACTS_VERSION:
            raise CorruptArtefact(
                f"dataset {name}:{version} was stored by a newer pairmark: upgrade this one"
            )
        X: Any
        schema = Schema.model_validate(facts["schema"], strict=False) if "schema" in facts else None
        if schema is not None:
            X = read_cells(folder, schema, int(facts["rows"])) if cells is None else cells
        elif facts["sparse"]:
            data, indices, indptr = (_array(folder, part) for part in ("data", "indices", "indptr"))
            if data.size < 2**31:
                # Both of one width, or scipy copies the indices.
                indptr = indptr.astype(np.int32)
            X = csr_array((data, indices, indptr), shape=(facts["rows"], facts["features"]))
        else:
            X = _array(folder, "X")
        names = facts["feature_names"]
        return LabelledData(
            dataset_id=dataset_id,
            name=name,
            version=version,
            sha256=sha256,
            X=X,
            given_feature_names=None if names is None else tuple(names),
            y=_optional(folder, "y"),
            identities=tuple(facts["identities"]),
            groups=_optional(folder, "groups"),
            group_names=tuple(facts["group_names"]),
            rankings=_optional(folder, "rankings"),
            label_names=tuple(facts["label_names"]),
            pairs=_read_pairs(folder),
            row_ids=read_strings(folder, "row_ids") if (folder / "row_ids.npy").exists() else None,
            schema=schema,
            n_left=facts.get("left_rows"),
            kept={
                name: (_array(folder, f"kept{at}"), tuple(values))
                for at, (name, values) in enumerate(facts.get("kept", ()))
            },
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
            raise
        raise CorruptArtefact(f"what is stored as dataset {name}:{version} is not a dataset") from error


def _read_pairs(folder: Path) -> DatasetPairs | None:
    if not (folder / "pairs_left.npy").exists():
        return None
    parts = {name: _array(folder, f"pairs_{name}") for name in ("left", "right", "same")}
    parts |= {name: _optional(folder, f"pairs_{name}") for name in ("weight", "units", "drawn_from")}
    return DatasetPairs(**parts)


def write_pairs(folder: Path, pairs: DatasetPairs) -> None:
    for name, values in vars(pairs).items():
        if values is not None:
            np.save(folder / f"pairs_{name}.npy", values, allow_pickle=False)


def write_cells(folder: Path, schema: Schema, cells: Records) -> None:
    """Store the cells of a table field by field, as plain arrays."""
    for at, column in enumerate(schema.fields):
        name, values = f"cells{at}", cells[:, at]
        if column.type in STRINGS:
            write_strings(folder, name, ["" if cell is None else cell for cell in values])
            continue
        absent: Any = (np.nan, np.nan) if column.type == "place" else np.nan
        numbers = np.array([absent if cell is None else cell for cell in values], dtype=np.float64)
        np.save(folder / f"{name}.npy", numbers, allow_pickle=False)


def read_cells(folder: Path, schema: Schema, n: int) -> Records:
    cells = np.empty((n, len(schema.fields)), dtype=object)
    for number, column in enumerate(schema.fields):
        if column.type in STRINGS:
            # Text is never empty: an empty cell is missing.
            cells[:, number] = [text or None for text in read_strings(folder, f"cells{number}")]
            continue
        for row, value in enumerate(np.load(folder / f"cells{number}.npy", allow_pickle=False).tolist()):
            pair = column.type == "place"
            missing = value[0] != value[0] if pair else value != value
            cells[row, number] = None if missing else tuple(value) if pair else value
    return cells


def write_strings(folder: Path, name: str, values: list[str]) -> None:
    """Store strings of any length: UTF-8 bytes, and where each ends."""
    encoded = [value.encode() for value in values]
    ends = np.cumsum([len(value) for value in encoded], dtype=np.int64)
    np.save(folder / f"{name}.npy", np.frombuffer(b"".join(encoded), dtype=np.uint8), allow_pickle=False)
    np.save(folder / f"{name}_ends.npy", ends, allow_pickle=False)


def read_strings(folder: Path, name: str) -> tuple[str, ...]:
    body = _array(folder, name).tobytes()
    ends = _array(folder, f"{name}_ends").tolist()
    return tuple(body[start:end].decode() for start, end in zip([0, *ends[:-1]], ends, strict=True))


def _array(folder: Path, name: str) -> Any:
    return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)


def _optional(folder: Path, name: str) -> Any:
    return _array(folder, name) if (folder / f"{name}.npy").exists() else None


def name_list(names: Sequence[str], total: int | None = None) -> str:
    """A few names for a message, and how many more there are."""
    total = len(names) if total is None else total
    examples = ", ".join(repr(name[:60]) for name in names[:5])
    return examples if total <= 5 else f"{examples} and {total - 5} more"


_PEOPLE, _FEWEST = 1_000, 10
"""People with several rows that are looked at, and how many it takes."""
_NUMBERS = 20_000_000
_CONSTANT, _DISTINCT = 0.95, 0.9
"""Shares of the people within whom a feature does not differ, and of different values between them."""
_CODE = re.compile(r"[A-Za-z]{0,8}[-_/# ]?\d+|[0-9A-Fa-f]{8,}(-[0-9A-Fa-f]+)*")
_NUMBERED = 10
"""Rows from which numbers that go up by one are taken for a count of the rows."""
_RISING = 0.95
"""Share of the steps from row to row from which on a feature numbers the rows; few may repeat a number or miss one."""
_GLANCED = 1_000
"""Rows by which features that cannot be a count are told apart, before all rows are read."""


def exclusions(names: Sequence[str]) -> str:
    """The options that leave some features out."""
    return " ".join(f"--exclude {shlex.quote(name)}" for name in names)


def feature_warnings(data: LabelledData) -> list[str]:
    """What is said of the features of dense rows or records."""
    X: Any = data.X
    warnings = []
    if data.schema is None and len(X) > 1:
        constant = np.flatnonzero(X.min(axis=0) == X.max(axis=0))
        if constant.size:
            warnings.append(
                f"features that hold one value only and tell nothing apart ({constant.size:,}): "
                + name_list([data.feature_names[column] for column in constant[:5]], constant.size)
            )
    numbering = _numbering_features(X, data.schema)
    if numbering:
        names = [data.feature_names[at] for at in numbering]
        warnings.append(
            f"features that number the rows: {name_list(names)}. Exclude them, unless order means something "
            f"({exclusions(names)})"
        )
    if data.y is not None:
        warnings += naming_warnings(data)
    return warnings


def _numbering_features(X: NDArray[Any], schema: Schema | None) -> list[int]:
    """Features that count the rows: where the rows of one person stand together, they give the answer away."""
    if not _NUMBERED <= len(X) <= 2**24:
        return []
    columns = None if schema is None else schema.fields
    strides = np.diff(_numbers(X[:: max(len(X) // _GLANCED, 1)], columns), axis=0)
    numbering = []
    for feature in np.flatnonzero((strides > 0).mean(axis=0) >= _RISING).tolist():
        steps = np.diff(
            _numbers(
                X[:, feature : feature + 1], None if columns is None else columns[feature : feature + 1]
            ),
            axis=0,
        )
        if (steps == 1).mean() >= _RISING:
            numbering.append(feature)
    return numbering


def naming_warnings(data: LabelledData) -> list[str]:
    """What is said of features of dense labeled rows, or of records, that name the person of each row.

    Among texts only codes are looked at: names and addresses are what records are compared by. Where every feature
    names the person, rows are repeated and nothing is told.
    """
    X: Any = data.X
    y = np.asarray(data.y)
    counts = np.bincount(y)
    most = min(_PEOPLE, int(_NUMBERS / max(1, data.n_features) / max(2.0, counts.mean())))
    people = np.flatnonzero(counts >= 2)[:most]
    if people.size < _FEWEST or data.is_sparse:
        return []
    rows = np.flatnonzero(np.isin(y, people))
    rows = rows[np.argsort(y[rows], kind="stable")]
    values = _numbers(X[rows], None if data.schema is None else data.schema.fields)
    starts = np.flatnonzero(np.diff(y[rows], prepend=-1))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    n_distinct = 1 + (np.diff(np.sort(low, axis=0), axis=0) > 0).sum(axis=0)
    naming = ((low == high).mean(axis=0) >= _CONSTANT) & (n_distinct >= _DISTINCT * people.size)
    if not naming.any() or (naming.all() and naming.size > 1):
        return []
    names = [data.feature_names[at] for at in np.flatnonzero(naming)[:5]]
    return [
        f"names the person: {', '.join(map(repr, names))} is the same in all rows of each and differs between all of "
        f"them, as a copy of the identity would. Leave it out unless new rows bring it as well ({exclusions(names)})"
    ]


def _numbers(cells: NDArray[Any], columns: Sequence[RecordColumn] | None) -> NDArray[Any]:
    """Numbers as they are; of records numbers, and codes as numbers, NaN for what is missing or neither."""
    if columns is None:
        return cells
    values = np.full(cells.shape, np.nan)
    for place, column in enumerate(columns):
        present = np.array([cell is not None for cell in cells[:, place]])
        column_cells = cells[present, place]
        if column.type == "number":
            values[present, place] = column_cells.astype(np.float64)
        elif column.type in STRINGS and all(_CODE.fullmatch(cell.strip()) for cell in column_cells):
            values[present, place] = np.unique(column_cells.astype(np.str_), return_inverse=True)[1]
    return values
