"""Metadata of items (flat, bounded JSON objects), and filters on it.

A filter is an object of field -> condition, all of which must hold: a plain value (equality), ``{"in": [..]}``, or a
range of ``gt``, ``gte``, ``lt``, ``lte``. Text is compared with text and numbers with numbers; an item without the
field matches no condition on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.service.errors import InvalidInput

MAX_FIELDS = 64
"""Fields of one item, and different fields in a whole gallery."""
MAX_METADATA_BYTES = 4_096
MAX_FIELD_BYTES = 128
MAX_FILTER_VALUES = 10_000
_LARGEST = 2**53
_RANGES = ("gt", "gte", "lt", "lte")
_ABSENT, _NULL, _BOOL, _NUMBER, _TEXT = range(5)

Value = str | float | bool | None
Mask = NDArray[np.bool_]


def checked_metadata(given: Any) -> str | None:
    """Metadata as compact JSON text; None for none."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise InvalidInput("metadata is not JSON; expected an object", field="metadata") from None
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata is not an object of field: value", field="metadata")
    if not given:
        return None
    if len(given) > MAX_FIELDS:
        raise InvalidInput(
            f"metadata has {len(given)} fields; expected at most {MAX_FIELDS}", field="metadata"
        )
    for name, value in given.items():
        _check_field(name)
        _check_value(value, f"metadata.{name[:60]}")
    try:
        text = json.dumps(given, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            "metadata holds half a character; expected whole Unicode text", field="metadata"
        ) from None
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"metadata has {size} bytes of JSON; expected at most {MAX_METADATA_BYTES}", field="metadata"
        )
    return text


def fields_of(metadata: Iterable[str | None]) -> set[str]:
    """Every field that occurs."""
    return {name for text in metadata if text is not None for name in json.loads(text)}


def _check_field(name: Any) -> None:
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > MAX_FIELD_BYTES:
        raise InvalidInput(f"a metadata field's name has 1 to {MAX_FIELD_BYTES} bytes", field="metadata")
    if not name.isprintable():
        raise InvalidInput("a metadata field's name holds control characters", field="metadata")


def _check_value(value: Any, field: str) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        if "\0" in value:
            raise InvalidInput(f"{field} holds a zero character; expected plain text", field=field)
        return
    # NaN fails every comparison; whole numbers beyond 2**53 would not compare exactly.
    if isinstance(value, (int, float)) and -_LARGEST <= value <= _LARGEST:
        return
    if isinstance(value, (int, float)):
        raise InvalidInput(f"{field} is not a number within ±2**53; send larger ones as text", field=field)
    raise InvalidInput(
        f"{field} is a list or an object; expected text, a number, true, false or null", field=field
    )


# ---------------------------------------------------------------- filters


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on one field."""

    field: str
    values: tuple[Value, ...] | None
    """Any of these; None for a range."""
    bounds: tuple[tuple[str, Value], ...] = ()


Filter = tuple[Condition, ...]


def parse_filter(given: Any, known: Iterable[str]) -> Filter:
    """A filter, checked. ``known``: the fields that the gallery's items have had."""
    if given is None:
        return ()
    if not isinstance(given, dict):
        raise InvalidInput(
            'filter: expected an object, e.g. {"site": "north", "year": {"gte": 2020}}', field="filter"
        )
    fields = set(known)
    conditions = []
    for name, wanted in given.items():
        where = f"filter.{name[:60]}"
        if name not in fields:
            listed = ", ".join(sorted(fields)[:20]) or "none"
            raise InvalidInput(f"{where}: no item has that field; known: {listed}", field=where)
        conditions.append(_condition(name, wanted, where))
    return tuple(conditions)


