"""Rows of a gallery as they travel between requests, the database and the index; their metadata, and filters on it.

Metadata is a flat, bounded JSON object. A filter is an object of field -> condition, all of which must hold: a plain
value (equality), ``{"in": [..]}``, or a range of ``gt``, ``gte``, ``lt``, ``lte``. Text is compared with text and
numbers with numbers; an item without the field matches no condition on it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec
import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.artefact import open_array
from pairmark.models.core.inputs import is_placeholder, label_of
from pairmark.models.records.schema import RecordError, Records, Schema, is_plain, schema_of_model
from pairmark.schemas.base import UNSEEN
from pairmark.service.errors import InvalidInput, UnknownItem

Matrix = Any
"""(n, d): float32, or the cells of records."""


class VectorForm:
    """Vectors of ``width`` numbers, stored as float32."""

    columns: None = None

    def __init__(self, width: int) -> None:
        self.width = width

    def bodies(self, rows: Float32) -> list[bytes]:
        body, size = np.asarray(rows, dtype="<f4").tobytes(), 4 * self.width
        return [body[at : at + size] for at in range(0, len(body), size)]

    def rows(self, bodies: Sequence[Any]) -> tuple[Float32, Bool]:
        """Stored rows as models take them, those that are whole, and which those are."""
        size = 4 * self.width
        sound = np.array([isinstance(body, bytes) and len(body) == size for body in bodies], dtype=np.bool_)
        whole = bodies if sound.all() else [body for body, good in zip(bodies, sound, strict=True) if good]
        vectors = np.frombuffer(b"".join(whole), dtype="<f4").reshape(-1, self.width)
        finite = np.isfinite(vectors).all(axis=1)
        if not finite.all():
            sound[np.flatnonzero(sound)[~finite]] = False
            vectors = vectors[finite]
        return vectors.astype(np.float32, copy=False), sound

    def read_json(self, values: Sequence[Any]) -> tuple[Float32, list[str | None]]:
        """Lists of a request or a file, and what is wrong with each, where something is."""
        vectors = np.zeros((len(values), self.width), dtype=np.float32)
        problems: list[str | None] = [None] * len(values)
        with np.errstate(over="ignore"):
            for at, value in enumerate(values):
                try:
                    vectors[at] = self._numbers(value)
                except InvalidInput as error:
                    problems[at] = error.detail
                except (msgspec.ValidationError, OverflowError) as error:
                    problems[at] = f"vector is no list of numbers within float32: {error}"
        return vectors, problems

    def _numbers(self, vector: Any) -> Any:
        if vector is None:
            raise InvalidInput("vector is missing; expected a list of numbers")
        if isinstance(vector, list) and None in vector:
            raise InvalidInput(f"number {vector.index(None)} of the vector is empty or not a number")
        numbers = msgspec.convert(vector, list[float])
        if len(numbers) != self.width:
            n = len(numbers) if len(numbers) < self.width else f"more than {self.width}"
            raise InvalidInput(f"vector has {n} numbers; the gallery's have {self.width}")
        return numbers


class RecordForm:
    """Records of a table, stored as JSON from column to value and encoded for models that take numbers.

    Parameters
    ----------
    schema : of the model that searches them. encoder : its own, of a model that takes numbers.
    """

    def __init__(self, schema: Schema, encoder: Any = None) -> None:
        self.schema, self._encoder = schema, encoder

    @property
    def compares_cells(self) -> bool:
        """Whether the model compares cells, without numbers made of them."""
        return self._encoder is None

    @property
    def columns(self) -> list[dict[str, Any]]:
        """The schema as the gallery's row keeps it."""
        return [column.model_dump(mode="json") for column in self.schema.columns]

    def bodies(self, cells: Records) -> list[bytes]:
        return [
            json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
            for record in self.schema.values(cells)
        ]

    def rows(self, bodies: Sequence[Any]) -> tuple[Matrix, Bool]:
        cells, problems = self.stored_cells(bodies)
        sound = np.array([problem is None for problem in problems], dtype=np.bool_)
        return self.model_rows(cells if sound.all() else cells[sound]), sound

    def stored_cells(self, bodies: Sequence[Any]) -> tuple[Records, list[str | None]]:
        """Stored records, and what is wrong with each."""
        return self.read_json([_parsed(body) for body in bodies])

    def model_rows(self, cells: Records) -> Matrix:
        if self._encoder is None:
            return cells
        rows = self._encoder.transform(cells)
        return np.ascontiguousarray(rows if isinstance(rows, np.ndarray) else rows.toarray())

    def read_json(self, values: Sequence[Any]) -> tuple[Records, list[str | None]]:
        cells = np.empty((len(values), len(self.schema.fields)), dtype=object)
        problems: list[str | None] = [None] * len(values)
        try:
            cells = self.schema.records(values, "vector")
        except RecordError:
            for at, value in enumerate(values):
                try:
                    cells[at] = self.schema.records([value], "vector")[0]
                except RecordError as error:
                    problems[at] = _problem(error.problems[0])
        return cells, self._with_empty(cells, problems)

    def read_table(self, table: Mapping[str, list[Any]]) -> tuple[Records, list[str | None]]:
        """Rows of a file by column, strings or typed values, and what is wrong with each."""
        n = len(next(iter(table.values())))
        problems: list[str | None] = [None] * n
        try:
            cells = self.schema.read(table)
        except RecordError as error:
            for problem in error.problems:
                problems[problem["row"] - 1] = problems[problem["row"] - 1] or _problem(problem)
            cells = self.schema.read(
                {
                    name: [None if bad else value for value, bad in zip(values, problems, strict=True)]
                    for name, values in table.items()
                }
            )
        return cells, self._with_empty(cells, problems)

    def _with_empty(self, cells: Records, problems: list[str | None]) -> list[str | None]:
        for at in self.schema.empty_rows(cells):
            problems[at] = problems[at] or f"the record {self.schema.no_cell}"
        return problems


