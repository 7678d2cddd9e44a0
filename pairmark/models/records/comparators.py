"""Symmetric features of a pair of records, field by field.

Of every field: whether it is missing, and the level of its agreement, as links have it (`compare.KINDS`). Cells are
compared in the normal form of their kind. Of all but places: Jaro-Winkler and Levenshtein. Of texts, names and all
cells joined: tokens weighed by how rare they are in the training records, ``log((1 + N) / (1 + df))``, compared softly
(see `kernels.tokens`). Of numbers and dates: difference, ratio. Of places: kilometres. A field that one side lacks is
taken as missing on both, in what is joined too, unless training pairs often lack just these fields on just these sides
(`Comparators.one_sided`). A feature that a missing cell leaves open is NaN. Swapped sides give the same features to the
last bit.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import BaseModel, Field

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.inputs import cells_missing
from pairmark.models.core.state import Array, checked_model
from pairmark.models.records.compare import KINDS
from pairmark.models.records.compare.normal import LONGEST
from pairmark.models.records.kernels import levels, measures, tokens
from pairmark.models.records.kernels.levels import RULES
from pairmark.models.records.kernels.tokens import Cells
from pairmark.models.records.schema import STRINGS, TEXTS, Records, Schema

PLAIN = ("Jaro-Winkler", "Levenshtein")
SOFT = (
    "tokens, lower share", "tokens, higher share", "rarest token in both", "rarest token in one, lower",
    "rarest token in one, higher", "unmatched mass, lower", "unmatched mass, higher", "matched mass",
    "tokens, share of both", "numbers, Jaccard", "numbers, containment", "model tokens, Jaccard",
    "model tokens, containment", "model tokens, best", "unmatched model tokens, lower",
    "unmatched model tokens, higher", "fewest tokens", "ratio of token counts", "first token",
)  # fmt: skip
_NUMERIC = {
    "number": ("difference", "ratio"),
    "date": ("days between", "ratio"),
    "place": ("kilometres",),
}
_FALLING = frozenset({
    "rarest token in one, lower", "rarest token in one, higher", "unmatched mass, lower", "unmatched mass, higher",
    "unmatched model tokens, lower", "unmatched model tokens, higher", "difference", "days between", "kilometres",
})  # fmt: skip
_FREE = frozenset({"missing", "fewest tokens"})
"""Features that are smaller the more alike two cells are; and those that do not say how alike they are."""
_FREE_TYPES = frozenset({"text", "list"})
JOINED = "all fields"
_OFTEN, _MOST_PATTERNS = 0.01, 32
"""Share of training pairs that what sides lack occurs in often, and how many such patterns there may be."""
_LEAST_WEIGHT = 1e-3
_SEEN_TWICE = 2


class Prepared(NamedTuple):
    """Records ready to be compared.

    Attributes
    ----------
    n : records. cells : their strings. numbers : (n, c) their numbers, NaN where missing. missing : (n, d) bool.
    """

    n: int
    cells: Cells
    numbers: Float64
    missing: Bool


class Rarity(NamedTuple):
    """How rare tokens are, whatever fields they are in.

    Attributes
    ----------
    hashes : (T,) int64 of the tokens that two records or more have, ascending. weights : (T,) float32.
    unseen : (1,) weight of every other token.
    """

    hashes: Annotated[Int64, Array(shape=("tokens",), order="rising")]
    weights: Annotated[Float32, Array(shape=("tokens",), positive=True, high=100.0)]
    unseen: Annotated[Float32, Array(shape=(1,), positive=True, high=100.0)]


class _Stored(BaseModel):
    """Comparators as an artefact declares them."""

    table: Schema = Field(alias="schema")


class Comparators:
    """Which features a schema's records have as pairs, and how they are worked out.

    Parameters
    ----------
    schema : of the records.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema, fields = schema, schema.fields
        self.one_sided, self.is_outdated = np.empty(0, dtype=np.int64), False
        self._strings = [number for number, column in enumerate(fields) if column.type != "place"]
        self._numeric = [number for number, column in enumerate(fields) if column.type in _NUMERIC]
        types = [fields[number].type for number in self._strings]
        self._is_place = np.array(
            [fields[number].type == "place" for number in self._numeric], dtype=np.bool_
        )
        self._columns = np.concatenate([[0], np.cumsum(1 + self._is_place)]).astype(np.int64)
        column_of = dict(zip(self._numeric, self._columns.tolist(), strict=False))
        self._numbers_of = np.array([column_of.get(number, -1) for number in self._strings], dtype=np.int64)
        self._rules = np.array([RULES.index(KINDS[kind].rule) for kind in types], dtype=np.int64)
        self.is_text = np.array([kind in TEXTS for kind in types], dtype=np.bool_)
        # What is missing, and levels, come first: one column a field.
        names = [(column.name, feature) for feature in ("missing", "level") for column in fields]
        plain, groups, soft, numeric = [], [], [], []
        for number, is_text in zip(self._strings, self.is_text.tolist(), strict=True):
            plain.append(len(names))
            names += [(fields[number].name, feature) for feature in PLAIN]
            if is_text:
                groups.append([number if number == other else -1 for other in self._strings])
                soft.append(len(names))
                names += [(fields[number].name, feature) for feature in SOFT]
        if sum(kind in STRINGS for kind in types) > 1:
            groups.append(self._strings)
            soft.append(len(names))
            names += [(JOINED, feature) for feature in SOFT]
        for number in self._numeric:
            numeric.append(len(names))
            names += [(fields[number].name, feature) for feature in _NUMERIC[fields[number].type]]
        self._groups = np.array(groups, dtype=np.int64).reshape(len(groups), len(self._strings))
        self._levels_of = len(fields) + np.array(self._strings, dtype=np.int64)
        self._place_levels = len(fields) + np.array(self._numeric, dtype=np.int64)
        self._plain_places, self._soft_places, self._numeric_places = (
            np.array(places, dtype=np.int64) for places in (plain, soft, numeric)
        )
        self.features = tuple(names)
        places = {name: number for number, name in enumerate(names)}
        self.rare_words_of = {
            number: places[column.name, "tokens, share of both"]
            for number, column in enumerate(fields)
            if column.type == "text"
        }

    @property
    def directions(self) -> Float64:
        """(m,) 1 for features that are larger the more alike two cells are, -1 for those that are smaller; 0 for
        those of long texts and of all fields joined, where likeness may be chance."""
        bound = {column.name for column in self.schema.fields if column.type not in _FREE_TYPES}
        return np.array(
            [
                0.0 if field not in bound or feature in _FREE else -1.0 if feature in _FALLING else 1.0
                for field, feature in self.features
            ]
        )

    def fit(self, records: Records) -> "Comparators":
        """Learn how rare tokens are."""
        cells, n = self._cells(records), len(records)
        rows = np.repeat(np.arange(cells.starts.size - 1), np.diff(cells.row_tokens)) % n
        hashes, numbers = np.unique(cells.hashes, return_inverse=True)
        # Once a row, however often it has the token.
        counts = np.bincount(np.unique(numbers * n + rows) // n, minlength=hashes.size)
        is_common = counts >= _SEEN_TWICE
        # A token that no training record has is held to be as rare as one that a single record has.
        weights = np.log((1 + n) / (1 + np.append(counts[is_common], 1)))
        weights = np.maximum(weights, _LEAST_WEIGHT).astype(np.float32)
        self.rarity = Rarity(hashes[is_common], weights[:-1], weights[-1:])
        return self

    def prepare(self, records: Records) -> Prepared:
        """Strings, tokens and numbers of records: once for all pairs that they are in."""
        if records.dtype != object:
            records = records.astype(np.float64).astype(object)
        cells, n = self._cells(records), len(records)
        weights = np.empty(cells.hashes.size, dtype=np.float32)
        tokens.weigh(cells.hashes, self.rarity, weights)
        values = np.full((n, int(self._columns[-1])), np.nan)
        missing = np.ascontiguousarray(cells_missing(records))
        for place, field in enumerate(self._numeric):
            first, stop = self._columns[place : place + 2].tolist()
            nothing = (np.nan, np.nan) if self._is_place[place] else np.nan
            numbers = [nothing if cell is None else cell for cell in records[:, field].tolist()]
            values[:, first:stop] = np.array(numbers, dtype=np.float64).reshape(n, stop - first)
        return Prepared(n, cells._replace(weights=weights), values, missing)

    def compare(self, a: Prepared, left: Int64, b: Prepared, right: Int64, *, joined: bool = True) -> Float32:
        """Features of pairs of prepared records, (n_pairs, m) float32.

        Not ``joined``: those of all fields joined, which take half of the time, are left undefined.
        """
        left, right = np.ascontiguousarray(left, dtype=np.int64), np.ascontiguousarray(right, dtype=np.int64)
        out = np.empty((left.size, len(self.features)), dtype=np.float32)
        lacked = np.empty((left.size, a.missing.shape[1]), dtype=np.bool_)
        measures.compare_missing(a.missing, b.missing, left, right, self.one_sided, lacked, out)
        sides = a.n, b.n, left, right
        # Arrays by themselves are handed to a kernel in a third of the time that a tuple of all takes.
        texts = a.cells.chars, a.cells.starts, b.cells.chars, b.cells.starts
        tokens.compare_texts(*texts, *sides, self._plain_places, out)
        rules = self._rules, self._numbers_of, self._plain_places, self._levels_of
        levels.compare_levels(*texts, a.numbers, b.numbers, *sides, *rules, out)
        groups = self._groups[: None if joined else self.is_text.sum()]
        tokens.compare_tokens(
            a.cells, b.cells, *sides, groups, self.rarity.unseen[0], self._soft_places, lacked, out
        )
        fields = self._columns, self._is_place, self._place_levels, self._numeric_places
        measures.compare_numbers(a.numbers, b.numbers, left, right, *fields, out)
        return out

    def without(
        self, features: Float32, prepared: Prepared, left: Int64, right: Int64, part: Int64, columns: Bool
    ) -> Float32:
        """Features of some pairs of prepared records without ``columns``, (d,), from those with them: as `compare` has
        them of records where these are blanked, while only what is joined is compared again."""
        missing, features, left, right = prepared.missing | columns, features[part], left[part], right[part]
        lacked = np.empty((left.size, missing.shape[1]), dtype=np.bool_)
        gone = {column.name for column, is_gone in zip(self.schema.fields, columns, strict=True) if is_gone}
        features[:, [field in gone for field, _ in self.features]] = np.nan
        measures.compare_missing(missing, missing, left, right, self.one_sided, lacked, features)
        if len(self._groups) > self.is_text.sum():
            sides = prepared.cells, prepared.cells, prepared.n, prepared.n, left, right
            groups = self._groups[-1:], self.rarity.unseen[0], self._soft_places[-1:]
            tokens.compare_tokens(*sides, *groups, lacked | columns, features)
        return features

    def learn_patterns(self, left: Bool, right: Bool) -> None:
        """Take from training pairs what their sides lack often; of the pairs (n, d)."""
        differ = (left != right).any(axis=1)
        codes, counts = np.unique(measures.pattern_codes(left[differ], right[differ]), return_counts=True)
        often = np.argsort(-counts, kind="stable")[:_MOST_PATTERNS]
        self.one_sided = np.sort(codes[often[counts[often] >= _OFTEN * len(left)]])

    def blanks(self, left: Bool, right: Bool) -> Bool:
        """Of which pairs (n,) what one side lacks is left out on the other, from what both lack, (n, d)."""
        codes = measures.pattern_codes(np.ascontiguousarray(left), np.ascontiguousarray(right))
        return ~np.isin(codes, self.one_sided)

    def _cells(self, records: Records) -> Cells:
        fields = self.schema.fields
        return tokenize_texts(
            [normal_form(cell, fields[place].type) for place in self._strings for cell in records[:, place]]
        )

    def to_json(self) -> dict[str, Any]:
        """What declares them."""
        return {"schema": self.schema.model_dump(mode="json")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Comparators":
        """Comparators as declared, which learned nothing yet; an `ArtefactError` names what no fit writes."""
        comparators = cls(checked_model(_Stored, value, "comparators.").table)
        # Earlier versions had definitions of alike of their own, of numbers by whether all are whole.
        comparators.is_outdated = "whole" in value
        return comparators


def tokenize_texts(texts: Sequence[str]) -> Cells:
    """Characters and tokens of texts; nothing is weighed yet."""
    starts = np.fromiter(accumulate(map(len, texts), initial=0), dtype=np.int64, count=len(texts) + 1)
    chars = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), dtype=np.int32)
    room = chars.size + 1
    squeezed, token_starts = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int64)
    hashes, flags = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.uint8)
    row_tokens = np.empty_like(starts)
    n = tokens.tokenize(chars, starts, squeezed, token_starts, hashes, flags, row_tokens)
    # Room that no token took is given back: galleries keep these arrays.
    return Cells(
        chars, starts, squeezed[: int(token_starts[n])].copy(), token_starts[: n + 1].copy(),
        hashes[:n].copy(), flags[:n].copy(), np.empty(0, dtype=np.float32), row_tokens,
    )  # fmt: skip


def normal_form(cell: Any, type_: str) -> str:
    """A cell as a string to compare, by the kind of its column; empty where missing."""
    if cell is None:
        return ""
    written = str(cell)
    return (_form if len(written) <= LONGEST else _form.__wrapped__)(written, type_)


@lru_cache(65_536)
def _form(written: str, type_: str) -> str:
    if type_ == "date":
        return str(np.datetime64(int(np.floor(float(written))), "D"))
    return KINDS[type_].form(written) or written.casefold()
