"""Cells of two tables in SQL: what they become before they are compared, and how far two of them agree."""

from __future__ import annotations

from dataclasses import dataclass

from pairmark.models.core.inputs import PLACEHOLDERS
from pairmark.models.records.schema import FieldType

# Counting edits is slow, and few pairs have few: texts one edit apart have the same first or the same last half.
_EDITS = (
    "CASE WHEN abs(length({{a}}) - length({{b}})) <= {n} AND (left({{a}}, {same}) = left({{b}}, {same}) "
    "OR right({{a}}, {same}) = right({{b}}, {same})) THEN damerau_levenshtein({{a}}, {{b}}) <= {n} END"
)
_LEAST = "least(length({a}), length({b}))"
_ONE_EDIT = _EDITS.format(n=1, same=f"({_LEAST} - 1) // 2")
# Two records of one person may each have a mistake in the date; strangers' dates are seldom that close.
_TWO_EDITS = _EDITS.format(n=2, same=f"{_LEAST} // 3")
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
        elif self.type == "date":
            alike = _TWO_EDITS
        elif self.type == "boolean":
            alike = _ONE_EDIT
        else:
            alike = f"{_ALIKE} THEN 2 WHEN {_WORDS_ALIKE}" if self.wordy else _ALIKE
        alike = alike.format(a=a, b=b)
        return f"CASE WHEN {a} IS NULL OR {b} IS NULL THEN 0 WHEN {a} = {b} THEN 3 WHEN {alike} THEN 2 ELSE 1 END"
