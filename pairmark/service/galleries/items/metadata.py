"""Metadata of items (flat, bounded JSON objects), and filters on it.

A filter is an object of field -> condition, all of which must hold: a plain value (equality), ``{"in": [..]}``, or a
range of ``gt``, ``gte``, ``lt``, ``lte``. Text is compared with text and numbers with numbers; an item without the
field matches no condition on it.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from pairmark.models.core.arrays import Bool
from pairmark.service.errors import InvalidInput

MAX_FIELDS = 64
"""Fields of one item, and different fields in a whole gallery."""
MAX_METADATA_BYTES = 4_096
MAX_FIELD_BYTES = 128
MAX_FILTER_VALUES = 10_000
_LARGEST = 2**53
_RANGES = ("gt", "gte", "lt", "lte")
_ABSENT, _NULL, _FALSE = range(3)
_FIRST = 4
"""Code of a column's smallest number; true is one above false."""
_FEW = 4
_READ_ROWS = 16_384
"""Rows whose metadata is read into objects at a time."""

Value = str | float | bool | None


def checked_metadata(value: Any) -> str | None:
    """Metadata as compact JSON text; None for none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            raise InvalidInput("metadata is not JSON; expected an object", field="metadata") from None
    if not isinstance(value, Mapping):
        raise InvalidInput("metadata is not an object of field: value", field="metadata")
    if not value:
        return None
    if len(value) > MAX_FIELDS:
        raise InvalidInput(
            f"metadata has {len(value)} fields; expected at most {MAX_FIELDS}", field="metadata"
        )
    for name, content in value.items():
        _check_field(name)
        _check_value(content, name)
    try:
        body = msgspec.json.encode(value, order="sorted")
    except UnicodeEncodeError:
        raise InvalidInput(
            "metadata holds half a character; expected whole Unicode text", field="metadata"
        ) from None
    if len(body) > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"metadata has {len(body)} bytes of JSON; expected at most {MAX_METADATA_BYTES}", field="metadata"
        )
    return body.decode()


def _read(metadata: Iterable[str | None]) -> list[dict[str, Any]]:
    """Metadata that `checked_metadata` returned, as objects."""
    facts: list[dict[str, Any]] = from_json(f"[{','.join([text or '{}' for text in metadata])}]")
    return facts


def fields_of(metadata: Iterable[str | None]) -> set[str]:
    return set().union(*_read(metadata))


def _check_field(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > MAX_FIELD_BYTES:
        raise InvalidInput(f"a metadata field's name has 1 to {MAX_FIELD_BYTES} bytes", field="metadata")
    if not name.isprintable():
        raise InvalidInput("a metadata field's name holds control characters", field="metadata")


def _check_value(value: Any, name: str, of: str = "metadata") -> None:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and "\0" not in value):
        return
    # NaN fails every comparison; whole numbers beyond 2**53 would not compare exactly.
    if isinstance(value, (int, float)) and -_LARGEST <= value <= _LARGEST:
        return
    field = f"{of}.{name[:60]}"
    if isinstance(value, str):
        raise InvalidInput(f"{field} holds a zero character; expected plain text", field=field)
    if isinstance(value, (int, float)):
        raise InvalidInput(f"{field} is not a number within ±2**53; send larger ones as text", field=field)
    raise InvalidInput(
        f"{field} is a list or an object; expected text, a number, true, false or null", field=field
    )


# ---------------------------------------------------------------- filters


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one field: any of some values, or (with none) bounds that all hold."""

    field: str
    values: tuple[Value, ...]
    bounds: tuple[tuple[str, Any], ...] = ()


Filter = tuple[Condition, ...]


def parse_filter(body: Any, gallery_fields: Iterable[str]) -> Filter:
    """A filter, checked. ``gallery_fields``: the fields that the gallery's items have had."""
    if body is None:
        return ()
    if not isinstance(body, dict):
        raise InvalidInput(
            'filter: expected an object, e.g. {"site": "north", "year": {"gte": 2020}}', field="filter"
        )
    fields = set(gallery_fields)
    unknown = [name for name in body if name not in fields]
    if unknown:
        where, examples = f"filter.{unknown[0][:60]}", ", ".join(sorted(fields)[:20]) or "none"
        raise InvalidInput(f"{where}: no item has that field; known: {examples}", field=where)
    return tuple(_condition(name, condition) for name, condition in body.items())


