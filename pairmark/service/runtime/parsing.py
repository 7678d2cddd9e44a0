"""JSON bodies of vectors, records and scores, decoded by typed decoders, which stop at the first wrong element.

A body is split into its members without reading them. What stands beside the vectors is validated by the pydantic
model; each side is decoded by the one decoder that its first characters call for, so that no union is tried on a long
body. Long sides are decoded in pieces, and other threads run in between (`binary.py` reads the other forms).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, NoReturn, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Raw
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from pairmark.models.core.arrays import Float32
from pairmark.models.records.schema import RESERVED
from pairmark.schemas.scoring import AskingBody, PairsFields
from pairmark.schemas.vectors import EXPECTED, EXPECTED_SIDE, FLOAT32_MAX
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.runtime.vectors import (
    Counts,
    Features,
    RecordRows,
    SideRows,
    SparseRow,
    SparseRows,
    VectorPairs,
)

Form = TypeVar("Form", bound=BaseModel)
Whole = TypeVar("Whole", bound=BaseModel)
T = TypeVar("T")
Reader = Callable[[bytes, str], Any]
"""Reads the JSON of a member; takes its name for what it refuses."""

MAX_OBJECTS: Final = 200_000
"""Records, sparse vectors and subjects in one JSON body, at most."""
MAX_OTHER_BYTES: Final = 1024 * 1024
"""Of a body without its vectors, at most: names of pairs, a filter and the like."""
PIECE: Final = 128 * 1024
"""Bytes of a side that are decoded without a pause; it takes some 2 ms."""


class SubjectRow(msgspec.Struct, forbid_unknown_fields=True):
    """A subject; its samples are decoded as a side is."""

    samples: Raw


Row = Annotated[list[float], Meta(min_length=1)]
Cell = bool | int | float | str | None | list[float]
_members = msgspec.json.Decoder(dict[str, Raw])
_row, _rows = msgspec.json.Decoder(Row), msgspec.json.Decoder(Annotated[list[Row], Meta(min_length=1)])
_objects = msgspec.json.Decoder(list[Raw])
_record, _cell = msgspec.json.Decoder(dict[str, Cell]), msgspec.json.Decoder(Cell)
_sparse, _subject = msgspec.json.Decoder(SparseRow), msgspec.json.Decoder(SubjectRow)

_LEAD = re.compile(rb"\s*(\{|\[\s*[\[{]?)?")
_ROW_END, _NUMBER_END = re.compile(rb"\]\s*,"), re.compile(rb",")
_ELEMENT_END, _QUOTE = re.compile(rb"[\]}]\s*,"), re.compile(rb'\\.|"', re.DOTALL)
NO_NUMBER = re.compile(rb"(?<![\w\"])-?(?:NaN|Infinity)")
_TOLD = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<at>.*)`)?$", re.DOTALL)
_MISMATCH = re.compile(r"Expected `(?P<expected>.*)`, got `(?P<got>\w+)`")
_KINDS = {"int": "a number", "float": "a number", "str": "a string", "bool": "a boolean", "array": "a list"}
_KINDS |= {"object": "an object", "null": "null"}
_EXPECTED = {
    "float": "a finite number",
    "int": "a whole number",
    "array": "a list of numbers",
    "object": "an object",
}
_SCORES_FIELD = re.compile(rb'"scores"\s*:')


def check_structure(body: bytes | bytearray, max_pairs: int) -> None:
    """Refuse what no request of that many pairs holds, by counting brackets, before a parser makes an object of each.

    Raises
    ------
    TooLarge : more lists than vectors of ``max_pairs`` pairs, or more than `MAX_OBJECTS` objects.
    """
    n_objects = body.count(b"{")
    if n_objects > MAX_OBJECTS:
        raise TooLarge(
            f"the body has {n_objects} objects; at most {MAX_OBJECTS} are taken at a time: send batches",
            limit=MAX_OBJECTS,
        )
    n_lists, most = body.count(b"["), 2 * max_pairs + 2
    if n_lists > most:
        raise TooLarge(
            f"the body has {n_lists} lists; {max_pairs} pairs have at most {most}: send batches, or "
            "application/octet-stream",
            limit=most,
        )


# ---------------------------------------------------------------- requests


def split_request(
    form: type[Form], body: bytes | bytearray, lists: Mapping[str, str | None]
) -> tuple[Form, dict[str, bytes]]:
    """What a request asks, and the JSON of each member that may be long.

    Parameters
    ----------
    form : the members beside the long ones.
    lists : of each member that may be long, what is expected there; None where it may be left out.

    Raises
    ------
    InvalidInput : names the field and what was expected.
    """
    text = body if isinstance(body, bytes) else bytes(body[:])
    members = _decoded(_members, text, "body")
    texts = {}
    for name, expected in lists.items():
        if name in members:
            texts[name] = bytes(members.pop(name))
        elif expected is not None:
            raise InvalidInput(f"{name} is missing; expected {expected}", field=name)
    rest = msgspec.json.encode(members)
    if len(rest) > MAX_OTHER_BYTES:
        raise TooLarge(
            f"the body has {len(rest)} bytes beside {', '.join(lists)}; at most {MAX_OTHER_BYTES} are taken",
            limit=MAX_OTHER_BYTES,
        )
    try:
        return form.model_validate_json(rest), texts
    except ValidationError as error:
        _raise_first(error)


def parse_lists(
    form: type[Whole],
    body: bytes | bytearray,
    readers: Mapping[str, Reader],
    options: type[BaseModel] | None = None,
) -> Whole:
    """A request with long lists, which typed decoders read instead of the model.

    Parameters
    ----------
    form : the whole request.
    readers : of each list, what reads its JSON.
    options : the members beside the lists, of which ``form`` is a subclass; not needed where no list must be there.
    """
    fields = form.model_fields
    expected = {
        name: fields[name].description or "a list" if fields[name].is_required() else None for name in readers
    }
    asked, texts = split_request(options or form, body, expected)
    lists = {name: readers[name](text, name) for name, text in texts.items()}
    return form.model_construct(**{**dict(asked), **lists})


def list_of(kind: Any, *, optional: bool = False) -> Reader:
    """A reader of a list of numbers or texts of that type, in pieces, so that other threads run in between."""
    decoder = msgspec.json.Decoder(
        list[kind] | None if optional else Annotated[list[kind], Meta(min_length=1)]
    )

    def read(text: bytes, name: str) -> list[Any] | None:
        first, *others = _pieces(text, _NUMBER_END, 0)
        values: list[Any] | None = _decoded(decoder, first, name)
        for piece in others:
            assert values is not None
            found: list[Any] = _decoded(decoder, piece, name, len(values))
            values += found
        return values

    return read


def read_scores(text: bytes, name: str) -> NDArray[np.float64]:
    """A number per pair, or a list per pair."""
    return (_matrix if _lead(text) == b"[[" else _vector)(text, name, np.float64)


def read_probes(text: bytes, name: str) -> Float32 | list[Any] | None:
    """Vectors or records of probes, or null."""
    if text.strip() == b"null":
        return None
    rows = read_rows(text, name)
    if isinstance(rows, SparseRows):
        raise InvalidInput(f"{name} holds sparse vectors; expected lists of numbers, or records", field=name)
    return rows if isinstance(rows, np.ndarray) else rows.rows


def parse_pairs(body: bytes | bytearray) -> VectorPairs:
    """Pairs of any form, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_request(PairsFields, body, {"left": EXPECTED_SIDE, "right": EXPECTED_SIDE})
    (a, of_a), (b, of_b) = (read_side(text, name) for name, text in texts.items())
    counts = None
    if of_a is not None or of_b is not None:
        # Vectors beside subjects are subjects of one sample.
        both = tuple(
            np.ones(len(rows), dtype=np.int64) if of is None else of for rows, of in ((a, of_a), (b, of_b))
        )
        counts = None if both[0].max() == both[1].max() == 1 else (both[0], both[1])
    return VectorPairs(a, b, counts, request.model, request.refs)


