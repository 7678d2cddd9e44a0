"""DuckDB as links use it: connections, files that are read and written by it, and its statements on a Dask cluster.

The tables travel to a cluster through the storage of blobs, so a worker has the service's own settings in its
environment (``PAIRMARK_ARTEFACTS``, ``PAIRMARK_HOME``, ``PAIRMARK_LINK_MEMORY_BYTES``). Parts do not overlap, and what
is made of them does not depend on their order or their number: links are the same to the bit as without a cluster.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.progress import report
from pairmark.service.blobs import open_blobs
from pairmark.service.datasets.confined import FileLimits, format_of
from pairmark.service.datasets.tabular import TableFile
from pairmark.service.errors import InvalidInput, NotReady, StorageFailed
from pairmark.service.processes import CONNECT_S, dask_client
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


_PARTS_EACH = 4
"""Parts for each thread of the cluster, at least: some take longer than others."""

Columns = dict[str, NDArray[Any]]


def compare_part(key: str, tables: Sequence[str], first: str, query: str) -> Columns:
    """On a worker: what a query gives of a part that the first statement makes of the stored tables."""
    settings = Settings()
    blobs = open_blobs(settings)
    folder = blobs.folder(key)
    with (
        blobs.workspace() as scratch,
        duckdb_session(**bounds(settings, scratch, 1)) as connection,
    ):
        for name in tables:
            connection.execute(f"CREATE VIEW {name} AS FROM {quoted_text(folder / f'{name}.parquet')}")
        connection.execute(first)
        return {column: np.ma.getdata(of) for column, of in connection.execute(query).fetchnumpy().items()}


def spread_over_cluster(
    connection: Any,
    settings: Settings,
    tables: Sequence[str],
    first: Callable[[int, int], str],
    query: str,
    n_parts: int,
) -> Iterator[Columns]:
    """Run statements about the tables of a connection on the cluster that the settings name."""
    assert settings.dask_scheduler is not None
    # Says so where Dask is not installed.
    client, blobs = dask_client(settings.dask_scheduler, CONNECT_S), open_blobs(settings)
    import distributed

    as_completed: Any = distributed.as_completed
    with ExitStack() as stack:
        stack.callback(client.close)
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
        except TimeoutError as error:
            raise NotReady(
                "the Dask cluster has no workers; start some, or unset PAIRMARK_DASK_SCHEDULER"
            ) from error
        with blobs.workspace() as work:
            for name in tables:
                copy_to(connection, f"FROM {name}", work / f"{name}.parquet")
            # Of this run alone: nobody else deletes it.
            (work / "run").write_text(secrets.token_hex(16))
            key = blobs.put_folder(work)
        stack.callback(blobs.delete, key)
        n = max(n_parts, _PARTS_EACH * sum(client.nthreads().values()))
        parts = [
            client.submit(compare_part, key, tables, first(number, n), query, pure=False)
            for number in range(n)
        ]
        for n_done, part in enumerate(as_completed(parts), 1):
            yield part.result()
            # What is here leaves the worker's memory.
            part.release()
            report(0.4 + 0.3 * n_done / n, "comparing on the cluster")
