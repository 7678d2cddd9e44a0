"""Symmetric features of a pair of records, field by field.

Of text, names and all cells joined: exact equality, Jaro-Winkler, Levenshtein, and tokens weighed by how rare they are
in the training records, ``log((1 + N) / (1 + df))``, compared softly (see `kernels.tokens`). Of the two longest texts
also how each matches the other field of the other side. Of categories, and of numbers and dates as they are written:
the first three. Of numbers and dates: equal, difference, ratio. Of places: kilometres. Of every field: whether it is
missing. A field that one side lacks is taken as missing on both, in what is joined or crossed too, unless training
pairs often lack just these fields on just these sides (`Comparators.one_sided`).
A feature that a missing cell leaves open is NaN. Swapped sides give the same features to the last bit.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from operator import eq
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from rapidfuzz.distance import JaroWinkler, Levenshtein
from rapidfuzz.process import cpdist

from pairmark.models.core.arrays import Bool, Float32, Float64, Int64
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.state import Array, checked_model, require_offsets
from pairmark.models.records.kernels import measures, tokens
from pairmark.models.records.kernels.tokens import Cells
from pairmark.models.records.schema import STRINGS, RecordColumn, Records, Schema

PLAIN = ("exact", "Jaro-Winkler", "Levenshtein")
SOFT = (
    "tokens, lower share", "tokens, higher share", "rarest token in both", "rarest token in one, lower",
    "rarest token in one, higher", "unmatched mass, lower", "unmatched mass, higher", "matched mass",
    "tokens, share of both", "numbers, Jaccard", "numbers, containment", "model tokens, Jaccard",
    "model tokens, containment", "model tokens, best", "unmatched model tokens, lower",
    "unmatched model tokens, higher", "fewest tokens", "ratio of token counts", "first token",
)  # fmt: skip
CROSSED = ("crossed, lower share at least", "crossed, lower share at most",
           "crossed, higher share at least", "crossed, higher share at most")  # fmt: skip
_NUMERIC = {
    "number": ("equal", "difference", "ratio"),
    "date": ("equal", "days between", "ratio"),
    "boolean": ("equal",),
    "place": ("kilometres",),
}
_FALLING = frozenset({
    "rarest token in one, lower", "rarest token in one, higher", "unmatched mass, lower", "unmatched mass, higher",
    "unmatched model tokens, lower", "unmatched model tokens, higher", "difference", "days between", "kilometres",
})  # fmt: skip
_FREE = frozenset({"missing", "fewest tokens"})
"""Features that are smaller the more alike two cells are; and those that do not say how alike they are."""
JOINED = "all fields"
MAX_CHARS, JARO_CHARS = 256, 64
"""Characters of a string that Levenshtein looks at, and Jaro-Winkler."""
_ACCENTED = re.compile("[a-z\u0370-\u03ff]")
"""Letters that differ from each other by more than an accent, once decomposed."""
_OFTEN, _MOST_PATTERNS = 0.01, 32
"""Share of training pairs that what sides lack occurs in often, and how many such patterns there may be."""
_LEAST_WEIGHT = 1e-3
_SEEN_TWICE = 2
_PAIR = 2
"""Records of a lone pair, which nobody keeps."""


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
    """How rare tokens are, by field.

    Attributes
    ----------
    hashes : (T,) int64 of the tokens that two records or more have, ascending within each field.
    weights : (T,) float32. starts : (F + 1,). unseen : (F,) weight of every other token.
    """

    hashes: Annotated[Int64, Array(shape=("tokens",))]
    weights: Annotated[Float32, Array(shape=("tokens",), positive=True, high=100.0)]
    starts: Annotated[Int64, Array(shape=("texts + 1",), low=0, order="never-falling")]
    unseen: Annotated[Float32, Array(shape=("texts",), positive=True, high=100.0)]

    def relate(self, prefix: str) -> None:
        """Refuse tokens whose parts by field do not fit."""
        require_offsets(f"{prefix}starts", self.starts, self.hashes.size, f"{prefix}hashes")


class TextFacts(BaseModel):
    """What training records say of their fields, by number.

    Attributes
    ----------
    whole : numbers that are all whole, which are compared as they are written too.
    crossed : the two strings that are the longest texts.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    whole: tuple[int, ...] = ()
    crossed: tuple[int, int] | None = None


class _Stored(BaseModel):
    """Comparators as an artefact declares them."""

    table: Schema = Field(alias="schema")
    text: TextFacts