def parse_features(body: bytes | bytearray) -> Features:
    """Points, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_request(AskingBody, body, {"features": EXPECTED})
    return Features(read_rows(texts["features"], "features"), request.model)


class _ScoresFields(BaseModel, extra="forbid"):
    """Nothing stands beside the scores."""


def parse_scores(body: bytes | bytearray) -> NDArray[Any]:
    """Read a JSON body of scores made elsewhere: (n,) float32, or (n, n_systems) float64."""
    _, texts = split_request(_ScoresFields, body, {"scores": "a list of numbers"})
    if _lead(texts["scores"]) == b"[[":
        return _matrix(texts["scores"], "scores", np.float64)
    return _vector(texts["scores"], "scores")


def holds_scores(body: bytes | bytearray) -> bool:
    """Whether a JSON body speaks of scores, not of vectors (a cheap look before the real parse)."""
    # Finding plain bytes is far cheaper than an expression, and vectors have none of them.
    return body.find(b'"scores"', 0, 4096) >= 0 and _SCORES_FIELD.search(body, 0, 4096) is not None


# ---------------------------------------------------------------- sides


def read_side(text: bytes, name: str) -> tuple[SideRows, Counts | None]:
    """The vectors or records of a side and, where it holds subjects, how many samples each has."""
    lead = _lead(text)
    if lead == b"{" and "samples" in _names(text, name):
        return _subjects([text], [name])
    if lead == b"[{":
        objects = _texts(text, name)
        if "samples" in _names(objects[0], f"{name}[0]"):
            return _subjects(objects, [f"{name}[{at}]" for at in range(len(objects))])
        return _object_rows(objects, name), None
    return read_rows(text, name), None


def read_rows(text: bytes, name: str) -> SideRows:
    """Vectors or records: one of them, or a list."""
    lead = _lead(text)
    if lead == b"{":
        row = _object(text, name, _object_kind(text, name))
        return (
            SparseRows([row], single=True) if isinstance(row, SparseRow) else RecordRows([row], single=True)
        )
    if lead == b"[{":
        return _object_rows(_texts(text, name), name)
    if lead == b"[[":
        return _matrix(text, name)
    if lead == b"[":
        return _vector(text, name).reshape(1, -1)
    raise InvalidInput(f"{name} is {_kind(text)}; expected {EXPECTED}", field=name)


def _subjects(texts: Sequence[bytes], names: Sequence[str]) -> tuple[SideRows, Counts]:
    """All samples, subject after subject, and how many each has."""
    dense: list[Float32] = []
    objects: list[Any] = []
    counts = []
    width = 0
    first: SideRows | None = None
    for text, name in zip(texts, names, strict=True):
        at = f"{name}.samples"
        samples = bytes(_decoded(_subject, text, name).samples)
        lead = _lead(samples)
        if lead == b"[" and samples.strip(b"[] \t\r\n"):
            raise InvalidInput(f"{at}[0] is no vector; expected a list of vectors", field=f"{at}[0]")
        if lead not in (b"[[", b"[{"):
            problem = "is empty" if samples.strip(b"[] \t\r\n") == b"" else f"is {_kind(samples)}"
            raise InvalidInput(f"{at} {problem}; expected a list of vectors", field=at)
        rows = read_rows(samples, at)
        counts.append(len(rows))
        first = rows if first is None else first
        if type(rows) is not type(first):
            raise InvalidInput(
                f"{at} is not of the kind of the samples before it; expected one kind", field=at
            )
        if isinstance(rows, np.ndarray):
            width = width or rows.shape[1]
            if rows.shape[1] != width:
                raise InvalidInput(
                    f"{at}[0] has {rows.shape[1]} numbers and the first sample of its side {width}; expected "
                    "vectors of the same length",
                    field=f"{at}[0]",
                )
            dense.append(rows)
        else:
            objects += rows.rows
    whole = np.array(counts, dtype=np.int64)
    if dense:
        return np.concatenate(dense), whole
    return (SparseRows if isinstance(first, SparseRows) else RecordRows)(objects, single=False), whole


def _vector(text: bytes, name: str, dtype: Any = np.float32) -> NDArray[Any]:
    """(n,) finite numbers of a list of numbers."""
    parts, n_before = [], 0
    for piece in _pieces(text, _NUMBER_END, 0):
        numbers = np.array(_decoded(_row, piece, name, n_before), dtype=np.float64)
        parts.append(_finite(numbers, name, n_before, dtype))
        n_before += len(numbers)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _matrix(text: bytes, name: str, dtype: Any = np.float32) -> NDArray[Any]:
    """(n, d) finite numbers of a list of lists."""
    parts, n_before, width = [], 0, 0
    for piece in _pieces(text, _ROW_END, 1):
        rows = _decoded(_rows, piece, name, n_before)
        width = width or len(rows[0])
        if set(map(len, rows)) != {width}:
            at = next(index for index, row in enumerate(rows) if len(row) != width)
            field = f"{name}[{n_before + at}]"
            raise InvalidInput(
                f"{field} has {len(rows[at])} numbers and {name}[0] has {width}; expected lists of the same length",
                field=field,
            )
        numbers = np.array(rows, dtype=np.float64)
        parts.append(_finite(numbers, name, n_before, dtype))
        n_before += len(rows)
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _finite(numbers: NDArray[np.float64], name: str, n_before: int, dtype: Any) -> NDArray[Any]:
    beyond = np.abs(numbers) > FLOAT32_MAX
    if beyond.any():
        row, *column = np.argwhere(beyond)[0].tolist()
        raise_beyond(name + "".join(f"[{place}]" for place in (row + n_before, *column)))
    return numbers.astype(dtype)


def raise_beyond(field: str) -> NoReturn:
    """Refuse a number that float32 does not hold."""
    raise InvalidInput(f"{field} is NaN, infinite or beyond float32; expected a finite number", field=field)


def _pieces(text: bytes, end: re.Pattern[bytes], kept: int) -> Iterator[bytes]:
    """A list as lists of about `PIECE` bytes, cut behind an element and in no text; ``kept``: bytes of the end that are
    the element's."""
    if len(text) <= 2 * PIECE or not _lead(text).startswith(b"["):
        yield text
        return
    start, stop = text.index(b"[") + 1, text.rindex(b"]")
    while stop - start > 2 * PIECE:
        cut = end.search(text, start + PIECE, stop)
        while cut is not None and _in_text(text[start : cut.start()]):
            cut = end.search(text, cut.end(), stop)
        if cut is None:
            break
        yield b"[%b]" % text[start : cut.start() + kept]
        start = cut.end()
    yield b"[%b]" % text[start:stop]


