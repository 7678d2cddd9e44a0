"""JSON bodies of vectors, records and scores: bounded and checked.

A body is split into its members without reading them: each side is validated by the one type that its first characters
call for, so that no union is tried on a long body and the first wrong element ends it, long ones in pieces, between
which other threads run; what stands beside them by the request's pydantic model. What is wrong is named by pydantic,
with its place.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pairmark.models.core.arrays import Float32
from pairmark.models.records.schema import RESERVED
from pairmark.schemas.base import EXPECTED, FLOAT32_MAX, SparseVector
from pairmark.service.errors import InvalidInput, TooLarge, invalid_field

Form = TypeVar("Form", bound=BaseModel)
T = TypeVar("T")
Texts = Iterator[tuple[str, bytes]]
"""JSON of several values, made one at a time, and what refusals call each."""

MAX_OBJECT_BYTES: Final = 2 * 1024 * 1024
"""Of one record or sparse vector, which is read in one piece."""
MAX_OBJECTS: Final = 200_000
"""Records, sparse vectors and subjects in one JSON body, at most."""
MAX_FIELDS: Final = 16_384
"""Colons of one record or sparse vector, at most: of each member there is one, and hardly any in texts."""
MOST_MARKED: Final = 1_000
"""NaN and infinities in a body of which one is named by its place; a body with more is refused as a whole."""
MAX_OTHER_BYTES: Final = 1024 * 1024
"""Of a body without its vectors, at most: names of pairs, a filter and the like."""
PIECE: Final = 128 * 1024
"""Bytes of a side that are decoded without a pause; it takes some 2 ms."""


Counts = NDArray[np.int64]


@dataclass(slots=True)
class SparseRows:
    """Sparse vectors whose dimension is not known yet: indices and values of all, one after another.

    Two lists for each would have the collector look at all of them again and again, while nobody else is answered.
    """

    indices: array[int]
    values: array[float]
    counts: list[int]
    single: bool

    def __len__(self) -> int:
        return len(self.counts)


@dataclass(slots=True)
class RecordRows:
    """Records whose columns are not checked yet; ``single``: whether they came as one object."""

    rows: list[Any]
    single: bool

    def __len__(self) -> int:
        return len(self.rows)


SideRows = Float32 | SparseRows | RecordRows


STRICT: Final = ConfigDict(strict=True)
LISTED = Field(min_length=1, fail_fast=True)
_Row = Annotated[list[float], LISTED]
_row: TypeAdapter[Any] = TypeAdapter(_Row, config=STRICT)
_rows: TypeAdapter[Any] = TypeAdapter(Annotated[list[_Row], LISTED], config=STRICT)
_record: TypeAdapter[Any] = TypeAdapter(dict[str, Any])
_sparse: TypeAdapter[Any] = TypeAdapter(SparseVector)
_members, _elements = msgspec.json.Decoder(dict[str, Raw]), msgspec.json.Decoder(list[Raw])

# What a value begins with; behind what a list may be cut; a quote that ends a text, unless a backslash is before it,
# and a text up to its end, possessive, so that a long one is not gone through again and again.
_LEAD = re.compile(rb"\s*(\{|\[\s*[\[{]?)?")
_ROW_END, _NUMBER_END = re.compile(rb"\]\s*,"), re.compile(rb",")
_QUOTE, _TEXT_END = re.compile(rb'\\.|"', re.DOTALL), re.compile(rb'(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SUBJECT = re.compile(rb'\s*\{\s*"samples"\s*:')
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`", re.DOTALL)
_NO_NUMBER = b"1e987654321"
"""Stands for NaN and infinities, which JSON has no words for, so that the field which holds one is named."""


def count_marks(piece: bytes, max_pairs: int, before: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Objects and lists of a body that arrives in pieces, so that what no request of that many pairs holds is refused
    before it is whole, and before a parser makes an object of each.

    Parameters
    ----------
    before : what the pieces before this one hold.

    Raises
    ------
    TooLarge : more lists than vectors of ``max_pairs`` pairs, or more than `MAX_OBJECTS` objects.
    """
    # Comparing an array counts a byte some times faster than `bytes.count`.
    marks = np.frombuffer(piece, np.uint8)
    n_objects, n_lists = (
        n + int(np.count_nonzero(marks == ord(mark))) for n, mark in zip(before, "{[", strict=True)
    )
    if n_objects > MAX_OBJECTS:
        raise TooLarge(
            f"the body has more than {MAX_OBJECTS} objects; send batches",
            limit=MAX_OBJECTS,
        )
    most = 2 * max_pairs + 2
    if n_lists > most:
        raise TooLarge(
            f"the body has more than {most} lists, which {max_pairs} pairs have at most; send batches, or "
            "application/octet-stream",
            limit=most,
        )
    return n_objects, n_lists


