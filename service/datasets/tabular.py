"""CSV and Parquet through DuckDB: parsed once into a typed table on disk, then read in blocks of rows."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import numpy as np
from numpy.typing import NDArray

from service.datasets.columns import Columns, Roles
from service.datasets.rankings import RankingColumn
from service.datasets.schemas import DatasetRequest
from service.datasets.text import first_record, plain_text
from service.datasets.writer import Block, Limits, listed
from service.errors import InvalidInput, StorageFailed, TooLarge

MAX_COLUMNS = 32_768
_CELLS = 2_000_000
_MAX_LINE = 64 * 1024 * 1024
_NUMBERS = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\(.*\)|BOOLEAN)")


class Table:
    """An upload as a table of columns ``c0``, ``c1``, ...: features DOUBLE, everything else VARCHAR.

    Parameters
    ----------
    path : the file; ``scratch`` a folder for what is made on the way.
    kind : ``csv`` or ``parquet``.
    """

    def __init__(self, path: Path, scratch: Path, kind: str, request: DatasetRequest, limits: Limits) -> None:
        self._limits = limits
        self._con = duckdb.connect(
            str(scratch / "table.duckdb"),
            config={
                "threads": "2",
                "memory_limit": "1GB",
                "temp_directory": str(scratch / "spill"),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
            },
        )
        try:
            if kind == "csv":
                self._load_csv(path, scratch, request)
            else:
                self._load_parquet(path, request)
            found = self._con.execute("SELECT count(*) FROM t").fetchone()
            self.rows = int(found[0]) if found else 0
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the table's file."""
        self._con.close()

    def _load_csv(self, path: Path, scratch: Path, request: DatasetRequest) -> None:
        plain = plain_text(path, scratch, 4 * self._limits.stored_bytes)
        delimiter, header = first_record(plain)
        if len(header) > MAX_COLUMNS:
            raise TooLarge(
                f"{len(header)} columns; CSV takes at most {MAX_COLUMNS}: send wider data as npz or svmlight",
                limit=MAX_COLUMNS,
            )
        columns = Columns(header if request.header else [f"c{number}" for number in range(len(header))])
        self.roles = columns.roles(request)
        self._widths: dict[int, int] = {}
        if request.header and sum(map(_is_number, header)) > len(header) / 2:
            self.roles.warnings.append(
                "most column names are numbers: if the file has no header line, send it again with header=false"
            )
        features = set(self.roles.features) | (
            set(self.roles.ranking) if len(self.roles.ranking) > 1 else set()
        )
        types = {f"c{n}": "DOUBLE" if n in features else "VARCHAR" for n in range(len(header))}
        source = (
            "read_csv(?, auto_detect=false, header=?, delim=?, quote='\"', escape='\"', strict_mode=true, "
            "max_line_size=?, columns=?)"
        )
        given: list[Any] = [glob.escape(str(plain)), request.header, delimiter, _MAX_LINE, types]
        try:
            self._con.execute(f"CREATE TABLE t AS SELECT * FROM {source}", given)
        except Exception as error:
            self._diagnose_csv(error, source, given)

    def _diagnose_csv(self, error: Exception, source: str, given: list[Any]) -> NoReturn:
        """Raise what a person can act on; DuckDB's own words speak of its options and of our paths."""
        said = str(error)
        _raise_if_full(error)
        found = re.search(r"CSV Error on Line: (\d+)", said)
        line = int(found[1]) if found else None
        where = f"line {line}" if line else "the file"
        if found := re.search(r'converting column "c(\d+)"', said):
            self._name_text_column(int(found[1]), source, given)
        if found := re.search(r"Expected Number of Columns: (\d+) Found: (\d+)", said):
            raise InvalidInput(
                f"{where} has {found[2]} cells, the header {found[1]}; expected the same number in every line",
                line=line,
            ) from error
        if "unterminated quote" in said or "quote" in said.partition("\n\n")[0].lower():
            raise InvalidInput(
                f"{where} has a quote that is not closed; is the file truncated?", line=line
            ) from error
        if "maximum line size" in said.lower():
            raise TooLarge(
                f"{where} is longer than {_MAX_LINE} bytes; is the file truncated or of one line?"
            ) from error
        raise InvalidInput(
            f"{where} cannot be read as CSV; expected lines of cells, one delimiter, '\"' for quotes"
        )

    def _name_text_column(self, column: int, source: str, given: list[Any]) -> NoReturn:
        as_text = [*given[:-1], dict.fromkeys(given[-1], "VARCHAR")]
        numeric = [int(name[1:]) for name, kind in given[-1].items() if kind == "DOUBLE"]
        bad = "c{0} IS NOT NULL AND TRY_CAST(c{0} AS DOUBLE) IS NULL"
        try:
            flags = self._con.execute(
                "SELECT " + ", ".join(f"bool_or({bad.format(n)})" for n in numeric) + f" FROM {source}",
                as_text,
            ).fetchone()
            texts = [n for n, flag in zip(numeric, flags or (), strict=True) if flag] or [column]
            column = texts[0]
            first = self._con.execute(
                f"SELECT n, c{column} FROM (SELECT row_number() OVER () AS n, c{column} FROM {source}) "
                f"WHERE {bad.format(column)} ORDER BY n LIMIT 1",
                as_text,
            ).fetchone()
        except duckdb.Error as error:
            # Something else is wrong further up: lines of the wrong length, say.
            self._diagnose_csv(error, source, as_text)
        row, cell = first or (None, "")
        names = [self.roles.names[number] for number in texts]
        also = f" Text is also in {listed(names[1:])}." if len(names) > 1 else ""
        raise InvalidInput(
            f"row {row}, column {names[0]!r} is {cell[:50]!r}, not a number.{also} Exclude such a column, fill what is "
            "missing with a number, encode categories as numbers, or name the column if it is the label",
            row=row,
            column=names[0],
        )

    def _load_parquet(self, path: Path, request: DatasetRequest) -> None:
        source = "read_parquet(?)"
        given = [glob.escape(str(path))]
        try:
            described = self._con.execute(f"DESCRIBE SELECT * FROM {source}", given).fetchall()
            counted = self._con.execute(f"SELECT count(*) FROM {source}", given).fetchone()
        except Exception as error:
            raise InvalidInput("the file is not whole Parquet; is it truncated?", field="file") from error
        if len(described) > MAX_COLUMNS:
            raise TooLarge(
                f"{len(described)} columns; Parquet takes at most {MAX_COLUMNS}: use a list column"
            )
        columns = Columns([row[0] for row in described])
        self.roles = columns.roles(request)
        ranking = set(self.roles.ranking) if len(self.roles.ranking) > 1 else set()
        chosen, self._widths = [], {}
        rows = int(counted[0]) if counted else 0
        for number, (name, kind, *_) in enumerate(described):
            quoted = '"' + name.replace('"', '""') + '"'
            if number in self.roles.features or number in ranking:
                vector = re.fullmatch(r"(.*)\[\d*\]", kind)
                if number in self.roles.features and vector and _NUMBERS.fullmatch(vector[1]):
                    self._widths[number] = self._width(quoted, source, given, name)
                    chosen.append(f"CAST({quoted} AS DOUBLE[]) AS c{number}")
                elif _NUMBERS.fullmatch(kind):
                    chosen.append(f"CAST({quoted} AS DOUBLE) AS c{number}")
                else:
                    raise InvalidInput(
                        f"column {name!r} is {kind.lower()[:40]}; expected numbers (or lists of numbers): exclude it, "
                        "encode it as numbers, or name it if it is the label",
                        column=name,
                    )
            elif number in (self.roles.label, self.roles.group, self.roles.id, *self.roles.ranking):
                # Floating labels stay numbers, so that 3.0 and 3 are the same label in every format.
                keep = kind in ("FLOAT", "DOUBLE")
                chosen.append(f"{quoted} AS c{number}" if keep else f"CAST({quoted} AS VARCHAR) AS c{number}")
        stored = rows * (len(chosen) + sum(self._widths.values())) * 4
        if rows > self._limits.rows or stored > self._limits.stored_bytes:
            raise TooLarge(
                f"{rows} rows of {stored} bytes; at most {self._limits.rows} rows and {self._limits.stored_bytes} bytes"
            )
        try:
            self._con.execute(f"CREATE TABLE t AS SELECT {', '.join(chosen) or '1'} FROM {source}", given)
        except Exception as error:
            _raise_if_full(error)
            raise InvalidInput(
                "the Parquet file is damaged; write and send it again", field="file"
            ) from error

    def _width(self, quoted: str, source: str, given: list[str], name: str) -> int:
        try:
            found = self._con.execute(
                f"SELECT min(len({quoted})), max(len({quoted})), count({quoted}), count(*) FROM {source}",
                given,
            ).fetchone()
        except Exception as error:
            raise InvalidInput(
                "the Parquet file is damaged; write and send it again", field="file"
            ) from error
        low, high, present, rows = found or (None, None, 0, 0)
        if present != rows:
            raise InvalidInput(
                f"column {name!r} has rows without a list; expected one in every row", column=name
            )
        if low != high or not high:
            raise InvalidInput(
                f"column {name!r} has lists of {low} to {high} numbers; expected one length", column=name
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
        """The distinct rankings of the one ranking column, in order of first use."""
        (number,) = self.roles.ranking
        rows = self._con.execute(
            f"SELECT c{number} FROM t WHERE c{number} IS NOT NULL GROUP BY 1 ORDER BY min(rowid)"
        ).fetchall()
        return [str(row[0]) for row in rows]

    def drop_features(self, names: set[str]) -> list[str]:
        """Take columns out of the features; returns those that were among them."""
        dropped = [n for n in self.roles.features if self.roles.names[n] in names]
        for number in dropped:
            self.roles.features.remove(number)
        return [self.roles.names[number] for number in dropped]

    def blocks(self, ranking: RankingColumn | None = None) -> Iterator[Block]:
        """The rows, a few million numbers at a time."""
        roles = self.roles
        width = len(self.feature_names)
        step = min(max(1, _CELLS // max(1, width)), 65_536)
        wanted = {*roles.features, *roles.ranking} | {
            n for n in (roles.label, roles.group, roles.id) if n is not None
        }
        select = ", ".join(f"c{number}" for number in sorted(wanted)) or "1"
        for start in range(0, self.rows, step):
            try:
                found = self._con.execute(
                    f"SELECT {select} FROM t WHERE rowid >= ? AND rowid < ? ORDER BY rowid",
                    [start, start + step],
                ).fetchnumpy()
            except duckdb.Error as error:
                _raise_if_full(error)
                raise
            count = min(step, self.rows - start)
            X = np.empty((count, width), dtype=np.float64)
            at = 0
            for number in roles.features:
                at = self._fill(X, at, found[f"c{number}"], number, start)
            yield Block(
                X=X,
                labels=_texts(found, roles.label),
                groups=_texts(found, roles.group),
                ids=_texts(found, roles.id),
                rankings=self._rankings(found, ranking, start),
            )

    def _fill(self, X: NDArray[np.float64], at: int, values: Any, number: int, start: int) -> int:
        name = self.roles.names[number]
        if isinstance(values, np.ma.MaskedArray):
            row = start + int(np.flatnonzero(np.ma.getmaskarray(values))[0]) + 1
            raise InvalidInput(
                f"row {row}, column {name!r} is empty; expected a number: fill it in, drop the row, or exclude the "
                "column",
                row=row,
                column=name,
            )
        size = self._widths.get(number)
        if size is None:
            X[:, at] = values
            return at + 1
        for offset, vector in enumerate(values):
            if isinstance(vector, np.ma.MaskedArray):
                vector = vector.filled(np.nan)
            X[offset, at : at + size] = vector
        return at + size

    def _rankings(
        self, found: dict[str, Any], ranking: RankingColumn | None, start: int
    ) -> NDArray[np.float64] | None:
        if not self.roles.ranking:
            return None
        if ranking is not None:
            return ranking.positions(_texts(found, self.roles.ranking[0]) or [], start)
        return np.stack(
            [
                np.ma.filled(np.ma.asarray(found[f"c{n}"], dtype=np.float64), np.nan)
                for n in self.roles.ranking
            ],
            axis=1,
        )


def _texts(found: dict[str, Any], number: int | None) -> list[Any] | None:
    if number is None:
        return None
    values = found[f"c{number}"]
    # tolist turns masked entries into None.
    listed_values: list[Any] = values.tolist()
    return listed_values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _raise_if_full(error: Exception) -> None:
    said = str(error)
    if "No space left" in said or "could not write" in said.lower() or "File too large" in said:
        raise StorageFailed("no room left while reading the upload: free some space and try again") from error
    if isinstance(error, duckdb.OutOfMemoryException):
        raise TooLarge(
            "the file needs more memory than this service gives one upload: send it as npz"
        ) from error


__all__ = ["MAX_COLUMNS", "Roles", "Table"]