def _in_text(piece: bytes) -> bool:
    """Whether what begins outside of a text ends inside of one."""
    if b"\\" not in piece:
        return piece.count(b'"') % 2 == 1
    return sum(mark[0] == b'"' for mark in _QUOTE.finditer(piece)) % 2 == 1


# ---------------------------------------------------------------- objects


def _object_rows(texts: Sequence[bytes], name: str) -> SideRows:
    kind = _object_kind(texts[0], f"{name}[0]")
    expected = "a record" if kind is _record else "a sparse vector"
    rows = []
    for at, text in enumerate(texts):
        field = f"{name}[{at}]"
        if _lead(text) != b"{":
            raise InvalidInput(f"{field} is {_kind(text)}; expected {expected}, as {name}[0] is", field=field)
        rows.append(_object(text, field, kind))
    return (RecordRows if kind is _record else SparseRows)(rows, single=False)


def _object_kind(text: bytes, name: str) -> msgspec.json.Decoder[Any]:
    """The decoder of a sparse vector or, where nothing looks like one, of a record."""
    names = _names(text, name)
    if "samples" in names:
        raise InvalidInput(
            f"{name} is a subject of several samples, which compares with another (/similarity, /match, verify); "
            "expected vectors: send the samples as a list of them",
            field=name,
        )
    return _record if RESERVED.isdisjoint(names) else _sparse


