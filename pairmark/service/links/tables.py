"""One table or two, from CSV or Parquet, as what is linked: texts of the columns that both have, and ids of rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pairmark.models.core.inputs import is_placeholder
from pairmark.models.records.compare import LinkField
from pairmark.models.records.inference import Inference, infer, mostly_dates
from pairmark.models.records.schema import COMPARED, RecordColumn, RecordError
from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput

if TYPE_CHECKING:
    import duckdb

ROW = "row"
"""As the id column: rows are called by their numbers, from 1."""
_SAMPLE = 5_000
"""Rows that say what columns hold."""
_WORDY = 3.0
_ID_NAME = re.compile(r"(?:.*[_ ])?(?:id|uid|uuid|key)", re.IGNORECASE)
_NOTHING = (
    "no column is left to compare: every one is an id, empty, or has one value in all rows, so nothing tells records "
    "apart"
)
_NAMED = {
    "given": "first|given|forename|vorname|prenom",
    "surname": "last|surname|family|nachname",
    "company": "company|firm|organi[sz]ation",
    "phone": "phone|mobile|telefon",
    "email": "e-?mail",
    "web": "web|url|site|domain",
    "street": "street|address|strasse",
    "city": "city|town|suburb",
    "postcode": "post_?code|zip|plz",
    "id": "vat|ssn|soc_sec|tax",
    "name": "name",
}
_DATE_PARTS = {"YYYY": "%Y", "YY": "%y", "MM": "%m", "DD": "%d", "Mon": "%b"}
_MEASURED = "^[^0-9]*([0-9,]+([.][0-9]+)?)[^0-9]*$"


@dataclass
class LinkTables:
    """What was read: DuckDB's tables ``source(row, c0, ...)`` and ``ids(row, id)``.

    Attributes
    ----------
    n_left : rows of the left table; None where there is one. ids : the id column of each table; None: row numbers.
    notes : what people should know.
    """

    fields: list[LinkField]
    n_rows: int
    n_left: int | None
    ids: list[str | None]
    notes: list[str] = field(default_factory=list)


@dataclass
class _Side:
    name: str
    table: str
    columns: list[str]
    n: int
    inference: Inference
    id_column: str | None = None

    @property
    def compared(self) -> dict[str, RecordColumn]:
        return {
            column.name: column
            for column in self.inference.schema.columns
            if column.type in COMPARED and column.name != self.id_column
        }


def read_tables(
    connection: duckdb.DuckDBPyConnection,
    files: Sequence[Path],
    scratch: Path,
    limits: FileLimits,
    *,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
) -> LinkTables:
    """Read one table or two.

    Parameters
    ----------
    id_column : names the rows; None: the column that plainly does. `ROW`: they are numbered.
    columns : types of columns; the others are inferred from the first rows.

    Raises
    ------
    InvalidInput
        Saying what is wrong with a file, or which columns may be the id.
    """
    sides = []
    for at, path in enumerate(files):
        (scratch / str(at)).mkdir()
        sides.append(
            _read(connection, path, scratch / str(at), limits, f"side{at}", columns or {}, 3 - len(files))
        )
    readable = {ROW, *(name for side in sides for name in side.columns)}
    for what, given in (("id", [id_column or ROW]), ("columns", columns or {})):
        for name in given:
            if name not in readable:
                raise InvalidInput(
                    f"no column is called {name!r}; expected one of {', '.join(sides[0].columns[:20])}"
                    + (f", or {ROW}, which numbers the rows" if what == "id" else ""),
                    field=what,
                )
    for side in sides:
        side.id_column = _id_of(connection, side, id_column, sides[0].id_column)
    fields, chosen, notes = _matched(sides)
    if not fields:
        raise InvalidInput(
            _NOTHING
            if len(sides) == 1
            else f"{sides[0].name} and {sides[1].name} have no column in common; expected columns of the same names"
        )
    start = 0
    for at, (side, names) in enumerate(zip(sides, chosen, strict=True)):
        cells = ", ".join(
            f"{_cell(side.compared[name], f'c{side.columns.index(name)}')} AS c{place}"
            for place, name in enumerate(names)
        )
        row_id = (
            "CAST(row + 1 AS VARCHAR)" if side.id_column is None else f"c{side.columns.index(side.id_column)}"
        )
        for table, what in (("source", cells), ("ids", f"{row_id} AS id")):
            verb = f"CREATE TABLE {table} AS" if at == 0 else f"INSERT INTO {table}"
            connection.execute(f"{verb} SELECT row + {start} AS row, {what} FROM {side.table}")
        connection.execute(f"DROP TABLE {side.table}")
        start += side.n
    n_left = sides[0].n if len(sides) > 1 else None
    return LinkTables(fields, start, n_left, [side.id_column for side in sides], notes)


def _read(
    connection: duckdb.DuckDBPyConnection,
    path: Path,
    scratch: Path,
    limits: FileLimits,
    table: str,
    types: dict[str, str],
    fewest: int,
) -> _Side:
    kind = format_of(None, path.name)
    if kind not in ("csv", "parquet"):
        raise InvalidInput(f"{path.name} is {kind}; expected a table: CSV or Parquet")
    try:
        file = TableFile(path, scratch, kind, limits, connection=connection)
        cells = ", ".join(f"CAST({cell} AS VARCHAR) AS c{at}" for at, cell in enumerate(file.cells))
        file.query(
            f"CREATE TABLE {table} AS SELECT row_number() OVER () - 1 AS row, {cells} FROM {file.source}"
        )
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.detail}", **error.facts) from error
    names = file.names
    n = _one(connection, f"SELECT count(*) FROM {table}")
    if n < fewest:
        raise InvalidInput(f"{path.name} has {'one row' if n else 'no rows'}; expected {fewest} or more")
    sample = connection.execute(f"SELECT * EXCLUDE row FROM {table} ORDER BY row LIMIT {_SAMPLE}").fetchall()
    cells_of = dict(zip(names, zip(*sample, strict=True), strict=True))
    # A few mistyped dates make no column of text: they are compared as they stand.
    dates = {
        name: mostly_dates([*{cell for cell in of if cell and not is_placeholder(cell)}])
        for name, of in cells_of.items()
    }
    types = {name: f"date:{form}" for name, form in dates.items() if form} | {
        name: kind for name, kind in types.items() if name in names
    }
    try:
        inference = infer(cells_of, types)
    except RecordError as error:
        nothing = "no column is left" in str(error)
        raise InvalidInput(f"{path.name}: {_NOTHING if nothing else error}") from error
    return _Side(path.name, table, names, n, inference)


def _one(connection: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = connection.execute(sql).fetchall()[0]
    return row[0] if len(row) == 1 else row


def _id_of(
    connection: duckdb.DuckDBPyConnection, side: _Side, given: str | None, elsewhere: str | None
) -> str | None:
    """The column that names a table's rows; None: their numbers do."""
    if given == ROW:
        return None
    chosen = next(
        (name for name in (given, *side.inference.schema.of_type("id"), elsewhere) if name in side.columns),
        None,
    )
    if chosen is not None:
        _refuse_repeated(connection, side, chosen)
        return chosen
    named = [name for name in side.columns if _ID_NAME.fullmatch(name)]
    if len(named) == 1:
        _refuse_repeated(connection, side, named[0])
        if named[0].casefold() == "id":
            return named[0]
    dates = side.inference.schema.of_type("date")
    likely = named or [
        name for name in side.columns if name not in dates and _is_code(connection, side, name)
    ]
    if likely:
        raise InvalidInput(
            f"{side.name}: it is not plain which column names the rows; say it by --id: "
            f"{', '.join(likely[:10])}, or {ROW}, which numbers the rows",
            field="id",
            candidates=likely[:10],
        )
    return None


