"""Keys, records and entities of a folder, found by number: files that are mapped into memory, of which `Resolver` reads
a few places.

- ``keys.npy``, ``keyed.npy``: numbers of keys, ascending, and the record of each; the key ``id:ID`` is that of an id;
- ``records.jsonl``: ``{"side", "id", "forms"}`` of each record, in the order of `result_files.RECORDS`;
- ``entities.jsonl``: ``{"entity", "rows"}`` of each entity; ``names.npy``, ``named.npy``: numbers of their names,
  ascending, and the entity of each; ``entity_of.npy``: the entity of each record, -1 where it is alone;
- ``....ends.npy``: where each line ends.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.arrays import Int64
from pairmark.models.linking.candidates import key_number
from pairmark.service.errors import StorageFailed
from pairmark.service.links.duck import quoted

RECORD_LINES, _ENTITY_LINES = "records.jsonl", "entities.jsonl"
OF_RECORDS = ("keys.npy", "keyed.npy", RECORD_LINES, f"{RECORD_LINES}.ends.npy")
_LINE_END = 10
_IDS = "SELECT md5_number_lower('id:' || id) AS key, row FROM sides"


class IndexedRecord(NamedTuple):
    """A record, its normal forms and the numbers of its keys."""

    side: int
    id: str
    forms: list[str | None]
    keys: list[int]


def id_key(record: str) -> int:
    return key_number(f"id:{record}")


def write_records(connection: Any, folder: Path, forms: Sequence[str], keys: Sequence[str]) -> None:
    """Of the tables ``cells`` and ``sides``: SQL of each column's normal form, and of lists of its keys."""
    _copy_lines(
        connection,
        f"SELECT side, id, [{', '.join(forms)}] AS forms FROM cells JOIN sides USING (row) ORDER BY row",
        folder / RECORD_LINES,
    )
    found = connection.execute(
        f"SELECT key, row FROM (SELECT DISTINCT unnest(flatten([{', '.join(keys)}])) AS key, row FROM cells UNION ALL "
        f"{_IDS}) WHERE key IS NOT NULL ORDER BY key, row"
    ).fetchnumpy()
    _save_keys(folder, "keys", "keyed", found["key"], found["row"])


def write_entities(connection: Any, folder: Path, records: Path) -> None:
    """Of the table ``named`` and the file of records."""
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE grouped AS SELECT row_number() OVER (ORDER BY min(n.place)) - 1 AS number, "
        f"entity, list(file_row_number ORDER BY n.place) AS rows FROM named n JOIN read_parquet({quoted(records)}, "
        "file_row_number=true) r ON r.side = n.side AND r.id = n.record GROUP BY entity"
    )
    _copy_lines(connection, "SELECT entity, rows FROM grouped ORDER BY number", folder / _ENTITY_LINES)
    found = connection.execute(
        "SELECT md5_number_lower(entity) AS key, number AS row FROM grouped ORDER BY key, number"
    ).fetchnumpy()
    _save_keys(folder, "names", "named", found["key"], found["row"])
    members = connection.execute("SELECT number, unnest(rows) AS row FROM grouped").fetchnumpy()
    entity_of = np.full(np.load(folder / f"{RECORD_LINES}.ends.npy").size, -1, dtype=np.int32)
    entity_of[members["row"]] = members["number"]
    np.save(folder / "entity_of.npy", entity_of)


def change_records(
    folder: Path, out: Path, removed: Sequence[int] = (), added: Sequence[IndexedRecord] = ()
) -> None:
    """Write the files of records to another folder, without some and with others at the end."""
    lines = _Lines(folder / RECORD_LINES)
    gone = np.unique(np.array(removed, dtype=np.int64))
    with (out / RECORD_LINES).open("wb") as stream:
        start = 0
        for row in gone.tolist():
            stream.write(lines.text[start : lines.start(row)].data)
            start = lines.start(row + 1)
        stream.write(lines.text[start:].data)
        for each in added:
            line = {"side": each.side, "id": each.id, "forms": each.forms}
            stream.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
    _save_ends(out / RECORD_LINES)
    keys, rows = np.load(folder / "keys.npy"), np.load(folder / "keyed.npy")
    stays = ~np.isin(rows, gone)
    first = len(lines) - gone.size
    new = [
        (key, first + at) for at, each in enumerate(added) for key in sorted({*each.keys, id_key(each.id)})
    ]
    keys = np.append(keys[stays], np.array([key for key, _ in new], dtype=np.uint64))
    rows = np.append(rows[stays] - np.searchsorted(gone, rows[stays]), [row for _, row in new])
    order = np.lexsort((rows, keys))
    _save_keys(out, "keys", "keyed", keys[order], rows[order])


