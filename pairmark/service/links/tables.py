"""One table or two, from CSV or Parquet, as what is linked: texts of the columns that both have, and ids of rows."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from filecmp import cmp
from itertools import accumulate
from pathlib import Path
from typing import Any

from pairmark.models.linking.candidates import read_row
from pairmark.models.linking.columns import (
    Held,
    Sample,
    UnpairedColumns,
    default_of,
    derived_columns,
    joined_names,
    pair_columns,
)
from pairmark.models.records.compare import LinkField, register
from pairmark.models.records.inference import Inference, infer
from pairmark.models.records.recognition import (
    are_dates,
    century_turn,
    common_kind,
    header_kind,
    link_kind,
    month_first,
)
from pairmark.models.records.schema import COMPARED, FALSE, TRUE, RecordColumn, RecordError, key_of
from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput
from pairmark.service.links.duck import quoted_text

ROW = "row"
"""As the id column: rows are called by their numbers, from 1."""
_LONGEST = 2_048
"""Characters of a cell that are kept."""
_NOTHING = (
    "no column is left to compare: every one is an id, empty, or has one value in all rows, so nothing tells records "
    "apart"
)
_FITTING = {
    # DuckDB alone takes years of one digit.
    "date": "CASE WHEN {0} SIMILAR TO '[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}' AND TRY_CAST({0} AS DATE) IS NOT NULL "
    "THEN {0} END",
    "boolean": f"CASE WHEN lower(trim({{0}})) IN ({', '.join(map(quoted_text, sorted(TRUE | FALSE)))}) THEN {{0}} END",
}
"""SQL of a cell of a declared kind, NULL where it is not of that kind; other kinds take every text."""


@dataclass
class LinkTables:
    """What was read: DuckDB's tables ``source(row, c0, ...)`` and ``ids(row, id)``.

    Attributes
    ----------
    sizes : rows of each table. n_added : the last ones, which people added to an earlier job's.
    whole : names of the columns of the table ``whole``, each once, where there is one.
    ids : the id column of each table; None: row numbers.
    notes : what people should know.
    """

    fields: list[LinkField]
    ids: list[str | None]
    notes: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    n_added: int = 0
    whole: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        return sum(self.sizes)


@dataclass
class _Side:
    """A table.

    Attributes
    ----------
    cells : those of some of its rows, by column; coverage : which share of its different values they have.
    kinds : by which links compare them. declared : columns of which somebody said the kind.
    listed : a column that names its rows and is compared all the same.
    joined : given names and surnames that the other table may have in one column.
    """

    name: str
    table: str
    columns: list[str]
    n: int
    inference: Inference
    cells: dict[str, tuple[str | None, ...]]
    coverage: dict[str, float]
    kinds: dict[str, str]
    declared: frozenset[str] = frozenset()
    warnings: Sequence[str] = ()
    id_column: str | None = None
    listed: str | None = None
    joined: dict[str, tuple[str, str]] = field(default_factory=dict)

    def sql(self, name: str) -> str:
        """That of a column, or of two that are joined."""
        parts = [f"c{self.columns.index(part)}" for part in self.joined.get(name, [name])]
        return parts[0] if len(parts) == 1 else f"nullif(concat_ws(' ', {', '.join(parts)}), '')"

    @property
    def compared(self) -> dict[str, RecordColumn]:
        return {
            column.name: column
            for column in self.inference.schema.columns
            if (column.type in COMPARED and column.name != self.id_column) or column.name == self.listed
        }


def read_tables(
    connection: Any,
    files: Sequence[Path],
    scratch: Path,
    limits: FileLimits,
    *,
    id_column: str | None = None,
    columns: dict[str, str] | None = None,
    whole: bool = False,
) -> LinkTables:
    """Read one table or two; one given twice is one.

    Parameters
    ----------
    id_column : names the rows; None: the column that plainly does. `ROW`: they are numbered.
    columns : types of columns; the others are inferred from rows spread over each table.
    whole : there is also a table ``whole(row, c0, ...)`` of all columns of all tables as they stand.

    Raises
    ------
    InvalidInput
        Saying what is wrong with a file.
    """
    register(connection)
    notes_of_files = list[str]()
    if len(files) == 2 and cmp(files[0], files[1], shallow=False):
        notes_of_files, files = ["both are the same table: links within it"], files[:1]
    declared = (columns or {}) | ({} if id_column in (None, ROW) else {id_column: "id"})
    sides = [
        _read(connection, path, scratch / str(number), limits, f"side{number}", declared, 3 - len(files))
        for number, path in enumerate(files)
    ]
    names_of_whole = _keep_whole(connection, sides) if whole else []
    notes_of_files += [f"{side.name}: {warning}" for side in sides for warning in side.warnings]
    readable = {ROW, *(name for side in sides for name in side.columns)}
    for what, names in (("id", [id_column or ROW]), ("columns", columns or {})):
        for name in names:
            if name not in readable:
                raise InvalidInput(
                    f"no column is called {name!r}; expected one of {', '.join(sides[0].columns[:20])}"
                    + (f", or {ROW}, which numbers the rows" if what == "id" else ""),
                    field=what,
                )
    for side in sides:
        side.id_column = _id_of(connection, side, id_column, sides[0].id_column, notes_of_files)
    for side in sides:
        if id_column is None and any(
            side.id_column in other.columns and other.id_column is None for other in sides
        ):
            # Such as the number of a product, which one table lists and the other mentions.
            notes_of_files.append(
                f"{side.name}: {side.id_column!r} names its rows alone, so it is compared, and rows are called by "
                "their numbers"
            )
            side.listed, side.id_column = side.id_column, None
        notes_of_files += _blank_headers(connection, side)
    fields, chosen, notes = _match_columns(sides)
    if not fields:
        raise InvalidInput(
            _NOTHING
            if len(sides) == 1
            else "the tables have no column in common; expected columns of the same names"
        )
    turns = [
        century_turn(
            cell for side, name in zip(sides, column_names, strict=True) for cell in side.cells[name]
        )
        if field_.kind == "date"
        else 0
        for field_, *column_names in zip(fields, *chosen, strict=True)
    ]
    starts = accumulate((side.n for side in sides), initial=0)
    for number, (side, names, start) in enumerate(zip(sides, chosen, starts, strict=False)):
        cells = [
            _fitting_cell(connection, side, name, _cell(side, name, field_.kind, turn, notes), notes)
            for field_, name, turn in zip(fields, names, turns, strict=True)
        ]
        row_id = (
            "CAST(row + 1 AS VARCHAR)" if side.id_column is None else f"c{side.columns.index(side.id_column)}"
        )
        listed = ", ".join(f"{cell} AS c{place}" for place, cell in enumerate(cells))
        for table, what in (("source", listed), ("ids", f"{row_id} AS id")):
            verb = f"CREATE TABLE {table} AS" if number == 0 else f"INSERT INTO {table}"
            connection.execute(f"{verb} SELECT row + {start} AS row, {what} FROM {side.table}")
        connection.execute(f"DROP TABLE {side.table}")
    if len(sides) == 2:
        notes += _unlike(connection, fields, sides)
    rows = [
        row
        for side, names in zip(sides, chosen, strict=True)
        for row in zip(*(side.cells[name] for name in names), strict=True)
    ]
    follow = derived_columns([field_.name for field_ in fields], list(zip(*rows, strict=True)))
    notes += [f"column {name!r} follows from {parts}: it adds nothing" for name, parts in follow.items()]
    fields = [
        replace(field_, note=f"follows from {follow[field_.name]}" if field_.name in follow else "")
        for field_ in fields
    ]
    return LinkTables(
        fields,
        [side.id_column for side in sides],
        notes_of_files + notes,
        [side.n for side in sides],
        whole=names_of_whole,
    )


def _keep_whole(connection: Any, sides: Sequence[_Side]) -> list[str]:
    """Table ``whole``; returns the names of its columns, which are none that the outputs have."""
    names, tables = dict[str, str](), list[str]()
    for side in sides:
        cells: dict[str, str] = {}
        for place, name in enumerate(side.columns):
            key = key_of(name) or name
            # Of one table, both are kept.
            key = f"{key} {len(cells)}" if key in cells else key
            names.setdefault(key, name)
            cells[key] = f"c{place} AS c{[*names].index(key)}"
        n_before = sum(other.n for other in sides[: len(tables)])
        tables.append(f"SELECT row + {n_before} AS row, {', '.join(cells.values())} FROM {side.table}")
    connection.execute(f"CREATE TEMP TABLE whole AS {' UNION ALL BY NAME '.join(tables)}")
    taken = ["entity", "records"]
    for name in names.values():
        while name.casefold() in map(str.casefold, taken):
            name += "_"
        taken.append(name)
    return taken[2:]


def _read(
    connection: Any,
    path: Path,
    scratch: Path,
    limits: FileLimits,
    table: str,
    declared: dict[str, str],
    fewest: int,
) -> _Side:
    kind = format_of(None, path.name)
    if kind not in ("csv", "parquet"):
        raise InvalidInput(f"{path.name} is {kind}; expected a table: CSV or Parquet")
    scratch.mkdir()
    try:
        file = TableFile(path, scratch, kind, limits, connection=connection)
        cells = ", ".join(f"CAST({cell} AS VARCHAR) AS c{number}" for number, cell in enumerate(file.cells))
        file.query(
            f"CREATE TABLE {table} AS SELECT row_number() OVER () - 1 AS row, {cells} FROM {file.source}"
        )
    except InvalidInput as error:
        raise InvalidInput(f"{path.name}: {error.detail}", **error.facts) from error
    names = file.names
    n = read_row(connection, f"SELECT count(*) FROM {table}")
    if n < fewest:
        raise InvalidInput(f"{path.name} has {'one row' if n else 'no rows'}; expected {fewest} or more")
    sample = Sample.of(connection, table, names, n)
    declared = {name: kind for name, kind in declared.items() if name in names}
    # A few mistyped dates make no column of text: they are compared as they stand.
    dates = {name for name, texts in sample.distinct.items() if are_dates(texts)}
    types = dict.fromkeys(dates, "date:YYYY-MM-DD")
    types |= {name: "date:YYYY-MM-DD" if kind == "date" else kind for name, kind in declared.items()}
    try:
        inference = infer(sample.cells, types | sample.types_of_ids(types))
    except RecordError as error:
        nothing = "no column is left" in str(error)
        error = RecordError(
            [each | {"row": each["row"] and (each["row"] - 1) * sample.step + 1} for each in error.problems]
        )
        raise InvalidInput(f"{path.name}: {_NOTHING if nothing else error}") from error
    kinds = {
        column.name: column.type
        if column.name in declared
        else link_kind(
            column.name,
            column.type,
            sample.distinct[column.name],
            len(sample.cells[column.name]) - note.missing,
        )
        for column, note in zip(inference.schema.columns, inference.notes, strict=True)
    }
    return _Side(
        path.name,
        table,
        names,
        n,
        inference,
        sample.cells,
        sample.coverage,
        kinds,
        frozenset(declared),
        file.warnings,
    )


def _id_of(
    connection: Any,
    side: _Side,
    named_by_person: str | None,
    elsewhere: str | None,
    notes: list[str],
) -> str | None:
    """The column that names a table's rows; None: their numbers do, and the notes say which might."""
    if named_by_person == ROW:
        return None
    called = [name for name in side.columns if name.casefold() == "id"]
    names = [named_by_person, *side.inference.schema.of_type("id")]
    if elsewhere in side.columns and _repeated(connection, side, elsewhere) is None:
        names.append(elsewhere)
    chosen = next((name for name in (*names, *called) if name in side.columns), None)
    if chosen is not None:
        if (repeated := _repeated(connection, side, chosen)) is not None:
            cell, row, n = repeated
            what = "is empty" if cell is None else f"repeats: {cell!r} names {n} rows"
            raise InvalidInput(
                f"{side.name}, row {row}: the id column {chosen!r} {what}; mend it, or name another by --id "
                f"({ROW} numbers the rows)",
                field="id",
                row=row,
            )
        return chosen
    likely = [
        name
        for name in side.columns
        if side.kinds.get(name) not in ("date", "number", "degrees", "ignore")
        and header_kind(name) not in ("phone", "postcode")
        and _is_code(connection, side, name)
    ]
    if likely:
        notes.append(
            f"{side.name}: rows are called by their numbers; say --id (`id`) if a column names them and says nothing "
            f"else: {', '.join(likely[:10])}"
        )
    return None


