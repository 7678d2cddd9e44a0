"""Binary and text bodies with a mistake in their structure, as somebody would make them who knows the format.

Each maker draws a body that would be fine and then changes one to three parts of it: headers that promise something
else, shapes, types, names, numbers, order, counts and frames. Bytes alone are flipped too, now and then.
"""

from __future__ import annotations

import functools
import gzip
import io
import struct
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Random = np.random.Generator
Maker = Callable[[Random, int], bytes]
_TEXTS = [
    "",
    "a",
    "nan",
    "0",
    "\x00",
    "é",
    "'",
    '"',
    "=1+1",
    "a,b",
    "-1",
    "1e400",
    "🙂",
    "x" * 5_000,
    " ",
    "\ufeff",
]
_NUMBERS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, 3.5e38, 1e300, 1e-45, 1.0]
_DTYPES = ["<f4", ">f4", "<f8", "<f2", "<i8", ">i4", "u1", "?", "<c8", "<U4", "S3", "<M8[s]", "<m8[D]"]


def chance(rng: Random, share: float) -> bool:
    """True for this share of calls."""
    return bool(rng.random() < share)


def pick(rng: Random, options: Any) -> Any:
    """One of the options."""
    return options[int(rng.integers(len(options)))]


# ------------------------------------------------------------ .npy and .npz


def npy(rng: Random, array: np.ndarray) -> bytes:
    """An array as a .npy file, perhaps with a head that promises something else."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=True)
    whole = stream.getvalue()
    if chance(rng, 0.7):
        return whole
    data = whole[128:] if len(whole) >= 128 else b""
    shape: Any = pick(
        rng,
        [
            array.shape,
            (),
            (-1,),
            (2**62, 4),
            (0,),
            (3, -2),
            (2**31, 2**31),
            (True, 2),
            (1.5,),
            "x",
            None,
            [2, 2],
        ],
    )
    head = {
        "descr": pick(rng, [array.dtype.str, "<f4", "|O", "<f9", "", "<U999999999", [("a", "<f4")], None, 7]),
        "fortran_order": pick(rng, [False, True, "no", None]),
        "shape": shape,
    }
    text = (
        repr(head)
        if chance(rng, 0.8)
        else pick(rng, ["{", "__import__('os')", "(" * 300, "{'a': 1}", "\x00"])
    )
    version = pick(rng, [(1, 0), (2, 0), (3, 0), (9, 9), (0, 0)])
    body = text.encode("utf-8") + b"\n"
    length = len(body) if chance(rng, 0.8) else int(rng.integers(0, 2**16))
    size = struct.pack("<H" if version[0] == 1 else "<I", min(length, 2**16 - 1))
    return b"\x93NUMPY" + bytes(version) + size + body + data


def array_like(rng: Random, array: np.ndarray) -> np.ndarray:
    """The array with another type, shape, order or number in it."""
    if not array.ndim or array.dtype.kind not in "fiuUSb":
        return array
    change = int(rng.integers(9))
    with np.errstate(all="ignore"):
        if change == 0:
            return array.astype(pick(rng, _DTYPES[:8])) if array.dtype.kind in "fiu" else array
        if change == 1:
            other = np.array(array, copy=True)
            if other.size and other.dtype.kind == "f":
                other.reshape(-1)[rng.integers(other.size)] = pick(rng, _NUMBERS)
            return other
        if change == 2:
            return pick(
                rng, [array[None], array[..., None], array[:0], array[:1], array.reshape(-1), array[:-1]]
            )
        if change == 3:
            return np.asfortranarray(array)
        if change == 4:
            return np.concatenate([array, array[:1]])
        if change == 5:
            return np.array(pick(rng, [0.0, "x", None, 2**70, {"a": 1}, b"\x80"]), dtype=object)
        if change == 6:
            return np.zeros(array.shape, dtype=[("a", "<f4"), ("b", "<i2")])
        if change == 7:
            return np.full(array.shape, pick(rng, ["", "a", "\x00", "é" * 50]))
    return array


def zipped(rng: Random, members: list[tuple[str, bytes]]) -> bytes:
    """Files as a zip, perhaps with an odd frame."""
    stream = io.BytesIO()
    method = pick(rng, [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_DEFLATED])
    if chance(rng, 0.05):
        method = pick(rng, [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", method) as archive:
        # One name twice is one of the mistakes.
        warnings.simplefilter("ignore", UserWarning)
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), data, compress_type=method)
        if chance(rng, 0.05):
            archive.comment = b"c" * int(rng.integers(1, 60_000))
    body = bytearray(stream.getvalue())
    if chance(rng, 0.35):
        _break_frame(rng, body)
    if chance(rng, 0.1):
        body = body[: int(rng.integers(len(body)))]
    if chance(rng, 0.05):
        body = bytearray(b"junk" * int(rng.integers(1, 50))) + body
    return bytes(body)


def _break_frame(rng: Random, body: bytearray) -> None:
    """Change one field of one zip header: flags, method, checksum, sizes, offsets, lengths of names."""
    central = body.find(b"PK\x01\x02")
    end = body.rfind(b"PK\x05\x06")
    fields = {
        0: (0, [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]),
        1: (
            central,
            [(4, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (42, 4)],
        ),
        2: (end, [(4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)]),
    }
    start, choices = fields[int(rng.integers(3))]
    at, width = pick(rng, choices)
    if start < 0 or start + at + width > len(body):
        return
    value = int(pick(rng, [0, 1, 2**16 - 1, 2**31, 2**32 - 1, int(rng.integers(2**16))])) % 2 ** (8 * width)
    body[start + at : start + at + width] = value.to_bytes(width, "little")


def flipped(rng: Random, body: bytes) -> bytes:
    """One to four bytes of it changed, one time in five."""
    if not body or not chance(rng, 0.2):
        return body
    changed = bytearray(body)
    for place in rng.integers(len(changed), size=int(rng.integers(1, 5))):
        changed[place] = int(rng.integers(256))
    return bytes(changed)


def npz(rng: Random, arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays as an npz, one to three parts of it changed."""
    given = dict(arrays)
    for _ in range(int(rng.integers(0, 3))):
        name = pick(rng, list(given))
        given[name] = array_like(rng, given[name])
    # With the file itself whole, wrong values get past the reading of it.
    if chance(rng, 0.5):
        stream = io.BytesIO()
        np.savez(stream, **given)
        return stream.getvalue()
    members = []
    for name, array in given.items():
        if chance(rng, 0.04):
            continue
        shown = f"{name}.npy"
        if chance(rng, 0.06):
            shown = pick(
                rng,
                ["../x.npy", "/etc/x.npy", "", "é.npy", name, f"{name}.npy/", "a" * 300, "left.npy", "\x01"],
            )
        members.append((shown, npy(rng, array)))
    if members and chance(rng, 0.06):
        members.append(pick(rng, members))
    if chance(rng, 0.06):
        members.append(("extra.npy", npy(rng, np.arange(3.0))))
    return flipped(rng, zipped(rng, members))