# ---------------------------------------------------------------- requests


def split_request(
    form: type[Form], body: bytes, lists: Mapping[str, str | None], within: str = ""
) -> tuple[Form, dict[str, bytes]]:
    """What a request asks, and the JSON of each member that may be long.

    Parameters
    ----------
    form : the members beside the long ones.
    lists : of each member that may be long, what is expected there; None where it may be left out.
    within : the member of the body that this is, with a dot; empty: it is the body.

    Raises
    ------
    InvalidInput : names the field and what was expected.
    """
    members = _split(within.rstrip(".") or "body", body, (*lists, *form.model_fields), within)
    texts = {}
    for name, expected in lists.items():
        if name in members:
            texts[name] = members.pop(name)
        elif expected is not None:
            raise InvalidInput(f"{within}{name} is missing; expected {expected}", field=within + name)
    # What stands beside the long members is put together again, for pydantic to name what is wrong as in a whole body.
    rest = msgspec.json.encode({name: Raw(text) for name, text in members.items()})
    if _NO_NUMBER in rest:
        raise InvalidInput(
            "the body is not JSON: it holds NaN or Infinity; expected finite numbers", field="body"
        )
    if len(rest) > MAX_OTHER_BYTES:
        raise TooLarge(
            f"the body has {len(rest)} bytes beside {', '.join(lists)}; at most {MAX_OTHER_BYTES} are taken",
            limit=MAX_OTHER_BYTES,
        )
    try:
        return form.model_validate_json(rest), texts
    except ValidationError as error:
        place = ["body", *filter(None, [within.rstrip(".")])]
        raise invalid_field(error.errors(include_url=False, include_input=False), *place) from error


class NothingElse(BaseModel, extra="forbid"):
    """Nothing stands beside the lists of a request."""


def read_numbers(text: bytes, name: str, dtype: Any = np.float32) -> NDArray[Any]:
    """A list of finite numbers, (n,)."""
    return _dense(_row, text, name, dtype)


# ---------------------------------------------------------------- sides


def read_side(text: bytes | Float32, name: str) -> tuple[SideRows, Counts | None]:
    """The vectors or records of a side and, where it holds subjects, how many samples each has."""
    if isinstance(text, np.ndarray):
        return text, None
    if _lead(text) in (b"{", b"[{") and _SUBJECT.match(text, text.index(b"{")):
        return _subjects(_objects(text, name))
    return read_rows(text, name), None


def read_rows(text: bytes | Float32, name: str) -> SideRows:
    """Vectors or records: one of them, or a list."""
    if isinstance(text, np.ndarray):
        return text
    lead = _lead(text)
    if lead in (b"{", b"[{"):
        return _object_rows(_objects(text, name), single=lead == b"{")
    if lead == b"[[":
        return _dense(_rows, text, name)
    if lead == b"[":
        return _dense(_row, text, name).reshape(1, -1)
    raise InvalidInput(f"{name} is no list and no object; expected {EXPECTED}", field=name)


def _subjects(subjects: Texts) -> tuple[SideRows, Counts]:
    """All samples, subject after subject, and how many each has."""
    sides: list[Any] = []
    for name, text in subjects:
        member = f"{name}.samples"
        _, texts = split_request(NothingElse, text, {"samples": "a list of vectors"}, f"{name}.")
        lead = _lead(texts["samples"])
        if lead not in (b"[[", b"[{"):
            # Of a list of numbers, the first is no sample.
            is_row = lead == b"[" and texts["samples"].strip(b"[] \t\r\n")
            field = f"{member}[0]" if is_row else member
            raise InvalidInput(f"{member} is no list of vectors or records; expected one", field=field)
        samples: Any = read_rows(texts["samples"], member)
        first = sides[0] if sides else samples
        if type(samples) is not type(first):
            raise InvalidInput(
                f"{member} is not of the kind of the samples before it; expected one kind", field=member
            )
        if isinstance(samples, np.ndarray) and samples.shape[1] != first.shape[1]:
            raise InvalidInput(
                f"{member}[0] has {samples.shape[1]} numbers and the first sample of its side {first.shape[1]}; "
                "expected vectors of the same length",
                field=f"{member}[0]",
            )
        sides.append(samples)
    counts = np.array([len(samples) for samples in sides], dtype=np.int64)
    if isinstance(sides[0], np.ndarray):
        return np.concatenate(sides), counts
    if isinstance(sides[0], RecordRows):
        return RecordRows([row for samples in sides for row in samples.rows], single=False), counts
    rows = SparseRows(array("q"), array("d"), [], single=False)
    for samples in sides:
        rows.indices += samples.indices
        rows.values += samples.values
        rows.counts += samples.counts
    return rows, counts


