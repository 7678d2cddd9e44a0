"""Keys and records of a folder, found by number: files that are mapped into memory, of which `Resolver` reads a few
places.

- ``keys.npy``, ``keyed.npy``: numbers of keys, ascending, and the record of each. Beside the keys of its cells, a
  record has that of its id, ``id:ID``, and of its entity, ``entity:ENTITY``;
- ``records.jsonl``: ``{"side", "id", "entity", "forms"}`` of each record; ``ends.npy``: where each line ends.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Int64
from pairmark.service.errors import StorageFailed
from pairmark.service.links.duck import quoted_text

_LINES = "records.jsonl"
_LINE_END = 10


class IndexedRecord(NamedTuple):
    """A record, the name of its entity (None: it is alone), and its normal forms."""

    side: int
    id: str
    entity: str | None
    forms: list[str | None]

    @property
    def key(self) -> tuple[int, str]:
        return self.side, self.id


def write_index(connection: Any, folder: Path) -> None:
    """Of the files of records and entities."""
    records, entities = (quoted_text(folder / f"{name}.parquet") for name in ("records", "entities"))
    connection.execute(
        "CREATE OR REPLACE VIEW indexed AS SELECT r.file_row_number AS row, r.side, r.id, entity, forms, keys FROM "
        f"read_parquet({records}, file_row_number=true) r LEFT JOIN read_parquet({entities}) e ON e.side = r.side AND "
        "e.record = r.id"
    )
    lines = folder / _LINES
    connection.execute(
        f"COPY (SELECT side, id, entity, forms FROM indexed ORDER BY row) TO {quoted_text(lines)} (FORMAT json)"
    )
    text = np.memmap(lines, np.uint8, "r") if lines.stat().st_size else np.empty(0, np.uint8)
    np.save(folder / "ends.npy", 1 + np.flatnonzero(text == _LINE_END).astype(np.int64))
    found = connection.execute(
        "SELECT key, row FROM (SELECT unnest(keys) AS key, row FROM indexed UNION ALL SELECT md5_number_lower('id:' || "
        "id), row FROM indexed UNION ALL SELECT md5_number_lower('entity:' || entity), row FROM indexed) "
        "WHERE key IS NOT NULL ORDER BY key, row"
    ).fetchnumpy()
    for name, column, kind in (("keys", "key", np.uint64), ("keyed", "row", np.int32)):
        np.save(folder / f"{name}.npy", np.ma.getdata(found[column]).astype(kind))


class RecordIndex:
    """Reads the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._keys, self._rows = _load(folder, "keys", np.uint64), _load(folder, "keyed", np.int32)
        self._ends = _load(folder, "ends", np.int64)
        path = folder / _LINES
        self._text = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        is_whole = self._start(len(self)) == self._text.size and self._keys.size == self._rows.size
        if not is_whole or self._rows.max(initial=-1) >= len(self):
            raise StorageFailed(f"{folder.name}: links are damaged; link again")

    def __len__(self) -> int:
        return int(self._ends.size)

    def rows(self, key: int) -> Int64:
        """Records that have a key, ascending."""
        first, last = (int(np.searchsorted(self._keys, np.uint64(key), side)) for side in ("left", "right"))
        return self._rows[first:last].astype(np.int64)

    def record(self, row: int) -> IndexedRecord:
        """A record, by its number."""
        line = self._text[self._start(row) : self._start(row + 1)].tobytes()
        return IndexedRecord(**json.loads(line))

    def _start(self, row: int) -> int:
        return int(self._ends[row - 1]) if row else 0


def _load(folder: Path, name: str, kind: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    if array.dtype != kind or array.ndim != 1:
        raise StorageFailed(f"{name}.npy: links are damaged; link again")
    return array