def vectors(rng: Random, rows: int, dimension: int) -> np.ndarray:
    """Rows of float32."""
    return rng.normal(size=(rows, dimension)).astype(np.float32)


def pairs_npz(rng: Random, dimension: int) -> bytes:
    """``left`` and ``right``."""
    n = int(rng.integers(1, 6))
    return npz(rng, {"left": vectors(rng, n, dimension), "right": vectors(rng, n, dimension)})


def points_npz(rng: Random, dimension: int) -> bytes:
    """``features``."""
    return npz(rng, {"features": vectors(rng, int(rng.integers(1, 6)), dimension)})


def items_npz(rng: Random, dimension: int) -> bytes:
    """``ids``, ``vectors`` and perhaps ``subjects`` and ``metadata``."""
    n = int(rng.integers(1, 8))
    arrays = {"ids": np.array([f"f{at}" for at in range(n)]), "vectors": vectors(rng, n, dimension)}
    if chance(rng, 0.5):
        arrays["subjects"] = np.array([f"s{at % 3}" for at in range(n)])
    if chance(rng, 0.4):
        texts = ["{}", '{"a": 1}', "{", "[]", '{"a": {"b": [1]}}', '{"a": NaN}', '{"é": "\\ud800"}', "null"]
        arrays["metadata"] = np.array([pick(rng, texts) for _ in range(n)])
    return npz(rng, arrays)


def _labels(rng: Random, n: int) -> np.ndarray:
    return pick(
        rng,
        [
            np.arange(n) // 2,
            np.arange(n) // 2,
            np.array([f"p{at // 2}" for at in range(n)]),
            np.arange(n, dtype=float),
            np.full(n, np.nan),
            np.zeros(n, bool),
            np.arange(n).astype("M8[s]"),
        ],
    )


