"""Columns of two tables that hold the same, whatever they are called."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.records.compare import KINDS
from pairmark.models.records.compare.normal import folded, words_of

_LOOKED_AT = 2_000
"""Different cells of a column whose normal forms are compared."""
_FEWEST, _PLAIN, _LIKELY = 5, 0.1, 0.02
"""Values that two columns share at least; and which share of those of the one that has fewer, so that they plainly hold
the same, or may."""
_SOUGHT, _CHANCE = 1_000, 0.5
"""Cells of a column whose words are sought in another; in how many of its cells two of them meet by chance at most, if
it is to say something."""
_WORDS = frozenset({"name", "given", "surname", "text", "category", "city", "company", "id"})
_SILENT = frozenset({"number", "boolean"})
"""Kinds that cells may be taken for one in the place of another; kinds of which strangers share values."""

Held = Mapping[str, tuple[str, Sequence[str | None]]]
"""The kind and the cells of each column of a table."""


class UnpairedColumns(ValueError):
    """No column of one table plainly holds what one of the other holds; says which may."""


def pair_columns(left: Held, right: Held) -> dict[tuple[str, ...], str]:
    """Names of columns that share values, each other's best, with no other half as near; and, of the others, those that
    so share words of values. With each pair what it shares.

    Raises
    ------
    UnpairedColumns
        Where there are none; its message proposes pairs by values and by kinds that a table has once.
    """
    kinds = [[kind for kind, _ in table.values()] for table in (left, right)]
    cells = [[cells for _, cells in table.values()] for table in (left, right)]
    alike = {
        (at, other): kind if kind == called else "text"
        for at, kind in enumerate(kinds[0])
        for other, called in enumerate(kinds[1])
        if (kind == called or {kind, called} <= _WORDS) and kind not in _SILENT
    }
    forms = cache(lambda side, at, kind: _forms(kind, cells[side][at]))
    words = cache(lambda side, at: _words(cells[side][at]))
    of_values, of_words = np.zeros((2, len(left), len(right)))
    for (at, other), kind in alike.items():
        of_values[at, other] = _shared(forms(0, at, kind), forms(1, other, kind))
    by_values = _best(of_values, _PLAIN)
    paired = [{at for at, _ in by_values}, {other for _, other in by_values}]
    for (at, other), kind in alike.items():
        if kind in (*_WORDS, "street") and at not in paired[0] and other not in paired[1]:
            of_words[at, other] = _shared_words(*sorted((words(0, at), words(1, other)), key=len))
    names = [[*left], [*right]]
    shared = dict.fromkeys(by_values, "values") | dict.fromkeys(_best(of_words, _PLAIN), "words")
    if shared:
        return {(names[0][at], names[1][other]): what for (at, other), what in shared.items()}
    by_values = _best(of_values, _LIKELY, near=1)
    likely = [
        (names[0][at], names[1][other])
        for at, other in alike
        if (at, other) in by_values
        or (kinds[0][at] == kinds[1][other] and all(of.count(kinds[0][at]) == 1 for of in kinds))
    ]
    raise UnpairedColumns(
        "expected columns of the same names"
        + (": rename those that hold the same, perhaps " if likely else "")
        + ", ".join(f"{one!r} ~ {other!r}" for one, other in likely)
    )


def _best(shares: Float64, least: float, near: float = 0.5) -> list[tuple[int, int]]:
    """Where shares are the largest of their row and their column, and no other is near them."""
    is_near = [shares >= near * shares.max(axis=axis, keepdims=True, initial=0) for axis in (0, 1)]
    is_alone = (is_near[0].sum(axis=0) == 1) & (is_near[1].sum(axis=1, keepdims=True) == 1)
    return [
        (int(at), int(other))
        for at, other in np.argwhere(is_near[0] & is_near[1] & is_alone & (shares >= least))
    ]


def _forms(kind: str, cells: Sequence[str | None]) -> frozenset[str]:
    of = KINDS[kind].form
    different = islice(dict.fromkeys(filter(None, cells)), _LOOKED_AT)
    return frozenset(form for cell in different if (form := of(cell)) is not None)


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    n = len(one & other)
    return n / min(len(one), len(other)) if n >= _FEWEST else 0.0


def _words(cells: Sequence[str | None]) -> list[list[str]]:
    return [words_of(folded(cell) or "") for cell in dict.fromkeys(filter(None, cells))]


def _shared_words(fewer: Sequence[Sequence[str]], more: Sequence[Sequence[str]]) -> float:
    """The share of a column's cells whose two rarest words, of those that the other has, meet in one of its cells, less
    the share where they would by chance; the lower, the less alike they are in words a cell."""
    places = defaultdict(set)
    for at, words in enumerate(more):
        for word in words:
            places[word].add(at)
    sought = fewer[:: -(-len(fewer) // _SOUGHT) or 1]
    n, by_chance = 0, 0.0
    for words in sought:
        places_of = [places[word] for word in dict.fromkeys(words) if word in places]
        if len(places_of) > 1:
            rarest, other = sorted(places_of, key=len)[:2]
            chance = len(rarest) * len(other) / len(more)
            if chance <= _CHANCE:
                n += not rarest.isdisjoint(other)
                by_chance += chance
    lengths = [sum(map(len, cells)) / max(len(cells), 1) for cells in (fewer, more)]
    return (n - by_chance) / len(sought) * min(lengths) / max(lengths) if n >= _FEWEST else 0.0
