"""Small files that become large: what somebody sends who wants a service to run out of memory or time."""

from __future__ import annotations

import gzip
import io
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Random = np.random.Generator
MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Crafted:
    """One upload: its kind, its file, the roles that go with it (for a gallery: the query), a file of pairs."""

    kind: str
    filename: str
    body: bytes
    roles: dict[str, str] = field(default_factory=dict)
    pairs: bytes | None = None
    gallery: bool = False


def crafted(rng: Random, kind: str, size: int, dimension: int) -> Crafted:
    """An upload of at most about ``size`` bytes; ``dimension`` is that of a gallery's vectors."""
    made = MAKERS[kind](rng, size, dimension)
    assert len(made.body) <= 1.05 * size, (kind, len(made.body))
    return made


def parquet(query: str) -> bytes:
    """The rows of a query as Parquet."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        file = Path(folder) / "x.parquet"
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
        return file.read_bytes()


def _times(rng: Random, number: float) -> int:
    return max(1, int(number * rng.uniform(0.3, 1.0)))


def _long_texts(role: str) -> Callable[[Random, int, int], Crafted]:
    def make(rng: Random, size: int, dimension: int) -> Crafted:
        rows, length = _times(rng, size / 70), _times(rng, 20_000)
        text = f"repeat(chr(97 + (i % 5)::INTEGER), {length})"
        if role == "ranking":
            text = f"'a>' || {text}"
        body = parquet(f"SELECT i::FLOAT AS x, (i % 3) AS y, {text} AS t FROM range({rows}) r(i)")
        roles = {role: "t"} if role in ("label", "ranking") else {role: "t", "label": "y"}
        return Crafted(kind=f"parquet long {role}", filename="x.parquet", body=body, roles=roles)

    return make


def _parquet_rows(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, 12 * size)
    body = parquet(f"SELECT 1::TINYINT AS x, (i >= {rows // 2}) AS y FROM range({rows}) r(i)")
    return Crafted(kind="parquet rows", filename="x.parquet", body=body, roles={"label": "y"})


def _parquet_columns(rng: Random, size: int, dimension: int) -> Crafted:
    columns = _times(rng, min(20_000, size / 400))
    cells = ", ".join(f"1.5::FLOAT AS x{at}" for at in range(columns))
    body = parquet(f"SELECT {cells}, (i % 2) AS y FROM range(10) r(i)")
    return Crafted(kind="parquet columns", filename="x.parquet", body=body, roles={"label": "y"})


def _parquet_cells(rng: Random, size: int, dimension: int) -> Crafted:
    columns, rows = _times(rng, 400), _times(rng, 200_000)
    cells = ", ".join(f"1.5::FLOAT AS x{at}" for at in range(columns))
    body = parquet(f"SELECT {cells}, (i % 2) AS y FROM range({rows}) r(i)")
    return Crafted(
        kind="parquet cells", filename="x.parquet", body=body[: int(1.05 * size)], roles={"label": "y"}
    )


def _parquet_list(rng: Random, size: int, dimension: int) -> Crafted:
    width, rows = _times(rng, 4e5), _times(rng, 60)
    body = parquet(
        f"SELECT list_resize([1::TINYINT], {width}, 1::TINYINT) AS v, (i % 2) AS y FROM range({rows}) r(i)"
    )
    return Crafted(kind="parquet list", filename="x.parquet", body=body, roles={"label": "y"})


def _csv_columns(rng: Random, size: int, dimension: int) -> Crafted:
    columns = _times(rng, min(20_000, size / 60))
    name = rng.choice(["a", "", "x{0}"])
    header = ",".join(str(name).format(at) for at in range(columns))
    line = ",".join(["1.5"] * columns)
    body = "\n".join(["y," + header, *(f"{at % 2},{line}" for at in range(10))]).encode()
    return Crafted(kind="csv columns", filename="x.csv", body=body, roles={"label": "y"})


def _csv_excluded(rng: Random, size: int, dimension: int) -> Crafted:
    columns = _times(rng, min(4_000, size / 40))
    body = (",".join(["a"] * columns) + "\n" + ",".join(["1"] * columns) + "\n").encode()
    return Crafted(
        kind="csv excluded", filename="x.csv", body=body, roles={"exclude": ",".join(["a"] * 100_000)}
    )


def _csv_rows(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, size / 12)
    body = b"x,y,k\n" + b"".join(b"1,%d,%d\n" % (at // 2, at) for at in range(rows))
    return Crafted(kind="csv rows", filename="x.csv", body=body[:size], roles={"label": "y", "id": "k"})


def _csv_line(rng: Random, size: int, dimension: int) -> Crafted:
    body = b"x,y\n1," + b"a" * (size - 100) + b"\n2,b\n"
    return Crafted(kind="csv line", filename="x.csv", body=body, roles={"label": "y"})


def _csv_rankings(rng: Random, size: int, dimension: int) -> Crafted:
    length = _times(rng, 600)
    lines = []
    while sum(map(len, lines)) < size - 4_000:
        lines += [f"{at},{'>'.join(map(str, rng.permutation(1_000)[:length]))}\n" for at in range(50)]
    body = ("x,r\n" + "".join(lines)).encode()[:size]
    return Crafted(kind="csv rankings", filename="x.csv", body=body, roles={"ranking": "r"})


def _gz(
    kind: str, line: bytes, header: bytes, roles: dict[str, str], filename: str
) -> Callable[[Random, int, int], Crafted]:
    def make(rng: Random, size: int, dimension: int) -> Crafted:
        copies = _times(rng, 450 * size / 2 / len(line))
        body = gzip.compress(header + line * copies, 6)
        return Crafted(kind=kind, filename=filename, body=body, roles=roles)

    return make


def _npz_zeros(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, 300 * size / 64 / 8)
    stream = io.BytesIO()
    np.savez_compressed(stream, X=np.zeros((rows, 64)), y=np.arange(rows) // 2)
    return Crafted(kind="npz zeros", filename="x.npz", body=stream.getvalue())


def _npz_declared(rng: Random, size: int, dimension: int) -> Crafted:
    head = io.BytesIO()
    shape = (int(rng.integers(10**6, 2**40)), int(rng.integers(1, 2**20)))
    np.lib.format.write_array_header_2_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", head.getvalue() + bytes(size))
    return Crafted(
        kind="npz declared", filename="x.npz", body=stream.getvalue(), roles={"unlabelled": "true"}
    )


def _npz_texts(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, size / 4_000)
    labels = np.array(["a" * 20_000, "b"])[np.arange(rows) % 2]
    stream = io.BytesIO()
    np.savez_compressed(stream, X=rng.normal(size=(rows, 4)).astype(np.float32), y=labels)
    return Crafted(kind="npz texts", filename="x.npz", body=stream.getvalue())


def _svmlight_line(rng: Random, size: int, dimension: int) -> Crafted:
    words = _times(rng, size / 12)
    body = b"1 " + b" ".join(b"%d:1" % at for at in range(1, words)) + b"\n2 x\n"
    return Crafted(kind="svmlight line", filename="x.svm", body=body[:size])


def _pairs(rng: Random, size: int, dimension: int) -> Crafted:
    rows, length = _times(rng, size / 70), _times(rng, 20_000)
    text = f"repeat(chr(97 + (i % 5)::INTEGER), {length})"
    pairs = parquet(f"SELECT {text} AS left, {text} AS right, (i % 2) AS same FROM range({rows}) r(i)")
    body = b"x,k\n" + b"".join(b"%d,k%d\n" % (at, at) for at in range(100))
    return Crafted(kind="pairs", filename="x.csv", body=body, roles={"id": "k"}, pairs=pairs)


def _gallery_texts(rng: Random, size: int, dimension: int) -> Crafted:
    rows, length = _times(rng, size / 40), _times(rng, 20_000)
    vector = f"list_resize([1.5::FLOAT], {dimension}, 1.5::FLOAT)"
    text = f"repeat(chr(97 + (i % 5)::INTEGER), {length})"
    part = str(rng.choice(["id", "subject", "m"]))
    ids = {"id": "i::VARCHAR", "subject": "'s'", "m": "'m'"} | {part: text}
    columns = ", ".join(f"{sql} AS {name}" for name, sql in ids.items())
    body = parquet(f"SELECT {columns}, {vector} AS v FROM range({rows}) r(i)")
    return Crafted(
        kind="gallery texts", filename="x.parquet", body=body, roles={"metadata": "m"}, gallery=True
    )


def _gallery_lists(rng: Random, size: int, dimension: int) -> Crafted:
    width, rows = _times(rng, 4e5), _times(rng, 60)
    body = parquet(
        f"SELECT i::VARCHAR AS id, list_resize([1.5::FLOAT], {width}, 1.5::FLOAT) AS v FROM range({rows}) r(i)"
    )
    return Crafted(kind="gallery lists", filename="x.parquet", body=body, gallery=True)


def _gallery_facts(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, 200)
    vector = f"list_resize([1.5::FLOAT], {dimension}, 1.5::FLOAT)"
    body = parquet(
        f"SELECT i::VARCHAR AS id, list_resize(['a'], 100000, 'a') AS m, {vector} AS v FROM range({rows}) r(i)"
    )
    return Crafted(
        kind="gallery facts", filename="x.parquet", body=body, roles={"metadata": "m"}, gallery=True
    )


def _gallery_npz(rng: Random, size: int, dimension: int) -> Crafted:
    rows = _times(rng, size / 4_000)
    ids = np.array([f"{at}" + "a" * 20_000 * (at % 2) for at in range(rows)])
    stream = io.BytesIO()
    np.savez_compressed(stream, ids=ids, vectors=np.ones((rows, dimension), dtype=np.float32))
    return Crafted(kind="gallery npz", filename="x.npz", body=stream.getvalue(), gallery=True)


MAKERS: dict[str, Callable[[Random, int, int], Crafted]] = {
    **{f"parquet long {role}": _long_texts(role) for role in ("label", "id", "group", "time", "ranking", "exclude")},
    "parquet rows": _parquet_rows,
    "parquet columns": _parquet_columns,
    "parquet cells": _parquet_cells,
    "parquet list": _parquet_list,
    "csv columns": _csv_columns,
    "csv excluded": _csv_excluded,
    "csv rows": _csv_rows,
    "csv line": _csv_line,
    "csv rankings": _csv_rankings,
    "csv.gz zeros": _gz("csv.gz zeros", b"0,0,0,0,1\n1,1,1,1,2\n", b"a,b,c,d,y\n", {"label": "y"}, "x.csv.gz"),
    "csv.gz labels": _gz("csv.gz labels", b"0," + b"a" * 900 + b"\n1,b\n", b"x,y\n", {"label": "y"}, "x.csv.gz"),
    "csv.gz cell": _gz("csv.gz cell", b"0,\"" + b"a" * 20_000 + b"\"\n", b"x,y\n", {"label": "y"}, "x.csv.gz"),
    "svmlight.gz": _gz("svmlight.gz", b"1 1:1 7:1\n2 1:2\n", b"", {}, "x.svm.gz"),
    "svmlight.gz wide": _gz("svmlight.gz wide", b"1 1048576:1\n2 1:1\n", b"", {}, "x.svm.gz"),
    "svmlight line": _svmlight_line,
    "npz zeros": _npz_zeros,
    "npz declared": _npz_declared,
    "npz texts": _npz_texts,
    "pairs": _pairs,
    "gallery texts": _gallery_texts,
    "gallery lists": _gallery_lists,
    "gallery facts": _gallery_facts,
    "gallery npz": _gallery_npz,
}  # fmt: skip
