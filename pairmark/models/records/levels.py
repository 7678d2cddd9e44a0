"""Levels of agreement of each field of a pair: 0 missing, 1 apart, 2 alike, 3 equal."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.records.comparators import Comparators
from pairmark.models.records.schema import RecordColumn

ALIKE_JARO, ALIKE_EDITS, ALIKE_TOKENS = 0.88, 0.75, 0.6
_ALIKE_RATIO, _ALIKE_DAYS, _ALIKE_KM, _EQUAL_KM = 0.9, 31.0, 25.0, 0.1


class Levels:
    """Which features of a pair say how far its fields agree."""

    def __init__(self, comparators: Comparators) -> None:
        self.fields = comparators.schema.fields
        places = {feature: at for at, feature in enumerate(comparators.features)}
        self._places = [
            {feature: at for (field, feature), at in places.items() if field == column.name}
            for column in self.fields
        ]

    def of(self, features: Float32) -> NDArray[np.int8]:
        """(n, m) features -> (n, d) levels."""
        out = np.zeros((features.shape[0], len(self.fields)), dtype=np.int8)
        for at, (column, places) in enumerate(zip(self.fields, self._places, strict=True)):
            is_equal, is_alike = self._agree(
                column, {name: features[:, place] for name, place in places.items()}
            )
            out[:, at] = np.where(is_equal, 3, 1 + is_alike.astype(np.int8))
            out[features[:, places["missing"]] > 0, at] = 0
        return out

    def _agree(self, column: RecordColumn, of: dict[str, Float32]) -> tuple[Bool, Bool]:
        # Comparisons with NaN, of missing cells, are false: those are told apart by the caller.
        if column.type == "place":
            return of["kilometres"] <= _EQUAL_KM, of["kilometres"] <= _ALIKE_KM
        if column.type in ("text", "name", "category"):
            is_alike = (of["Jaro-Winkler"] >= ALIKE_JARO) | (of["Levenshtein"] >= ALIKE_EDITS)
            if "tokens, lower share" in of:
                is_alike |= of["tokens, share of both"] >= ALIKE_TOKENS
            return of["exact"] == 1, is_alike
        is_close: Bool = np.zeros(of["equal"].shape, dtype=np.bool_)
        if "Levenshtein" in of:
            is_close |= of["Levenshtein"] >= ALIKE_EDITS
        elif column.type == "number":
            is_close |= of["ratio"] >= _ALIKE_RATIO
        if column.type == "date":
            is_close |= of["days between"] <= _ALIKE_DAYS
        return of["equal"] == 1, is_close


def patterns(levels: NDArray[np.int8]) -> NDArray[np.int64]:
    """One integer a pair for its levels, base 4: up to 31 fields; more share numbers with nobody but by chance."""
    code = np.zeros(levels.shape[0], dtype=np.uint64)
    for field in range(levels.shape[1]):
        code = code * np.uint64(4) + levels[:, field].astype(np.uint64)
        if field % 31 == 30:
            code *= np.uint64(0x9E3779B97F4A7C15)
    return code.view(np.int64)


def count_patterns(parts: Iterable[NDArray[np.int8]]) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Distinct patterns of levels over several blocks of pairs, and how many pairs have each."""
    all_levels: list[NDArray[np.int8]] = []
    all_counts: list[NDArray[np.int64]] = []
    for levels in parts:
        _, first, counts = np.unique(patterns(levels), return_index=True, return_counts=True)
        all_levels.append(levels[first])
        all_counts.append(counts.astype(np.int64))
    if not all_levels:
        return np.empty((0, 0), dtype=np.int8), np.empty(0, dtype=np.int64)
    levels, counts = np.concatenate(all_levels), np.concatenate(all_counts)
    _, first, number = np.unique(patterns(levels), return_index=True, return_inverse=True)
    return levels[first], np.bincount(number, weights=counts).astype(np.int64)
