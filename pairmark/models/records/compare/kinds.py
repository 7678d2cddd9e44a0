"""Kinds of columns: the normal form of a cell, how far two of them agree, and further keys that alike ones share.

A level is 0 where a cell is missing, 1 apart, 2 weak, 3 close, 4 equal. Normal forms are functions of Python, which
`register` gives to a DuckDB connection; levels and keys are SQL of normal forms. Learners of records have the same
levels compiled, by the ``rule`` of a kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from pairmark.models.records.compare import normal
from pairmark.models.records.kernels.levels import ALIKE, LIKELY, Rule

if TYPE_CHECKING:
    import duckdb

Role = Literal[
    "given", "surname", "name", "date", "id", "company", "email", "phone", "web", "place", "legal", "other"
]
MISSING, APART, WEAK, CLOSE, EQUAL = LEVELS = range(5)
_CACHED = 65_536
_MOST_VALUES = 8
"""Values of a cell of several that are compared."""

# Counting edits is slow, and few pairs have few: texts one edit apart have the same first or the same last half.
_LEAST = "least(length({a}), length({b}))"


def _edits(n: int, same: str) -> str:
    return (
        f"CASE WHEN abs(length({{a}}) - length({{b}})) <= {n} AND (left({{a}}, {same}) = left({{b}}, {same}) "
        f"OR right({{a}}, {same}) = right({{b}}, {same})) THEN damerau_levenshtein({{a}}, {{b}}) <= {n} ELSE false END"
    )


_ONE_EDIT = _edits(1, f"({_LEAST} - 1) // 2")


def _jaro(least: float) -> str:
    return f"jaro_winkler_similarity({{a}}, {{b}}, {least}) >= {least}"


_JARO = _jaro(ALIKE)
_SPELLED = f"(({_LEAST} > 2 AND {_JARO}) OR ({_LEAST} > 3 AND {_ONE_EDIT}))"
_A, _B = "string_split({a}, ' ')", "string_split({b}, ' ')"
_REST_A = f"list_filter({_A}, lambda word: NOT list_contains({_B}, word))"
_REST_B = f"list_filter({_B}, lambda word: NOT list_contains({_A}, word))"


def _each(words: str, others: str, test: str) -> str:
    """Whether each of some words has one of some others that it passes a test with."""
    test = test.format(a="word", b="other")
    return f"len(list_filter({words}, lambda word: len(list_filter({others}, lambda other: {test})) = 0)) = 0"


def _either(rest_a: str, rest_b: str, test: str) -> str:
    """Whether the unmatched words of the side with fewer have partners on the other; of sides with as many, both."""
    n, m = f"len({rest_a})", f"len({rest_b})"
    return (
        f"(CASE WHEN CASE WHEN {n} <= {m} THEN {_each(rest_a, rest_b, test)} ELSE true END "
        f"THEN CASE WHEN {n} >= {m} THEN {_each(rest_b, rest_a, test)} ELSE true END ELSE false END)"
    )


_SEVERAL = "(contains({a}, ' ') OR contains({b}, ' '))"
_N_A, _N_B = f"len({_A})", f"len({_B})"
_INITIAL = "(starts_with({a}, {b}) OR starts_with({b}, {a}))"
_SHARED = f"len(list_intersect({_A}, {_B}))"
_SHORT = "(CASE WHEN length({a}) < length({b}) THEN {a} ELSE {b} END)"
_LONG = "(CASE WHEN length({a}) < length({b}) THEN {b} ELSE {a} END)"
_ABBREVIATED = (
    f"(left({{a}}, 1) = left({{b}}, 1) AND {_LEAST} > 1 AND {_LONG} LIKE "
    f"array_to_string(string_split({_SHORT}, ''), '%') || '%')"
)
_SQUEEZED = "replace({a}, ' ', '') = replace({b}, ' ', '')"
_ACRONYM = (
    "(CASE WHEN contains({a}, ' ') <> contains({b}, ' ') AND " + f"{_LEAST} > 2 THEN "
    + f"array_to_string(list_transform(string_split({_LONG}, ' '), lambda word: left(word, 1)), '') = {_SHORT} "
    + "ELSE false END)"
)  # fmt: skip
_FIRST, _NAME = "split_part({{{0}}}, '|', 1)", "split_part({{{0}}}, '|', 2)"


def _within(test: str, part: str) -> str:
    """A test of a part of both cells."""
    return test.format(a=part.format("a"), b=part.format("b"))


def _same(part: str) -> str:
    return _within("{a} = {b}", part)


_LOCAL = "split_part({{{0}}}, '@', 1)"
_DIGITS = r"regexp_replace({{{0}}}, '\D', '', 'g')"


def _apart(most: str) -> str:
    """Whether two numbers are that far apart at most."""
    a, b = "TRY_CAST({a} AS DOUBLE)", "TRY_CAST({b} AS DOUBLE)"
    return f"coalesce(abs({a} - {b}) <= {most.format(a=f'abs({a})', b=f'abs({b})')}, false)"


@dataclass(frozen=True)
class ColumnKind:
    """What a column's cells are.

    Attributes
    ----------
    name : as it is shown. role : what its agreement says of relatives.
    form : a cell's normal form; None for a missing one. rule : which of `kernels.levels.RULES` is its level, compiled.
    close, weak : SQL tests of two normal forms ``{a}`` and ``{b}`` that are not equal.
    further : SQL of keys of a normal form ``{a}``, which alike cells share; any key of a cell may equal any of another.
    """

    name: str
    role: Role
    form: Callable[[str], str | None]
    rule: Rule
    close: str = "false"
    weak: str = "false"
    further: tuple[str, ...] = ()

    def normal(self, source: str) -> str:
        """SQL of a cell's normal form, NULL where it is missing, on a connection that `register` knows."""
        return f"nullif(normal_{self.name}({source}), '')"

    def level(self, a: str, b: str) -> str:
        """SQL of how far two normal forms agree, an integer from 0 to 4."""
        close, weak = self.close.format(a=a, b=b), self.weak.format(a=a, b=b)
        return (
            f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN {MISSING} WHEN {a} = {b} THEN {EQUAL} "
            f"WHEN {close} THEN {CLOSE} WHEN {weak} THEN {WEAK} ELSE {APART} END"
        )

    def keys(self, cell: str) -> list[str]:
        """SQL of further keys of a normal form, NULL where it has none."""
        return [key.format(a=cell) for key in self.further]