def _refuse_repeated(connection: duckdb.DuckDBPyConnection, side: _Side, name: str) -> None:
    cell = f"c{side.columns.index(name)}"
    found = connection.execute(
        f"SELECT {cell}, min(row) + 1, count(*) FROM {side.table} GROUP BY {cell} "
        f"HAVING count(*) > 1 OR {cell} IS NULL ORDER BY 2 LIMIT 1"
    ).fetchone()
    if found is not None:
        what = "is empty" if found[0] is None else f"repeats: {found[0]!r} names {found[2]} rows"
        raise InvalidInput(
            f"{side.name}, row {found[1]}: the id column {name!r} {what}; mend it, or name another by --id "
            f"({ROW} numbers the rows)",
            field="id",
            row=found[1],
        )


def _is_code(connection: duckdb.DuckDBPyConnection, side: _Side, name: str) -> bool:
    """Whether a column has a value of its own in every row, with a digit and without spaces."""
    cell = f"c{side.columns.index(name)}"
    return bool(
        _one(
            connection,
            f"SELECT count(*) = count(DISTINCT {cell}) AND bool_and(regexp_full_match({cell}, '\\S*\\d\\S*')) "
            f"AND NOT bool_or({cell} LIKE '%@%') FROM {side.table}",
        )
    )


