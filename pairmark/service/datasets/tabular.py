"""CSV and Parquet through DuckDB, streamed in blocks of rows, by the roles of their columns.

Memory stays flat however long the file is.
"""

from __future__ import annotations

import glob
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pairmark.models.records.schema import MAX_CELL, number_of
from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.datasets.confined import FileLimits
from pairmark.service.datasets.data import name_list
from pairmark.service.datasets.files import NO_UTF8, first_record, plain_text
from pairmark.service.datasets.writer import (
    MAX_NAME,
    Block,
    Rankings,
    check_ranked,
    parsed_rankings,
)
from pairmark.service.errors import InvalidInput, PairmarkError, StorageFailed, TooLarge

if TYPE_CHECKING:
    import duckdb


class Roles(NamedTuple):
    """Numbers of the columns by role; ``texts`` are those of a field of `Block`, ``features`` those without a role,
    ``kept`` by name."""

    features: list[int]
    texts: dict[str, int]
    ranking: list[int]
    kept: dict[str, int]


def column_names(header: Sequence[str]) -> list[str]:
    """Names as the file has them; empty ones become ``unnamed.N`` (N from 0), so that every column can be spoken of."""
    names = [name.strip() or f"unnamed.{number}" for number, name in enumerate(header)]
    for number, name in enumerate(names):
        if len(name) > MAX_NAME or "\x00" in name:
            raise InvalidInput(
                f"the name of column {number + 1} is not plain text of at most {MAX_NAME} characters"
            )
    repeated = [name for name, count in Counter(names).items() if count > 1]
    if repeated:
        raise InvalidInput(
            f"column names repeat: {name_list(repeated)}; expected a first line that names each column once"
        )
    return names


# Numbers of a block; rows fetched at a time of records' cells, and of rankings.
_CELLS = 1_000_000
_ROWS_OF_CELLS, _ROWS_OF_RANKINGS = 4_096, 65_536
_ROWS_OF_TYPES = 20_000
"""Rows by which columns of texts are told from those of numbers."""
_SAMPLED, _SAMPLED_CELLS = 1_000, 200_000
"""Columns and cells of a sample."""
# Bytes of a line, at most, and of the reader's buffer.
_MAX_LINE = 8 * 1024 * 1024
_BUFFER = 2 * _MAX_LINE
_SHARE = 0.5
"""Of a reader's memory that DuckDB may take; numbers and texts of the fetched rows need the rest."""
# Rows of a block that holds texts, at most.
_TEXT_ROWS = 16_384
CSV_SOURCE = (
    "read_csv(?, auto_detect=false, header=?, skip=?, delim=?, quote='\"', escape='\"', strict_mode=true, "
    "max_line_size=?, buffer_size=?, columns=?)"
)
LIST = re.compile(r"\s*\[\s*[-+.\d]")
"""Begins a list of numbers in a cell of text."""
_VECTOR = re.compile(r"(.*)\[\d*\]")
_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)")


def open_duckdb(scratch: Path, limits: FileLimits) -> duckdb.DuckDBPyConnection:
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


