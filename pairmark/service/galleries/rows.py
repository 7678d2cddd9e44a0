"""Rows of a gallery as they travel between requests, the database and the index."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

import msgspec
import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.core.arrays import Bool, Float32
from pairmark.models.core.inputs import is_placeholder, label_of
from pairmark.models.records.schema import RecordError, Records, Schema, is_plain, schema_of_model
from pairmark.schemas.base import UNSEEN
from pairmark.service.errors import InvalidInput, UnknownItem
from pairmark.service.galleries.metadata import checked_metadata

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
            for place, value in enumerate(values):
                try:
                    vectors[place] = self._numbers(value)
                except InvalidInput as error:
                    problems[place] = error.detail
                except (msgspec.ValidationError, OverflowError) as error:
                    problems[place] = f"vector is no list of numbers within float32: {error}"
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
        return self.read_json([_parse_body(body) for body in bodies])

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
            for place, value in enumerate(values):
                try:
                    cells[place] = self.schema.records([value], "vector")[0]
                except RecordError as error:
                    problems[place] = _problem(error.problems[0])
        return cells, self._with_empty(cells, problems)

    def read_table(self, table: Mapping[str, list[Any]]) -> tuple[Records, list[str | None]]:
        """Rows of a file by column, strings or typed values, and what is wrong with each."""
        problems: list[str | None] = [None] * len(next(iter(table.values())))
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


def same_columns(columns: Sequence[Mapping[str, Any]], form: RecordForm) -> bool:
    """Whether records of stored columns are records of a form: the same compared columns, of the same types."""
    fields = Schema.model_validate({"columns": columns}).fields
    return {column.name: column.type for column in fields} == {
        column.name: column.type for column in form.schema.fields
    }


def body_json(body: Any, columns: Sequence[Any] | None) -> Any:
    """A stored row as JSON shows it; `ValueError` where it is damaged."""
    if columns is not None:
        record = _parse_body(body)
        if not isinstance(record, dict):
            raise ValueError("no record")
        return record
    numbers = np.frombuffer(body, dtype="<f4")
    if not np.isfinite(numbers).all():
        raise ValueError("a number that is not finite")
    return numbers.tolist()


def _parse_body(body: Any) -> Any:
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

    def without(self, seqs: NDArray[np.int64]) -> "StoredRows":
        """The rows that were not written under one of these numbers."""
        places = np.flatnonzero(~np.isin(self.seqs, seqs)).tolist()
        return StoredRows(
            seqs=self.seqs[places],
            ids=[self.ids[place] for place in places],
            subjects=[self.subjects[place] for place in places],
            vectors=self.vectors[places],
            metadata=[self.metadata[place] for place in places],
        )

    @staticmethod
    def sorted(parts: "Sequence[StoredRows]", dimension: int) -> "StoredRows":
        """All parts' rows by id: then the smallest row is the smallest id."""
        parts = [part for part in parts if len(part)]
        ids = [text for part in parts for text in part.ids]
        subjects = [text for part in parts for text in part.subjects]
        metadata = [text for part in parts for text in part.metadata]
        seqs = np.concatenate([np.empty(0, dtype=np.int64), *(part.seqs for part in parts)])
        order = sorted(range(len(ids)), key=ids.__getitem__)
        # Each vector is copied once, to its place: that is most of the work, and of the memory.
        vectors = np.empty((len(ids), dimension), dtype=parts[0].vectors.dtype if parts else np.float32)
        places = np.argsort(order)
        for part in parts:
            vectors[places[: len(part)]] = part.vectors
            places = places[len(part) :]
        return StoredRows(
            seqs=seqs[order],
            ids=[ids[row] for row in order],
            subjects=[subjects[row] for row in order],
            vectors=vectors,
            metadata=[metadata[row] for row in order],
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
        for row in np.flatnonzero(flags).tolist()[: ERRORS_SHOWN - len(self.items)]:
            detail = (
                "warning: stored, but unlike the rows of the people who calibrated (unlike-calibration), so that it "
                "never matches at a rate; check its units and preprocessing, and enroll it anew"
            )
            self.items.append({"row": rows.places[row], "id": rows.ids[row][:100], "detail": detail})

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
        is_fine = np.ones(len(vectors), dtype=np.bool_)
        finite = (is_fine if vectors.dtype == object else np.isfinite(vectors).all(axis=1)).tolist()
        positions: list[int] = []
        names: list[str] = []
        row_subjects: list[str | None] = []
        metadata_texts: list[str | None] = []
        row_of_id = self._row_of_id
        for position, raw_id in enumerate(ids):
            row = start + position
            name: str | None = None
            try:
                problem = None if bad is None else bad[position]
                if raw_id is None and problem is not None:
                    raise InvalidInput(problem)
                name = id_text(raw_id, "id")
                if problem is not None:
                    raise InvalidInput(problem)
                if name in row_of_id:
                    raise InvalidInput(
                        f"id {name[:100]!r} already occurs in row {row_of_id[name]}, which is kept"
                    )
                if not finite[position]:
                    raise InvalidInput("vector contains NaN, infinities or numbers beyond float32")
                subject = None if subjects is None else subjects[position]
                subject_id = None if subject is None else subject_text(subject, "subject")
                value = None if metadata is None else metadata[position]
                metadata_text = None if value is None else checked_metadata(value)
            except InvalidInput as error:
                self._errors.add(row, name, error.detail)
                continue
            row_of_id[name] = row
            positions.append(position)
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
            places=[start + position for position in positions],
            form=self._form,
        )


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
