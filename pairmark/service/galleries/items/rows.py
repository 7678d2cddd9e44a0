"""Rows of a gallery as they travel between requests, the database and the index."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.inputs import is_placeholder, label_of
from pairmark.models.records.schema import RecordError, Records, Schema, is_plain
from pairmark.schemas.base import UNSEEN
from pairmark.service.errors import InvalidInput, UnknownItem
from pairmark.service.galleries.items.metadata import MAX_FIELDS, checked_metadata, fields_of

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
        """Rows of a request, and what is wrong with each, where something is."""
        vectors = np.zeros((len(values), self.width), dtype=np.float32)
        return vectors, [self._fill(vectors, at, value) for at, value in enumerate(values)]

    def _fill(self, vectors: Float32, at: int, vector: Any) -> str | None:
        if isinstance(vector, dict):
            return self._fill_sparse(vectors, at, vector)
        if not isinstance(vector, list):
            return (
                "vector is missing; expected a list of numbers"
                if vector is None
                else "vector is not a list of numbers"
            )
        if len(vector) != self.width:
            return f"vector has {len(vector)} numbers; the gallery's have {self.width}"
        if not all(type(number) is float or type(number) is int for number in vector):
            return "vector holds something that is not a number"
        with np.errstate(over="ignore"):
            try:
                vectors[at] = vector
            except OverflowError:
                vectors[at] = np.inf
        return None

    def _fill_sparse(self, vectors: Float32, at: int, vector: dict[str, Any]) -> str | None:
        indices, values = vector.get("indices"), vector.get("values")
        if (
            set(vector) != {"indices", "values"}
            or not isinstance(indices, list)
            or not isinstance(values, list)
        ):
            return "a sparse vector has lists indices and values, and nothing else"
        if len(indices) != len(values) or len(set(map(repr, indices))) != len(indices):
            return "a sparse vector has one value for each of its indices, which are all different"
        if not all(type(column) is int and 0 <= column < self.width for column in indices):
            return f"indices of a sparse vector are whole numbers from 0 to {self.width - 1}"
        dense = [0.0] * self.width
        for column, value in zip(indices, values, strict=True):
            dense[column] = value
        return self._fill(vectors, at, dense)

    def task(self) -> dict[str, Any]:
        """JSON from which `form_of_task` makes the form again."""
        return {"width": self.width}


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
        cells, problems = self.read_json([_parsed(body) for body in bodies])
        sound = np.array([problem is None for problem in problems], dtype=np.bool_)
        return self.model_rows(cells if sound.all() else cells[sound]), sound

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

    def task(self) -> dict[str, Any]:
        return {"columns": self.columns}


ItemForm = VectorForm | RecordForm


def form_of(estimator: Any, width: int) -> ItemForm:
    """What the galleries of a fitted model hold."""
    # Whoever reads uploads has no model, and need not import all kinds of them.
    from pairmark.models.registry import schema_of_model

    schema = schema_of_model(estimator)
    if schema is None or is_plain(schema):
        return VectorForm(width)
    return RecordForm(schema, getattr(estimator, "encoder_", None))


def form_of_task(task: Mapping[str, Any]) -> ItemForm:
    """The form that `VectorForm.task` or `RecordForm.task` told, without an encoder."""
    if "columns" in task:
        return RecordForm(Schema.model_validate({"columns": task["columns"]}))
    return VectorForm(task["width"])


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


def refuse_wholes(form: ItemForm) -> None:
    """Refuse to compare subjects of records as wholes: their galleries keep what single records are compared by."""
    if isinstance(form, RecordForm) and form.compares_cells:
        raise InvalidInput(
            "a gallery of records compares single items; leave out aggregation: group_by alone returns each subject "
            "by its best item",
            field="aggregation",
        )


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

    @staticmethod
    def sorted(parts: Sequence[StoredRows], dimension: int) -> StoredRows:
        """All parts' rows by id: then the smallest row is the smallest id."""
        ids = [text for part in parts for text in part.ids]
        subjects = [text for part in parts for text in part.subjects]
        metadata = [text for part in parts for text in part.metadata]
        seqs = np.concatenate([np.empty(0, dtype=np.int64), *(part.seqs for part in parts)])
        # Each vector is copied once, to its place: that is most of the work.
        kind = parts[0].vectors.dtype if parts else np.float32
        vectors = np.empty((len(ids), dimension), dtype=kind)
        places: slice | NDArray[np.intp] = slice(None)
        if not all(map(lt, ids, islice(ids, 1, None))):
            order = sorted(range(len(ids)), key=ids.__getitem__)
            ids = [ids[at] for at in order]
            subjects, metadata = [subjects[at] for at in order], [metadata[at] for at in order]
            seqs = seqs[order]
            places = np.empty(len(ids), dtype=np.intp)
            places[order] = np.arange(len(ids))
        at = 0
        for part in parts:
            here = slice(at, at + len(part))
            vectors[here if isinstance(places, slice) else places[here]] = part.vectors
            at += len(part)
        return StoredRows(seqs=seqs, ids=ids, subjects=subjects, vectors=vectors, metadata=metadata)


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
                name = id_text(raw_id, "id")
                if bad is not None and bad[at] is not None:
                    raise InvalidInput(bad[at])
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
        good_vectors = _contiguous(vectors if len(positions) == len(ids) else vectors[positions])
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


def _contiguous(vectors: Matrix) -> Matrix:
    return np.ascontiguousarray(vectors, dtype=object if vectors.dtype == object else np.float32)


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
    new = fields_of(text for text in rows.metadata if text) - set(fields)
    if len(fields) + len(new) > MAX_FIELDS:
        raise InvalidInput(
            f"metadata would bring {len(new)} fields, and the gallery has {len(fields)} already; at most {MAX_FIELDS} "
            "are kept",
            field="metadata",
        )
    return sorted(new)