def _refuse_csv(error: Exception, message: str) -> NoReturn:
    """Raise what a person can act on; DuckDB's own words speak of its options and of our paths."""
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
    """A CSV or Parquet file on a connection of DuckDB, of its own unless one is passed. Without ``guess`` text must be
    UTF-8 or UTF-16, such as where it holds ids and nobody reads warnings.

    Attributes
    ----------
    names : what its columns are called. cells : SQL of each column. types, n_rows : of Parquet; empty of CSV.
    index : names of the columns that are the index of a data frame.
    source, params : what stands after FROM, and its parameters: of CSV every cell as text.
    numeric : columns that are read as numbers. warnings : what its header looks like.
    """

    def __init__(
        self,
        path: Path,
        scratch: Path,
        kind: str,
        limits: FileLimits,
        *,
        header: bool = True,
        guess: bool = True,
        connection: duckdb.DuckDBPyConnection | None = None,
    ) -> None:
        scratch.mkdir(parents=True, exist_ok=True)
        self.limits, self.kind, self.types, self.numeric = limits, kind, list[str](), list[int]()
        self.index, self.warnings = set[str](), list[str]()
        self.n_rows: int | None = None
        self.connection = connection or open_duckdb(scratch, limits)
        try:
            if kind == "csv":
                self._open_csv(path, scratch, header=header, guess=guess)
            else:
                self._open_parquet(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the file."""
        self.connection.close()

    def roles(self, request: DatasetRequest) -> Roles:
        """The columns by role; `InvalidInput` when a named one is not there or has two roles."""
        texts = {
            f"{role}s": self._number(name, request.label_role if role == "label" else role)
            for role in ("label", "group", "id")
            if (name := getattr(request, role)) is not None
        }
        ranking = [self._number(name, "ranking") for name in request.ranking]
        excluded = {self._number(name, "exclude") for name in request.exclude}
        kept = {name: self._number(name, "keep") for name in request.keep}
        used = [*texts.values(), *ranking]
        for number in used:
            # A group or an id may well be the label too; a ranking is only a ranking.
            if number in ranking and used.count(number) > 1:
                raise InvalidInput(
                    f"column {self.names[number]!r} has two roles, ranking among them", field="ranking"
                )
            if number in excluded:
                raise InvalidInput(
                    f"column {self.names[number]!r} is both used and excluded", field="exclude"
                )
        features = sorted(set(range(len(self.names))) - excluded - {*used, *kept.values()})
        return Roles(features, texts, ranking, kept)

    def _number(self, name: str, field: str) -> int:
        title = name.strip()
        if title not in self.names:
            meant = [
                f"; did you mean {each!r}?" for each in self.names if each.casefold() == title.casefold()
            ]
            raise InvalidInput(
                f"{field}: there is no column {name[:100]!r}; the file has {name_list(self.names)}{''.join(meant[:1])}",
                field=field,
            )
        return self.names.index(title)

    def query(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Run a query of the source, or refuse the file."""
        try:
            return self.connection.execute(sql, self.params)
        except Exception as error:
            self.refuse(error)

    def rows(self, cells: Iterable[str], step: int, most: int | None = None) -> Iterator[list[Any]]:
        """The rows, or at ``most`` the first ones, of these cells, in SQL, ``step`` at a time."""
        limit = "" if most is None else f" LIMIT {most}"
        result = self.query(f"SELECT {', '.join(cells)} FROM {self.source}{limit}")
        while True:
            try:
                rows = result.fetchmany(step)
            except Exception as error:
                self.refuse(error)
            if not rows:
                return
            yield rows

    def refuse(self, error: Exception) -> NoReturn:
        """Raise what an error of DuckDB says of the file."""
        import duckdb

        message = str(error)
        if isinstance(error, PairmarkError):
            raise error
        if "No space left" in message or "could not write" in message.lower() or "File too large" in message:
            raise StorageFailed(
                "no space left while reading the upload: free some space and try again"
            ) from error
        if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
            raise self.limits.exceeded(
                "memory_bytes",
                "reading the file needs too much memory",
                "bytes of memory",
                ": send it as npz",
            ) from error
        if self.kind != "csv":
            raise InvalidInput("the file is not whole Parquet; is it truncated?", field="file") from error
        # By the reader, where all its columns are numbers, or by the cast.
        match = re.search(r'(?:converting column "|casting from source column )c(\d+)', message)
        if match:
            self._refuse_text(int(match[1]))
        _refuse_csv(error, message)

    def _refuse_text(self, column: int) -> NoReturn:
        """Name the first text among what is read as numbers."""
        # As text: what else is wrong further up, lines of the wrong length say, is told first.
        bad = "c{0} IS NOT NULL AND TRY_CAST(c{0} AS DOUBLE) IS NULL"
        selection = ", ".join(f"bool_or({bad.format(n)})" for n in self.numeric)
        flags = self.query(f"SELECT {selection} FROM {self.source}").fetchone()
        texts = [n for n, flag in zip(self.numeric, flags or (), strict=True) if flag] or [column]
        first = self.query(
            f"SELECT n, c{texts[0]} FROM (SELECT row_number() OVER () AS n, c{texts[0]} FROM {self.source}) "
            f"WHERE {bad.format(texts[0])} ORDER BY n LIMIT 1"
        ).fetchone()
        row, cell = first or (None, "")
        names = [self.names[number] for number in texts]
        also = f" Text is also in {name_list(names[1:])}." if len(names) > 1 else ""
        raise InvalidInput(
            f"row {row}, column {names[0]!r} is {cell[:50]!r}, not a number.{also} Correct it, exclude the column, or "
            "name its type in columns (--column NAME:TYPE), which reads the table as records",
            row=row,
            column=names[0],
        )

    def text(self, number: int, longest: int = MAX_NAME + 1) -> str:
        """SQL of a column as text, cut where it is known to be too long: DuckDB's strings are shared, Python's are not.
        Floating numbers stay, so that 3.0 and 3 are the same label in every format."""
        cell = self.cells[number]
        keep = bool(self.types) and self.types[number] in ("FLOAT", "DOUBLE")
        return cell if keep else f"left(CAST({cell} AS VARCHAR), {longest})"

    def kinds(self) -> list[str]:
        """Of each column: number, vector or text; of CSV, whose cells are all text, by the first row."""
        if self.types:
            return [kind_of(kind) for kind in self.types]
        return [
            "vector" if LIST.match(cell or "") else "number"
            for cell in (self.query(f"SELECT * FROM {self.source} LIMIT 1").fetchone() or ())
        ] or ["number"] * len(self.cells)

    def number(self, number: int) -> str:
        """SQL of a column as a number, or `InvalidInput`: the file says that it holds something else."""
        if self.types and kind_of(self.types[number]) != "number":
            raise InvalidInput(
                f"column {self.names[number]!r} is {self.types[number].lower()[:40]}; expected numbers (or lists of "
                "numbers): exclude it, or encode it as numbers",
                column=self.names[number],
            )
        return f"CAST({self.cells[number]} AS DOUBLE)"

    def rankings(self, numbers: Sequence[int]) -> Rankings | None:
        """The rankings of all rows: one column of texts, or a column of positions for each label."""
        if not numbers:
            return None
        if len(numbers) == 1:
            texts = self.rows([f"CAST({self.cells[numbers[0]]} AS VARCHAR)"], _ROWS_OF_RANKINGS)
            return parsed_rankings([row[0] for rows in texts for row in rows])
        labels = [self.names[number] for number in numbers]
        check_ranked(labels)
        self.numeric = list(numbers)
        positions = self.rows([self.number(number) for number in numbers], _ROWS_OF_RANKINGS)
        # An empty cell, None, becomes NaN: the label is absent.
        return Rankings(labels, np.concatenate([np.array(rows, dtype=np.float64) for rows in positions]))

    def sample(self) -> dict[str, list[Any]]:
        """The first cells of the first columns, as `all_cells` gives them."""
        width = min(len(self.cells), _SAMPLED)
        return self.all_cells(range(width, len(self.cells)), _SAMPLED_CELLS // width)

    def all_cells(self, left_out: Collection[int] = (), most: int | None = None) -> dict[str, list[Any]]:
        """Cells by column, as text or as the file's types have them: all, or at ``most`` those of the first rows."""
        numbers = [n for n in range(len(self.cells)) if n not in left_out]
        selection = [self.text(n, MAX_CELL + 1) for n in numbers]
        if self.types:
            # Without a package of time zones Python takes no zoned time: it is read in UTC.
            selection = [
                f"CAST({self.cells[n]} AS TIMESTAMP)" if "TIME ZONE" in self.types[n] else self.cells[n]
                for n in numbers
            ]
        columns: dict[str, list[Any]] = {self.names[n]: [] for n in numbers}
        for rows in self.rows(selection, _ROWS_OF_CELLS, most):
            for column, part in zip(columns.values(), zip(*rows, strict=True), strict=True):
                column.extend(part)
            if len(column) > self.limits.rows:
                raise TooLarge(f"more than {self.limits.rows} rows; at most that many are taken")
        return columns

    def _open_csv(self, path: Path, scratch: Path, *, header: bool, guess: bool) -> None:
        plain, guesses = plain_text(path, scratch, self.limits)
        if guesses and not guess:
            raise InvalidInput(f"the file {NO_UTF8}", field="file")
        self.warnings += guesses
        blank, delimiter, first = first_record(plain)
        check_width(len(first), self.limits)
        self.cells = [f"c{number}" for number in range(len(first))]
        self.names = column_names(first if header else self.cells)
        self.source = CSV_SOURCE
        # Every cell as text: what it is is decided here and not by a reader's guess. A path would be taken for a
        # pattern.
        types = dict.fromkeys(self.cells, "VARCHAR")
        self.params = [glob.escape(str(plain)), header, blank, delimiter, _MAX_LINE, _BUFFER, types]
        if header and sum(number_of(name) is not None for name in first) > len(first) / 2:
            self.warnings.append(
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
        self.names = column_names([row[0] for row in described])
        self.index = pandas_index(self.connection, self.params)
        # As SQL writes names: a quote within is doubled.
        self.cells = ['"' + str(row[0]).replace('"', '""') + '"' for row in described]


class Table:
    """A file by the roles of its columns: features as numbers, everything else as text."""

    def __init__(self, file: TableFile, request: DatasetRequest) -> None:
        self._file, self.roles = file, file.roles(request)
        kinds = file.kinds()
        # Lists and how many numbers they have.
        self._widths: dict[int, int] = {}
        self._cells = {number: self._as_numbers(number, kinds[number]) for number in self.roles.features}
        file.numeric = [number for number in self._cells if number not in self._widths]
        texts = (*self.roles.texts.values(), *self.roles.kept.values())
        self._cells |= {n: file.text(n) for n in texts if n not in self._cells}
        # A small file may hold many rows: it is refused before they are read.
        table_bytes = (file.n_rows or 0) * (len(self._cells) + sum(self._widths.values())) * 4
        if table_bytes > file.limits.stored_bytes:
            raise file.limits.exceeded("stored_bytes", f"the table unpacks to {table_bytes} bytes", "bytes")

    def _as_numbers(self, number: int, kind: str) -> str:
        if kind != "vector":
            return self._file.number(number)
        cell = self._file.cells[number]
        # A cast of the bare column of a CSV would become the reader's, and refuse what is no list in its own words.
        cell = f"CAST({cell} AS DOUBLE[])" if self._file.types else f"TRY_CAST(trim({cell}) AS DOUBLE[])"
        self._widths[number] = self._width(cell, self._file.names[number])
        return cell

    def _width(self, cell: str, name: str) -> int:
        low, high, present, rows = self._file.query(
            f"SELECT min(len({cell})), max(len({cell})), count({cell}), count(*) FROM {self._file.source}"
        ).fetchone() or (None, None, 0, 0)
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
            name = self._file.names[number]
            width = self._widths.get(number)
            names += [name] if width is None else [f"{name}[{index}]" for index in range(width)]
        return names

    def blocks(self) -> Iterator[Block]:
        """The rows in the file's order, a million numbers at a time."""
        features, texts, _, kept = self.roles
        width = len(self.feature_names)
        step = min(max(1, _CELLS // max(1, width)), _TEXT_ROWS if texts or kept else 65_536)
        start = 0
        for rows in self._file.rows(self._cells.values(), step):
            cells_of = dict(zip(self._cells, zip(*rows, strict=True), strict=True))
            X = np.empty((len(rows), width), dtype=np.float64)
            at = 0
            for number in features:
                at = self._fill(X, at, cells_of[number], number, start)
            yield Block(
                X=X,
                kept={name: cells_of[number] for name, number in kept.items()},
                **{field: cells_of[number] for field, number in texts.items()},
            )
            start += len(rows)

    def _fill(
        self, X: NDArray[np.float64], place: int, values: Sequence[Any], number: int, start: int
    ) -> int:
        size = self._widths.get(number)
        if size is not None:
            X[:, place : place + size] = np.array(values, dtype=np.float64)
            return place + size
        # An empty cell, None, becomes NaN, which is looked for faster.
        X[:, place] = values
        if np.isnan(X[:, place]).any() and None in values:
            row, name = start + values.index(None) + 1, self._file.names[number]
            raise InvalidInput(
                f"row {row}, column {name!r} is empty; expected a number: fill it in, drop the row, exclude the "
                "column, or name its type in columns (--column NAME:number), which reads the table as records",
                row=row,
                column=name,
            )
        return place + 1


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


def check_width(columns: int, limits: FileLimits) -> None:
    """Refuse a table that is too wide: DuckDB takes about a millisecond and 64 KiB for each column."""
    if columns > limits.columns:
        raise limits.exceeded(
            "columns",
            f"{columns} columns",
            "columns",
            ". Send wider data as npz, svmlight or a Parquet list column",
        )


_FEW_TEXTS = 0.5
"""Share of texts up to which they look like mistakes in a column of numbers."""
_READ_AS_NUMBERS = r"[-+]?[0-9]+,[0-9]+|\[\s*[-+.0-9].*"
"""Decimal commas, and lists of numbers: a column of them is refused, or read, as one of numbers."""


def text_features(file: TableFile, request: DatasetRequest) -> list[str]:
    """Columns without a role that hold texts, by the file's types or its first rows; `InvalidInput` as by
    `TableFile.roles`."""
    features = file.roles(request).features
    if not features or file.types:
        return [file.names[n] for n in features if kind_of(file.types[n]) == "text"]
    cells = ", ".join(f"nullif(trim({file.cells[n]}), '') AS v{n}" for n in features)
    # Texts are what is no number and does not look like one; empty cells count for neither.
    selection = ", ".join(
        f"count_if(CASE WHEN TRY_CAST(v{n} AS DOUBLE) IS NULL THEN v{n} IS NOT NULL AND NOT "
        f"regexp_full_match(v{n}, '{_READ_AS_NUMBERS}') END) > {_FEW_TEXTS} * count(v{n})"
        for n in features
    )
    flags = file.query(
        f"SELECT {selection} FROM (SELECT {cells} FROM {file.source} LIMIT {_ROWS_OF_TYPES})"
    ).fetchone()
    return [file.names[n] for n, flag in zip(features, flags or (), strict=True) if flag]
