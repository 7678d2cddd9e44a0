"""What the columns of tables hold: some rows say their kinds, which follow from others, and which of two tables are of
the same, whatever they are called."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import permutations
from operator import contains
from typing import Any, NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.records.compare import KINDS
from pairmark.models.records.compare.normal import fold_cell, words_of
from pairmark.models.records.inference import infer, is_id_name
from pairmark.models.records.schema import RecordError

_ROWS, _FIRST = 5_000, 1_000
"""Rows that are looked at, and of those the first ones, one after the other."""

_FOLLOWS, _FEWEST_ROWS = 0.95, 20
"""Share of rows in which a column follows from others, and the fewest rows that say so."""
_COMPLETE = 0.7
_DEFAULT, _OUTSTANDING = 0.05, 10
"""Share of cells, and times the next most frequent value, from which on a value looks like one for none."""
_SINGULAR = frozenset({"date", "phone", "email", "web", "id", "street"})
"""Kinds of which many rows seldom share a cell."""
_NOWHERE = " "
"""In no cell, since here these have letters and digits alone."""
_Columns = Sequence[Sequence[str | None]]
_PartsOf = Callable[[_Columns, int, Sequence[int]], tuple[int, ...]]
"""Finds, of a column, those of some others that it follows from."""
_FEWEST, _PLAIN, _LIKELY = 5, 0.1, 0.02
"""Values that two columns share at least; and which share of those of the one that has fewer, so that they plainly hold
the same, or may."""
_SOUGHT, _CHANCE = 1_000, 0.5
"""Cells of a column whose words are sought in another; in how many of its cells two of them meet by chance at most, if
it is to say something."""
_FARTHEST, _FEWEST_NUMBERS, _ALIKE = 0.2, 50, 0.4
"""How far the distributions of two columns of numbers are apart at most, of how many numbers; and how near they are if
they plainly hold the same."""
_WORDS = frozenset({"name", "given", "surname", "text", "category", "city", "company", "id"})
_PLAIN_KINDS = _WORDS | {"number"}
_NUMBERS, _CODES = frozenset({"number", "degrees"}), frozenset({"number", "id"})
"""Kinds that cells may be taken for one in the place of another, or of any other."""
_LEAST_CODE = 5
"""Characters of codes that one table has as numbers, without the zeros before them."""
_SILENT = _NUMBERS | {"boolean"}
"""Kinds of which strangers share values."""

Column = tuple[str | None, ...]


class Sample(NamedTuple):
    """Cells of every ``step``-th row, and of the first rows, by column; its different values, and which share of those
    of all rows they are."""

    step: int
    cells: dict[str, Column]
    first: dict[str, Column]
    distinct: dict[str, list[str]]
    coverage: dict[str, float]

    @classmethod
    def of(cls, connection: Any, table: str, names: Sequence[str], n: int) -> "Sample":
        """From ``table(row, c0, ...)`` of ``n`` rows."""
        step = -(-n // _ROWS)

        def columns(which: str) -> dict[str, Column]:
            rows = connection.execute(
                f"SELECT * EXCLUDE row FROM {table} WHERE {which} ORDER BY row"
            ).fetchall()
            return dict(zip(names, zip(*rows, strict=True), strict=True))

        cells = columns(f"row % {step} = 0")
        distinct = {name: list(dict.fromkeys(filter(None, texts))) for name, texts in cells.items()}
        if step == 1:
            return cls(step, cells, cells, distinct, dict.fromkeys(names, 1.0))
        counts = ", ".join(f"approx_count_distinct(c{number})" for number in range(len(names)))
        [every] = connection.execute(f"SELECT {counts} FROM {table}").fetchall()
        coverage = {
            name: min(len(distinct[name]) / max(n_values, len(distinct[name]), 1), 1.0)
            for name, n_values in zip(names, every, strict=True)
        }
        return cls(step, cells, columns(f"row < {_FIRST}"), distinct, coverage)

    def types_of_ids(self, types: Mapping[str, str]) -> dict[str, str]:
        """Types of columns that only rows which follow each other tell: that they number a table, or that what one is
        called like an id has values which repeat, in a sorted table.

        Parameters
        ----------
        types : of columns of which they are known.
        """
        if self.step == 1:
            return {}
        try:
            inferred = {column.name: column.type for column in infer(self.first, types).schema.columns}
        except RecordError:
            return {}
        of_own = [name for name, cells in self.cells.items() if len(self.distinct[name]) == len(cells)]
        repeats = {name for name, cells in self.first.items() if len({*cells}) < len(cells)}
        return {
            name: "id" if inferred[name] == "id" else "text"
            for name in of_own
            if name not in types and (inferred[name] == "id" or (is_id_name(name) and name in repeats))
        }


def derived_columns(names: Sequence[str], columns: _Columns) -> dict[str, str]:
    """Columns that follow from others in nearly all rows, and from which: a name in full, initials, a copy, an address
    made of names, the year of a date. Rows in which a part is empty say nothing."""
    plain = [
        [None if cell is None else "".join(filter(str.isalnum, cell.casefold())) or None for cell in column]
        for column in columns
    ]
    parts_by_column: dict[int, tuple[int, ...]] = {}
    rules: list[_PartsOf] = [partial(_composing_parts, _held_in(plain)), _initials, _cut_out]
    for parts_of in rules:
        # The later one of two copies goes.
        for place in reversed(range(len(names))):
            others = [other for other in range(len(names)) if other != place and other not in parts_by_column]
            if place not in parts_by_column and (parts := parts_of(plain, place, others)):
                rows = zip(plain[place], *(plain[part] for part in parts), strict=True)
                complete = [all(cells) for cell, *cells in rows if cell]
                # Where its parts are missing, a column says something of its own.
                if sum(complete) >= _COMPLETE * len(complete):
                    parts_by_column[place] = parts
    return {
        names[place]: ", ".join(names[part] for part in parts) for place, parts in parts_by_column.items()
    }


def _held_in(columns: _Columns) -> list[frozenset[int]]:
    """Of each column, the others whose cells most of its own hold, single characters aside."""
    cells = [[cell or "" for cell in column] for column in columns]
    parts = [[cell if len(cell) > 1 else _NOWHERE for cell in column] for column in cells]
    is_there = np.array([[float(bool(cell)) for cell in column] for column in cells])
    n_both = (is_there @ is_there.T).tolist()
    return [
        frozenset(
            other
            for other, n in enumerate(n_both[place])
            if other != place and n and sum(map(contains, column, parts[other])) >= _COMPLETE * n
        )
        for place, column in enumerate(cells)
    ]


def _composing_parts(
    held_in: Sequence[frozenset[int]], columns: _Columns, place: int, others: Sequence[int]
) -> tuple[int, ...]:
    """The columns whose cells, with words that are always the same, make up those of a column."""
    column = columns[place]
    parts = [other for other in others if other in held_in[place]]
    if not parts:
        return ()
    rests: Counter[str] = Counter()
    for rest, *cells in zip(column, *(columns[part] for part in parts), strict=True):
        if rest and all(cells):
            for cell in sorted(filter(None, cells), key=len, reverse=True):
                rest = rest.replace(cell, "", 1)
            rests[rest] += 1
    n = max(rests.values(), default=0)
    return tuple(parts) if rests.total() >= _FEWEST_ROWS and n >= _FOLLOWS * rests.total() else ()


def _initials(columns: _Columns, place: int, others: Sequence[int]) -> tuple[int, ...]:
    """The two columns whose first letters a column holds."""
    column = columns[place]
    if max((len(cell) for cell in column if cell), default=0) != 2:
        return ()
    rows_of = {
        pair: zip(column, columns[pair[0]], columns[pair[1]], strict=True) for pair in permutations(others, 2)
    }
    return next(
        (
            pair
            for pair, rows in rows_of.items()
            if _nearly(
                (cell == one[0] + other[0] for cell, one, other in rows if cell and one and other),
                len(column),
            )
        ),
        (),
    )


def _cut_out(columns: _Columns, place: int, others: Sequence[int]) -> tuple[int, ...]:
    """The column of whose cells a column holds so many first or last characters."""
    column = columns[place]
    lengths = {len(cell) for cell in column if cell}
    if len(lengths) != 1 or lengths == {1}:
        return ()
    return next(
        (
            (other,)
            for other in others
            if _nearly(
                (
                    whole.startswith(cell) or whole.endswith(cell)
                    for cell, whole in zip(column, columns[other], strict=True)
                    if cell and whole
                ),
                len(column),
            )
        ),
        (),
    )


def _nearly(hits: Iterable[bool], most: int) -> bool:
    """Whether nearly all of ``most`` rows or fewer hit, without a look at the rest where too many have missed."""
    n = n_missed = 0
    for is_hit in hits:
        n, n_missed = n + 1, n_missed + (not is_hit)
        if n_missed > (1 - _FOLLOWS) * most:
            return False
    return n >= _FEWEST_ROWS and n - n_missed >= _FOLLOWS * n


def default_of(cells: Sequence[str | None], kind: str) -> str | None:
    """A value that stands for none: far more frequent than any other of a column whose cells are seldom shared."""
    ranked = Counter(cell for cell in cells if cell and cell.strip()).most_common(2)
    if kind not in _SINGULAR or not ranked or ranked[0][1] < max(_FEWEST_ROWS, _DEFAULT * len(cells)):
        return None
    return ranked[0][0] if len(ranked) > 1 and ranked[0][1] >= _OUTSTANDING * ranked[1][1] else None


class Held(NamedTuple):
    """Of a column its kind, some of its cells, and which share of its different values these have."""

    kind: str
    cells: Sequence[str | None]
    coverage: float = 1.0


def joined_names(columns: Mapping[str, Held], n_rows: int) -> dict[str, tuple[tuple[str, str], Held]]:
    """Where a table has one column of given names and one of surnames, what they are together, and which they are."""
    parts = [
        [name for name, column in columns.items() if column.kind == kind] for kind in ("given", "surname")
    ]
    if [len(names) for names in parts] != [1, 1]:
        return {}
    given, surname = parts[0][0], parts[1][0]
    pairs = zip(columns[given].cells, columns[surname].cells, strict=True)
    cells = [" ".join(filter(None, pair)) or None for pair in pairs]
    return {f"{given} {surname}": ((given, surname), Held("name", cells, len(cells) / n_rows))}


class UnpairedColumns(ValueError):
    """No column of one table plainly holds what one of the other holds; says which may."""


def pair_columns(left: Mapping[str, Held], right: Mapping[str, Held]) -> dict[tuple[str, ...], str]:
    """Names of columns that share values, each other's best, with no other half as near; and, of the others, those that
    so share words of values, or hold numbers of one distribution. With each pair what it shares.

    Raises
    ------
    UnpairedColumns
        Where there are none; its message proposes pairs by values and by kinds that a table has once.
    """
    columns = [[*left.values()], [*right.values()]]
    kinds = [[column.kind for column in table] for table in columns]
    alike = {
        (column, other): common
        for column, kind in enumerate(kinds[0])
        for other, called in enumerate(kinds[1])
        if (common := _kind_of(kind, called)) is not None
    }
    forms = cache(lambda side, column, kind: _forms(kind, columns[side][column].cells))
    numbers = cache(lambda side, column, kind: _numbers(kind, columns[side][column].cells))
    words = cache(lambda side, column: _words(columns[side][column].cells))
    by_values, by_words, by_numbers = np.zeros((3, len(left), len(right)))
    for (column, other), kind in alike.items():
        if kind in _NUMBERS:
            by_numbers[column, other] = _nearness(numbers(0, column, kind), numbers(1, other, kind))
        elif kind not in _SILENT:
            pair = forms(0, column, kind), forms(1, other, kind)
            if {kinds[0][column], kinds[1][other]} == _CODES:
                one, two = ({form for form in side if len(form) >= _LEAST_CODE} for side in pair)
                pair = frozenset(one), frozenset(two)
            by_values[column, other] = _share_of_values(
                *pair, columns[0][column].coverage, columns[1][other].coverage
            )
    shared = dict.fromkeys(_best(by_values, _PLAIN), "values")
    paired = [{column for column, _ in shared}, {other for _, other in shared}]
    for (column, other), kind in alike.items():
        if kind in (*_WORDS, "street") and column not in paired[0] and other not in paired[1]:
            sides = (
                (words(0, column), columns[0][column].coverage),
                (words(1, other), columns[1][other].coverage),
            )
            by_words[column, other] = _shared_words(*sorted(sides, key=lambda side: len(side[0])))
    shared |= dict.fromkeys(_best(by_words, _PLAIN), "words")
    shared |= dict.fromkeys(_best(by_numbers, _ALIKE), "a distribution of numbers")
    names = [[*left], [*right]]
    if shared:
        return {(names[0][column], names[1][other]): what for (column, other), what in shared.items()}
    near = _best(by_values, _LIKELY, near=1)
    likely = [
        (names[0][column], names[1][other])
        for column, other in alike
        if (column, other) in near
        or (
            kinds[0][column] == kinds[1][other] not in _SILENT
            and all(of.count(kinds[0][column]) == 1 for of in kinds)
        )
    ]
    raise UnpairedColumns(
        "expected columns of the same names"
        + (": rename those that hold the same, perhaps " if likely else "")
        + ", ".join(f"{one!r} ~ {other!r}" for one, other in likely)
    )


def _kind_of(kind: str, other: str) -> str | None:
    """By which kind's forms two columns are held against each other; None: they do not hold the same.

    What one table writes in a way of its own may be plain in the other: phones without marks, streets with towns.
    """
    both = {kind, other}
    special = [*(both - _PLAIN_KINDS)]
    if len(both) == 1 or (len(special) == 1 and special[0] not in _SILENT):
        return special[0] if special else kind
    if both == _NUMBERS:
        return "degrees"
    return "id" if both == _CODES else "text" if both <= _WORDS else None


def _best(shares: Float64, least: float, near: float = 0.5) -> list[tuple[int, int]]:
    """Where shares are the largest of their row and their column, and no other is near them."""
    is_near = [shares >= near * shares.max(axis=axis, keepdims=True, initial=0) for axis in (0, 1)]
    is_alone = (is_near[0].sum(axis=0) == 1) & (is_near[1].sum(axis=1, keepdims=True) == 1)
    return [
        (int(at), int(other))
        for at, other in np.argwhere(is_near[0] & is_near[1] & is_alone & (shares >= least))
    ]


def _forms(kind: str, cells: Sequence[str | None]) -> frozenset[str]:
    of = _plain_text if kind == "text" else KINDS[kind].form
    return frozenset(form for cell in {*cells} if cell and (form := of(cell)) is not None)


def _plain_text(cell: str) -> str | None:
    return " ".join(words_of(fold_cell(cell) or "")) or None


def _share_of_values(one: frozenset[str], other: frozenset[str], coverage: float, of_other: float) -> float:
    """Which share of the values of the column with fewer the other has, too; by samples of both."""
    n, least = len(one & other), min(len(one), len(other))
    if n < min(_FEWEST, max(least / 2, 2)):
        return 0.0
    return n / min(len(one) * of_other, len(other) * coverage)


def _nearness(one: Float64, other: Float64) -> float:
    """1 where sorted numbers have one distribution (Kolmogorov and Smirnov), 0 from some distance on."""
    if min(one.size, other.size) < _FEWEST_NUMBERS:
        return 0.0
    every = np.concatenate([one, other])
    shares = [np.searchsorted(side, every, side="right") / side.size for side in (one, other)]
    return max(1 - float(np.abs(shares[0] - shares[1]).max()) / _FARTHEST, 0.0)


def _numbers(kind: str, cells: Sequence[str | None]) -> Float64:
    numbers = []
    for cell in filter(None, cells):
        with suppress(ValueError):
            numbers.append(float(KINDS[kind].form(cell) or "nan"))
    return np.sort([number for number in numbers if np.isfinite(number)])


def _words(cells: Sequence[str | None]) -> list[list[str]]:
    return [words_of(fold_cell(cell) or "") for cell in dict.fromkeys(filter(None, cells))]


def _shared_words(
    fewer: tuple[Sequence[Sequence[str]], float], more: tuple[Sequence[Sequence[str]], float]
) -> float:
    """The share of a column's cells whose two rarest words, of those that the other has, meet in one of its cells, less
    the share where they would by chance; the lower, the less alike they are in words a cell. By samples of both, with
    which share of the cells each has."""
    (cells, _), (others, coverage) = fewer, more
    places = defaultdict(set)
    for at, words in enumerate(others):
        for word in words:
            places[word].add(at)
    sought = cells[:: -(-len(cells) // int(_SOUGHT / coverage)) or 1]
    n, by_chance = 0, 0.0
    for words in sought:
        places_of = [places[word] for word in dict.fromkeys(words) if word in places]
        if len(places_of) > 1:
            rarest, other = sorted(places_of, key=len)[:2]
            chance = len(rarest) * len(other) / len(others)
            if chance <= _CHANCE * coverage:
                n += not rarest.isdisjoint(other)
                by_chance += chance
    lengths = [sum(map(len, side)) / max(len(side), 1) for side in (cells, others)]
    share = (n - by_chance) / max(len(sought), 1) / coverage
    return share * min(lengths) / max(lengths) if n >= _FEWEST else 0.0
