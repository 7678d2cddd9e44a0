"""What the columns of a table hold, by its first rows, and which role each probably has."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pairmark.models.records.inference import is_id_name
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.columns import Columns
from pairmark.service.datasets.limits import Upload
from pairmark.service.datasets.tabular import (
    CSV_SOURCE,
    LIST,
    check_width,
    connected,
    csv_given,
    first_record,
    kind_of,
    pandas_index,
    plain_text,
    raise_if_full,
    refuse_csv,
)
from pairmark.service.errors import InvalidInput, TooLarge

ROWS = 20_000
"""Rows that are looked at."""
COUNTED = 100
"""Columns of a table up to which different values are counted; of more they are estimated, a few per cent off."""
PROFILED = 1_000
"""Columns that are looked at one by one; further ones are taken for features."""
_AT_ONCE = 100
_EXAMPLES = 3
_MOSTLY = 0.5
"""Share of numbers from which on a column's other cells look like mistakes."""
_LOOKED_AT = 200
"""Characters of a value that are looked at."""
_LABEL = re.compile(
    r"(label|class|target|y|who|person|people|identity|subject|user|customer|client|employee|patient|member|name|species|"
    r"category)([ _.-]?(id|name))?",
    re.I,
)
_ID = re.compile(r"row|index|file(_?name)?|path|unnamed\.\d+|__index_level_\d+__|", re.I)
_DATE = "[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+)?(Z|[+-][0-9:]+)?"
"""A date, perhaps with a time, in ISO 8601."""
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]+,[0-9]+")
_RANKING = re.compile(r"[^>=]+([>=][^>=]+)*>[^>]+")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    kind : ``number``, ``text`` (whatever is no number) or ``vector`` (a list of numbers in each row).
    distinct, empty, numbers, rows : of the rows that were looked at.
    examples : its first values, as text.
    whole, ranked, dated : whether every value is a whole number, most are a ranking such as ``b>a>c`` (one label is a
        ranking, too), or every one is an ISO 8601 date.
    """

    name: str
    kind: str
    distinct: int
    empty: int
    numbers: int
    rows: int
    examples: tuple[str, ...]
    whole: bool
    ranked: bool
    dated: bool

    @property
    def repeats(self) -> bool:
        """Whether values come again, as those of identities and classes do."""
        return 1 < self.distinct < self.rows - self.empty

    @property
    def is_text(self) -> bool:
        """Whether it holds other than numbers, and not only numbers with some mistakes or decimal commas."""
        commas = [_DECIMAL_COMMA.fullmatch(example) for example in self.examples]
        mistaken = self.numbers >= _MOSTLY * (self.rows - self.empty) or all(commas)
        is_list = all(map(LIST.match, self.examples))
        return self.kind == "text" and not mistaken and not is_list


def profiled(upload: Upload, scratch: Path) -> list[Column]:
    """The columns of a CSV or Parquet file, at most `PROFILED` of them; `InvalidInput` when it is no table."""
    with _as_texts(upload, scratch) as table:
        return _profiles(table, range(len(table.columns.names)))


def text_features(upload: Upload, scratch: Path) -> list[str]:
    """Columns without a role that hold other than numbers; `InvalidInput` as by `profiled` and by `Columns.roles`."""
    with _as_texts(upload, scratch) as table:
        features = table.columns.roles(upload.request).features
        return [
            column.name for column in _profiles(table, _not_all_numbers(table, features)) if column.is_text
        ]


class _TextTable(NamedTuple):
    """A file on a connection of DuckDB, every cell a text.

    Attributes
    ----------
    source, query_params : what stands after FROM, and its parameters. cells : the expression of each column's cells.
    kinds : of the columns whose type says what they hold.
    """

    connection: Any
    source: str
    query_params: list[Any]
    columns: Columns
    cells: dict[int, str]
    kinds: dict[int, str]


@contextmanager
def _as_texts(upload: Upload, scratch: Path) -> Iterator[_TextTable]:
    """A CSV or Parquet file as texts, while the context lasts; `InvalidInput` when it is no table."""
    path, kind, header, limits = upload.file, upload.kind, upload.request.header, upload.limits
    scratch.mkdir(exist_ok=True)
    connection = connected(scratch, limits)
    try:
        if kind == "csv":
            plain = plain_text(path, scratch, limits)
            delimiter, first = first_record(plain)
            check_width(len(first), limits)
            columns = Columns(first if header else [f"c{number}" for number in range(len(first))])
            cells = {number: f"c{number}" for number in range(len(first))}
            types = dict.fromkeys(cells.values(), "VARCHAR")
            source, query_params = CSV_SOURCE, csv_given(plain, header, delimiter, types)
            kinds: dict[int, str] = {}
        else:
            source, query_params = "read_parquet(?)", [glob.escape(str(path))]
            described = connection.execute(f"DESCRIBE SELECT * FROM {source}", query_params).fetchall()
            check_width(len(described), limits)
            columns = Columns([row[0] for row in described], pandas_index(connection, query_params))
            quoted = ['"' + str(row[0]).replace('"', '""') + '"' for row in described]
            cells = {number: f"CAST({name} AS VARCHAR)" for number, name in enumerate(quoted)}
            kinds = {number: kind_of(str(row[1])) for number, row in enumerate(described)}
        yield _TextTable(connection, source, query_params, columns, cells, kinds)
    except (InvalidInput, TooLarge):
        raise
    except Exception as error:
        raise_if_full(error, limits)
        if type(error).__module__.split(".")[0] not in ("duckdb", "_duckdb"):
            raise
        if kind == "csv":
            refuse_csv(error)
        raise InvalidInput("the file is not whole Parquet; is it truncated?", field="file") from error
    finally:
        connection.close()


def _profiles(table: _TextTable, numbers: Sequence[int]) -> list[Column]:
    looked_at = numbers[:PROFILED]
    parts = (looked_at[start : start + _AT_ONCE] for start in range(0, len(looked_at), _AT_ONCE))
    profiles = [column for part in parts for column in _columns(table, part)]
    return [_typed(column, table.kinds.get(n)) for n, column in zip(looked_at, profiles, strict=True)]


def _not_all_numbers(table: _TextTable, numbers: Sequence[int]) -> list[int]:
    """The columns that are worth a profile, which costs five times as much as this."""
    looked_at = numbers[:PROFILED]
    if table.kinds or not looked_at:
        return [n for n in looked_at if table.kinds[n] == "text"]
    cells = ", ".join(f"TRY_CAST({table.cells[n]} AS DOUBLE) IS NOT NULL AS v{n}" for n in looked_at)
    selection = ", ".join(f"bool_and(v{n})" for n in looked_at)
    flags = table.connection.execute(
        f"SELECT {selection} FROM (SELECT {cells} FROM {table.source} LIMIT {ROWS})", table.query_params
    ).fetchone()
    return [n for n, flag in zip(looked_at, flags, strict=True) if flag is False]


def _typed(column: Column, kind: str | None) -> Column:
    """A column whose type says what it holds, whatever its first values look like."""
    if kind is None or kind == column.kind:
        return column
    return replace(column, kind=kind, numbers=0) if kind == "text" else replace(column, kind=kind)


def _columns(table: _TextTable, numbers: Sequence[int]) -> list[Column]:
    # An empty cell is NULL in CSV and may be '' in Parquet.
    inner = ", ".join(
        f"left(nullif(trim({table.cells[number]}), ''), {_LOOKED_AT}) AS v{number}" for number in numbers
    )
    distinct_of = "approx_count_distinct({0})"
    if len(table.columns.names) <= COUNTED:
        # Hashes, so that long texts take no memory.
        distinct_of = "count(DISTINCT CASE WHEN {0} IS NOT NULL THEN hash({0}) END)"
    selection = "count(*)"
    for number in numbers:
        value = f"v{number}"
        selection += (
            f", count({value}), {distinct_of.format(value)}, count(TRY_CAST({value} AS DOUBLE)), "
            f"coalesce(bool_and(regexp_full_match({value}, '-?[0-9]+([.]0+)?')), false), "
            f"2 * count_if(contains({value}, '>')) > count({value}), "
            f"coalesce(bool_and(regexp_full_match({value}, '{_DATE}')), false), "
            # FILTER would take memory for all columns once for each.
            f"arg_min({value}, n, {_EXAMPLES})"
        )
    numbered = f"SELECT row_number() OVER () AS n, {inner} FROM {table.source} LIMIT {ROWS}"
    row = table.connection.execute(f"SELECT {selection} FROM ({numbered})", table.query_params).fetchone()
    rows, counts, profiles = int(row[0]), row[1:], []
    for at, number in enumerate(numbers):
        present, distinct, numeric, whole, ranked, dated, examples = counts[7 * at : 7 * at + 7]
        texts = tuple(str(example)[:50] for example in examples or ())
        profiles.append(
            Column(
                name=table.columns.names[number],
                kind="number" if present and numeric == present else "text",
                # That an estimate is no more than there are rows is known.
                distinct=min(int(distinct), int(present)),
                empty=rows - int(present),
                numbers=int(numeric),
                rows=rows,
                examples=texts,
                whole=bool(whole),
                dated=bool(dated),
                ranked=bool(ranked) and all(_RANKING.fullmatch(text) for text in texts if ">" in text),
            )
        )
    return profiles


def inferred(columns: list[Column], request: DatasetRequest) -> DatasetRequest:
    """The request with the roles that it does not name: label or ranking, time and row ids; other ids are left out."""
    request_columns = {
        request.label,
        request.group,
        request.id,
        request.time,
        *request.ranking,
        *request.exclude,
    }
    free = {column.name: column for column in columns if column.name not in request_columns}
    changes: dict[str, Any] = {}
    if not request.label and not request.ranking and not request.unlabelled:
        ranked = [column.name for column in free.values() if column.ranked]
        label = _label(list(free.values()))
        if len(ranked) == 1:
            changes["ranking"] = ranked
        elif label is not None:
            changes["label"] = label
    role_columns = {changes.get("label"), *changes.get("ranking", [])}
    dates = [column.name for column in free.values() if column.name not in role_columns and column.dated]
    if not request.time and len(dates) == 1:
        changes["time"] = dates[0]
        role_columns.add(dates[0])
    ids = [column.name for column in free.values() if column.name not in role_columns and _is_id(column)]
    if not request.id and len(ids) == 1:
        changes["id"] = ids[0]
        role_columns.add(ids[0])
    further_ids = [
        column.name for column in free.values() if column.name not in role_columns and _is_id(column)
    ]
    changes["exclude"] = [*request.exclude, *further_ids]
    return request.model_copy(update=changes)


def _label(columns: list[Column]) -> str | None:
    """The column that probably names the identity or class; None where several or none could."""
    able = [column for column in columns if column.repeats and (column.kind == "text" or column.whole)]
    label_columns = [column.name for column in able if _LABEL.fullmatch(column.name)]
    if label_columns:
        return label_columns[0]
    texts = [column.name for column in able if column.kind == "text"]
    return texts[0] if len(texts) == 1 else None


def _is_id(column: Column) -> bool:
    """Whether a column only identifies rows."""
    unique = column.distinct >= 0.9 * (column.rows - column.empty)
    is_named_so = is_id_name(column.name) or bool(_ID.fullmatch(column.name))
    return unique and is_named_so and (column.kind == "text" or column.whole)
