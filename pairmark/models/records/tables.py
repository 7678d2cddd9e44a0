"""Whatever people hold records in, as cells of a schema: frames, Arrow tables, columns, lists of records, matrices."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import check_array

from pairmark.models.core.inputs import refuse_flat
from pairmark.models.records.inference import infer, parts_of
from pairmark.models.records.schema import STRINGS, VERBATIM, RecordColumn, RecordError, Records, Schema

_TYPES = {"number": float, "boolean": float, "date": float, "place": tuple, **dict.fromkeys(STRINGS, str)}


def columns_of(X: Any) -> dict[str, Sequence[Any]] | None:
    """Columns of a pandas or polars frame, an Arrow table or a mapping of columns; None for anything else."""
    if issparse(X):
        # Some sparse arrays are mappings.
        return None
    if isinstance(X, Mapping):
        table: dict[str, Sequence[Any]] = {str(name): list(cells) for name, cells in X.items()}
        lengths = {name: len(cells) for name, cells in table.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns have different lengths: {lengths}; expected one cell a row in each")
        return table
    names = getattr(X, "column_names", getattr(X, "columns", None))
    if names is None or isinstance(X, np.ndarray):
        return None
    names = list(names)
    repeated = [name for at, name in enumerate(names) if name in names[:at]]
    if repeated:
        raise ValueError(f"two columns are called {str(repeated[0])!r}; rename one, or leave it out")
    return {str(name): _cells_of(X[name]) for name in names}


def _cells_of(column: Any) -> list[Any]:
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(column, method):
            return list(getattr(column, method)())
    return list(column)


def schema_of(X: Any, columns: Mapping[str, str] | None) -> Schema:
    """The schema of what a model is trained on: types given by ``columns``, the others inferred."""
    table = columns_of(X)
    if table is not None:
        return infer(table, columns).schema
    if isinstance(X, np.ndarray) and X.dtype == object and X.ndim == 2 and columns is not None:
        return declare_schema(columns)
    if _is_rows(X):
        names = dict.fromkeys(name for record in X for name in record)
        return infer({name: [row.get(name) for row in X] for name in names}, columns).schema
    width = _matrix(X, "X").shape[1]
    return Schema(columns=tuple(RecordColumn(name=f"x{at}", type="number") for at in range(width)))


def declare_schema(columns: Mapping[str, str]) -> Schema:
    """The schema that types alone declare, ``date:FORMAT`` for dates, ``TYPE:verbatim`` where ``N/A`` is a value."""
    declared = []
    for name, request in columns.items():
        kind, form, verbatim = parts_of(request)
        detail: dict[str, Any] = {"unit" if kind == "number" else "format": form or None}
        declared.append(RecordColumn(name=name, type=kind, verbatim=verbatim, **detail))
    return Schema(columns=tuple(declared))


def declaration(schema: Schema) -> dict[str, str]:
    """Types of a schema's columns, as `declare_schema` reads them."""
    return {
        column.name: ":".join(
            filter(None, (column.type, column.format or column.unit, VERBATIM if column.verbatim else None))
        )
        for column in schema.columns
    }


def cells_of(X: Any, schema: Schema, name: str = "X", *, learner: str = "the model") -> Records:
    """Records as cells of a schema, (n, d).

    Parameters
    ----------
    X : cells already (an object array), a frame, a mapping of columns, a list of records, one record, or numbers where
        all fields are numbers.

    Raises
    ------
    RecordError
        Naming row and column of what does not fit, and the first record without a cell.
    """
    if isinstance(X, np.ndarray) and X.dtype == object:
        return _checked_table(X, schema, name)
    cells: Records | None = None
    are_columns = isinstance(X, Mapping) and all(
        hasattr(cells, "__len__") and not isinstance(cells, str) for cells in X.values()
    )
    if isinstance(X, Mapping) and not (X and are_columns):
        cells = schema.records([X], name, strict=False)
    elif (table := columns_of(X)) is not None:
        cells = schema.read(table)
    elif _is_rows(X):
        cells = schema.records(X, name, strict=False)
    if cells is not None:
        empty = schema.empty_rows(cells)
        if empty.size:
            raise ValueError(f"{name}: row {empty[0] + 1} {schema.no_cell}")
        return cells
    matrix = _matrix(X, name)
    if any(column.type != "number" for column in schema.fields):
        raise ValueError(
            f"{name} holds numbers; expected records of {', '.join(c.name for c in schema.fields)}"
        )
    if matrix.shape[1] != len(schema.fields):
        raise ValueError(
            f"{name} has {matrix.shape[1]} features, but {learner} is expecting {len(schema.fields)} features as input"
        )
    return matrix.astype(object)


def _is_rows(X: Any) -> bool:
    return isinstance(X, Sequence) and not isinstance(X, str) and len(X) > 0 and isinstance(X[0], Mapping)


def _matrix(X: Any, name: str) -> np.ndarray[Any, Any]:
    refuse_flat(X, name)
    try:
        matrix: np.ndarray[Any, Any] = check_array(X, dtype=np.float64, input_name=name)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: {error}\nExpected a matrix of finite numbers, or records, whose cells may be missing: a frame, a "
            "mapping from column to cells or a list of records"
        ) from None
    return matrix


def _checked_table(X: Records, schema: Schema, name: str) -> Records:
    if X.ndim != 2 or X.shape[1] != len(schema.fields):
        raise ValueError(f"{name} has shape {X.shape}; expected (n, {len(schema.fields)}) cells")
    for at, column in enumerate(schema.fields):
        for row, cell in enumerate(X[:, at]):
            if cell is not None and type(cell) is not _TYPES[column.type]:
                detail = f"is a {type(cell).__name__}; expected {column.type}"
                raise RecordError([{"row": row + 1, "column": column.name, "detail": detail}])
    return X
