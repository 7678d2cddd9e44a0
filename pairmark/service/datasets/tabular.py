"""CSV and Parquet through DuckDB, streamed in blocks of rows: memory stays flat however long the file is."""

from __future__ import annotations

import codecs
import csv
import glob
import gzip
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.cells import MAX_CELL
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.columns import Columns
from pairmark.service.datasets.limits import FileLimits
from pairmark.service.datasets.rankings import RankingColumn
from pairmark.service.datasets.writer import MAX_NAME, Block, name_list
from pairmark.service.errors import InvalidInput, PairmarkError, StorageFailed, TooLarge

if TYPE_CHECKING:
    import duckdb


CHUNK = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
DELIMITERS = (",", ";", "\t", "|")
_MAX_HEADER = 32 * CHUNK
_OTHER_MAGIC = {
    b"PK\x03\x04": "a zip archive (or a spreadsheet); save it as CSV, or as npz with the extension .npz",
    b"PAR1": "a Parquet file; send format=parquet",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
    b"\x28\xb5\x2f\xfd": "packed with zstd; unpack it, or use gzip",
    b"BZh": "packed with bzip2; unpack it, or use gzip",
    b"\xfd7zXZ": "packed with xz; unpack it, or use gzip",
}


def plain_text(path: Path, scratch: Path, limits: FileLimits) -> Path:
    """The file itself, or what it unpacks to, within ``limits``, once it is known to be UTF-8 text."""
    with path.open("rb") as stream:
        start = stream.read(8)
        stream.seek(0)
        if not start:
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        for magic, kind in _OTHER_MAGIC.items():
            if start.startswith(magic):
                raise InvalidInput(f"the file is {kind}", field="file")
        if not start.startswith(GZIP_MAGIC):
            _check(stream, None, limits)
            return path
        plain = scratch / "unpacked"
        try:
            with gzip.GzipFile(fileobj=stream) as unpacked, plain.open("wb") as copy:
                _check(unpacked, copy, limits)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(
                "the gzip file is truncated or damaged; pack and send it again", field="file"
            ) from error
        if plain.stat().st_size == 0:
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        return plain


def first_record(path: Path) -> tuple[str, list[str]]:
    """The delimiter and the cells of a file's first line, or `InvalidInput` when there is none.

    The delimiter is whichever of comma, semicolon, tab and bar the line holds most of, outside quotes.
    """
    with path.open("r", encoding="utf-8-sig", newline="") as stream:
        lines = iter(lambda: stream.readline(_MAX_HEADER), "")
        head = next((line for line in lines if line.strip("\r\n")), "")
        if not head.strip():
            raise InvalidInput("the file is empty; expected a header line and rows", field="file")
        bare = "".join(part for number, part in enumerate(head.split('"')) if number % 2 == 0)
        delimiter = max(DELIMITERS, key=bare.count)
        try:
            # csv's own limit guards against a quote that never closes.
            return delimiter, next(csv.reader(chain([head], lines), delimiter=delimiter, strict=True))
        except (csv.Error, StopIteration) as error:
            raise InvalidInput(f"the first line is not CSV: {error}", field="file") from error


def _check(stream: BinaryIO | gzip.GzipFile, copy: BinaryIO | None, limits: FileLimits) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = lines = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > limits.unpacked_bytes:
            raise limits.exceeded("unpacked_bytes", f"the file unpacks to {size} bytes or more", "bytes")
        try:
            decoder.decode(chunk)
        except UnicodeDecodeError as error:
            bad = error.object[error.start]
            line = lines + error.object[: error.start].count(b"\n") + 1
            raise InvalidInput(
                f"line {line} holds byte 0x{bad:02x}, which is not UTF-8; save the file as UTF-8",
                field="file",
                line=line,
            ) from error
        if b"\x00" in chunk:
            line = lines + chunk[: chunk.index(b"\x00")].count(b"\n") + 1
            raise InvalidInput(f"line {line} holds a zero byte; expected text", field="file", line=line)
        lines += chunk.count(b"\n")
        if copy is not None:
            copy.write(chunk)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "the file ends within a UTF-8 character; is it truncated?", field="file"
        ) from error