def _dense(adapter: TypeAdapter[Any], text: bytes, name: str, dtype: Any = np.float32) -> NDArray[Any]:
    """(n,) or (n, d) finite numbers of a list, of numbers or of lists."""
    parts: list[NDArray[Any]] = []
    n_before, of_lists = 0, adapter is _rows
    for piece in cut(text, of_lists=of_lists):
        values = validate(adapter, piece, name, n_before)
        if of_lists:
            width = parts[0].shape[1] if parts else len(values[0])
            for at, row in enumerate(values, n_before):
                if len(row) != width:
                    field = f"{name}[{at}]"
                    raise InvalidInput(
                        f"{field} has {len(row)} numbers and {name}[0] has {width}; expected lists of the same length",
                        field=field,
                    )
        numbers = np.array(values, dtype=np.float64)
        is_fine = np.abs(numbers) <= FLOAT32_MAX
        if not is_fine.all():
            row, *column = np.argwhere(~is_fine)[0].tolist()
            raise_beyond(name + "".join(f"[{place}]" for place in (row + n_before, *column)))
        parts.append(numbers.astype(dtype))
        n_before += len(values)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def raise_beyond(field: str) -> NoReturn:
    """Refuse a number that float32 does not hold."""
    raise InvalidInput(f"{field} is NaN, infinite or beyond float32; expected a finite number", field=field)


def cut(text: bytes, *, of_lists: bool) -> Iterator[bytes]:
    """A list, of lists or of numbers and texts, as lists of about `PIECE` bytes, cut behind elements and in no text."""
    end = _ROW_END if of_lists else _NUMBER_END
    if len(text) <= 2 * PIECE or not _lead(text).startswith(b"["):
        yield text
        return
    start, stop = text.index(b"[") + 1, text.rindex(b"]")
    while stop - start > 2 * PIECE:
        # Up to `seen` every text is closed: only from there on are quotes counted.
        cut, seen = end.search(text, start + PIECE, stop), start
        while cut is not None and _in_text(text[seen : cut.start()]):
            # Behind the text, so that one full of ends is read once and not once for each.
            closing = _TEXT_END.match(text, cut.start(), stop)
            assert closing is not None, "the JSON is whole"
            seen = closing.end()
            cut = end.search(text, seen, stop)
        if cut is None:
            break
        # With the bracket that ends a row, without the comma.
        yield b"[%b]" % text[start : cut.start() + of_lists]
        start = cut.end()
    yield b"[%b]" % text[start:stop]


def _in_text(piece: bytes) -> bool:
    """Whether what begins outside of a text ends inside of one."""
    if b"\\" not in piece:
        return piece.count(b'"') % 2 == 1
    return sum(mark[0] == b'"' for mark in _QUOTE.finditer(piece)) % 2 == 1


# ---------------------------------------------------------------- objects


def _objects(text: bytes, name: str) -> Texts:
    """An object, or a list that begins with one."""
    if _lead(text) == b"{":
        yield name, text
        return
    for at, raw in enumerate(_elements.decode(text)):
        yield f"{name}[{at}]", bytes(raw)


def check_object(text: bytes, name: str) -> None:
    """Refuse an object with more bytes or members than any record has, before it is read."""
    if len(text) > MAX_OBJECT_BYTES:
        raise TooLarge(f"{name} has {len(text)} bytes; at most {MAX_OBJECT_BYTES} are taken")
    if text.count(b":") > MAX_FIELDS:
        raise TooLarge(
            f"{name} has more than {MAX_FIELDS} members; send records of fewer columns", limit=MAX_FIELDS
        )


def _object_rows(objects: Texts, *, single: bool) -> SideRows:
    """Sparse vectors or, where nothing looks like one, records."""
    first = next(objects)
    check_object(first[1], first[0])
    names = _split(*first)
    if "samples" in names:
        raise InvalidInput(
            f"{first[0]} is a subject of several samples, which compares with another (/similarity, /match, "
            "verify); expected vectors: send the samples as a list of them",
            field=first[0],
        )
    objects = chain([first], objects)
    if not RESERVED.isdisjoint(names):
        return _sparse_rows(objects, single)
    rows: list[Any] = []
    for name, text in objects:
        check_object(text, name)
        record = validate(_record, text, name)
        for column, cell in record.items():
            for number in cell if isinstance(cell, list) else [cell]:
                if isinstance(number, float | int) and not -FLOAT32_MAX <= number <= FLOAT32_MAX:
                    raise_beyond(f"{name}.{column[:100]}")
        rows.append(record)
    return RecordRows(rows, single)


