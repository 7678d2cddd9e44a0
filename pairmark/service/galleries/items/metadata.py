"""Metadata of items (flat, bounded JSON objects), and filters on it.

A filter is an object of field -> condition, all of which must hold: a plain value (equality), ``{"in": [..]}``, or a
range of ``gt``, ``gte``, ``lt``, ``lte``. Text is compared with text and numbers with numbers; an item without the
field matches no condition on it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

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
_ABSENT, _NULL, _BOOL, _NUMBER, _TEXT = range(5)
_KINDS: dict[type, int] = {type(None): _NULL, bool: _BOOL, int: _NUMBER, float: _NUMBER, str: _TEXT}
_FEW_WORDS = 4
_READ_ROWS = 16_384
"""Rows whose metadata is read into objects at a time."""

Value = str | float | bool | None


def checked_metadata(value: Any) -> str | None:
    """Metadata as compact JSON text; None for none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
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
        _check_value(content, f"metadata.{name[:60]}")
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
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


def checked_column(column: Sequence[Any]) -> list[str | None] | None:
    """`checked_metadata` of many rows at once, where all of them are good; None: look at each.

    Texts are read in one call and written in one call. What stands between two of them no sender can guess, so that a
    text with half an object cannot borrow the other half from its neighbour.
    """
    mark = secrets.token_hex(16)
    separator = f',"{mark}",'
    present_positions = [at for at, value in enumerate(column) if value is not None]
    facts = [column[at] for at in present_positions]
    text_positions = [at for at, value in enumerate(facts) if isinstance(value, str)]
    try:
        if text_positions:
            parsed = from_json(f"[{separator.join([facts[at] for at in text_positions])}]")
            if len(parsed) != 2 * len(text_positions) - 1 or set(parsed[1::2]) - {mark}:
                return None
            for at, value in zip(text_positions, parsed[::2], strict=True):
                facts[at] = value
        if not all(type(value) is dict and len(value) <= MAX_FIELDS for value in facts):
            return None
        for name, (_, values) in _by_field(facts).items():
            _check_field(name)
            _check_values(values, name)
        marked = list(chain.from_iterable(zip(facts, repeat(mark))))[:-1]
        body = json.dumps(marked, ensure_ascii=False, separators=(",", ":"), sort_keys=True)[1:-1]
        lines = body.split(separator)
        sizes = map(len, lines if body.isascii() else [line.encode() for line in lines])
        if max(sizes) > MAX_METADATA_BYTES:
            return None
    except (ValueError, TypeError, InvalidInput):
        return None
    texts_or_none: list[str | None] = [None] * len(column)
    for at, line in zip(present_positions, lines, strict=bool(present_positions)):
        texts_or_none[at] = None if line == "{}" else line
    return texts_or_none


def _check_values(values: list[Any], name: str) -> None:
    types = set(map(type, values))
    if types == {str} and "\0" not in "".join(values):
        return
    if types <= {int, float} and all(-_LARGEST <= value <= _LARGEST for value in values):
        return
    for value in values:
        _check_value(value, name)


def _by_field(facts: Iterable[dict[str, Any]]) -> dict[str, tuple[list[int], list[Any]]]:
    """Of each field that occurs: the rows that have it, and their values."""
    fields: dict[str, tuple[list[int], list[Any]]] = {}
    for row, values in enumerate(facts):
        for name, value in values.items():
            column = fields.get(name)
            if column is None:
                column = fields[name] = ([], [])
            column[0].append(row)
            column[1].append(value)
    return fields


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


def parse_filter(body: Any, gallery_fields: Iterable[str]) -> Filter:
    """A filter, checked. ``gallery_fields``: the fields that the gallery's items have had."""
    if body is None:
        return ()
    if not isinstance(body, dict):
        raise InvalidInput(
            'filter: expected an object, e.g. {"site": "north", "year": {"gte": 2020}}', field="filter"
        )
    fields = set(gallery_fields)
    conditions = []
    for name, condition in body.items():
        where = f"filter.{name[:60]}"
        if name not in fields:
            examples = ", ".join(sorted(fields)[:20]) or "none"
            raise InvalidInput(f"{where}: no item has that field; known: {examples}", field=where)
        conditions.append(_condition(name, condition, where))
    return tuple(conditions)


