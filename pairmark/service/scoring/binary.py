"""Binary bodies: little-endian rows (octets) and npz; bounded, checked, finite float32."""

import io
import math
import zipfile

import numpy as np

from pairmark.models.core.arrays import Float32
from pairmark.models.core.artefact import npy_header
from pairmark.service.datasets.confined import UNREADABLE_HEAD, checked_members, damage_refused
from pairmark.service.errors import InvalidInput, TooLarge
from pairmark.service.scoring.json import raise_beyond

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