def _condition(name: str, condition: Any) -> Condition:
    where = f"filter.{name[:60]}"
    if not isinstance(condition, dict):
        condition = {"in": condition if isinstance(condition, list) else [condition]}
    in_set = set(condition) == {"in"}
    if in_set and not (isinstance(condition["in"], list) and 0 < len(condition["in"]) <= MAX_FILTER_VALUES):
        raise InvalidInput(f"{where}.in: expected a list of 1 to {MAX_FILTER_VALUES} values", field=where)
    if not in_set and not (condition and set(condition) <= set(_RANGES)):
        raise InvalidInput(
            f'{where}: expected a value, {{"in": [..]}}, or a range of {", ".join(_RANGES)}', field=where
        )
    values = condition["in"] if in_set else list(condition.values())
    for value in values:
        _check_value(value, name, "filter")
    if in_set:
        return Condition(name, tuple(values))
    kinds = {float if type(value) is int else type(value) for value in values}
    if kinds not in ({float}, {str}):
        raise InvalidInput(f"{where}: a range is between numbers, or between texts", field=where)
    return Condition(name, (), tuple(condition.items()))


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """One field of n items: each item's code. Numbers, then words, are coded in ascending order, so that a range of
    values is a range of codes."""

    codes: NDArray[np.int32]
    numbers: NDArray[np.float64]
    words: tuple[str, ...]

    def _table(self, value: Any) -> tuple[Sequence[Any], int]:
        """Values of that kind, ascending, and the code of the first."""
        if isinstance(value, str):
            return self.words, _FIRST + len(self.numbers)
        numbers: Any = self.numbers
        return numbers, _FIRST

    def code_of(self, value: Value) -> int:
        """The code of a value; -1 for one that no item has."""
        if value is None:
            return _NULL
        if isinstance(value, bool):
            return _FALSE + value
        table, first = self._table(value)
        at = bisect_left(table, value)
        return first + at if at < len(table) and table[at] == value else -1

    def matches(self, condition: Condition) -> Bool:
        """(n,) which items fulfil the condition."""
        if condition.values:
            codes = np.array([self.code_of(value) for value in condition.values], dtype=np.int32)
            # A few comparisons of whole columns cost less than looking every code up.
            if codes.size > _FEW:
                return np.isin(self.codes, codes)
            mask: Bool = np.logical_or.reduce([self.codes == code for code in codes])
            return mask
        table, first = self._table(condition.bounds[0][1])
        low, high = 0, len(table)
        for word, bound in condition.bounds:
            at = bisect_right(table, bound) if word in ("gt", "lte") else bisect_left(table, bound)
            low, high = (max(low, at), high) if word in ("gt", "gte") else (low, min(high, at))
        return (self.codes >= first + low) & (self.codes < first + high)


Columns = dict[str, MetadataColumn]


def metadata_columns(metadata: list[str | None]) -> Columns:
    # Of each field, the items' numbers in a list of its different values. Keys tell true from 1.
    numbers_of: dict[str, NDArray[np.int32]] = {}
    distinct: dict[str, dict[tuple[bool, Any], int]] = {}
    for start in range(0, len(metadata), _READ_ROWS):
        for row, facts in enumerate(_read(metadata[start : start + _READ_ROWS]), start):
            for name, value in facts.items():
                if name not in distinct:
                    numbers_of[name] = np.full(len(metadata), -1, dtype=np.int32)
                    distinct[name] = {}
                values = distinct[name]
                numbers_of[name][row] = values.setdefault((type(value) is bool, value), len(values))
    return {
        name: _column(numbers, [value for _, value in distinct[name]]) for name, numbers in numbers_of.items()
    }


def _column(numbers: NDArray[np.int32], values: list[Any]) -> MetadataColumn:
    """A column of items that have the values of these numbers; -1: none."""
    floats = sorted(float(value) for value in values if type(value) in (int, float))
    words = sorted(value for value in values if type(value) is str)
    column = MetadataColumn(numbers, np.array(floats, dtype=np.float64), tuple(words))
    codes = np.array([*map(column.code_of, values), _ABSENT], dtype=np.int32)
    return MetadataColumn(codes[numbers], column.numbers, column.words)


def choose(columns: Columns, n: int, conditions: Filter) -> Bool | None:
    """(n,) which items fulfil every condition; None when there is none."""
    if not conditions:
        return None
    mask = np.ones(n, dtype=np.bool_)
    for condition in conditions:
        column = columns.get(condition.field)
        if column is None:
            return np.zeros(n, dtype=np.bool_)
        mask &= column.matches(condition)
    return mask


def write_columns(columns: Columns, folder: Path) -> None:
    """Plain arrays, to be memory-mapped."""
    folder.mkdir()
    for number, column in enumerate(columns.values()):
        np.save(folder / f"{number}-codes.npy", column.codes, allow_pickle=False)
        np.save(folder / f"{number}-numbers.npy", column.numbers, allow_pickle=False)
    words = {name: column.words for name, column in columns.items()}
    (folder / "columns.json").write_text(json.dumps(words))


def read_columns(folder: Path) -> Columns:
    words: dict[str, list[str]] = json.loads((folder / "columns.json").read_text())
    return {
        name: MetadataColumn(
            np.load(folder / f"{number}-codes.npy", mmap_mode="r", allow_pickle=False),
            np.load(folder / f"{number}-numbers.npy", allow_pickle=False),
            tuple(words_of),
        )
        for number, (name, words_of) in enumerate(words.items())
    }
