"""Symbols of pairs of rows, some of them in each integer of a query, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.linking.mixture import BINS, BITS
from pairmark.models.records.compare import LinkField

_A_WORD = 60 // BITS
"""Columns whose symbols make one integer of 64 bits."""


def words_of(fields: Sequence[LinkField]) -> list[str]:
    """Names of the integers that symbols of these columns take."""
    return [f"w{at}" for at in range(1 + (len(fields) - 1) // _A_WORD)]


def coded_pairs(fields: Sequence[LinkField], names: Sequence[str], pairs: str, more: str = "") -> str:
    """SQL of pairs with their symbols, `_A_WORD` of them in a word, and ``more`` columns."""
    levels = ", ".join(
        f"{field.definition.level(f'a.{name}', f'b.{name}')} AS l{i}, greatest(a.f{i}, b.f{i}) AS f{i}"
        for i, (field, name) in enumerate(zip(fields, names, strict=True))
    )
    symbols = [
        f"CAST(CASE WHEN l{i} < 3 THEN l{i} ELSE 3 + (l{i} - 3) * {BINS} + f{i} END AS BIGINT) * "
        f"{2 ** (BITS * (i % _A_WORD))}"
        for i in range(len(fields))
    ]
    words = ", ".join(
        f"{' + '.join(symbols[i * _A_WORD : (i + 1) * _A_WORD]) or '0'} AS {word}"
        for i, word in enumerate(words_of(fields))
    )
    return (
        f"SELECT {more}a, b, {words} FROM (SELECT p.*{', ' if levels else ''}{levels} FROM ({pairs}) p "
        "JOIN cells a ON a.row = p.a JOIN cells b ON b.row = p.b)"
    )


def symbols_of(words: Mapping[str, NDArray[Any]], d: int) -> NDArray[np.uint8]:
    """(n, d) symbols of words."""
    out = np.empty((words["w0"].size, d), dtype=np.uint8)
    for at in range(d):
        word = np.asarray(words[f"w{at // _A_WORD}"], dtype=np.int64)
        out[:, at] = (word >> (BITS * (at % _A_WORD))) & (2**BITS - 1)
    return out