def _condition(name: str, wanted: Any, where: str) -> Condition:
    if isinstance(wanted, list):
        wanted = {"in": wanted}
    if not isinstance(wanted, dict):
        _check_value(wanted, where)
        return Condition(name, (wanted,))
    if set(wanted) == {"in"}:
        values = wanted["in"]
        if not isinstance(values, list) or not 0 < len(values) <= MAX_FILTER_VALUES:
            raise InvalidInput(f"{where}.in: expected a list of 1 to {MAX_FILTER_VALUES} values", field=where)
        for value in values:
            _check_value(value, where)
        return Condition(name, tuple(values))
    if not wanted or not set(wanted) <= set(_RANGES):
        raise InvalidInput(
            f'{where}: expected a value, {{"in": [..]}}, or a range of {", ".join(_RANGES)}', field=where
        )
    kinds = {type(value) is str for value in wanted.values()}
    if len(kinds) > 1 or any(
        value is None or isinstance(value, (bool, list, dict)) for value in wanted.values()
    ):
        raise InvalidInput(f"{where}: a range is between numbers, or between texts", field=where)
    for value in wanted.values():
        _check_value(value, where)
    return Condition(name, None, tuple(wanted.items()))


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class Column:
    """One field of n items: what kind of value each has, numbers (booleans and numbers), and codes into ``words``."""

    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    codes: NDArray[np.int32]
    words: tuple[str, ...]

    def chosen(self, condition: Condition) -> Mask:
        """(n,) which items fulfil the condition."""
        if condition.values is not None:
            return self._any_of(condition.values)
        textual = isinstance(condition.bounds[0][1], str)
        found: Mask = self.kinds == (_TEXT if textual else _NUMBER)
        for word, bound in condition.bounds:
            if textual:
                fits = np.array([_ORDER[word](one, bound) for one in self.words], dtype=np.bool_)
                if not fits.size:
                    return np.zeros(self.kinds.shape, dtype=np.bool_)
                found &= fits[self.codes]
            else:
                found &= _ORDER[word](self.numbers, bound)
        return found

    def _any_of(self, values: tuple[Value, ...]) -> Mask:
        found = np.zeros(self.kinds.shape, dtype=np.bool_)
        if None in values:
            found |= self.kinds == _NULL
        flags = [value for value in values if isinstance(value, bool)]
        if flags:
            found |= (self.kinds == _BOOL) & np.isin(self.numbers, np.array(flags, dtype=np.float64))
        numbers = [
            value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if numbers:
            found |= (self.kinds == _NUMBER) & np.isin(self.numbers, np.array(numbers, dtype=np.float64))
        texts = {value for value in values if isinstance(value, str)}
        if texts and self.words:
            fits = np.array([word in texts for word in self.words], dtype=np.bool_)
            found |= (self.kinds == _TEXT) & fits[self.codes]
        return found


_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}

Columns = dict[str, Column]


def columns_of(metadata: list[str | None]) -> Columns:
    """Columns of n items' metadata."""
    n = len(metadata)
    made: dict[str, tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.int32], dict[str, int]]] = {}
    for row, text in enumerate(metadata):
        if text is None:
            continue
        for name, value in json.loads(text).items():
            column = made.get(name)
            if column is None:
                column = made[name] = (
                    np.zeros(n, dtype=np.uint8),
                    np.zeros(n, dtype=np.float64),
                    np.zeros(n, dtype=np.int32),
                    {},
                )
            kinds, numbers, codes, words = column
            if value is None:
                kinds[row] = _NULL
            elif isinstance(value, bool):
                kinds[row], numbers[row] = _BOOL, value
            elif isinstance(value, str):
                kinds[row], codes[row] = _TEXT, words.setdefault(value, len(words))
            else:
                kinds[row], numbers[row] = _NUMBER, value
    return {
        name: Column(kinds, numbers, codes, tuple(words))
        for name, (kinds, numbers, codes, words) in made.items()
    }


def choose(columns: Columns, n: int, wanted: Filter) -> Mask | None:
    """(n,) which items fulfil every condition; None when there is none."""
    if not wanted:
        return None
    mask = np.ones(n, dtype=np.bool_)
    for condition in wanted:
        column = columns.get(condition.field)
        if column is None:
            return np.zeros(n, dtype=np.bool_)
        mask &= column.chosen(condition)
    return mask


def write_columns(columns: Columns, folder: Path) -> None:
    """Plain arrays, to be memory-mapped."""
    folder.mkdir()
    names = {}
    for number, (name, column) in enumerate(sorted(columns.items())):
        names[name] = list(column.words)
        for part in ("kinds", "numbers", "codes"):
            np.save(folder / f"{number}-{part}.npy", getattr(column, part), allow_pickle=False)
    (folder / "columns.json").write_text(json.dumps(names))


def read_columns(folder: Path) -> Columns:
    """What `write_columns` wrote."""
    names = json.loads((folder / "columns.json").read_text())

    def part(number: int, name: str) -> Any:
        return np.load(folder / f"{number}-{name}.npy", mmap_mode="r", allow_pickle=False)

    return {
        name: Column(part(number, "kinds"), part(number, "numbers"), part(number, "codes"), tuple(words))
        for number, (name, words) in enumerate(names.items())
    }