class RecordIndex:
    """Reads the files of one folder."""

    def __init__(self, folder: Path) -> None:
        self._keys = _load(folder, "keys", np.uint64), _load(folder, "keyed", np.int32)
        self._names = _load(folder, "names", np.uint64), _load(folder, "named", np.int32)
        self._records, self._entities = _Lines(folder / RECORD_LINES), _Lines(folder / _ENTITY_LINES)
        self._entity_of = _load(folder, "entity_of", np.int32)
        for numbers, below in (
            (self._keys[1], len(self._records)),
            (self._names[1], len(self._entities)),
            (self._entity_of, len(self._entities)),
        ):
            if numbers.size and int(numbers.max()) >= below:
                raise StorageFailed(f"{folder.name}: links are damaged; link again")
        if self._entity_of.size != len(self._records):
            raise StorageFailed(f"{folder.name}: links are damaged; link again")

    def __len__(self) -> int:
        return len(self._records)

    def rows(self, key: int) -> Int64:
        """Records that have a key, ascending."""
        return _places(*self._keys, key)

    def record(self, row: int) -> tuple[int, str, list[str | None]]:
        """Table, id and normal forms of a record."""
        line = self._records[row]
        return line["side"], line["id"], line["forms"]

    def entity_of(self, row: int) -> tuple[str, list[int]] | None:
        """Name and records of a record's entity; None where it is alone."""
        number = int(self._entity_of[row])
        return None if number < 0 else self._entity(number)

    def entity(self, name: str) -> list[int] | None:
        """Records of an entity, by its name."""
        found = (self._entity(at) for at in _places(*self._names, key_number(name)).tolist())
        return next((rows for called, rows in found if called == name), None)

    def _entity(self, number: int) -> tuple[str, list[int]]:
        line = self._entities[number]
        return line["entity"], line["rows"]


class _Lines:
    """JSON lines by number; ``text`` is all of them."""

    def __init__(self, path: Path) -> None:
        self._ends = np.load(f"{path}.ends.npy", mmap_mode="r", allow_pickle=False)
        self.text = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
        if self._ends.dtype != np.int64 or self.start(len(self)) != self.text.size:
            raise StorageFailed(f"{path.name}: links are damaged; link again")

    def __len__(self) -> int:
        return int(self._ends.size)

    def start(self, at: int) -> int:
        return int(self._ends[at - 1]) if at else 0

    def __getitem__(self, at: int) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.text[self.start(at) : self.start(at + 1)].tobytes())
        return line


def _places(keys: NDArray[Any], numbers: NDArray[Any], key: int) -> Int64:
    first, last = (int(np.searchsorted(keys, np.uint64(key), side)) for side in ("left", "right"))
    return numbers[first:last].astype(np.int64)


def _load(folder: Path, name: str, kind: Any) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    if array.dtype != kind or array.ndim != 1:
        raise StorageFailed(f"{name}.npy: links are damaged; link again")
    return array


def _save_keys(folder: Path, keys_name: str, rows_name: str, keys: NDArray[Any], rows: NDArray[Any]) -> None:
    np.save(folder / f"{keys_name}.npy", np.ma.getdata(keys).astype(np.uint64))
    np.save(folder / f"{rows_name}.npy", np.ma.getdata(rows).astype(np.int32))


def _copy_lines(connection: Any, sql: str, path: Path) -> None:
    connection.execute(f"COPY ({sql}) TO {quoted(path)} (FORMAT json)")
    _save_ends(path)


def _save_ends(path: Path) -> None:
    text = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    np.save(f"{path}.ends.npy", 1 + np.flatnonzero(text == _LINE_END).astype(np.int64))
