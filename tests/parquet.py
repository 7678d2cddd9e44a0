"""Files to upload: tables as Parquet, from a query, and arrays as npz."""

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np


def parquet(query: str) -> bytes:
    """The rows of a query as Parquet."""
    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect(config={"threads": "1"}) as connection:
        file = Path(folder) / "x.parquet"
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({query}) TO '{file}' (FORMAT parquet, COMPRESSION zstd)")
        return file.read_bytes()


def npz(**arrays: Any) -> bytes:
    """Arrays, packed."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()