def _object(text: bytes, name: str, decoder: msgspec.json.Decoder[Any]) -> Any:
    """A record or a sparse vector."""
    if decoder is _sparse:
        row: SparseRow = _decoded(_sparse, text, name)
        for at, number in enumerate(row.values):
            if not -FLOAT32_MAX <= number <= FLOAT32_MAX:
                raise_beyond(f"{name}.values[{at}]")
        return row
    try:
        record: dict[str, Any] = _record.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Which cell: msgspec names no key of a dictionary.
        for column, cell in _names(text, name).items():
            if _lead(cell) == b"{":
                raise InvalidInput(
                    f"{name}: column {column[:100]!r} is an object; expected a text, a number, true, false, null or a "
                    "list of numbers",
                    field=f"{name}.{column[:100]}",
                ) from None
            _decoded(_cell, cell, f"{name}.{column[:100]}")
        raise
    if not RESERVED.isdisjoint(record):
        field = min(RESERVED & record.keys())
        raise InvalidInput(
            f"{name}.{field}: no column is called {' or '.join(sorted(RESERVED))}", field=f"{name}.{field}"
        )
    for column, cell in record.items():
        numbers = cell if isinstance(cell, list) else [cell] if isinstance(cell, float | int) else ()
        if any(not -FLOAT32_MAX <= number <= FLOAT32_MAX for number in numbers):
            raise_beyond(f"{name}.{column[:100]}")
    return record