def _repeated(connection: Any, side: _Side, name: str) -> Any:
    """The first cell of a column that is empty or in several rows, its row and how many have it, if there is one."""
    cell = f"c{side.columns.index(name)}"
    return connection.execute(
        f"SELECT {cell}, min(row) + 1, count(*) FROM {side.table} GROUP BY {cell} "
        f"HAVING count(*) > 1 OR {cell} IS NULL ORDER BY 2 LIMIT 1"
    ).fetchone()


def _blank_headers(connection: Any, side: _Side) -> list[str]:
    """Take the cells of rows that repeat the header, as those of joined files do, for missing, and say so. Ids may be
    others: stored tables name such rows, too."""
    cells = {name: f"c{place}" for place, name in enumerate(side.columns) if name != side.id_column}
    if len(cells) < 2:
        return []
    is_header = " AND ".join(f"trim({cell}) = {quoted_text(name)}" for name, cell in cells.items())
    n, first = read_row(connection, f"SELECT count(*), min(row) + 1 FROM {side.table} WHERE {is_header}")
    if not n:
        return []
    connection.execute(f"UPDATE {side.table} SET {' = NULL, '.join(cells.values())} = NULL WHERE {is_header}")
    return [
        f"{side.name}: {n:,} rows, such as row {first}, repeat the header: they are no records and not linked"
    ]