def dataset_npz(rng: Random, dimension: int) -> bytes:
    """``X`` and ``y``, dense or as a sparse matrix."""
    n = int(rng.integers(2, 20))
    X, y = vectors(rng, n, dimension), _labels(rng, n)
    if chance(rng, 0.3):
        from scipy import sparse

        matrix: Any = sparse.random_array(
            (n, dimension), density=0.3, format="csr", rng=rng, dtype=np.float32
        )
        return npz(
            rng,
            {
                "data": matrix.data,
                "indices": pick(
                    rng, [matrix.indices, matrix.indices[::-1], matrix.indices - 1, matrix.indices + 2**30]
                ),
                "indptr": pick(
                    rng, [matrix.indptr, matrix.indptr[::-1], matrix.indptr * 2, matrix.indptr[:-1]]
                ),
                "shape": np.array(pick(rng, [matrix.shape, (n, -1), (2**40, 2**40), (0, 0), (n,)])),
                "format": np.array(pick(rng, [b"csr", b"csc", b"xxx", "csr"])),
                "y": y,
            },
        )
    return npz(rng, {"X": X, "y": y})


# ------------------------------------------------------------ raw float32


def raw(rng: Random, dimension: int) -> bytes:
    """Rows of float32, perhaps with a number that is none or a part of a row."""
    rows = vectors(rng, int(rng.integers(0, 9)), dimension)
    if rows.size and chance(rng, 0.3):
        with np.errstate(over="ignore"):
            rows.reshape(-1)[rng.integers(rows.size)] = np.float64(pick(rng, _NUMBERS)).astype(np.float32)
    with np.errstate(over="ignore"):
        body = rows.astype(pick(rng, ["<f4", "<f4", ">f4", "<f8", "<f2"])).tobytes()
    if chance(rng, 0.2):
        body = body[: int(rng.integers(len(body) + 1))]
    return flipped(rng, body + (b"\x00" * int(rng.integers(1, 9)) if chance(rng, 0.1) else b""))


# ------------------------------------------------------------ text


def csv(rng: Random, dimension: int, *, items: bool = False) -> bytes:
    """A table, perhaps ragged, oddly quoted, encoded or named."""
    n = int(rng.integers(0, 20))
    head = [*(["id", "subject"] if items else ["label"]), *(f"x{at}" for at in range(dimension))]
    numbers = vectors(rng, n, dimension)
    rows = [
        [*([f"f{at}", f"s{at % 3}"] if items else [f"p{at // 2}"]), *(f"{one:.4g}" for one in numbers[at])]
        for at in range(n)
    ]
    for _ in range(int(rng.integers(0, 4))):
        change = int(rng.integers(9))
        if change == 0 and rows:
            row = pick(rng, rows)
            row[int(rng.integers(len(row)))] = pick(
                rng, [*_TEXTS, "inf", "NaN", "1e999", "1_000", "٣", "0x1F", "1,5", "true"]
            )
        elif change == 1 and rows:
            pick(rng, rows).append("9")
        elif change == 2 and rows and len(rows[0]) > 1:
            pick(rng, rows).pop()
        elif change == 3 and head:
            head[int(rng.integers(len(head)))] = pick(
                rng, [*_TEXTS, "x0", "label", "id", "vector", "select", "a" * 500]
            )
        elif change == 4:
            head = pick(rng, [[], head[:1], head + head, head[::-1], [""] * len(head)])
        elif change == 5 and rows:
            rows = rows * int(rng.integers(1, 30))
        elif change == 6 and rows:
            rows.insert(int(rng.integers(len(rows))), pick(rng, [[], [""], ['"'], ["#"], ["\x00"]]))
        elif change == 7 and rows:
            row = pick(rng, rows)
            row[0] = pick(rng, ['"a""b"', '"a\nb"', '"open', 'mid"dle', '"a" b', "'a'", '"" ""'])
    comma = pick(rng, [",", ",", ",", ";", "\t", "|", " ", "::"])
    line = pick(rng, ["\n", "\n", "\r\n", "\r", "\n\n", "\u2028"])
    text = line.join(comma.join(row) for row in ([head, *rows] if chance(rng, 0.95) else rows))
    encoding = pick(rng, ["utf-8", "utf-8", "utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-32-be"])
    body = text.encode(encoding, "replace")
    if chance(rng, 0.1):
        body = gzip.compress(body)
        body = body[: int(rng.integers(1, len(body) + 1))] if chance(rng, 0.3) else body
    return flipped(rng, body)