class _ListKind(ColumnKind):
    """Several values in a cell, of which the best pair counts."""

    def level(self, a: str, b: str) -> str:
        values = [f"string_split({cell}, chr(31))" for cell in (a, b)]
        best = (
            f"list_max(list_transform({values[0]}, lambda value: "
            f"list_max(list_transform({values[1]}, lambda other: {super().level('value', 'other')}))))"
        )
        return (
            f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN {MISSING} WHEN {a} = {b} THEN {EQUAL} ELSE {best} END"
        )

    def keys(self, cell: str) -> list[str]:
        return [f"nullif(split_part({cell}, chr(31), {at}), '')" for at in range(1, _MOST_VALUES // 2 + 1)]


def _several(cell: str) -> str | None:
    values: dict[str, None] = {}
    for part in normal.split_cell(cell):
        form = (
            normal.email(part)
            if "@" in part
            else normal.phone(part)
            if _is_phone(part)
            else normal.text(part)
        )
        if form is not None:
            values[form.replace(normal.VALUE, " ")] = None
    return normal.VALUE.join(sorted(values)[:_MOST_VALUES]) or None


def _is_phone(part: str) -> bool:
    return sum(map(str.isdigit, part)) >= 6 and not any(map(str.isalpha, part))


_WORDS_CLOSE = f"({_JARO} OR {_ONE_EDIT} OR 2 * {_SHARED} >= 0.6 * ({_N_A} + {_N_B}))"
_PAIRED = _either(_REST_A, _REST_B, _SPELLED)
_PERSON_CLOSE = (
    f"CASE WHEN {_SEVERAL} THEN ({_SQUEEZED} OR (least({_N_A}, {_N_B}) > 1 AND {_PAIRED})) "
    f"ELSE {_SPELLED} END"
)
_PERSON_WEAK = (
    f"CASE WHEN {_SEVERAL} THEN ({_SHARED} > 0 OR {_JARO}) "
    f"AND {_either(_REST_A, _REST_B, f'({_INITIAL} OR {_SPELLED})')} ELSE {_INITIAL} END"
)
_SHORTENED = _either(_REST_A, _REST_B, f"({_ONE_EDIT} OR {_ABBREVIATED} OR {_SPELLED})")
_AS_MANY = f"len({_REST_A}) = len({_REST_B})"
# Few addresses are alike at all: digits are looked for in those.
_LIKELY = f"CASE WHEN {_jaro(LIKELY)} THEN "
_SAME_DIGITS, _LONG_LOCAL = _same(_DIGITS), f"length({_LOCAL.format('a')}) > 5"
_NAME_CLOSE = _within(_SPELLED, _NAME)
# With its country before it, or the last digits alone.
_ENDS = f"ends_with({_LONG}, {_SHORT})"
_STARTS = "array_to_string(list_transform(string_split({a}, ' '), lambda word: left(word, 3)), ' ')"

KINDS = {
    kind.name: kind
    for kind in (
        ColumnKind("given", "given", normal.person, "person", _PERSON_CLOSE, _PERSON_WEAK),
        ColumnKind(
            "surname", "surname", normal.person, "person", _PERSON_CLOSE, _PERSON_WEAK,
            further=("left({a}, 3)",),
        ),
        ColumnKind(
            "name", "name", normal.person, "person", _PERSON_CLOSE, _PERSON_WEAK,
            further=(f"CASE WHEN contains({{a}}, ' ') THEN {_STARTS} END",),
        ),
        # Words that differ on both sides tell firms of one group apart; those that one side lacks do not.
        ColumnKind(
            "company", "company", normal.company, "company",
            close=f"({_SQUEEZED} OR CASE WHEN {_AS_MANY} THEN {_SHORTENED} ELSE false END)",
            weak=f"CASE WHEN {_AS_MANY} THEN false ELSE {_SHORTENED} OR {_ACRONYM} END",
            further=("left({a}, 5)",),
        ),
        ColumnKind("legal_form", "legal", normal.legal_form, "same", weak=_ENDS),
        ColumnKind(
            "phone", "phone", normal.phone, "phone",
            close=f"(({_LEAST} > 6 AND right({{a}}, 7) = right({{b}}, 7)) OR {_ONE_EDIT})",
            further=("right({a}, 7)",),
        ),
        ColumnKind(
            "email", "email", normal.email, "email",
            close=f"{_LIKELY} {_SAME_DIGITS} AND ({_ONE_EDIT} OR ({_same(_LOCAL)} AND {_LONG_LOCAL})) ELSE false END",
            weak=f"{_LIKELY} {_SAME_DIGITS} AND {_within(_JARO, _LOCAL)} ELSE false END",
            further=(f"CASE WHEN {_LONG_LOCAL} THEN {_LOCAL.format('a')} END",),
        ),
        ColumnKind(
            "web", "web", normal.web, "web",
            close=f"({_same(_FIRST)} AND length({_FIRST.format('a')}) > 2)",
            weak=f"(length({_FIRST.format('a')}) > 5 AND {_within(_ONE_EDIT, _FIRST)})",
            further=(_FIRST.format("a"),),
        ),
        ColumnKind(
            "street", "place", normal.street, "street",
            close=f"({_same(_FIRST)} AND {_NAME_CLOSE})",
            weak=f"(({_same(_NAME)} AND {_within('{a}', _NAME)} <> '') OR "
            f"({_NAME_CLOSE} AND {_within(_ONE_EDIT, _FIRST)}))",
            further=("CASE WHEN NOT starts_with({a}, '|') THEN left({a}, strpos({a}, '|') + 4) END",),
        ),
        ColumnKind(
            "city", "place", normal.text, "city",
            close=_SPELLED,
            weak=f"({_SHARED} > 0 AND (len({_REST_A}) = 0 OR len({_REST_B}) = 0))",
        ),
        ColumnKind(
            "postcode", "place", normal.postcode, "postcode",
            close=_ONE_EDIT,
            weak=f"({_LEAST} > 3 AND left({{a}}, 3) = left({{b}}, 3))",
        ),
        ColumnKind("place", "place", normal.text, "edit", _ONE_EDIT),
        ColumnKind(
            "date", "date", normal.date, "date",
            close="((left({a}, 4) = left({b}, 4) AND substr({a}, 6, 2) = substr({b}, 9, 2) "
            f"AND substr({{a}}, 9, 2) = substr({{b}}, 6, 2)) OR {_ONE_EDIT})",
            # Two records of one person may each have a mistake in the date; strangers' dates are seldom that close.
            weak=_edits(2, f"{_LEAST} // 3"),
        ),
        ColumnKind(
            "id", "id", normal.identifier, "id",
            close=f"({_LEAST} > 4 AND {_ONE_EDIT})",
            weak=f"({_LEAST} > 5 AND {_ENDS})",
            further=("right({a}, 6)",),
        ),
        ColumnKind("category", "other", normal.text, "spelled", _SPELLED),
        ColumnKind("text", "other", normal.text, "text", _WORDS_CLOSE),
        ColumnKind(
            "number", "other", normal.number, "number",
            close=f"({_apart('0.01 * greatest({a}, {b})')} OR ({_LEAST} > 3 AND {_ONE_EDIT}))",
            weak=_apart("0.1 * greatest({a}, {b})"),
        ),
        ColumnKind("degrees", "place", normal.degrees, "number", _apart("0.0021"), _apart("0.0201")),
        ColumnKind("boolean", "other", normal.boolean, "same"),
        _ListKind("list", "other", _several, "list", _WORDS_CLOSE),
    )
}  # fmt: skip


@dataclass(frozen=True)
class LinkField:
    """A column that is compared: its name, and the name of its kind; ``note`` : why it is given no weight, or empty."""

    name: str
    kind: str
    note: str = ""

    @property
    def definition(self) -> ColumnKind:
        """What makes two of its cells alike."""
        return KINDS[self.kind]

    @property
    def title(self) -> str:
        """What is shown of it: of a company's column its name and its legal form are compared."""
        return f"{self.name}, legal form" if self.kind == "legal_form" else self.name


def register(connection: duckdb.DuckDBPyConnection) -> None:
    """Give a connection the functions that normal forms are made by, once."""
    if connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = 'iso_date'").fetchone():
        return
    connection.create_function("iso_date", _read_date, ["VARCHAR", "VARCHAR", "INTEGER"], "VARCHAR")
    for name, kind in KINDS.items():
        connection.create_function(f"normal_{name}", _remember_form(kind.form), ["VARCHAR"], "VARCHAR")


@lru_cache(_CACHED)
def _read_date(cell: str, form: str, turn: int) -> str:
    """A date as ``YYYY-MM-DD``, of which ``form`` says what comes first, or that it is a spreadsheet's number; any
    other cell as it is."""
    if form == "number":
        return normal.spreadsheet_date(cell) or cell
    plain = normal.fold_cell(cell)
    return (plain and normal.iso_date(plain, form == "month", turn)) or cell


def _remember_form(form: Callable[[str], str | None]) -> Callable[[str], str]:
    """A form that remembers cells, which repeat; empty for what is missing, since none may be NULL here."""

    @lru_cache(_CACHED)
    def of(cell: str) -> str:
        return form(cell[: normal.LONGEST]) or ""

    return of