def _is_code(connection: Any, side: _Side, name: str) -> bool:
    """Whether a column has a value of its own in every row, with a digit and without spaces."""
    cell = f"c{side.columns.index(name)}"
    return bool(
        read_row(
            connection,
            f"SELECT count(*) = count(DISTINCT {cell}) AND bool_and(regexp_full_match({cell}, '\\S*\\d\\S*')) "
            f"AND NOT bool_or({cell} LIKE '%@%') FROM {side.table}",
        )
    )


def _match_columns(sides: Sequence[_Side]) -> tuple[list[LinkField], list[list[str]], list[str]]:
    """The columns that are compared, their names in each table, and what is to be told."""
    notes = [
        f"column {name!r} of {side.name} is not compared: it looks like the answer"
        for side in sides
        for name in side.inference.schema.of_type("identity")
    ]
    by_key = [{key_of(name): name for name in side.compared} for side in sides]
    pairs = [
        tuple(names[key] for names in by_key) for key in by_key[0] if all(key in names for names in by_key)
    ]
    shared = _pair_columns(sides, pairs)
    notes += [
        f"columns {pair[0]!r} and {pair[1]!r} are compared"
        + (f": they share {shared[pair]}" if pair in shared else "")
        for pair in (*pairs, *shared)
        if len(set(pair)) > 1
    ]
    pairs += shared
    compared = {
        part
        for pair in pairs
        for side, name in zip(sides, pair, strict=True)
        for part in side.joined.get(name, [name])
    }
    every = [{key_of(name) for name in side.columns} for side in sides]
    for side, names in zip(sides, by_key, strict=True):
        for key, name in names.items():
            if name not in compared:
                # Of a table that has no such column, else of one where it says nothing.
                without, silent = (
                    [other.name for other, there in zip(sides, keys_of, strict=True) if key not in there]
                    for keys_of in (every, by_key)
                )
                why = f"{without[0]} has none" if without else f"in {silent[0]} it says nothing"
                notes.append(f"column {name!r} of {side.name} is not compared: {why}")
    fields = []
    for pair in pairs:
        kinds = [side.kinds[name] for side, name in zip(sides, pair, strict=True)]
        kind = common_kind(kinds, [side.cells[name] for side, name in zip(sides, pair, strict=True)])
        if kind is None:
            examples = " and ".join(
                f"{each} in {side.name} ({next(filter(None, side.cells[name]), '')[:60]!r})"
                for each, side, name in zip(kinds, sides, pair, strict=True)
            )
            notes.append(
                f"column {pair[0]!r} is {examples}: it is compared as text; give its kind (--column {pair[0]}:KIND)"
            )
        fields.append(LinkField(pair[0], kind or "text"))
    return fields, [[pair[at] for pair in pairs] for at in range(len(sides))], notes