ItemForm = VectorForm | RecordForm


def form_of(estimator: Any, width: int) -> ItemForm:
    """What the galleries of a fitted model hold."""
    schema = schema_of_model(estimator)
    if schema is None or is_plain(schema):
        return VectorForm(width)
    return RecordForm(schema, estimator.encoder_)


def form_in_json(columns: Sequence[Mapping[str, Any]] | None, width: int) -> ItemForm:
    """The form of which these are ``columns`` and ``width``, without an encoder."""
    return VectorForm(width) if columns is None else RecordForm(Schema.model_validate({"columns": columns}))


def same_columns(columns: Sequence[Mapping[str, Any]], form: RecordForm) -> bool:
    """Whether records of stored columns are records of a form: the same compared columns, of the same types."""
    fields = Schema.model_validate({"columns": columns}).fields
    return {column.name: column.type for column in fields} == {
        column.name: column.type for column in form.schema.fields
    }


def body_json(body: Any, columns: Sequence[Any] | None) -> Any:
    """A stored row as JSON shows it; `ValueError` where it is damaged."""
    if columns is not None:
        record = _parsed(body)
        if not isinstance(record, dict):
            raise ValueError("no record")
        return record
    numbers = np.frombuffer(body, dtype="<f4")
    if not np.isfinite(numbers).all():
        raise ValueError("a number that is not finite")
    return numbers.tolist()


def _parsed(body: Any) -> Any:
    try:
        return json.loads(body)
    except (TypeError, ValueError):
        return None


def _problem(problem: Mapping[str, Any]) -> str:
    return f"column {problem['column']!r} {problem['detail']}"


