"""Cells of two tables in SQL: what they become before they are compared, and how far two of them agree."""

from __future__ import annotations

from dataclasses import dataclass

from pairmark.models.core.inputs import PLACEHOLDERS
from pairmark.models.records.schema import FieldType

# Texts that are one edit apart have the same first or the same last half: counting edits is slow, and few pairs have.
_HALF = "(least(length({a}), length({b})) - 1) // 2"
_ONE_EDIT = (
    "CASE WHEN abs(length({a}) - length({b})) <= 1 "
    f"AND (left({{a}}, {_HALF}) = left({{b}}, {_HALF}) OR right({{a}}, {_HALF}) = right({{b}}, {_HALF})) "
    "THEN damerau_levenshtein({a}, {b}) <= 1 END"
)
_ALIKE = "jaro_winkler_similarity({a}, {b}, 0.9) >= 0.9 THEN 2 WHEN " + _ONE_EDIT
_CLOSE = "abs(TRY_CAST({a} AS DOUBLE) - TRY_CAST({b} AS DOUBLE)) <= 0.05 * abs(TRY_CAST({a} AS DOUBLE))"
_WORDS_ALIKE = (
    "len(list_intersect(string_split({a}, ' '), string_split({b}, ' '))) "
    ">= 0.6 * least(len(string_split({a}, ' ')), len(string_split({b}, ' ')))"
)
_MISSING = ", ".join(f"'{word}'" for word in sorted({"", *PLACEHOLDERS}))


@dataclass(frozen=True, kw_only=True)
class LinkField:
    """A column that is compared.

    Attributes
    ----------
    measured : a number that may differ by a few percent and mean the same. wordy : texts of several
        words, which agree by the words they share.
    """

    name: str
    type: FieldType
    measured: bool = False
    wordy: bool = False

    def cell(self, source: str) -> str:
        """SQL of a cell as it is compared, NULL where it is missing."""
        text = f"lower(strip_accents(trim({source})))"
        text = f"CASE WHEN {text} NOT IN ({_MISSING}) THEN {text} END"
        if self.type == "number":
            return f"coalesce(CAST(TRY_CAST(trim({source}) AS DOUBLE) AS VARCHAR), {text})"
        return text

    def level(self, a: str, b: str) -> str:
        """SQL of the agreement of two cells: 0 missing, 1 apart, 2 alike, 3 equal."""
        if self.type == "number":
            alike = _CLOSE if self.measured else _ONE_EDIT
        elif self.type in ("date", "boolean"):
            alike = _ONE_EDIT
        else:
            alike = f"{_ALIKE} THEN 2 WHEN {_WORDS_ALIKE}" if self.wordy else _ALIKE
        alike = alike.format(a=a, b=b)
        return f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN 0 WHEN {a} = {b} THEN 3 WHEN {alike} THEN 2 ELSE 1 END"