def _pair_columns(sides: Sequence[_Side], by_name: Sequence[Sequence[str]]) -> dict[tuple[str, ...], str]:
    """The other columns of two tables that plainly hold the same, and what each pair shares; of any other number of
    tables there are none."""
    if len(sides) != 2:
        return {}
    left, right = (
        {
            name: Held(side.kinds[name], side.cells[name], side.coverage[name])
            for name in side.compared
            if name not in named
        }
        for side, named in zip(sides, [*zip(*by_name, strict=True)] or [(), ()], strict=True)
    )
    for side, columns, others in zip(sides, (left, right), (right, left), strict=True):
        for whole, (parts, held) in joined_names(columns, side.n).items():
            if all(column.kind != "name" for column in others.values()):
                continue
            side.joined[whole], side.kinds[whole], side.cells[whole] = parts, held.kind, tuple(held.cells)
            columns[whole] = held
    try:
        return pair_columns(left, right)
    except UnpairedColumns as error:
        if by_name:
            return {}
        raise InvalidInput(f"{sides[0].name} and {sides[1].name} have no column in common; {error}") from None


def _unlike(connection: Any, fields: Sequence[LinkField], sides: Sequence[_Side]) -> list[str]:
    """Notes of columns of which two tables have no value in common, with an example of each."""
    notes, n = [], sides[0].n
    for at, field_ in enumerate(fields):
        left, right = (
            f"SELECT c{at} AS cell FROM source WHERE row {sign} {n} AND c{at} IS NOT NULL"
            for sign in ("<", ">=")
        )
        if read_row(connection, f"SELECT count(*) FROM (({left}) INTERSECT ({right}))"):
            continue
        forms = [f"SELECT {field_.definition.normal('cell')} AS cell FROM ({side})" for side in (left, right)]
        common, *examples = read_row(
            connection,
            f"SELECT (SELECT count(*) FROM (({forms[0]}) INTERSECT ({forms[1]}))), "
            f"(SELECT min(cell) FROM ({left})), (SELECT min(cell) FROM ({right}))",
        )
        if not common and None not in examples:
            in_each = " and ".join(
                f"{example[:60]!r} in {side.name}" for example, side in zip(examples, sides, strict=True)
            )
            notes.append(f"column {field_.name!r} has no value in both tables, such as {in_each}")
    return notes


