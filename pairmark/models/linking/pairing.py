"""Columns of two tables that hold the same, whatever they are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from pairmark.models.records.compare import KINDS

_LOOKED_AT = 2_000
"""Different cells of a column whose normal forms are compared."""
_FEWEST, _PLAIN, _LIKELY = 5, 0.1, 0.02
"""Values that two columns share at least; and which share of those of the one that has fewer, so that they plainly hold
the same, or may."""
_WORDS = frozenset({"name", "given", "surname", "text", "category", "city", "company", "id"})
_SILENT = frozenset({"number", "boolean"})
"""Kinds that cells may be taken for one in the place of another; kinds of which strangers share values."""

Held = Mapping[str, tuple[str, Sequence[str | None]]]
"""The kind and the cells of each column of a table."""


class UnpairedColumns(ValueError):
    """No column of one table plainly holds what one of the other holds; says which may."""


def pair_columns(left: Held, right: Held) -> list[tuple[str, str]]:
    """Names of columns that share values, each other's best, with no other half as near.

    Raises
    ------
    UnpairedColumns
        Where there are none; its message proposes pairs by values and by kinds that a table has once.
    """
    shares = np.zeros((len(left), len(right)))
    is_only = np.zeros(shares.shape, dtype=np.bool_)
    kinds = [[kind for kind, _ in table.values()] for table in (left, right)]
    for at, (kind, cells) in enumerate(left.values()):
        for other, (called, others) in enumerate(right.values()):
            if {kind, called} & _SILENT or not (kind == called or {kind, called} <= _WORDS):
                continue
            common = kind if kind == called else "text"
            shares[at, other] = _shared(_forms(common, cells), _forms(common, others))
            is_only[at, other] = all(of.count(kind) == 1 for of in kinds) and kind == called
    pairs = [(one, other) for one in left for other in right]
    of_one, of_other = shares.max(axis=1, keepdims=True, initial=0), shares.max(axis=0, initial=0)
    is_best = (shares == of_one) & (shares == of_other)
    is_alone = ((shares > of_one / 2).sum(axis=1, keepdims=True) == 1) & (
        (shares > of_other / 2).sum(axis=0) == 1
    )
    is_plain = is_best & is_alone & (shares >= _PLAIN)
    if is_plain.any():
        return [pairs[at] for at in np.flatnonzero(is_plain)]
    likely = [pairs[at] for at in np.flatnonzero(is_only | (is_best & (shares >= _LIKELY)))]
    raise UnpairedColumns(
        "expected columns of the same names"
        + (": rename those that hold the same, perhaps " if likely else "")
        + ", ".join(f"{one!r} ~ {other!r}" for one, other in likely)
    )


def _forms(kind: str, cells: Sequence[str | None]) -> frozenset[str]:
    of = KINDS[kind].form
    different = islice(dict.fromkeys(filter(None, cells)), _LOOKED_AT)
    return frozenset(form for cell in different if (form := of(cell)) is not None)


def _shared(one: frozenset[str], other: frozenset[str]) -> float:
    n = len(one & other)
    return n / min(len(one), len(other)) if n >= _FEWEST else 0.0