def _texts(text: bytes, name: str) -> list[bytes]:
    return [bytes(raw) for raw in _decoded(_objects, text, name)]


def _names(text: bytes, name: str) -> dict[str, bytes]:
    return {key: bytes(raw) for key, raw in _decoded(_members, text, name).items()}


def _lead(text: bytes) -> bytes:
    """``{``, ``[{``, ``[[`` or ``[``: what a value begins with; nothing for a scalar."""
    lead = _LEAD.match(text)
    assert lead is not None
    return (lead[1] or b"").translate(None, b" \t\r\n")


def _kind(text: bytes) -> str:
    first = text.lstrip()[:1]
    names = {
        b"{": "an object",
        b"[": "a list",
        b'"': "a string",
        b"t": "a boolean",
        b"f": "a boolean",
        b"n": "null",
    }
    return names.get(first, "a number")


# ---------------------------------------------------------------- what is wrong


def _decoded(decoder: msgspec.json.Decoder[T], text: bytes, name: str, n_before: int = 0) -> T:
    """What the text holds; ``n_before``: elements of the list that earlier pieces hold."""
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        _raise_mismatch(str(error), name, n_before)
    except RecursionError:
        raise InvalidInput(f"{name} is nested too deeply", field=name) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if name == "body" and NO_NUMBER.search(text):
            # Not JSON, though many write it: with a number too large in its place, the field is named.
            _raise_at_no_number(text)
        raise InvalidInput(f"the body is not JSON: {error}", field="body") from None


def _raise_at_no_number(text: bytes) -> None:
    marked = NO_NUMBER.sub(b"1e999", text, count=1000)
    try:
        members = _members.decode(marked)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for name, raw in members.items():
        if b"1e999" in bytes(raw):
            if name == "scores":
                _vector(bytes(raw), name)
            else:
                read_side(bytes(raw), name)


def _raise_mismatch(told: str, name: str, n_before: int) -> NoReturn:
    """`InvalidInput` of what the decoder says, in our words and with our name of the field."""
    match = _TOLD.match(told)
    assert match is not None
    problem, at = match["problem"], match["at"] or ""
    if n_before and (first := re.match(r"\[(\d+)\]", at)):
        at = f"[{int(first[1]) + n_before}]{at[first.end() :]}"
    field = f"{name}{at}"
    if problem == "Number out of range":
        raise_beyond(field)
    if mismatch := _MISMATCH.match(problem):
        expected = (
            "a JSON object"
            if name == "body"
            else _EXPECTED.get(
                mismatch["expected"], "a text, a number, true, false, null or a list of numbers"
            )
        )
        place = "the body" if name == "body" else field
        raise InvalidInput(
            f"{place} is {_KINDS.get(mismatch['got'], mismatch['got'])}; expected {expected}", field=field
        )
    if "of length" in problem:
        raise InvalidInput(f"{field} is empty; expected at least one number", field=field)
    if missing := re.match(r"Object missing required field `(\w+)`", problem):
        field = f"{field}.{missing[1]}"
        raise InvalidInput(f"{field} is missing; expected a list of numbers", field=field)
    if extra := re.match(r"Object contains unknown field `(.*)`", problem):
        raise InvalidInput(f"{field} has the field {extra[1][:100]!r}, which is not read here", field=field)
    raise InvalidInput(f"{field}: {problem}", field=field)


def _raise_first(error: ValidationError) -> NoReturn:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "is not a field of this request"
    raise InvalidInput(f"{field[:200] or 'body'}: {message}", field=field[:200] or "body") from error
