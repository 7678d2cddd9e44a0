"""What is asked, as it was sent: two sides or points, in JSON, little-endian rows or npz; and requests with other long
lists.

A short JSON body of plain vectors is read by simdjson; `json` reads any other, and names what is wrong."""

import io
import math
import re
import threading
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
import simdjson
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

from pairmark.models.core.arrays import Float32
from pairmark.models.core.artefact import npy_header
from pairmark.schemas.base import EXPECTED, EXPECTED_SIDE, FLOAT32_MAX
from pairmark.schemas.scoring import AskingBody, PairsFields
from pairmark.service.datasets.confined import UNREADABLE_HEAD, checked_members, damage_refused
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.scoring.json import (
    LISTED,
    STRICT,
    Counts,
    Form,
    NothingElse,
    RecordRows,
    SideRows,
    SparseRows,
    cut,
    raise_beyond,
    read_numbers,
    read_rows,
    read_side,
    split_request,
    validate,
)

MAX_MEMBERS: Final = 8
MAX_AT_ONCE: Final = 1024 * 1024
"""Members and bytes of a request of vectors that is read in one piece, which takes 3 ms that nobody else has."""
SMALL: Final = 64 * 1024
"""Bytes of a body whose parser is kept for the next one."""
FEW_MARKS: Final = 512
"""Bytes for each mark of a kind in a body that has few of them."""
MOST_SUMMED: Final = 4_096
"""Numbers whose squares are summed at once; of more, BLAS starts threads that take longer than the sum."""
_SCORES_FIELD = re.compile(rb'"scores"\s*:')


class PairRequest(NamedTuple):
    """Two sides of vectors, and the model that a JSON body names. Dense sides are (n, d), finite float32.

    Attributes
    ----------
    counts : where sides hold subjects of several samples, the number of samples of each subject of the left and the
        right side; vectors lie subject after subject.
    """

    left: SideRows
    right: SideRows
    counts: tuple[Counts, Counts] | None = None
    model: str | None = None
    refs: list[list[str]] | None = None
    """The caller's names of both sides of each pair."""

    @property
    def sizes(self) -> tuple[int, int]:
        """How many vectors, records or subjects the left and the right side have."""
        left, right = (self.left, self.right) if self.counts is None else self.counts
        return len(left), len(right)

    @property
    def n_pairs(self) -> int:
        return max(self.sizes)

    @property
    def n_scored(self) -> int:
        """How many pairs of samples that takes."""
        if self.counts is None:
            return self.n_pairs
        left, right = self.counts
        return int(np.sum(left * right)) if 1 in (left.size, right.size) else int(left @ right)

    def as_sent(self, place: int) -> dict[str, Any] | None:
        """The two sides of a pair as they were sent; None for sparse vectors and subjects of several samples."""
        sides = {}
        for name, side in (("left", self.left), ("right", self.right)):
            if self.counts is not None or isinstance(side, SparseRows):
                return None
            rows = side.rows if isinstance(side, RecordRows) else side
            row = rows[place if len(rows) > 1 else 0]
            sides[name] = row if isinstance(row, dict) else [float(number) for number in row]
        return sides

    def check_sizes(self, max_pairs: int, max_samples: int = 100) -> None:
        """Refuse sizes that make no pairs, or too many."""
        counts = self.counts
        n_left, n_right = self.sizes
        n_pairs = max(n_left, n_right)
        if n_left != n_right and 1 not in (n_left, n_right):
            what = "vectors" if counts is None else "subjects"
            raise InvalidInput(
                f"left has {n_left} {what} and right {n_right}; expected equal numbers, or a single one on one side",
                field="right",
            )
        if counts is not None:
            for name, side in zip(("left", "right"), counts, strict=True):
                if side.max() > max_samples:
                    subject = int(np.argmax(side > max_samples))
                    raise InvalidInput(
                        f"{name}[{subject}] has {side[subject]} samples; expected at most {max_samples} "
                        "(PAIRMARK_MAX_SUBJECT_SAMPLES)",
                        field=f"{name}[{subject}].samples",
                        limit=max_samples,
                    )
            if self.n_scored > max_pairs:
                raise TooLarge(
                    f"the subjects make {self.n_scored} pairs of samples; at most {max_pairs} are taken at a time",
                    limit=max_pairs,
                )
        if self.refs is not None and len(self.refs) != n_pairs:
            raise InvalidInput(
                f"refs names {len(self.refs)} pairs; expected one [left, right] for each of the {n_pairs} pairs",
                field="refs",
            )
        check_count(n_pairs, "pairs", max_pairs)