class _Entries(msgspec.Struct, forbid_unknown_fields=True):
    indices: list[int]
    values: list[float]


_entries: Final = msgspec.json.Decoder(_Entries)
_BEYOND: Final = 2**62


def _sparse_rows(objects: Texts, single: bool) -> SparseRows:
    """Sparse vectors; what is wrong with one is named by pydantic."""
    rows = SparseRows(array("q"), array("d"), [], single)
    for name, text in objects:
        check_object(text, name)
        if text.count(b":") > 2:
            raise InvalidInput(
                f"{name} holds more than the indices and values of a sparse vector; expected these two",
                field=name,
            )
        vector: Any = None
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            vector = _entries.decode(text)
        if vector is None or not all(-FLOAT32_MAX <= value <= FLOAT32_MAX for value in vector.values):
            vector = validate(_sparse, text, name)
        if len(vector.indices) != len(vector.values):
            raise InvalidInput(
                f"{name} has {len(vector.indices)} indices and {len(vector.values)} values; expected equal numbers",
                field=name,
            )
        try:
            rows.indices += array("q", vector.indices)
        except OverflowError:
            # No model has the columns that are cut.
            rows.indices += array("q", [min(max(index, -1), _BEYOND) for index in vector.indices])
        rows.values.extend(vector.values)
        rows.counts.append(len(vector.values))
    return rows


def _lead(text: bytes) -> bytes:
    """``{``, ``[{``, ``[[`` or ``[``: what a value begins with; nothing for a scalar."""
    lead = _LEAD.match(text)
    assert lead is not None
    return (lead[1] or b"").translate(None, b" \t\r\n")


# ---------------------------------------------------------------- what is wrong


@lru_cache(256)
def _decoder(names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    """Reads an object with members of these names only: at the first other one it stops, however many follow."""
    fields = [(f"member{at}", Raw | msgspec.UnsetType, msgspec.UNSET) for at in range(len(names))]
    rename = {f"member{at}": name for at, name in enumerate(names)}
    return msgspec.json.Decoder(
        msgspec.defstruct("Members", fields, rename=rename, forbid_unknown_fields=True)
    )


def _split(
    name: str, text: bytes, names: tuple[str, ...] | None = None, within: str = ""
) -> dict[str, bytes]:
    """The members of a JSON object, each as it stands there; NaN and infinities as `_NO_NUMBER`.

    ``names`` : of the only members that there may be.
    """
    try:
        if names is None:
            return {key: bytes(raw) for key, raw in _members.decode(text).items()}
        read = msgspec.structs.astuple(_decoder(names).decode(text))
        return {key: bytes(raw) for key, raw in zip(names, read, strict=True) if raw is not msgspec.UNSET}
    except msgspec.ValidationError as error:
        unknown = _UNKNOWN.match(str(error))
        if unknown is not None:
            field = f"{within}{unknown[1][:100]}"
            raise InvalidInput(f"{field}: is not a field of this request", field=field) from None
        raise InvalidInput(f"{name} is no JSON object; expected one", field=name) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if text.count(b"NaN") + text.count(b"Infinity") > MOST_MARKED:
            raise InvalidInput(
                "the body holds NaN or Infinity; expected finite numbers", field="body"
            ) from None
        # Read again with numbers in their places, beyond float32, so that the field is named; at most once, since none
        # are left.
        marked = text.replace(b"NaN", _NO_NUMBER).replace(b"Infinity", _NO_NUMBER)
        if marked != text:
            return _split(name, marked, names, within)
        raise InvalidInput(f"the body is not JSON: {error}", field="body") from None


def validate(adapter: TypeAdapter[Any], text: bytes, name: str, n_before: int = 0) -> Any:
    """What a value holds, or `InvalidInput`; ``n_before``: elements of the list that earlier pieces hold."""
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        problems: list[Any] = error.errors(include_url=False, include_input=False)[:4]
        for problem in problems:
            place = list(problem["loc"])
            if place and isinstance(place[0], int):
                place[0] += n_before
            problem["loc"] = (name, *place)
        raise invalid_field(problems, "body") from None