def _matched(sides: Sequence[_Side]) -> tuple[list[LinkField], list[list[str]], list[str]]:
    """The columns that are compared, their names in each table, and what is to be told."""
    notes = [
        f"column {name!r} of {side.name} is not compared: it looks like the answer"
        for side in sides
        for name in side.inference.schema.of_type("identity")
    ]
    by_key = [{key_of(name): name for name in side.compared} for side in sides]
    keys = [key for key in by_key[0] if all(key in names for names in by_key)]
    pairs = [[names[key] for names in by_key] for key in keys]
    notes += [f"columns {pair[0]!r} and {pair[1]!r} are compared" for pair in pairs if len(set(pair)) > 1]
    for side, other, names in zip(sides, reversed(sides), by_key, strict=True):
        here = {key_of(name) for name in other.columns}
        notes += [
            f"column {name!r} of {side.name} is not compared: "
            + (f"in {other.name} it says nothing" if key in here else f"{other.name} has none")
            for key, name in names.items()
            if key not in keys
        ]
    fields = []
    for pair in pairs:
        columns = [side.compared[name] for side, name in zip(sides, pair, strict=True)]
        examples = [
            example
            for side, column in zip(sides, columns, strict=True)
            for note in side.inference.notes
            if note.column == column
            for example in note.examples
        ]
        kinds = {column.type for column in columns}
        kind = columns[0].type if len(kinds) == 1 else "text"
        words = sum(len(example.split()) for example in examples) / max(len(examples), 1)
        fields.append(LinkField(pair[0], _kind_of(pair[0], kind, words)))
    return fields, [[pair[at] for pair in pairs] for at in range(len(sides))], notes


def _kind_of(name: str, type_: str, words: float) -> str:
    """The kind of a column by its name and its type."""
    if type_ in ("number", "date", "boolean"):
        return type_
    for kind, pattern in _NAMED.items():
        if re.search(pattern, name, re.IGNORECASE):
            return kind
    return "text" if type_ == "text" and words > _WORDY else "category"


def key_of(name: str) -> str:
    """A name as columns of two tables are matched by: without case, spaces and marks."""
    return "".join(char for char in name.casefold() if char.isalnum())


def _cell(column: RecordColumn, cell: str) -> str:
    """SQL of a cell as text; a date is written as YYYY-MM-DD, whichever way its table writes it, and a number
    without its unit."""
    if column.unit is not None:
        number = f"regexp_extract({cell}, '{_MEASURED}', 1)"
        return f"coalesce(nullif(replace({number}, ',', ''), ''), {cell})"
    if column.type != "date" or column.format is None:
        return cell
    form: str = column.format
    for part, code in _DATE_PARTS.items():
        form = form.replace(part, code)
    return f"coalesce(strftime(TRY_STRPTIME(trim({cell}), '{form}'), '%Y-%m-%d'), {cell})"