MAX_ID_BYTES = 512
_RELATIVE = re.compile(r"(?:^|[/\\])\.\.?(?:[/\\]|$)", re.MULTILINE)
"""A segment `.` or `..`: programs that resolve paths would take it for a step to another address."""
ERRORS_SHOWN = 1_000
"""Rows that are listed one by one when they cannot be stored; the rest are counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """Whole, checked rows.

    Attributes
    ----------
    ids : n texts, all different.
    subjects : n texts or None.
    vectors : (n, d) C-contiguous finite float32, or cells of records.
    metadata : n JSON objects as text, or None.
    places : n 0-based places in the request.
    form : what the rows are.
    """

    ids: list[str]
    subjects: list[str | None]
    vectors: Matrix
    metadata: list[str | None]
    places: list[int]
    form: ItemForm

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredRows:
    """As `Rows`, with the sequence number under which each was written; ``vectors`` are what the model takes."""

    seqs: NDArray[np.int64]
    ids: list[str]
    subjects: list[str | None]
    vectors: Matrix
    metadata: list[str | None]

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, seqs: NDArray[np.int64]) -> StoredRows:
        """The rows that were not written under one of these numbers."""
        places = np.flatnonzero(~np.isin(self.seqs, seqs)).tolist()
        return StoredRows(
            seqs=self.seqs[places],
            ids=[self.ids[at] for at in places],
            subjects=[self.subjects[at] for at in places],
            vectors=self.vectors[places],
            metadata=[self.metadata[at] for at in places],
        )

    @staticmethod
    def sorted(parts: Sequence[StoredRows], dimension: int) -> StoredRows:
        """All parts' rows by id: then the smallest row is the smallest id."""
        parts = [part for part in parts if len(part)]
        ids = [text for part in parts for text in part.ids]
        subjects = [text for part in parts for text in part.subjects]
        metadata = [text for part in parts for text in part.metadata]
        seqs = np.concatenate([np.empty(0, dtype=np.int64), *(part.seqs for part in parts)])
        order = sorted(range(len(ids)), key=ids.__getitem__)
        # Each vector is copied once, to its place: that is most of the work.
        vectors = np.empty((len(ids), dimension), dtype=parts[0].vectors.dtype if parts else np.float32)
        places = np.empty(len(ids), dtype=np.intp)
        places[order] = np.arange(len(ids))
        at = 0
        for part in parts:
            vectors[places[at : at + len(part)]] = part.vectors
            at += len(part)
        return StoredRows(
            seqs=seqs[order],
            ids=[ids[at] for at in order],
            subjects=[subjects[at] for at in order],
            vectors=vectors,
            metadata=[metadata[at] for at in order],
        )


class RowErrors:
    """Rows that could not be stored: the first thousand listed, all counted; and those that were, and never match.

    ``ranges`` : what rows of the calibration are like, where that is known.
    """

    def __init__(self, ranges: RowRanges | None = None) -> None:
        self.count = 0
        self.items: list[dict[str, Any]] = []
        self._ranges = ranges

    def warn_of(self, rows: Rows) -> None:
        """List stored rows that are unlike those of the calibration."""
        flags = np.empty(0) if self._ranges is None else self._ranges.unlike(rows.vectors)
        for at in np.flatnonzero(flags).tolist()[: ERRORS_SHOWN - len(self.items)]:
            detail = (
                "warning: stored, but unlike the rows of the people who calibrated (unlike-calibration), so that it "
                "never matches at a rate; check its units and preprocessing, and enroll it anew"
            )
            self.items.append({"row": rows.places[at], "id": rows.ids[at][:100], "detail": detail})

    def add(self, row: int, id: str | None, detail: str) -> None:
        """Keep one: ``row`` is 0-based in the request."""
        self.count += 1
        if len(self.items) < ERRORS_SHOWN:
            row_id = {} if id is None else {"id": id[:100]}
            self.items.append({"row": row, **row_id, "detail": detail})


class RowChecks:
    """Checks rows one by one over a whole request, so that an id is taken once."""

    def __init__(self, form: ItemForm, errors: RowErrors) -> None:
        self._form = form
        self._errors = errors
        self._row_of_id: dict[str, int] = {}

    def rows(
        self,
        start: int,
        ids: list[Any],
        vectors: Any,
        subjects: list[Any] | None,
        metadata: list[Any] | None,
        *,
        bad: list[str | None] | None = None,
    ) -> Rows:
        """The rows that can be stored.

        Parameters
        ----------
        start : place of the first row in the request.
        vectors : (n, d) float32 of the right width, or cells.
        bad : what is wrong with a row already, where something is.
        """
        # 1. Each row by itself: the first problem of one is told, and the others go on.
        finite = _are_finite(vectors).tolist()
        positions: list[int] = []
        names: list[str] = []
        row_subjects: list[str | None] = []
        metadata_texts: list[str | None] = []
        row_of_id = self._row_of_id
        for at, raw_id in enumerate(ids):
            row = start + at
            name: str | None = None
            try:
                problem = None if bad is None else bad[at]
                if raw_id is None and problem is not None:
                    raise InvalidInput(problem)
                name = id_text(raw_id, "id")
                if problem is not None:
                    raise InvalidInput(problem)
                if name in row_of_id:
                    raise InvalidInput(
                        f"id {name[:100]!r} already occurs in row {row_of_id[name]}, which is kept"
                    )
                if not finite[at]:
                    raise InvalidInput("vector contains NaN, infinities or numbers beyond float32")
                subject = None if subjects is None else subjects[at]
                subject_id = None if subject is None else subject_text(subject, "subject")
                value = None if metadata is None else metadata[at]
                metadata_text = None if value is None else checked_metadata(value)
            except InvalidInput as error:
                self._errors.add(row, name, error.detail)
                continue
            row_of_id[name] = row
            positions.append(at)
            names.append(name)
            row_subjects.append(subject_id)
            metadata_texts.append(metadata_text)
        # 2. Only what can be stored is copied.
        good_vectors = np.ascontiguousarray(vectors if len(positions) == len(ids) else vectors[positions])
        return Rows(
            ids=names,
            subjects=row_subjects,
            vectors=good_vectors,
            metadata=metadata_texts,
            places=[start + at for at in positions],
            form=self._form,
        )


