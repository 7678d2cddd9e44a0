"""DuckDB as links use it: connections, and files that are read and written by it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput, StorageFailed
from pairmark.service.settings import Settings

_ROWS = 65_536


@contextmanager
def duckdb_session(**config: Any) -> Iterator[Any]:
    """DuckDB without its own progress bar, which would go to standard output, where answers go."""
    import duckdb

    try:
        with closing(duckdb.connect(config=config)) as connection:
            connection.execute("SET enable_progress_bar = false")
            yield connection
    except duckdb.OutOfMemoryException as error:
        if "max_temp_directory_size" in str(error):
            raise StorageFailed(
                "no space left for what does not fit in PAIRMARK_LINK_MEMORY_BYTES: free some where the service keeps "
                "artefacts, or the command temporary files (TMPDIR); or allow more memory"
            ) from error
        raise InvalidInput(
            "linking takes more memory than PAIRMARK_LINK_MEMORY_BYTES allows: allow more, or give fewer candidates"
        ) from error
    except duckdb.IOException as error:
        full = "No space left" in str(error)
        raise StorageFailed(
            "no space left while writing: free some space and try again"
            if full
            else f"a file could not be read or written: {str(error).splitlines()[0][:300]}"
        ) from error


def bounds(settings: Settings, scratch: Path, threads: int | None) -> dict[str, Any]:
    """DuckDB's own settings: memory as the settings have it, and what does not fit in ``scratch``."""
    config = {
        "memory_limit": f"{settings.link_memory_bytes}B",
        "temp_directory": str(scratch / "spill"),
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    return config if threads is None else config | {"threads": str(threads)}


def quoted_text(text: Path | str) -> str:
    """A path or a text in SQL."""
    return f"'{str(text).replace(chr(39), 2 * chr(39))}'"


def quoted_name(name: str) -> str:
    """A name in SQL."""
    return f'"{name.replace(chr(34), 2 * chr(34))}"'


def copy_to(connection: Any, sql: str, path: Path, *, without_formulas: bool = False) -> None:
    """Write what a query gives as CSV, or as Parquet where the path says so; ``without_formulas``: in CSV, no text is a
    formula of a spreadsheet."""
    form = "PARQUET" if path.suffix == ".parquet" else "CSV"
    if without_formulas and form == "CSV":
        columns = [(quoted_name(row[0]), row[1]) for row in connection.execute(f"DESCRIBE {sql}").fetchall()]
        cells = (
            f"CASE WHEN regexp_matches({cell}, '^[-=+@\t\r]') THEN chr(39) || {cell} ELSE {cell} END AS {cell}"
            if kind == "VARCHAR"
            else cell
            for cell, kind in columns
        )
        sql = f"SELECT {', '.join(cells)} FROM ({sql})"
    connection.execute(f"COPY ({sql}) TO {quoted_text(path)} (FORMAT {form})")


def read_table(path: Path) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of a CSV or Parquet file, as text."""
    limits, kind = FileLimits.of(Settings(), path.stat().st_size), format_of(None, path.name)
    with TemporaryDirectory(prefix="pairmark-table-") as scratch:
        try:
            with closing(TableFile(path, Path(scratch), kind, limits)) as file:
                cells = [f"CAST({cell} AS VARCHAR)" for cell in file.cells]
                return file.names, [row for rows in file.rows(cells, _ROWS) for row in rows]
        except InvalidInput as error:
            raise InvalidInput(f"{path.name}: {error.detail}", **error.facts) from error