_CELLS = 1_000_000
_ROWS_OF_CELLS = 4_096
_MAX_LINE = 8 * 1024 * 1024
_BUFFER = 2 * _MAX_LINE
_SHARE = 0.5
"""Of a reader's memory that DuckDB may take; numbers and texts of the rows at hand need the rest."""
_TEXT_ROWS = 16_384
_RANKING_CHARACTERS = 32 * 1024 * 1024
CSV_SOURCE = (
    "read_csv(?, auto_detect=false, header=?, delim=?, quote='\"', escape='\"', strict_mode=true, "
    "max_line_size=?, buffer_size=?, columns=?)"
)
LIST = re.compile(r"\s*\[\s*[-+.\d]")
"""Begins a list of numbers in a cell of text."""
_VECTOR = re.compile(r"(.*)\[\d*\]")
_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)")


def connected(scratch: Path, limits: FileLimits) -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own, within bounds, that loads nothing from elsewhere."""
    import duckdb

    return duckdb.connect(
        config={
            # One thread keeps the file's order and takes least memory; parsing is not what takes the time.
            "threads": "1",
            "memory_limit": f"{int(_SHARE * limits.memory_bytes)}B",
            "temp_directory": str(scratch / "spill"),
            "max_temp_directory_size": f"{limits.unpacked_bytes}B",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
    )


def refuse_csv(error: Exception) -> NoReturn:
    """Raise what a person can act on; DuckDB's own words speak of its options and of our paths."""
    message = str(error)
    match = re.search(r"CSV Error on Line: (\d+)", message)
    line = int(match[1]) if match else None
    where = f"line {line}" if line else "the file"
    if match := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", message):
        raise InvalidInput(
            f"{where} has {match[2]} cells, the header {match[1]}; expected the same number in every line",
            line=line,
        ) from error
    if "unterminated quote" in message or "quote" in message.partition("\n\n")[0].lower():
        raise InvalidInput(
            f"{where} has a quote that is not closed; is the file truncated?", line=line
        ) from error
    if "maximum line size" in message.lower():
        raise TooLarge(
            f"{where} is longer than {_MAX_LINE} bytes; is the file truncated or of one line?"
        ) from error
    raise InvalidInput(
        f"{where} cannot be read as CSV; expected lines of cells, one delimiter, '\"' for quotes"
    ) from error