@dataclass(frozen=True, slots=True)
class Features:
    """Points, and the model that a JSON body names. Dense ones are (n, d), finite float32."""

    rows: SideRows
    model: str | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def check_sizes(self, limit: int, *_: int) -> None:
        """Refuse more points than are taken at a time."""
        check_count(len(self), "points", limit)


def split_vectors(
    form: type[Form], body: bytes, lists: Mapping[str, str]
) -> tuple[Form, Mapping[str, bytes | Float32]]:
    """As `split_request`; lists of plain vectors are read already."""
    dense = _dense_lists(body, lists) if len(body) <= MAX_AT_ONCE else None
    if dense is None:
        return split_request(form, body, lists)
    others, vectors = dense
    try:
        return form.model_validate(others) if others else _defaults(form), vectors
    except ValidationError:
        return split_request(form, body, lists)


@lru_cache
def _defaults(form: type[Form]) -> Form:
    return form()


class _Parser(threading.local):
    """A thread's parser of small bodies: its memory takes as long to be had as such a body to be read."""

    def __init__(self) -> None:
        self.parse = simdjson.Parser().parse


_small = _Parser()


def _dense_lists(body: bytes, names: Mapping[str, object]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The members of a body whose long lists are vectors of finite numbers and whose others are no lists, which is what
    most bodies are; None for any other body, which is split and read by pydantic, which
    names its mistakes."""
    others: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    n_lists = 0
    try:
        is_small = len(body) <= SMALL
        document = _small.parse(body) if is_small else simdjson.Parser().parse(body)
        if not isinstance(document, simdjson.Object) or len(document) > MAX_MEMBERS:
            return None
        for name in document.keys():  # noqa: SIM118 - no dictionary
            value = document[name]
            if not isinstance(value, simdjson.Array):
                others[name] = value
                continue
            numbers = np.frombuffer(value.as_buffer(of_type="d"))
            # Where the sum of squares is no more, no number is: that takes a tenth of looking for the greatest.
            if not numbers.size or (
                (numbers.size > MOST_SUMMED or not numbers.dot(numbers) <= FLOAT32_MAX)
                and not np.abs(numbers).max() <= FLOAT32_MAX
            ):
                return None
            shape = 1, len(value)
            n_lists += 1
            # Where there are as many, each element is a number, unless there are more lists.
            if numbers.size != shape[1]:
                shape = (len(value), len(value[0]))
                n_lists += len(value)
                # A number among them, counted as a list, would make up for a list within a row.
                widths = {len(row) if isinstance(row, simdjson.Array) else None for row in value}
                if widths != {shape[1]}:
                    return None
            lists[name] = numbers.reshape(shape).astype(np.float32)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        return None
    # A member twice: the other way of reading has to say what that means.
    is_other = lists.keys() != names.keys() or len(lists) + len(others) != len(document)
    # The numbers of lists within rows would stand among those of the rows: the number of lists shows it.
    # A bracket within a text counts too: such a body is read the other way.
    return None if is_other or _holds_more(body, b"[", n_lists) else (others, lists)


def _holds_more(body: bytes, mark: bytes, n: int) -> bool:
    """Whether a mark stands in a body more than ``n`` times."""
    if n > len(body) // FEW_MARKS:
        return bool(np.count_nonzero(np.frombuffer(body, np.uint8) == ord(mark)) > n)
    # Looking for each of a few is several times faster than comparing every byte.
    place = -1
    for _ in range(n):
        place = body.find(mark, place + 1)
    return body.find(mark, place + 1) >= 0


def parse_pairs(body: bytes) -> PairRequest:
    """Pairs of any form, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_vectors(PairsFields, body, {"left": EXPECTED_SIDE, "right": EXPECTED_SIDE})
    left, right = texts["left"], texts["right"]
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return PairRequest(left, right, None, request.model, request.refs)
    (a, n_a), (b, n_b) = read_side(left, "left"), read_side(right, "right")
    counts = None
    if n_a is not None or n_b is not None:
        # Vectors beside subjects are subjects of one sample.
        both = tuple(
            np.ones(len(rows), dtype=np.int64) if counts is None else counts
            for rows, counts in ((a, n_a), (b, n_b))
        )
        counts = None if both[0].max() == both[1].max() == 1 else (both[0], both[1])
    return PairRequest(a, b, counts, request.model, request.refs)


def check_count(n: int, what: str, limit: int) -> None:
    """Refuse more of something than is taken at a time."""
    if n > limit:
        raise TooLarge(f"the request has {n} {what}; at most {limit} are taken at a time", limit=limit)


def parse_features(body: bytes) -> Features:
    """Points, or `InvalidInput` that names the field and what was expected."""
    request, texts = split_vectors(AskingBody, body, {"features": EXPECTED})
    return Features(read_rows(texts["features"], "features"), request.model)


def parse_scores(body: bytes) -> Float32:
    """Read a JSON body of scores made elsewhere, (n,)."""
    _, texts = split_request(NothingElse, body, {"scores": "a list of numbers"})
    return read_numbers(texts["scores"], "scores")


def holds_scores(body: bytes) -> bool:
    """Whether a JSON body speaks of scores, not of vectors (a cheap look before the real parse)."""
    # Finding plain bytes is far cheaper than an expression, and vectors have none of them.
    return body.find(b'"scores"', 0, 4096) >= 0 and _SCORES_FIELD.search(body, 0, 4096) is not None


DTYPES = {"float32": "<f4", "float16": "<f2", "float64": "<f8"}
_ENOUGH, _GLANCED, _SMALL, _WILD = 128, 2_048, 1e-20, 0.2
"""Numbers by which other types are told from float32, at least and at most; sizes beyond which, and shares from which,
they are wild."""
_SPREAD = 24
"""Powers of two that nine tenths of numbers hardly ever span."""


PAIR_SIDES = ("left", "right")


def parse_octets(
    body: bytes,
    names: tuple[str, ...] = PAIR_SIDES,
    *,
    dim: int,
    dtype: str = "float32",
    n_left: int | None = None,
    pairs: int | None = None,
) -> list[Float32]:
    """Read little-endian rows of points or, of two sides, all left ones and then all right ones.

    Parameters
    ----------
    names : of the sides. dim : numbers in a vector. dtype : a key of `DTYPES`.
    n_left : left vectors; None: half of all. pairs : how many pairs were sent; None: not said.
    """
    rows = _octet_rows(body, dim, dtype)
    sides = [rows]
    if len(names) == 2:
        n_rows = rows.shape[0]
        if n_left is None and n_rows % 2:
            raise InvalidInput(
                f"the body has {n_rows} rows, an odd number; expected equal numbers of left and right rows, or n_left=",
                field="body",
            )
        n_left = n_left or n_rows // 2
        if not 0 < n_left < n_rows:
            raise InvalidInput(
                f"n_left is {n_left} and the body has {n_rows} rows; expected 1 to {n_rows - 1}",
                field="n_left",
            )
        sides = [rows[:n_left], rows[n_left:]]
    n_pairs = max(map(len, sides))
    if pairs not in (None, n_pairs):
        raise InvalidInput(
            f"the body holds {n_pairs} pairs of {dim} {dtype}, and pairs is {pairs}; expected dtype= to name the "
            f"type of its numbers ({', '.join(DTYPES)}), and dim= and n_left= its shape",
            field="pairs",
        )
    return [_all_finite(side, name) for side, name in zip(sides, names, strict=True)]


def _octet_rows(body: bytes, dim: int, dtype: str) -> Float32:
    row_bytes = np.dtype(DTYPES[dtype]).itemsize * dim
    if not body:
        raise InvalidInput(f"the body is empty; expected {dtype} rows", field="body")
    if len(body) % row_bytes:
        raise InvalidInput(
            f"the body has {len(body)} bytes, which is not a whole number of rows of {dim} {dtype} "
            f"({row_bytes} bytes each)",
            field="body",
            dim=dim,
        )
    with np.errstate(over="ignore"):
        # A copy, since kernels are compiled for arrays that may be written to.
        rows = np.frombuffer(body, dtype=DTYPES[dtype]).astype(np.float32).reshape(-1, dim)
    if dtype == "float32" and rows.size >= _ENOUGH and rows.size % 2 == 0:
        # Of float64 every second half is the end of a fraction: any exponent as float32, or nothing.
        low, high = np.abs(rows.ravel()[:_GLANCED]).reshape(-1, 2).T
        is_wild = ~((low > _SMALL) & (low < 1 / _SMALL)) & (low != 0) & np.isfinite(low)
        if is_wild.mean() > _WILD or (high.all() and not low.any()):
            raise InvalidInput(
                "the body does not look like float32 numbers but like float64; expected float32, or dtype=float64",
                field="body",
            )
        # Of two float16 the second gives the size: any. Of float32 the first half is any float16, and soon an infinity.
        halves = np.frombuffer(body, "<f2")[: 2 * _GLANCED]
        if rows.size >= 2 * _ENOUGH and np.isfinite(halves).all() and halves[::2].any():
            sizes = np.abs(rows.ravel()[:_GLANCED])
            if np.subtract(*np.quantile(np.log2(sizes[sizes > 0]), (0.95, 0.05))) > _SPREAD:
                raise InvalidInput(
                    "the body does not look like float32 numbers but like float16; expected float32, or dtype=float16",
                    field="body",
                )
    return rows


def parse_npz(body: bytes, names: tuple[str, ...] = PAIR_SIDES, *, max_bytes: int) -> list[Float32]:
    """Read an npz of these arrays. Object arrays are refused and sizes bounded before unpacking."""
    array_names = " and ".join(map(repr, names))
    damage = damage_refused("the body is not a readable npz (a zip of .npy files)", "body")
    with damage, zipfile.ZipFile(io.BytesIO(body)) as archive:
        infos = checked_members(archive, max_bytes * len(names))
        members = {info.filename.removesuffix(".npy"): info for info in infos}
        missing = [name for name in names if name not in members]
        if missing:
            raise InvalidInput(
                f"the npz has no array {missing[0]!r}; expected {array_names}", field=missing[0]
            )
        extra = sorted(set(members) - set(names))
        if extra:
            raise InvalidInput(
                f"the npz has an array {extra[0][:100]!r}; expected only {array_names}", field="body"
            )
        return [_read_member(archive, members[name], name, max_bytes) for name in names]


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, max_bytes: int) -> Float32:
    if info.file_size > max_bytes:
        raise TooLarge(
            f"{name} unpacks to {info.file_size} bytes; at most {max_bytes} are taken", limit=max_bytes
        )
    with archive.open(info) as stream:
        # One byte more than the bound: a header that understates the size is caught here.
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise TooLarge(f"{name} unpacks to more than {max_bytes} bytes", limit=max_bytes)
    stream_ = io.BytesIO(data)
    try:
        shape, in_columns, dtype = npy_header(stream_)
    except UNREADABLE_HEAD as error:
        raise InvalidInput(f"{name} is not a readable .npy array", field=name) from error
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise InvalidInput(f"{name} has dtype {dtype}; expected float32 (or other plain numbers)", field=name)
    if len(shape) not in (1, 2) or 0 in shape:
        raise InvalidInput(
            f"{name} has shape {tuple(shape)}; expected (n, d), or (d,) for one vector", field=name
        )
    # Python integers: a header cannot make this overflow.
    n_bytes = math.prod(map(int, shape), start=dtype.itemsize)
    n_available = len(data) - stream_.tell()
    if n_available != n_bytes:
        raise InvalidInput(
            f"{name} holds {n_available} bytes where its header promises {n_bytes}", field=name
        )
    flat = np.frombuffer(data, dtype=dtype, offset=stream_.tell())
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.array(flat.reshape(shape, order="F" if in_columns else "C"), dtype=np.float32, order="C")
    return np.atleast_2d(_all_finite(rows, name))


