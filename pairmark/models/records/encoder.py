"""Records as vectors, for learners that take numbers: fitted on training records, kept as plain arrays.

Numbers and dates are centred and scaled, with 0 and a flag of their own where missing; of dates the season and the
weekday are given too. Categories become one column a value, hashed where there are many; one that training did not have
sets a flag. Texts and names become hashed character n-grams weighed by ``log((1 + N) / (1 + df)) + 1`` and scaled to
length one. Places are points on the unit sphere.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, Strict
from scipy.sparse import csr_array

from pairmark.models.core.arrays import Float32, Float64, Int64, NDArray
from pairmark.models.core.artefact import ArtefactError
from pairmark.models.core.inputs import cells_missing
from pairmark.models.core.state import Array, State, check_arrays, checked_model
from pairmark.models.records.comparators import normal_form
from pairmark.models.records.kernels.tokens import FNV_PRIME, FNV_START
from pairmark.models.records.schema import TEXTS, RecordColumn, Records, Schema

MOST_LEVELS = 64
"""Values of a category that get a column each; more are hashed to so many columns."""
DENSE_GRAMS, SPARSE_GRAMS = 128, 4_096
"""Columns of a text's n-grams, of dense rows and of sparse ones."""
GRAM_LENGTHS = (3, 4)
"""Characters of an n-gram; each string is taken with a space on either side."""
_PARTS = {
    "number": [""],
    "boolean": [""],
    "date": ["", " year's sine", " year's cosine", " week's sine", " week's cosine"],
    "place": [" x", " y", " z"],
}
_DAYS_OF_YEAR, _DAYS_OF_WEEK, _THURSDAY = 365.25, 7.0, 4.0


class EncoderFacts(BaseModel):
    """What an encoder says beside its arrays."""

    model_config = ConfigDict(extra="forbid", strict=True)

    table: Annotated[Schema, Strict(False)]
    sparse: bool
    levels: dict[str, list[str]]
    n_grams: int = Field(ge=8, le=2**20)


