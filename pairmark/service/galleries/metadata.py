"""Metadata of items, and filters on it.

Metadata is a flat, bounded JSON object. A filter is an object of field -> condition, all of which must hold: a plain
value (equality), ``{"in": [..]}``, or a range of ``gt``, ``gte``, ``lt``, ``lte``. Text is compared with text and
numbers with numbers; an item without the field matches no condition on it.
"""

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
from pairmark.models.core.artefact import open_array
from pairmark.service.errors import InvalidInput

MAX_FIELDS = 64
"""Fields of one item, and different fields in a whole gallery."""
MAX_METADATA_BYTES = 4_096
MAX_FIELD_BYTES = 128
MAX_FILTER_VALUES = 10_000
_LARGEST = 2**53
_RANGES = ("gt", "gte", "lt", "lte")
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
        if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > MAX_FIELD_BYTES:
            raise InvalidInput(f"a metadata field's name has 1 to {MAX_FIELD_BYTES} bytes", field="metadata")
        if not name.isprintable():
            raise InvalidInput("a metadata field's name holds control characters", field="metadata")
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


def _read(metadata: Iterable[str]) -> list[dict[str, Any]]:
    """Metadata that `checked_metadata` returned, as objects."""
    facts: list[dict[str, Any]] = from_json(f"[{','.join(metadata)}]")
    return facts


def new_fields(metadata: Iterable[str | None], fields: Sequence[str]) -> list[str]:
    """The fields that items bring to a gallery that has some."""
    new = set[str]().union(*_read(text for text in metadata if text)) - set(fields)
    if len(fields) + len(new) > MAX_FIELDS:
        raise InvalidInput(
            f"metadata would bring {len(new)} fields, and the gallery has {len(fields)} already; at most {MAX_FIELDS} "
            "are kept",
            field="metadata",
        )
    return sorted(new)


def _check_value(value: Any, name: str, parent: str = "metadata") -> None:
    if value is None or isinstance(value, bool) or (isinstance(value, str) and "\0" not in value):
        return
    # NaN fails every comparison; whole numbers beyond 2**53 would not compare exactly.
    if isinstance(value, (int, float)) and -_LARGEST <= value <= _LARGEST:
        return
    field = f"{parent}.{name[:60]}"
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


def _key(value: Value) -> tuple[int, Any]:
    """What values of all kinds are ordered by, kind by kind; true is not 1."""
    if value is None:
        return 0, None
    return (1 if isinstance(value, bool) else 3 if isinstance(value, str) else 2), value


@dataclass(frozen=True, slots=True)
class MetadataColumn:
    """One field of n items: the different values in ascending order, and each item's place among them (-1: it has
    none), so that a range of values is a range of places."""

    codes: NDArray[np.int32]
    values: tuple[Value, ...]

    def _place(self, key: tuple[Any, ...], *, after: bool = False) -> int:
        return (bisect_right if after else bisect_left)(self.values, key, key=_key)

    def matches(self, condition: Condition) -> Bool:
        """(n,) which items fulfil the condition."""
        if condition.values:
            keys = [_key(value) for value in condition.values]
            codes = [self._place(key) for key in keys if self._place(key) < self._place(key, after=True)]
            # A few comparisons of whole columns cost less than looking every code up.
            if len(codes) > _FEW:
                return np.isin(self.codes, codes)
            mask: Bool = np.logical_or.reduce([self.codes == code for code in codes or [len(self.values)]])
            return mask
        # Values of a kind are next to each other, so that bounds of all kinds are places in one list.
        kind = _key(condition.bounds[0][1])[0]
        low, high = self._place((kind,)), self._place((kind + 1,))
        for word, bound in condition.bounds:
            at = self._place(_key(bound), after=word in ("gt", "lte"))
            low, high = (max(low, at), high) if word in ("gt", "gte") else (low, min(high, at))
        return (self.codes >= low) & (self.codes < high)


Columns = dict[str, MetadataColumn]


def metadata_columns(metadata: list[str | None]) -> Columns:
    # Of each field, the items' numbers in a list of its different values.
    numbers_of: dict[str, NDArray[np.int32]] = {}
    distinct: dict[str, dict[tuple[int, Any], int]] = {}
    described = [(row, text) for row, text in enumerate(metadata) if text]
    for start in range(0, len(described), _READ_ROWS):
        rows, texts = zip(*described[start : start + _READ_ROWS], strict=True)
        for row, facts in zip(rows, _read(texts), strict=True):
            for name, value in facts.items():
                if name not in distinct:
                    numbers_of[name] = np.full(len(metadata), -1, dtype=np.int32)
                    distinct[name] = {}
                keys = distinct[name]
                numbers_of[name][row] = keys.setdefault(_key(value), len(keys))
    columns = {}
    for name, numbers in numbers_of.items():
        # Numbers by first appearance become places in ascending order, which ranges are looked up in.
        ascending = sorted(distinct[name])
        codes = np.full(len(ascending) + 1, -1, dtype=np.int32)
        codes[[distinct[name][key] for key in ascending]] = np.arange(len(ascending))
        columns[name] = MetadataColumn(codes[numbers], tuple(value for _, value in ascending))
    return columns


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
        np.save(folder / f"{number}.npy", column.codes, allow_pickle=False)
    values = {name: column.values for name, column in columns.items()}
    (folder / "columns.json").write_text(json.dumps(values))


def read_columns(folder: Path) -> Columns:
    values = json.loads((folder / "columns.json").read_text())
    return {
        name: MetadataColumn(open_array(folder / f"{number}.npy"), tuple(field_values))
        for number, (name, field_values) in enumerate(values.items())
    }