def _are_finite(vectors: Matrix) -> NDArray[np.bool_]:
    if vectors.dtype == object:
        return np.ones(len(vectors), dtype=np.bool_)
    return np.asarray(np.isfinite(vectors).all(axis=1))


def id_text(value: Any, field: str) -> str:
    """An id or subject as it is stored: 1 to 512 bytes of UTF-8 in Unicode's NFC, without control characters,
    characters that set the direction of text, and segments `.` and `..`; whole numbers become text."""
    # Nearly all are such, and no rule can touch them.
    if (
        type(value) is str
        and value.isascii()
        and value.isprintable()
        and 0 < len(value) <= MAX_ID_BYTES
        and "." not in value
    ):
        return value
    if type(value) is not str:
        if isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_)):
            return str(int(value))
        if not isinstance(value, np.str_):
            raise InvalidInput(f"{field} is not text; expected a string", field=field)
    # The length is looked at before text is normalized, which takes long where it is very long.
    text = str(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(
            f"{field} holds half a character; expected whole Unicode text", field=field
        ) from None
    if len(text) <= MAX_ID_BYTES and not text.isascii():
        text = normalize("NFC", text)
        size = len(text.encode())
    if not 0 < size <= MAX_ID_BYTES:
        raise InvalidInput(f"{field} has {size} bytes; expected 1 to {MAX_ID_BYTES}", field=field)
    if UNSEEN.search(text):
        raise InvalidInput(
            f"{field} holds control characters or characters that set the direction of text; expected plain text",
            field=field,
        )
    if _RELATIVE.search(text):
        raise InvalidInput(
            f"{field} has a segment '.' or '..' between slashes; expected another name, because addresses would "
            "resolve it",
            field=field,
        )
    return text


def subject_text(value: Any, field: str) -> str:
    """A subject as it is stored: an `id_text` without spaces around it, and no word such as ``unknown``."""
    text = label_of(id_text(value, field))
    if not text or is_placeholder(text):
        raise InvalidInput(
            f"{field} is {text!r}, which names nobody: leave {field} out, or give each one of their own",
            field=field,
        )
    return text


def checked_id(value: str, field: str = "id") -> str:
    """An id or subject as it may be stored; others are not there."""
    try:
        return id_text(value, field)
    except InvalidInput as error:
        raise UnknownItem(f"there is none: {error.detail}", field=field) from error


def spellings(text: str) -> list[str]:
    """How a stored id or subject may be written that is canonically equal to this one. Rows from before text was stored
    in NFC may be in another form, or be refused by `id_text` today."""
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return []  # Never stored, and databases refuse to look.
    return list(dict.fromkeys((normalize("NFC", text), text, normalize("NFD", text))))


def subject_spellings(text: str) -> list[str]:
    """The same of a subject, which is stored without the spaces around it."""
    return list(dict.fromkeys((*spellings(text), *spellings(label_of(text)))))


def new_fields(rows: Rows, fields: Sequence[str]) -> list[str]:
    """The metadata fields that rows bring to a gallery that has some."""
    new = set[str]().union(*_read(text for text in rows.metadata if text)) - set(fields)
    if len(fields) + len(new) > MAX_FIELDS:
        raise InvalidInput(
            f"metadata would bring {len(new)} fields, and the gallery has {len(fields)} already; at most {MAX_FIELDS} "
            "are kept",
            field="metadata",
        )
    return sorted(new)


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
    for start in range(0, len(metadata), _READ_ROWS):
        for row, facts in enumerate(_read(metadata[start : start + _READ_ROWS]), start):
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
        name: MetadataColumn(open_array(folder / f"{number}.npy"), tuple(known))
        for number, (name, known) in enumerate(values.items())
    }