class RecordEncoder:
    """Records to rows of float32.

    Parameters
    ----------
    schema : of the records. sparse : whether rows are CSR, with wider n-grams, or dense.
    """

    def __init__(self, schema: Schema, *, sparse: bool = False, n_grams: int | None = None) -> None:
        self.schema, self.sparse = schema, sparse
        self._n_grams = n_grams or (SPARSE_GRAMS if sparse else DENSE_GRAMS)
        self._levels: dict[str, list[str]] = {}

    def fit(self, records: Records) -> "RecordEncoder":
        """Learn scales, categories and the rarity of n-grams from training records alone."""
        standard, texts = self._scaled, self._texts
        self._centre, self._scale = np.zeros(len(standard)), np.ones(len(standard))
        for place, field in enumerate(standard):
            values = np.array([cell for cell in records[:, field] if cell is not None], dtype=np.float64)
            if values.size:
                self._centre[place] = np.median(values)
                # The middle half decides: one wild cell does not squeeze all the others together.
                low, high = np.quantile(values, (0.25, 0.75))
                deviation = (high - low) / 1.349 or float(values.std())
                self._scale[place] = deviation if deviation > 0 else 1.0
        self._levels = {}
        for column, cells in zip(self.schema.fields, records.T, strict=True):
            if column.type == "category":
                levels = sorted({normal_form(cell, "text") for cell in cells if cell is not None})
                self._levels[column.name] = levels if len(levels) <= MOST_LEVELS else []
        self._rarity = np.ones((len(texts), self._n_grams), dtype=np.float32)
        for place, field in enumerate(texts):
            grams_of = self._gram_counts(records[:, field])
            n_cells = int(np.count_nonzero(np.diff(grams_of.indptr)))
            counts = np.bincount(grams_of.indices, minlength=self._n_grams)
            self._rarity[place] = np.log((1 + n_cells) / (1 + counts)) + 1
        return self

    @property
    def feature_names(self) -> list[str]:
        """What each column of a row is of."""
        return [f"{column.name}{part}" for column in self.schema.fields for part in self._parts(column)]

    def transform(self, records: Records) -> Any:
        """Rows of records, (n, n_features) float32: an array, or CSR where the encoder is sparse."""
        parts, start = [], 0
        for at, column in enumerate(self.schema.fields):
            own_rows, own_columns, own_values, width = self._encoded(at, column, records[:, at])
            parts.append((own_rows, own_columns + start, own_values))
            start += width
        rows, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        if self.sparse:
            matrix: Any = csr_array((values, (rows, columns)), shape=(len(records), start))
            matrix.sum_duplicates()
            return matrix
        out = np.zeros((len(records), start), dtype=np.float32)
        out[rows, columns] = values
        return out

    def unseen(self, records: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
        """By column the categories of records that training did not have; not known of a column with more than
        `MOST_LEVELS`, whose values are hashed."""
        unseen: dict[str, dict[str, None]] = {}
        for column in self.schema.fields:
            levels = self._levels.get(column.name, [])
            for record in records if levels else ():
                cell = column.cell(record.get(column.name))
                if cell is not None and normal_form(cell, "text") not in levels:
                    unseen.setdefault(column.name, {})[str(cell)] = None
        return {name: list(values) for name, values in unseen.items()}

    @property
    def _scaled(self) -> list[int]:
        return [at for at, column in enumerate(self.schema.fields) if column.type in ("number", "date")]

    @property
    def _texts(self) -> list[int]:
        return [at for at, column in enumerate(self.schema.fields) if column.type in TEXTS]

    def _parts(self, column: RecordColumn) -> list[str]:
        """Names of a field's columns; the last one, set where the cell is missing, is there for all."""
        if column.type in _PARTS:
            parts = _PARTS[column.type]
        elif column.type in TEXTS:
            parts = [f" ~{k}" for k in range(self._n_grams)]
        else:
            parts = [f" #{k}" for k in range(MOST_LEVELS)]
            if levels := self._levels[column.name]:
                parts = [*(f"={level}" for level in levels), " unknown"]
        return [*parts, " missing"]

    def _encoded(self, field: int, column: RecordColumn, cells: Any) -> tuple[Int64, Int64, Float32, int]:
        """Entries of a field's columns: rows, columns, values; and how many columns it has."""
        width, absent = len(self._parts(column)), cells_missing(cells)
        present, absent_rows = np.flatnonzero(~absent), np.flatnonzero(absent)
        if column.type in TEXTS:
            grams_of = self._gram_counts(cells)
            rows = np.repeat(np.arange(len(cells)), np.diff(grams_of.indptr))
            weights = grams_of.data * self._rarity[self._texts.index(field)][grams_of.indices]
            length = np.sqrt(np.bincount(rows, weights=weights.astype(np.float64) ** 2, minlength=len(cells)))
            columns, values = grams_of.indices.astype(np.int64), weights / np.maximum(length, 1e-12)[rows]
        elif column.type == "category":
            rows, values = present, np.ones(present.size)
            places = {level: place for place, level in enumerate(self._levels[column.name])}
            texts = [normal_form(cells[row], "text") for row in present]
            numbers = [
                places.get(text, len(places)) if places else _hash_text(text) % MOST_LEVELS for text in texts
            ]
            columns = np.array(numbers, dtype=np.int64)
        else:
            block = self._numbers(field, column, [cells[row] for row in present])
            rows = np.repeat(present, block.shape[1])
            columns, values = np.tile(np.arange(block.shape[1]), present.size), block.ravel()
        return (
            np.concatenate([rows, absent_rows]),
            np.concatenate([columns, np.full(absent_rows.size, width - 1)]),
            np.concatenate([values, np.ones(absent_rows.size)]).astype(np.float32),
            width,
        )

    def _numbers(self, field: int, column: RecordColumn, cells: list[Any]) -> Float64:
        values = np.array(cells, dtype=np.float64)
        if column.type == "place":
            latitude, longitude = np.radians(values.reshape(-1, 2)).T
            axis = np.cos(latitude)
            return np.stack([axis * np.cos(longitude), axis * np.sin(longitude), np.sin(latitude)], axis=1)
        if column.type == "boolean":
            return 2 * values[:, None] - 1
        place = self._scaled.index(field)
        # Bounded: a cell far beyond training would drown every other column.
        standard = np.clip((values - self._centre[place]) / self._scale[place], -1e3, 1e3)
        if column.type == "number":
            return np.asarray(standard[:, None])
        year = 2 * np.pi * values / _DAYS_OF_YEAR
        week = 2 * np.pi * (np.floor(values) + _THURSDAY) / _DAYS_OF_WEEK
        return np.stack([standard, np.sin(year), np.cos(year), np.sin(week), np.cos(week)], axis=1)

    def _gram_counts(self, cells: Any) -> Any:
        """Counts of hashed n-grams, (n, n_grams) CSR."""
        texts = [f" {text} " if text else "" for text in (normal_form(cell, "text") for cell in cells)]
        chars = np.frombuffer("".join(texts).encode("utf-32-le", "replace"), dtype=np.uint32)
        row, parts = np.repeat(np.arange(len(texts)), [len(text) for text in texts]), []
        for length in GRAM_LENGTHS:
            n = max(chars.size - length + 1, 0)
            code = np.full(n, FNV_START)
            for k in range(length):
                code = (code ^ chars[k : k + n]) * FNV_PRIME
            within = row[:n] == row[length - 1 : length - 1 + n]
            columns = (code[within] >> np.uint64(17)) % np.uint64(self._n_grams)
            parts.append(np.stack([row[:n][within], columns.astype(np.int64)]))
        places = np.concatenate(parts, axis=1)
        counts = np.ones(places.shape[1], dtype=np.float32)
        return csr_array((counts, (places[0], places[1])), shape=(len(texts), self._n_grams))

    def to_state(self) -> State:
        """Arrays and JSON-able facts."""
        return (
            {"centre": self._centre, "scale": self._scale, "rarity": self._rarity},
            {
                "table": self.schema.model_dump(mode="json"),
                "sparse": self.sparse,
                "levels": self._levels,
                "n_grams": self._n_grams,
            },
        )

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], meta: Mapping[str, Any]) -> "RecordEncoder":
        """What `to_state` gave, checked.

        Raises
        ------
        ArtefactError
            Naming the fact, or the array and its row, that no fit writes.
        """
        facts = checked_model(EncoderFacts, meta, "encoder.")
        encoder = cls(facts.table, sparse=facts.sparse, n_grams=facts.n_grams)
        categories = {column.name for column in facts.table.fields if column.type == "category"}
        if facts.levels.keys() != categories or any(len(own) > MOST_LEVELS for own in facts.levels.values()):
            raise ArtefactError(f"encoder.levels: expected at most {MOST_LEVELS} of each category")
        layout = {
            "centre": Array(kind="float64", shape=(len(encoder._scaled),)),
            "scale": Array(kind="float64", shape=(len(encoder._scaled),), positive=True),
            "rarity": Array(kind="float32", shape=(len(encoder._texts), facts.n_grams), low=0.0, high=1e3),
        }
        check_arrays(arrays, layout, {})
        encoder._levels = facts.levels
        encoder._centre, encoder._scale, encoder._rarity = (np.array(arrays[name]) for name in layout)
        return encoder


def _hash_text(text: str) -> int:
    code = int(FNV_START)
    for char in text:
        code = (code ^ ord(char)) * int(FNV_PRIME) % 2**64
    return code >> 17