def _all_finite(array: Float32, name: str) -> Float32:
    if not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0]
        raise_beyond(name + "".join(f"[{index}]" for index in place))
    return array


Reader = Callable[[bytes, str], Any]
"""Reads the JSON of a member; takes its name for what it refuses."""


def parse_lists(
    form: type[Form], body: bytes, readers: Mapping[str, Reader], options: type[BaseModel], within: str = ""
) -> Form:
    """A request with long lists, which are read in pieces instead of by the model.

    Parameters
    ----------
    form : the whole request.
    readers : of each list, what reads its JSON.
    options : the members beside the lists, of which ``form`` is a subclass.
    within : as for `split_request`.
    """
    fields = form.model_fields
    expected = {
        name: fields[name].description or "a list" if fields[name].is_required() else None for name in readers
    }
    others, texts = split_request(options, body, expected, within)
    lists = {
        name: readers[name](text, within + name)
        for name, text in texts.items()
        if text != b"null" or expected[name] is not None
    }
    return form.model_construct(**{**dict(others), **lists})


def list_of(kind: Any, *, of_lists: bool = False) -> Reader:
    """A reader of a list whose elements are of that type, in pieces, so that other threads run in between."""
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[list[kind], LISTED], config=STRICT)

    def read(text: bytes, name: str) -> list[Any]:
        values: list[Any] = []
        for piece in cut(text, of_lists=of_lists):
            values += validate(adapter, piece, name, len(values))
        return values

    return read


def read_scores(text: bytes, name: str) -> NDArray[np.float64]:
    """A number per pair, in double precision, so that those that float32 cannot tell apart are counted."""
    return read_numbers(text, name, np.float64)
