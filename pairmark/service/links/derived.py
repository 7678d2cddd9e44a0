"""Columns that say nothing of their own: made of others, or filled with a value that stands for none."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import permutations
from operator import contains

import numpy as np

_FOLLOWS, _FEWEST = 0.95, 20
"""Share of rows in which a column follows from others, and the fewest rows that say so."""
_LIKELY = 0.7
_DEFAULT, _OUTSTANDING = 0.05, 10
"""Share of cells, and times the next most frequent value, from which on a value looks like one for none."""
_SINGULAR = frozenset({"date", "phone", "email", "web", "id", "street"})
"""Kinds of which many rows seldom share a cell."""
_NOWHERE = " "
"""In no cell, since here these have letters and digits alone."""
_Columns = Sequence[Sequence[str | None]]
_PartsOf = Callable[[_Columns, int, Sequence[int]], tuple[int, ...]]
"""Finds, of a column, those of some others that it follows from."""


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
                if sum(complete) >= _LIKELY * len(complete):
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
            if other != place and n and sum(map(contains, column, parts[other])) >= _LIKELY * n
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
    return tuple(parts) if rests.total() >= _FEWEST and n >= _FOLLOWS * rests.total() else ()


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
    rows_with = {other: zip(column, columns[other], strict=True) for other in others}
    return next(
        (
            (other,)
            for other, rows in rows_with.items()
            if _nearly(
                (whole.startswith(cell) or whole.endswith(cell) for cell, whole in rows if cell and whole),
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
    return n >= _FEWEST and n - n_missed >= _FOLLOWS * n


def default_of(cells: Sequence[str | None], kind: str) -> str | None:
    """A value that stands for none: far more frequent than any other of a column whose cells are seldom shared."""
    ranked = Counter(cell for cell in cells if cell and cell.strip()).most_common(2)
    if kind not in _SINGULAR or not ranked or ranked[0][1] < max(_FEWEST, _DEFAULT * len(cells)):
        return None
    return ranked[0][0] if len(ranked) > 1 and ranked[0][1] >= _OUTSTANDING * ranked[1][1] else None
