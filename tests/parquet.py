"""Tables as Parquet, from a query."""

from __future__ import annotations

import tempfile
from pathlib import Path


def parquet(query: str) -> bytes:
    """The rows of a query as Parquet."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        file = Path(folder) / "x.parquet"
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
        return file.read_bytes()
