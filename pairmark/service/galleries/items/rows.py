"""Rows of a gallery as they travel between requests, the database and the index."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.inputs import RowRanges
from pairmark.models.core.missing import is_placeholder, label_of
from pairmark.schemas.vectors import UNSEEN
from pairmark.service.errors import InvalidInput, UnknownItem
from pairmark.service.galleries.items.item_forms import ItemForm, Matrix
from pairmark.service.galleries.items.metadata import MAX_FIELDS, checked_column, checked_metadata, fields_of

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
        if bad is None or not any(bad):
            whole = self._whole(start, ids, vectors, subjects, metadata)
            if whole is not None:
                return whole
        finite = _are_finite(vectors)
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

    def _whole(
        self, start: int, ids: list[Any], vectors: Any, subjects: list[Any] | None, metadata: list[Any] | None
    ) -> Rows | None:
        """The rows where all of them are plain and good, as nearly all bulk rows are; None: look at each."""
        named = [subject for subject in subjects or () if subject is not None]
        if not _plain(ids) or not _plain(named) or any(map(_changes, set(named))):
            return None
        no_metadata: list[str | None] = [None] * len(ids)
        metadata_texts = no_metadata if metadata is None else checked_column(metadata)
        if metadata_texts is None:
            return None
        if len(set(ids)) < len(ids) or not self._row_of_id.keys().isdisjoint(ids):
            return None
        good_vectors = _contiguous(vectors)
        if not _are_finite(good_vectors).all():
            return None
        places = range(start, start + len(ids))
        self._row_of_id.update(zip(ids, places, strict=True))
        return Rows(
            ids=list(ids),
            subjects=[None] * len(ids) if subjects is None else list(subjects),
            vectors=good_vectors,
            metadata=metadata_texts,
            places=list(places),
            form=self._form,
        )


def _are_finite(vectors: Matrix) -> NDArray[np.bool_]:
    if vectors.dtype == object:
        return np.ones(len(vectors), dtype=np.bool_)
    return np.asarray(np.isfinite(vectors).all(axis=1))


def _contiguous(vectors: Matrix) -> Matrix:
    return np.ascontiguousarray(vectors, dtype=object if vectors.dtype == object else np.float32)


def _plain(texts: list[Any]) -> bool:
    """Whether `id_text` would return each of these as it is; some that it would return are not seen here."""
    if not all(type(text) is str for text in texts):
        return False
    joined = "".join(texts)
    lengths = [len(text) for text in texts]
    return (
        joined.isascii()
        and joined.isprintable()
        and min(lengths, default=1) > 0
        and max(lengths, default=1) <= MAX_ID_BYTES
        and not ("." in joined and _RELATIVE.search("\n".join(texts)))
    )


def id_text(value: Any, field: str) -> str:
    """An id or subject as it is stored: 1 to 512 bytes of UTF-8 in Unicode's NFC, without control characters,
    characters that set the direction of text, and segments `.` and `..`; whole numbers become text."""
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


def _changes(subject: str) -> bool:
    """Whether `subject_text` would change or refuse a plain text."""
    return subject != subject.strip() or is_placeholder(subject)


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


def within_fields(rows: Rows, fields: Sequence[str], errors: RowErrors) -> tuple[Rows, list[str]]:
    """The rows without those whose metadata would exceed the fields that a gallery may have, and the new fields."""
    if not any(rows.metadata):
        return rows, []
    field_names = set(fields)
    new = fields_of(rows.metadata) - field_names
    if len(field_names) + len(new) <= MAX_FIELDS:
        return rows, sorted(new)
    new_fields: list[str] = []
    positions = []
    for at, text in enumerate(rows.metadata):
        own = sorted(fields_of([text]) - field_names)
        if len(field_names) + len(own) > MAX_FIELDS:
            errors.add(
                rows.places[at],
                rows.ids[at],
                f"metadata would bring field {own[0]!r}, and the gallery has {len(field_names)} fields already; "
                f"at most {MAX_FIELDS} are kept",
            )
            continue
        field_names.update(own)
        new_fields += own
        positions.append(at)
    fitting = Rows(
        ids=[rows.ids[at] for at in positions],
        subjects=[rows.subjects[at] for at in positions],
        vectors=np.ascontiguousarray(rows.vectors[positions]),
        metadata=[rows.metadata[at] for at in positions],
        places=[rows.places[at] for at in positions],
        form=rows.form,
    )
    return fitting, new_fields
