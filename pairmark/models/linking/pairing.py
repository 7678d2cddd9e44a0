"""Columns of two tables that hold the same, whatever they are called."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import NamedTuple

import numpy as np

from pairmark.models.core.arrays import Float64
from pairmark.models.records.compare import KINDS
from pairmark.models.records.compare.normal import fold_cell, words_of

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