def _fitting_cell(connection: Any, side: _Side, name: str, cell: str, notes: list[str]) -> str:
    """SQL of a cell, missing where it is not of the kind that its column was said to be of; the notes say how many."""
    kind = side.kinds[name]
    if name not in side.declared or kind not in _FITTING:
        return cell
    fitting = _FITTING[kind].format(cell)
    n, first, example = read_row(
        connection,
        f"SELECT count(*), min(row) + 1, arg_min(raw, row) FROM (SELECT row, {cell} AS raw, {fitting} AS kept "
        f"FROM {side.table}) WHERE raw IS NOT NULL AND kept IS NULL",
    )
    if n:
        notes.append(
            f"column {name!r} of {side.name}: {n:,} cells, such as {example[:60]!r} in row {first}, are no {kind}, as "
            "it was declared, and taken as missing"
        )
    return fitting


def _cell(side: _Side, name: str, kind: str, turn: int, notes: list[str]) -> str:
    """SQL of a cell as text, cut where it is too long to compare all of it: a date as YYYY-MM-DD, whichever way its
    table writes it, nothing where a value stands for none."""
    cell = f"left({side.sql(name)}, {_LONGEST})"
    default = default_of(side.cells[name], kind)
    if default is not None:
        share = Counter(side.cells[name])[default] / len(side.cells[name])
        notes.append(
            f"column {name!r} of {side.name}: {default[:60]!r} in {share:.0%} of the rows is taken as missing"
        )
        cell = f"nullif({cell}, {quoted_text(default)})"
    if kind == "date":
        first = (side.compared[name].format or "").startswith("MM") or month_first(side.cells[name])
        form = "number" if side.kinds[name] != "date" else "month" if first else "day"
        return f"iso_date({cell}, '{form}', {turn})"
    return cell