class Comparators:
    """Which features a schema's records have as pairs, and how they are worked out.

    Parameters
    ----------
    schema : of the records.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        fields = schema.fields
        self._numeric = [at for at, column in enumerate(fields) if column.type in _NUMERIC]
        self._n_measures = np.array([len(_NUMERIC[fields[at].type]) for at in self._numeric], dtype=np.int64)
        self._is_place = np.array([fields[at].type == "place" for at in self._numeric], dtype=np.bool_)
        self._columns = np.concatenate([[0], np.cumsum(1 + self._is_place)]).astype(np.int64)
        self.one_sided = np.empty(0, dtype=np.int64)
        self.describe(TextFacts())

    def describe(self, facts: TextFacts) -> None:
        """Take what training records say; sets the features' names and where each field's begin, missing counts
        first."""
        self.facts, fields = facts, self.schema.fields
        self._strings = [
            at
            for at, column in enumerate(fields)
            if column.type in STRINGS or column.type == "date" or at in facts.whole
        ]
        self._joined = sum(fields[at].type in STRINGS for at in self._strings) > 1
        titles = [fields[at].name for at in self._strings] + [JOINED] * self._joined
        names: list[tuple[str, str]] = [(column.name, "missing") for column in fields]
        plain, soft = [], []
        for number, title in enumerate(titles):
            is_whole = number < len(self._strings)
            if is_whole:
                plain.append(len(names))
                names += [(title, feature) for feature in PLAIN]
            if not is_whole or fields[self._strings[number]].type in ("text", "name"):
                soft.append((number, len(names)))
                names += [(title, feature) for feature in SOFT]
        numeric = []
        for at in self._numeric:
            numeric.append(len(names))
            names += [(fields[at].name, feature) for feature in _NUMERIC[fields[at].type]]
        if facts.crossed is not None:
            first, second = (titles[at] for at in facts.crossed)
            names += [(f"{first} and {second}", feature) for feature in CROSSED]
        self.n_texts, self._plain_places = len(titles), np.array(plain, dtype=np.int64)
        self._numeric_places = np.array(numeric, dtype=np.int64)
        self._soft_fields, self._soft_places = np.array(soft, dtype=np.int64).reshape(-1, 2).T.copy()
        self.features = tuple(names)

    @property
    def names(self) -> list[str]:
        return [f"{field}: {feature}" for field, feature in self.features]

    @property
    def directions(self) -> Float64:
        """(m,) 1 for features that are larger the more alike two cells are, -1 for those that are smaller; 0 for
        those of long texts and of all fields joined, where likeness may be chance."""
        bound = {column.name for column in self.schema.fields if column.type != "text"}
        return np.array(
            [
                0.0 if field not in bound or feature in _FREE else -1.0 if feature in _FALLING else 1.0
                for field, feature in self.features
            ]
        )

    def fit(self, records: Records) -> Comparators:
        """Learn how rare tokens are, and which two fields are the longest texts."""
        fields = self.schema.fields
        whole = tuple(
            at
            for at, column in enumerate(fields)
            if column.type == "number"
            and all(cell is None or float(cell).is_integer() for cell in records[:, at])
        )
        self.describe(TextFacts(whole=whole))
        lengths = [
            (sum(len(cell or "") for cell in records[:, place]), -at)
            for at, place in enumerate(self._strings)
            if fields[place].type == "text"
        ]
        longest = sorted(-at for _, at in sorted(lengths, reverse=True)[:2])
        if len(longest) == 2:
            self.describe(TextFacts(whole=whole, crossed=(longest[0], longest[1])))
        cells = self._cells(records)
        hashes, weights, starts, unseen = [], [], [0], []
        n = len(records)
        for field in range(self.n_texts):
            first, last = cells.row_tokens[field * n], cells.row_tokens[(field + 1) * n]
            own = cells.row_tokens[field * n : (field + 1) * n + 1]
            rows = np.repeat(np.arange(n), np.diff(own))
            pairs = np.unique(np.stack([cells.hashes[first:last], rows], axis=1), axis=0)[:, 0]
            distinct, counts = np.unique(pairs, return_counts=True)
            n_cells = max(int(np.count_nonzero(np.diff(cells.starts[field * n : (field + 1) * n + 1]))), 1)
            is_common = counts >= _SEEN_TWICE
            hashes.append(distinct[is_common])
            weights.append(np.maximum(np.log((1 + n_cells) / (1 + counts[is_common])), _LEAST_WEIGHT))
            starts.append(starts[-1] + int(is_common.sum()))
            # A token that no training record has is held to be as rare as one that a single record has.
            unseen.append(max(np.log((1 + n_cells) / 2), _LEAST_WEIGHT))
        self.rarity = Rarity(
            np.concatenate(hashes).astype(np.int64) if hashes else np.empty(0, dtype=np.int64),
            np.concatenate(weights).astype(np.float32) if weights else np.empty(0, dtype=np.float32),
            np.array(starts, dtype=np.int64),
            np.array(unseen, dtype=np.float32),
        )
        return self

    def prepare(self, records: Records) -> Prepared:
        """Strings, tokens and numbers of records: once for all pairs that they are in."""
        if records.dtype != object:
            records = records.astype(np.float64).astype(object)
        cells = self._cells(records)
        n, rarity = len(records), self.rarity
        weights = np.empty(cells.hashes.size, dtype=np.float32)
        tokens.weigh(cells.hashes, cells.row_tokens, n, rarity, weights)
        values = np.full((n, int(self._columns[-1])), np.nan)
        for place, at in enumerate(self._numeric):
            first, last = self._columns[place], self._columns[place + 1]
            absent: Any = np.nan if last - first == 1 else (np.nan, np.nan)
            column = [absent if cell is None else cell for cell in records[:, at]]
            values[:, first:last] = np.array(column, dtype=np.float64).reshape(n, last - first)
        missing = np.ascontiguousarray(absent_cells(records))
        return Prepared(n, cells._replace(weights=weights), values, missing)

    def compare(self, a: Prepared, left: Int64, b: Prepared, right: Int64) -> Float32:
        """Features of pairs of prepared records, (n_pairs, m) float32."""
        left, right = np.ascontiguousarray(left, dtype=np.int64), np.ascontiguousarray(right, dtype=np.int64)
        out = np.empty((left.size, len(self.features)), dtype=np.float32)
        lacked = np.empty((left.size, a.missing.shape[1]), dtype=np.bool_)
        is_lacked = measures.compare_missing(a.missing, b.missing, left, right, self.one_sided, lacked, out)
        if left.size == 1:
            self._compare_lone_texts(a, int(left[0]), b, int(right[0]), out[0])
        elif self._strings:
            self._compare_texts(a, left, b, right, out)
        if self._soft_fields.size:
            first, second = self.facts.crossed or (-1, -1)
            crossed = first, second, out.shape[1] - tokens.N_CROSSED
            one_sided = np.take(lacked if is_lacked else lacked[:0], self._strings, axis=1)
            sides = a.cells, b.cells, a.n, b.n, left, right
            tokens.compare(*sides, self._soft_fields, self.rarity, self._soft_places, crossed, one_sided, out)
        if self._numeric:
            fields = self._columns, self._n_measures, self._is_place, self._numeric_places
            measures.compare_numbers(a.numbers, b.numbers, left, right, *fields, out)
        return out

    def _compare_texts(self, a: Prepared, left: Int64, b: Prepared, right: Int64, out: Float32) -> None:
        """Whole strings, field after field."""
        fields = np.arange(len(self._strings))[:, None]
        cells = (fields * a.n + left).ravel(), (fields * b.n + right).ravel()
        (one, n_one), (other, n_other) = (
            _beginnings(side.cells, of) for side, of in zip((a, b), cells, strict=True)
        )
        equal = (n_one == n_other) & np.fromiter(map(eq, one, other), dtype=np.bool_, count=len(one))
        for pair in np.flatnonzero(equal & (n_one > MAX_CHARS)):
            equal[pair] = np.array_equal(_chars(a.cells, cells[0][pair]), _chars(b.cells, cells[1][pair]))
        alike = cpdist(
            [text[:JARO_CHARS] for text in one],
            [text[:JARO_CHARS] for text in other],
            scorer=JaroWinkler.similarity,
            dtype=np.float32,
        )
        edits = cpdist(one, other, scorer=Levenshtein.normalized_similarity, dtype=np.float32)
        for at, feature in enumerate((equal, alike, edits)):
            values = np.where((n_one == 0) | (n_other == 0), np.nan, feature)
            out[:, self._plain_places + at] = values.reshape(len(self._strings), -1).T

    def _compare_lone_texts(self, a: Prepared, row: int, b: Prepared, other_row: int, out: Float32) -> None:
        """As `_compare_texts` of one pair, the most frequent request by far."""
        for field, place in enumerate(self._plain_places.tolist()):
            one = _chars(a.cells, field * a.n + row)
            other = _chars(b.cells, field * b.n + other_row)
            if one.size and other.size:
                x, y = (str(chars[:MAX_CHARS].data, "utf-32-le") for chars in (one, other))
                out[place] = x == y and (one.size <= MAX_CHARS >= other.size or np.array_equal(one, other))
                out[place + 1] = JaroWinkler.similarity(x[:JARO_CHARS], y[:JARO_CHARS])
                out[place + 2] = Levenshtein.normalized_similarity(x, y)
            else:
                out[place : place + len(PLAIN)] = np.nan

    def learn_patterns(self, left: Bool, right: Bool) -> None:
        """Take from training pairs what their sides lack often; of the pairs (n, d)."""
        differ = (left != right).any(axis=1)
        codes, counts = np.unique(measures.pattern_codes(left[differ], right[differ]), return_counts=True)
        often = np.argsort(-counts, kind="stable")[:_MOST_PATTERNS]
        self.one_sided = np.sort(codes[often[counts[often] >= _OFTEN * len(left)]])

    def blanks(self, left: Bool, right: Bool) -> Bool:
        """Of which pairs (n,) what one side lacks is left out on the other, from what both lack, (n, d)."""
        codes = measures.pattern_codes(np.ascontiguousarray(left), np.ascontiguousarray(right))
        blanked: Bool = ~np.isin(codes, self.one_sided)
        return blanked

    @property
    def key_fields(self) -> tuple[list[int], list[int]]:
        """Strings whose whole cells are keys, and those whose tokens are."""
        kinds = [self.schema.fields[at].type for at in self._strings]
        return list(range(len(kinds))), [at for at, kind in enumerate(kinds) if kind in ("text", "name")]

    def _cells(self, records: Records) -> Cells:
        texts: list[str] = []
        fields = self.schema.fields
        for place in self._strings:
            texts += [cell_text(cell, fields[place]) for cell in records[:, place]]
        if self._joined:
            n = len(records)
            texts += [" ".join(text for text in texts[row::n] if text) if n else "" for row in range(n)]
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        chars = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), dtype=np.int32)
        room = chars.size + 1
        squeezed, token_starts = np.empty(room, dtype=np.int32), np.empty(room, dtype=np.int64)
        hashes, flags = np.empty(room, dtype=np.int64), np.empty(room, dtype=np.uint8)
        squeezed_starts, row_tokens = np.empty_like(starts), np.empty_like(starts)
        n_tokens = tokens.tokenise(
            chars, starts, squeezed, squeezed_starts, token_starts, hashes, flags, row_tokens
        )
        parts: list[NDArray[Any]] = [
            squeezed[: int(squeezed_starts[-1])], token_starts[: n_tokens + 1],
            hashes[:n_tokens], flags[:n_tokens],
        ]  # fmt: skip
        if len(records) > _PAIR:
            # Room that no token took is given back: galleries keep these arrays.
            parts = [part.copy() for part in parts]
        squeezed, token_starts, hashes, flags = parts
        return Cells(
            chars, starts, squeezed, squeezed_starts, token_starts, hashes, flags,
            np.empty(0, dtype=np.float32), row_tokens,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """What declares them."""
        return {"schema": self.schema.model_dump(mode="json"), "text": self.facts.model_dump(mode="json")}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Comparators:
        """Comparators as declared, which learned nothing yet; an `ArtefactError` names what no fit writes."""
        stored = checked_model(_Stored, value, "comparators.")
        fields, comparators = stored.table.fields, cls(stored.table)
        if any(not 0 <= at < len(fields) or fields[at].type != "number" for at in stored.text.whole):
            raise ArtefactError("comparators.text.whole names fields that are no numbers")
        comparators.describe(TextFacts(whole=stored.text.whole))
        if not all(0 <= at < comparators.n_texts for at in stored.text.crossed or ()):
            raise ArtefactError("comparators.text.crossed names strings that are not there")
        comparators.describe(stored.text)
        return comparators


def _chars(cells: Cells, number: int) -> NDArray[np.int32]:
    """The characters of a cell."""
    return cells.chars[cells.starts[number] : cells.starts[number + 1]]


def _beginnings(cells: Cells, numbers: Int64) -> tuple[list[str], Int64]:
    """The first `MAX_CHARS` characters of some cells, and how many each has in all."""
    starts, lengths = cells.starts[numbers], cells.starts[numbers + 1] - cells.starts[numbers]
    ends = starts + np.minimum(lengths, MAX_CHARS)
    texts: dict[tuple[int, int], str] = {}
    for start, end in set(zip(starts.tolist(), ends.tolist(), strict=True)):
        texts[start, end] = str(cells.chars[start:end].data, "utf-32-le")
    return [texts[place] for place in zip(starts.tolist(), ends.tolist(), strict=True)], lengths


def absent_cells(cells: Any) -> Bool:
    none: Any = None
    return np.asarray(np.equal(cells, none), dtype=np.bool_)


def cell_text(cell: Any, column: RecordColumn) -> str:
    """A cell as a string to compare: lower case, Latin and Greek without accents; empty where missing."""
    if cell is None:
        return ""
    if isinstance(cell, str):
        if cell.isascii():
            return cell.strip().lower()
        letters: list[str] = []
        for char in unicodedata.normalize("NFKD", cell.casefold()):
            # In other scripts marks make letters of their own.
            if not unicodedata.combining(char) or not letters or _ACCENTED.match(letters[-1]) is None:
                letters.append(char)
        return unicodedata.normalize("NFC", "".join(letters)).strip()
    if column.type == "date":
        return str(np.datetime64(int(np.floor(cell)), "D")).replace("-", "")
    return str(int(cell)) if cell == int(cell) and abs(cell) < 1e15 else repr(cell)