def svmlight(rng: Random, dimension: int) -> bytes:
    """Lines of ``label index:value``, perhaps with indices, labels or comments that cannot be."""
    lines = []
    for at in range(int(rng.integers(0, 20))):
        places = np.sort(rng.choice(dimension, size=min(3, dimension), replace=False)) + 1
        parts = [f"{place}:{rng.normal():.3g}" for place in places]
        label = str(at // 2)
        change = int(rng.integers(14))
        if change == 0:
            parts = parts[::-1]
        elif change == 1:
            parts.append(
                pick(
                    rng,
                    [
                        "0:1",
                        "-1:2",
                        "99999999999:1",
                        f"{2**63}:1",
                        "1:nan",
                        "1:inf",
                        "1:1e400",
                        "x:1",
                        "1:",
                        ":1",
                        "1",
                        "1:2:3",
                        "1.5:2",
                        "+3:1",
                    ],
                )
            )
        elif change == 2:
            parts.append(parts[-1])
        elif change == 3:
            label = pick(rng, ["", "1,2", "nan", "1e400", "-", "a b", "0x1", "é", "1.5", "qid:3"])
        elif change == 4:
            parts.insert(0, pick(rng, ["qid:1", "qid:-1", "qid:x", "#", "# 1:2"]))
        elif change == 5:
            parts = []
        elif change == 6:
            parts.append(f"# {pick(rng, _TEXTS)}")
        lines.append(" ".join([label, *parts]))
    body = pick(rng, ["\n", "\n", "\r\n", "\r"]).join(lines).encode("utf-8")
    if chance(rng, 0.1):
        body += pick(rng, [b"\x00", b"\xff\xfe", b"1 1:1\x00", b"\n" * 1_000])
    return flipped(rng, body)


# ------------------------------------------------------------ Parquet

_COLUMNS = [
    "i::FLOAT / 7", "i::DOUBLE", "i", "i::TINYINT", "i::HUGEINT", "i::DECIMAL(18, 3)", "NULL", "'nan'::FLOAT",
    "'inf'::DOUBLE", "CASE WHEN i = 2 THEN NULL ELSE i END", "'x' || i", "[i, i + 1]::FLOAT[]",
    "[i, NULL, i]::DOUBLE[]", "range(i % 4)", "[[i]]", "{'a': i, 'b': 'x'}", "MAP {'k': i}", "DATE '2020-01-01'",
    "TIMESTAMP '2020-01-01 00:00:00'", "INTERVAL 1 DAY", "TRUE", "'\\x00\\xFF'::BLOB", "uuid()", "''", "i::UBIGINT",
    "array_value(i::FLOAT, 2, 3, 4)",
]  # fmt: skip


@functools.cache
def _duck() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def parquet(rng: Random, dimension: int, *, items: bool = False) -> bytes:
    """A Parquet file of columns of any type, perhaps with a changed footer."""
    n = int(pick(rng, [0, 1, 6, 6, 40]))
    columns = {"id": "'f' || i", "subject": "'s' || (i % 3)"} if items else {"label": "'p' || (i // 2)"}
    if chance(rng, 0.4):
        columns["vector"] = f"[random() FOR k IN range({dimension})]::FLOAT[]"
    else:
        columns |= {f"x{at}": "random()::FLOAT" for at in range(dimension)}
    for _ in range(int(rng.integers(0, 3))):
        name = (
            pick(rng, list(columns))
            if chance(rng, 0.7)
            else pick(rng, ["extra", "é", "a b", "SELECT", "x" * 300])
        )
        columns[name] = pick(rng, _COLUMNS)
    if len(columns) > 1 and chance(rng, 0.1):
        columns.pop(pick(rng, list(columns)))
    chosen = ", ".join(f'{text} AS "{name}"' for name, text in columns.items())
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        codec = pick(rng, ["snappy", "zstd", "uncompressed", "gzip"])
        _duck().execute(
            f"COPY (SELECT {chosen} FROM range({n}) AS r(i)) TO '{file.name}' (FORMAT parquet, COMPRESSION {codec})"
        )
        body = bytearray(Path(file.name).read_bytes())
    change = int(rng.integers(10))
    if change == 0:
        body[-8:-4] = int(pick(rng, [0, 1, 2**31, 2**32 - 1, len(body)])).to_bytes(4, "little")
    elif change == 1:
        length = int.from_bytes(body[-8:-4], "little")
        for place in rng.integers(len(body) - 8 - length, len(body) - 8, size=3):
            body[place] = int(rng.integers(256))
    elif change == 2:
        body = body[: int(rng.integers(len(body)))]
    elif change == 3:
        for place in rng.integers(4, max(5, len(body) - 200), size=4):
            body[place] = int(rng.integers(256))
    return bytes(body)