def _condition(name: str, condition: Any, where: str) -> Condition:
    if isinstance(condition, list):
        condition = {"in": condition}
    if not isinstance(condition, dict):
        _check_value(condition, where)
        return Condition(name, (condition,))
    if set(condition) == {"in"}:
        values = condition["in"]
        if not isinstance(values, list) or not 0 < len(values) <= MAX_FILTER_VALUES:
            raise InvalidInput(f"{where}.in: expected a list of 1 to {MAX_FILTER_VALUES} values", field=where)
        for value in values:
            _check_value(value, where)
        return Condition(name, tuple(values))
    if not condition or not set(condition) <= set(_RANGES):
        raise InvalidInput(
            f'{where}: expected a value, {{"in": [..]}}, or a range of {", ".join(_RANGES)}', field=where
        )
    kinds = {type(value) is str for value in condition.values()}
    if len(kinds) > 1 or any(
        value is None or isinstance(value, (bool, list, dict)) for value in condition.values()
    ):
        raise InvalidInput(f"{where}: a range is between numbers, or between texts", field=where)
    for value in condition.values():
        _check_value(value, where)
    return Condition(name, None, tuple(condition.items()))


# ---------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """One field of n items: what kind of value each has, numbers (booleans and numbers), and codes into ``words``."""

    kinds: NDArray[np.uint8]
    numbers: NDArray[np.float64]
    codes: NDArray[np.int32]
    words: tuple[str, ...]

    def matches(self, condition: Condition) -> Bool:
        """(n,) which items fulfil the condition."""
        if condition.values is not None:
            return self._any_of(condition.values)
        if isinstance(condition.bounds[0][1], str):
            return self._of_words(
                [all(_ORDER[word](text, bound) for word, bound in condition.bounds) for text in self.words]
            )
        mask: Bool = self.kinds == _NUMBER
        for word, bound in condition.bounds:
            mask &= _ORDER[word](self.numbers, bound)
        return mask

    def _of_words(self, matching: list[bool]) -> Bool:
        codes = np.flatnonzero(np.array(matching, dtype=np.bool_))
        # A few comparisons of whole columns cost less than looking every code up.
        if codes.size <= _FEW_WORDS:
            mask = np.zeros(self.kinds.shape, dtype=np.bool_)
            for code in codes.astype(np.int32):
                mask |= self.codes == code
        else:
            mask = np.array(matching, dtype=np.bool_)[self.codes]
        mask &= self.kinds == _TEXT
        return mask

    def _any_of(self, values: tuple[Value, ...]) -> Bool:
        mask = np.zeros(self.kinds.shape, dtype=np.bool_)
        if None in values:
            mask |= self.kinds == _NULL
        flags = [value for value in values if isinstance(value, bool)]
        if flags:
            mask |= (self.kinds == _BOOL) & np.isin(self.numbers, np.array(flags, dtype=np.float64))
        numbers = [
            value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)
        ]
        if numbers:
            mask |= (self.kinds == _NUMBER) & np.isin(self.numbers, np.array(numbers, dtype=np.float64))
        texts = {value for value in values if isinstance(value, str)}
        if texts:
            mask |= self._of_words([word in texts for word in self.words])
        return mask


_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
}

Columns = dict[str, MetadataColumn]


def metadata_columns(metadata: list[str | None]) -> Columns:
    n = len(metadata)
    columns: Columns = {}
    words: dict[str, dict[str, int]] = {}
    for start in range(0, n, _READ_ROWS):
        for name, (rows, values) in _by_field(_read(metadata[start : start + _READ_ROWS])).items():
            if name not in columns:
                kinds, numbers = np.full(n, _ABSENT, dtype=np.uint8), np.zeros(n, dtype=np.float64)
                columns[name] = MetadataColumn(kinds, numbers, np.zeros(n, dtype=np.int32), ())
                words[name] = {}
            column, codes = columns[name], words[name]
            places = np.array(rows) + start
            kinds = np.array([_KINDS[type(value)] for value in values], dtype=np.uint8)
            column.kinds[places] = kinds
            texts = np.flatnonzero(kinds == _TEXT)
            numeric = np.flatnonzero((kinds == _NUMBER) | (kinds == _BOOL))
            column.numbers[places[numeric]] = [values[at] for at in numeric.tolist()]
            column.codes[places[texts]] = [codes.setdefault(values[at], len(codes)) for at in texts.tolist()]
    return {name: replace(column, words=tuple(words[name])) for name, column in columns.items()}


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
    names = {}
    for number, (name, column) in enumerate(sorted(columns.items())):
        names[name] = list(column.words)
        for part in ("kinds", "numbers", "codes"):
            np.save(folder / f"{number}-{part}.npy", getattr(column, part), allow_pickle=False)
    (folder / "columns.json").write_text(json.dumps(names))


def read_columns(folder: Path) -> Columns:
    names = json.loads((folder / "columns.json").read_text())

    def part(number: int, name: str) -> Any:
        return np.load(folder / f"{number}-{name}.npy", mmap_mode="r", allow_pickle=False)

    return {
        name: MetadataColumn(
            part(number, "kinds"), part(number, "numbers"), part(number, "codes"), tuple(words)
        )
        for number, (name, words) in enumerate(names.items())
    }
