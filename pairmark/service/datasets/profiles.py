"""What the columns of a table hold, by its first rows, and which role each probably has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairmark.models.records.inference import is_id_name
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.tabular import LIST, TableFile, kind_of

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


def profiled(file: TableFile, numbers: Sequence[int] | None = None) -> list[Column]:
    """Columns of a file, at most `PROFILED` of them; default: of all."""
    looked_at = (range(len(file.cells)) if numbers is None else numbers)[:PROFILED]
    parts = (looked_at[start : start + _AT_ONCE] for start in range(0, len(looked_at), _AT_ONCE))
    profiles = [column for part in parts for column in _columns(file, part)]
    kinds = [kind_of(file.types[n]) if file.types else None for n in looked_at]
    return [_typed(column, kind) for column, kind in zip(profiles, kinds, strict=True)]


def text_features(file: TableFile, request: DatasetRequest) -> list[str]:
    """Columns without a role that hold other than numbers; `InvalidInput` as by `Columns.roles`."""
    features = file.columns.roles(request).features[:PROFILED]
    return [column.name for column in profiled(file, _not_all_numbers(file, features)) if column.is_text]


def _not_all_numbers(file: TableFile, numbers: Sequence[int]) -> list[int]:
    """The columns that are worth a profile, which costs five times as much as this."""
    if file.types or not numbers:
        return [n for n in numbers if kind_of(file.types[n]) == "text"]
    cells = ", ".join(f"TRY_CAST({file.cells[n]} AS DOUBLE) IS NOT NULL AS v{n}" for n in numbers)
    selection = ", ".join(f"bool_and(v{n})" for n in numbers)
    flags = file.query(f"SELECT {selection} FROM (SELECT {cells} FROM {file.source} LIMIT {ROWS})").fetchone()
    return [n for n, flag in zip(numbers, flags or (), strict=True) if flag is False]


def _typed(column: Column, kind: str | None) -> Column:
    """A column whose type says what it holds, whatever its first values look like."""
    if kind is None or kind == column.kind:
        return column
    return replace(column, kind=kind, numbers=0) if kind == "text" else replace(column, kind=kind)


def _columns(file: TableFile, numbers: Sequence[int]) -> list[Column]:
    # An empty cell is NULL in CSV and may be '' in Parquet.
    inner = ", ".join(
        f"left(nullif(trim(CAST({file.cells[number]} AS VARCHAR)), ''), {_LOOKED_AT}) AS v{number}"
        for number in numbers
    )
    distinct_of = "approx_count_distinct({0})"
    if len(file.cells) <= COUNTED:
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
    numbered = f"SELECT row_number() OVER () AS n, {inner} FROM {file.source} LIMIT {ROWS}"
    row = file.query(f"SELECT {selection} FROM ({numbered})").fetchone()
    assert row is not None
    rows, counts, profiles = int(row[0]), row[1:], []
    for at, number in enumerate(numbers):
        present, distinct, numeric, whole, ranked, dated, examples = counts[7 * at : 7 * at + 7]
        texts = tuple(str(example)[:50] for example in examples or ())
        profiles.append(
            Column(
                name=file.columns.names[number],
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