class TableFile:
    """A CSV or Parquet file on a connection of DuckDB of its own.

    Attributes
    ----------
    columns : what its columns are called. cells : SQL of each column. types : of Parquet's columns; empty of CSV.
    source, params : what stands after FROM, and its parameters: of CSV every cell as text.
    """

    def __init__(
        self, path: Path, scratch: Path, kind: str, limits: FileLimits, *, header: bool = True
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.limits, self.kind, self.types = limits, kind, list[str]()
        self.connection = connected(scratch, limits)
        try:
            if kind == "csv":
                self._open_csv(path, scratch, header)
            else:
                self._open_parquet(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def query(self, sql: str, params: list[Any] | None = None) -> duckdb.DuckDBPyConnection:
        """Run a query of the source, or refuse the file."""
        try:
            return self.connection.execute(sql, self.params if params is None else params)
        except Exception as error:
            self.refuse(error)

    def refuse(self, error: Exception) -> NoReturn:
        """Raise what an error of DuckDB says of the file."""
        raise_if_full(error, self.limits)
        if self.kind == "csv":
            refuse_csv(error)
        raise InvalidInput("the file is not whole Parquet; is it truncated?", field="file") from error

    def text(self, number: int, longest: int = MAX_NAME + 1) -> str:
        """SQL of a column as text, cut where it is known to be too long: DuckDB's strings are shared, Python's are not.
        Floating numbers stay, so that 3.0 and 3 are the same label in every format."""
        cell = self.cells[number]
        keep = bool(self.types) and self.types[number] in ("FLOAT", "DOUBLE")
        return cell if keep else f"left(CAST({cell} AS VARCHAR), {longest})"

    def typed(self, types: Mapping[str, str]) -> list[Any]:
        """The parameters of a CSV with these types of its columns."""
        return [*self.params[:-1], dict(types)]

    def _open_csv(self, path: Path, scratch: Path, header: bool) -> None:
        plain = plain_text(path, scratch, self.limits)
        delimiter, first = first_record(plain)
        check_width(len(first), self.limits)
        self.columns = Columns(first if header else [f"c{number}" for number in range(len(first))])
        self.cells = [f"c{number}" for number in range(len(first))]
        self.source = CSV_SOURCE
        self.params = csv_given(plain, header, delimiter, dict.fromkeys(self.cells, "VARCHAR"))
        if header and sum(map(_is_number, first)) > len(first) / 2:
            self.columns.warnings.append(
                "most column names are numbers: if the file has no header line, send it again with header=false"
            )

    def _open_parquet(self, path: Path) -> None:
        self.source, self.params = "read_parquet(?)", [glob.escape(str(path))]
        described = self.query(f"DESCRIBE SELECT * FROM {self.source}").fetchall()
        check_width(len(described), self.limits)
        rows = self.query(f"SELECT count(*) FROM {self.source}").fetchone() or (0,)
        if rows[0] > self.limits.rows:
            raise self.limits.exceeded("rows", f"{rows[0]} rows", "rows")
        self.n_rows = int(rows[0])
        self.types = [str(row[1]) for row in described]
        self.columns = Columns([row[0] for row in described], pandas_index(self.connection, self.params))
        self.cells = ['"' + str(row[0]).replace('"', '""') + '"' for row in described]


class Table:
    """A file by the roles of its columns: features as numbers, or all as cells; everything else as text."""

    def __init__(self, file: TableFile, request: DatasetRequest, *, as_cells: bool = False) -> None:
        self._file = file
        self._as_cells = as_cells
        self._widths: dict[int, int] = {}
        self._longest = 0
        self.roles = file.columns.roles(request)
        self._params = file.params
        self._read_csv() if file.kind == "csv" else self._read_parquet()
        if len(self.roles.ranking) == 1:
            self._bound_rankings(self.roles.ranking[0])

    def _read_csv(self) -> None:
        file, everyone = self._file, range(len(self._file.cells))
        if self._as_cells:
            self._cells = {n: file.text(n, MAX_CELL + 1) for n in everyone}
            return
        first = self._query(f"SELECT * FROM {file.source} LIMIT 1").fetchone() or ()
        lists = {n for n in self.roles.features if first and LIST.match(first[n] or "")}
        numbers = {*self.roles.features, *self._position_columns()} - lists
        self._params = file.typed({f"c{n}": "DOUBLE" if n in numbers else "VARCHAR" for n in everyone})
        self._cells = {n: f"c{n}" if n in numbers else file.text(n) for n in everyone}
        for n in lists:
            # Not the bare column: its cast would become the reader's, and refuse what is no list in its own words.
            self._cells[n] = f"TRY_CAST(trim(c{n}) AS DOUBLE[])"
            self._widths[n] = self._width(self._cells[n], self.roles.names[n])

    def _read_parquet(self) -> None:
        file, numeric = self._file, {*self.roles.features, *self._position_columns()}
        self._cells = {}
        for number, (quoted, kind) in enumerate(zip(file.cells, file.types, strict=True)):
            if self._as_cells:
                if number not in self.roles.index:
                    # Without a package of time zones Python takes no zoned time: it is read in UTC.
                    self._cells[number] = f"CAST({quoted} AS TIMESTAMP)" if "TIME ZONE" in kind else quoted
            elif number in numeric:
                self._cells[number] = self._as_number(number, quoted, kind)
            elif number in (*self.roles.texts.values(), *self.roles.ranking):
                self._cells[number] = file.text(number)
        table_bytes = file.n_rows * (len(self._cells) + sum(self._widths.values())) * 4
        if table_bytes > file.limits.stored_bytes:
            raise file.limits.exceeded("stored_bytes", f"the table unpacks to {table_bytes} bytes", "bytes")

    def _as_number(self, number: int, quoted: str, kind: str) -> str:
        name = self.roles.names[number]
        if number in self.roles.features and kind_of(kind) == "vector":
            self._widths[number] = self._width(quoted, name)
            return f"CAST({quoted} AS DOUBLE[])"
        if kind_of(kind) != "number":
            raise InvalidInput(
                f"column {name!r} is {kind.lower()[:40]}; expected numbers (or lists of numbers): exclude it, or "
                "encode it as numbers",
                column=name,
            )
        return f"CAST({quoted} AS DOUBLE)"

    def _position_columns(self) -> set[int]:
        """The columns of positions, where there is one for each label and not one of rankings."""
        return set(self.roles.ranking) if len(self.roles.ranking) > 1 else set()

    def _bound_rankings(self, number: int) -> None:
        """Of one column of rankings, which may be longer than other texts, bound what all of them hold together."""
        cell = self._cells[number] = f"CAST({self._file.cells[number]} AS VARCHAR)"
        total, longest = self._query(
            f"SELECT sum(strlen(r)), max(strlen(r)) FROM (SELECT DISTINCT {cell} AS r FROM {self._file.source})"
        ).fetchone() or (0, 0)
        if (total or 0) > _RANKING_CHARACTERS:
            raise TooLarge(
                f"the different rankings have {total} bytes together; at most {_RANKING_CHARACTERS} are taken",
                limit=_RANKING_CHARACTERS,
                field="ranking",
            )
        self._longest = longest or 0

    def _query(self, sql: str) -> duckdb.DuckDBPyConnection:
        try:
            return self._file.connection.execute(sql, self._params)
        except Exception as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> NoReturn:
        match = re.search(r'converting column "c(\d+)"', str(error))
        if match and self._file.kind == "csv":
            self._name_text_column(int(match[1]))
        self._file.refuse(error)

    def _name_text_column(self, column: int) -> NoReturn:
        # As text: what else is wrong further up, lines of the wrong length say, is told first.
        file, types = self._file, self._params[-1]
        numeric = [int(name[1:]) for name, kind in types.items() if kind == "DOUBLE"]
        bad = "c{0} IS NOT NULL AND TRY_CAST(c{0} AS DOUBLE) IS NULL"
        flags = file.query(
            "SELECT " + ", ".join(f"bool_or({bad.format(n)})" for n in numeric) + f" FROM {file.source}"
        ).fetchone()
        texts = [n for n, flag in zip(numeric, flags or (), strict=True) if flag] or [column]
        first = file.query(
            f"SELECT n, c{texts[0]} FROM (SELECT row_number() OVER () AS n, c{texts[0]} FROM {file.source}) "
            f"WHERE {bad.format(texts[0])} ORDER BY n LIMIT 1"
        ).fetchone()
        row, cell = first or (None, "")
        names = [self.roles.names[number] for number in texts]
        also = f" Text is also in {name_list(names[1:])}." if len(names) > 1 else ""
        raise InvalidInput(
            f"row {row}, column {names[0]!r} is {cell[:50]!r}, not a number.{also} Correct it, exclude the column, or "
            "name its type in columns (--column NAME:TYPE), which reads the table as records",
            row=row,
            column=names[0],
        )

    def _width(self, quoted: str, name: str) -> int:
        lengths = self._query(
            f"SELECT min(len({quoted})), max(len({quoted})), count({quoted}), count(*) FROM {self._file.source}"
        ).fetchone()
        low, high, present, rows = lengths or (None, None, 0, 0)
        if present != rows:
            raise InvalidInput(
                f"column {name!r} has rows without a list; expected one in every row", column=name
            )
        if low != high or not high:
            raise InvalidInput(
                f"column {name!r} has lists of {low} to {high} numbers; expected the same length in every row",
                column=name,
            )
        return int(high)

    @property
    def feature_names(self) -> list[str]:
        """Names of the features; a list column ``v`` gives ``v[0]``, ``v[1]``, ..."""
        names = []
        for number in self.roles.features:
            name = self.roles.names[number]
            width = self._widths.get(number)
            names += [name] if width is None else [f"{name}[{index}]" for index in range(width)]
        return names

    def ranking_texts(self) -> list[str]:
        cell = self._cells[self.roles.ranking[0]]
        rows = self._query(
            f"SELECT DISTINCT {cell} FROM {self._file.source} WHERE {cell} IS NOT NULL"
        ).fetchall()
        return [str(row[0]) for row in rows]

    def drop_features(self, names: set[str]) -> list[str]:
        """Take columns out of the features; returns those that were among them."""
        dropped = [n for n in self.roles.features if self.roles.names[n] in names]
        for number in dropped:
            self.roles.features.remove(number)
        return [self.roles.names[number] for number in dropped]

    def cells(self) -> dict[str, list[Any]]:
        """All cells by column, as text or as the file's types have them."""
        result = self._query(f"SELECT {', '.join(self._cells.values())} FROM {self._file.source}")
        cells: list[list[Any]] = [[] for _ in self._cells]
        while True:
            try:
                rows = result.fetchmany(_ROWS_OF_CELLS)
            except Exception as error:
                self._refuse(error)
            for own, part in zip(cells, zip(*rows, strict=True), strict=False):
                own.extend(part)
            if len(rows) < _ROWS_OF_CELLS:
                return dict(zip((self.roles.names[number] for number in self._cells), cells, strict=True))
            if len(cells[0]) > self._file.limits.rows:
                raise TooLarge(f"more than {self._file.limits.rows} rows; at most that many are taken")

    def blocks(self, ranking: RankingColumn | None = None) -> Iterator[Block]:
        """The rows in the file's order, a million numbers at a time."""
        roles = self.roles
        width = len(self.feature_names)
        step = min(max(1, _CELLS // max(1, width)), _TEXT_ROWS if roles.texts else 65_536)
        step = max(1, min(step, _RANKING_CHARACTERS // max(1, self._longest)))
        numbers = list(dict.fromkeys([*roles.features, *roles.ranking, *roles.texts.values()]))
        result = self._query(f"SELECT {', '.join(self._cells[n] for n in numbers)} FROM {self._file.source}")
        start = 0
        while True:
            try:
                rows = result.fetchmany(step)
            except Exception as error:
                self._refuse(error)
            if not rows:
                return
            cells_of = dict(zip(numbers, zip(*rows, strict=True), strict=True))
            X = np.empty((len(rows), width), dtype=np.float64)
            at = 0
            for number in roles.features:
                at = self._fill(X, at, cells_of[number], number, start)
            yield Block(
                X=X,
                rankings=self._rankings(cells_of, ranking, start),
                **{field: cells_of[number] for field, number in roles.texts.items()},
            )
            start += len(rows)

    def _fill(self, X: NDArray[np.float64], at: int, values: Sequence[Any], number: int, start: int) -> int:
        size = self._widths.get(number)
        if size is not None:
            X[:, at : at + size] = np.array(values, dtype=np.float64)
            return at + size
        # An empty cell, None, becomes NaN, which is looked for faster.
        X[:, at] = values
        if np.isnan(X[:, at]).any() and None in values:
            row, name = start + values.index(None) + 1, self.roles.names[number]
            raise InvalidInput(
                f"row {row}, column {name!r} is empty; expected a number: fill it in, drop the row, exclude the "
                "column, or name its type in columns (--column NAME:number), which reads the table as records",
                row=row,
                column=name,
            )
        return at + 1

    def _rankings(
        self, cells_of: Mapping[int, Sequence[Any]], ranking: RankingColumn | None, start: int
    ) -> NDArray[np.float64] | None:
        if not self.roles.ranking:
            return None
        if ranking is not None:
            return ranking.positions(cells_of[self.roles.ranking[0]], start)
        # An empty cell, None, becomes NaN: the label is absent.
        return np.stack([np.array(cells_of[n], dtype=np.float64) for n in self.roles.ranking], axis=1)


def pandas_index(connection: duckdb.DuckDBPyConnection, query_params: list[Any]) -> set[str]:
    """The columns of a Parquet file that are a data frame's index, as pandas says beside them."""
    row = connection.execute(
        "SELECT decode(value) FROM parquet_kv_metadata(?) WHERE key = 'pandas'", query_params
    ).fetchone()
    try:
        names = json.loads(row[0])["index_columns"] if row else []
    except (ValueError, KeyError, TypeError):
        return set()
    return {name for name in names if isinstance(name, str)}


def kind_of(column_type: str) -> str:
    """What a column of a Parquet file holds: numbers, vectors of them, or texts, which are all else."""
    vector = _VECTOR.fullmatch(column_type)
    if vector:
        return "vector" if _NUMBERS.fullmatch(vector[1]) else "text"
    return "number" if _NUMBERS.fullmatch(column_type) else "text"


def csv_given(plain: Path, header: bool, delimiter: str, types: Mapping[str, str]) -> list[Any]:
    """What `CSV_SOURCE` asks for."""
    return [glob.escape(str(plain)), header, delimiter, _MAX_LINE, _BUFFER, dict(types)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_width(columns: int, limits: FileLimits) -> None:
    """Refuse a table that is too wide: DuckDB takes about a millisecond and 64 KiB for each column."""
    if columns > limits.columns:
        raise limits.exceeded(
            "columns",
            f"{columns} columns",
            "columns",
            ". Send wider data as npz, svmlight or a Parquet list column",
        )


def raise_if_full(error: Exception, limits: FileLimits) -> None:
    """Raise what an error of DuckDB means if a disk is full or its memory used up."""
    import duckdb

    message = str(error)
    if isinstance(error, PairmarkError):
        raise error
    if "No space left" in message or "could not write" in message.lower() or "File too large" in message:
        raise StorageFailed(
            "no space left while reading the upload: free some space and try again"
        ) from error
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        raise limits.exceeded(
            "memory_bytes", "reading the file needs too much memory", "bytes of memory", ": send it as npz"
        ) from error
