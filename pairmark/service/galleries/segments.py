"""Segments: immutable pieces of a gallery's index, each a range of sequence numbers, memory-mapped from a folder.

Rows are sorted by id, so that an engine's ties by row are ties by id. A segment is made from the rows in the database
and is never changed: rows replaced or deleted since are masked until compaction.
"""

import fcntl
import json
import os
import secrets
import shutil
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.artefact import (
    OUT_OF_FILES,
    ArtefactError,
    fsync_path,
    make_folders,
    open_array,
)
from pairmark.service.errors import storage_errors
from pairmark.service.galleries.metadata import (
    Columns,
    metadata_columns,
    read_columns,
    write_columns,
)
from pairmark.service.galleries.rows import StoredRows

FORMAT = 3
FACTS = "segment.json"


class Texts:
    """n texts as UTF-8, and where each ends: as Python objects, a million ids would weigh as much as their vectors.

    Parameters
    ----------
    body : uint8, all texts joined. ends : (n,) int64.
    """

    __slots__ = ("_body", "_ends")

    def __init__(self, body: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._body, self._ends = body, ends

    @classmethod
    def of(cls, values: Sequence[str]) -> "Texts":
        joined = "".join(values)
        sizes = map(len, values if joined.isascii() else [value.encode() for value in values])
        ends = np.cumsum(np.fromiter(sizes, dtype=np.int64, count=len(values)))
        return cls(np.frombuffer(joined.encode(), dtype=np.uint8), ends)

    def __len__(self) -> int:
        return int(self._ends.size)

    def encoded(self, place: int) -> bytes:
        start = int(self._ends[place - 1]) if place else 0
        body: bytes = self._body[start : int(self._ends[place])].tobytes()
        return body

    def __getitem__(self, place: int) -> str:
        return self.encoded(place).decode()

    def find(self, value: str) -> int:
        """Where a text is among *sorted* ones; -1 when it is not there."""
        encoded = value.encode()
        # UTF-8 sorts as the texts themselves do, by code points.
        at = bisect_left(range(len(self)), encoded, key=self.encoded)
        return at if at < len(self) and self.encoded(at) == encoded else -1

    def write(self, folder: Path, name: str) -> None:
        np.save(folder / f"{name}.npy", self._body, allow_pickle=False)
        np.save(folder / f"{name}-ends.npy", self._ends, allow_pickle=False)

    @classmethod
    def read(cls, folder: Path, name: str) -> "Texts":
        return cls(open_array(folder / f"{name}.npy"), open_array(folder / f"{name}-ends.npy"))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Segment:
    """The items of writes low + 1 to high, as far as they were current at write ``as_of``.

    Attributes
    ----------
    ids : n ids, ascending.
    subjects : (n,) codes into `names`, -1 for none. names : different subjects, ascending.
    seqs : (n,) ascending; order : (n,) the row of each.
    columns : metadata.
    index : the estimator's; None for no rows.
    folder : where it is kept, if it is.
    """

    low: int
    high: int
    as_of: int
    ids: Texts
    subjects: NDArray[np.int32]
    names: Texts
    seqs: NDArray[np.int64]
    order: NDArray[np.int64]
    columns: Columns
    index: Any
    folder: Path | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def rows_of(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Rows that were written under these numbers, those that are here."""
        if not len(self) or not seqs.size:
            return np.empty(0, dtype=np.int64)
        seqs = seqs[(seqs >= self.seqs[0]) & (seqs <= self.seqs[-1])]
        # All are within the segment's numbers, so that each has a place; those that are not here meet another number
        # there.
        at = np.searchsorted(self.seqs, seqs)
        rows: NDArray[np.int64] = self.order[at[self.seqs[at] == seqs]]
        return rows

    def subject(self, row: int) -> str | None:
        code = int(self.subjects[row])
        return None if code < 0 else self.names[code]

    @property
    def is_on_disk(self) -> bool:
        """Whether its folder is there (or nothing need be kept)."""
        return not len(self) or (self.folder is not None and self.folder.exists())

    def remove(self) -> None:
        """Remove its folder, if it has one."""
        if self.folder is not None:
            remove(self.folder)


def make_segment(estimator: Any, rows: StoredRows, *, low: int, high: int, as_of: int) -> Segment:
    """A segment in memory, of rows that are sorted by id."""
    # Rows are in order of ids. Removals name rows by sequence number: ``order`` leads from those, sorted, to rows.
    order = np.argsort(rows.seqs).astype(np.int64, copy=False)
    names = sorted({subject for subject in rows.subjects if subject is not None})
    code_of: dict[str | None, int] = {subject: code for code, subject in enumerate(names)}
    code_of[None] = -1
    return Segment(
        low=low,
        high=high,
        as_of=as_of,
        ids=Texts.of(rows.ids),
        subjects=np.array([code_of[subject] for subject in rows.subjects], dtype=np.int32),
        names=Texts.of(names),
        seqs=rows.seqs[order],
        order=order,
        columns=metadata_columns(rows.metadata),
        index=estimator.index(rows.vectors) if len(rows) else None,
    )


class GalleryDisk:
    """Where one gallery's segments are kept on this machine, those of each version in a folder of its own.

    Parameters
    ----------
    path : named by the gallery's key: another database's galleries have others. serving : what the folder of the
        version that serves the gallery is called.
    """

    def __init__(self, path: Path, serving: str = "") -> None:
        self.path = path
        self.folder = path / serving

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep out every other thread and process of this machine that makes or removes segments of the gallery."""
        with storage_errors("locking a gallery"):
            self.path.mkdir(parents=True, exist_ok=True)
            number = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX)
            yield
        finally:
            # Gives the lock up, however the block ended.
            os.close(number)

    def write(self, segment: Segment, estimator: Any) -> Segment:
        """Write a segment, and give it back memory-mapped. It appears by one rename, whole."""
        # 1. Everything into a folder that nobody takes for a segment.
        make_folders(self.folder)
        part = self.folder / f".part-{secrets.token_hex(8)}"
        try:
            part.mkdir()
            segment.index.save(part / "index")
            segment.ids.write(part, "ids")
            segment.names.write(part, "names")
            for name in ("subjects", "seqs", "order"):
                np.save(part / f"{name}.npy", getattr(segment, name), allow_pickle=False)
            write_columns(segment.columns, part / "columns")
            range_facts = {name: getattr(segment, name) for name in ("low", "high", "as_of")}
            (part / FACTS).write_text(json.dumps({"format": FORMAT, **range_facts, "rows": len(segment)}))
            # 2. On the disk before it has its name: a power cut leaves all of it or nothing.
            for file in [*part.rglob("*"), part]:
                fsync_path(file)
            path = self.folder / f"{segment.low}-{segment.high}-{secrets.token_hex(8)}"
            part.rename(path)
            fsync_path(self.folder)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        return open_segment(path, estimator)

    def open_segments(self, estimator: Any, opened: Sequence[Segment]) -> list[Segment]:
        """The segments in the folder, and opened ones that are in none, in order of their ranges, which are disjoint.
        Removes damaged segments, those of killed processes, and those that overlap with a larger one.

        The caller holds the gallery's lock, so nothing half-made belongs to anybody.
        """
        # 1. What is open already is not opened again; what cannot be opened can only be made anew.
        at_folder = {segment.folder: segment for segment in opened}
        segments = [segment for segment in opened if segment.folder is None]
        for path in _folders(self.folder):
            try:
                segments.append(at_folder.get(path) or open_segment(path, estimator))
            except (ArtefactError, OSError, ValueError, KeyError, TypeError) as error:
                if isinstance(error, OSError) and error.errno in OUT_OF_FILES:
                    raise
                remove(path)
        # 2. Of segments of the same rows the largest counts, then one on disk, then the newest.
        segments.sort(key=lambda one: (one.low, -one.high, one.folder is None, -one.as_of))
        disjoint: list[Segment] = []
        for segment in segments:
            # A range holds its high number and not its low one: the next may begin where the last ended.
            if not disjoint or segment.low >= disjoint[-1].high:
                disjoint.append(segment)
            else:
                segment.remove()
        return disjoint

    def remove_segments_with(self, ids: list[str]) -> int:
        """Remove the segments, of whatever version, that hold one of these ids, current or replaced; returns how
        many."""
        if not ids or not self.path.exists():
            return 0
        with self.lock():
            segments = [path for folder in _folders(self.path) for path in _folders(folder)]
            holding = [path for path in segments if _holds(path, ids)]
            for path in holding:
                remove(path)
        return len(holding)

    def remove_other_versions(self) -> int:
        """Remove segments of versions that do not serve the gallery; returns of how many."""
        outdated = [folder for folder in _folders(self.path) if folder != self.folder]
        if outdated:
            with self.lock():
                for folder in outdated:
                    remove(folder)
        return len(outdated)

    def drop(self) -> None:
        if self.path.exists():
            with self.lock():
                shutil.rmtree(self.path, ignore_errors=True)


def _holds(path: Path, ids: list[str]) -> bool:
    """Whether a segment may hold one of these ids: also one that cannot be read."""
    try:
        # All rows that were ever in it: a mask hides a row, and its file still holds it.
        segment_ids = Texts.read(path, "ids")
        return any(segment_ids.find(name) >= 0 for name in ids)
    except (OSError, ValueError):
        # A segment too many costs a search some time: it is made anew from the rows.
        return True


def _folders(path: Path) -> list[Path]:
    try:
        return [entry for entry in path.iterdir() if entry.is_dir()]
    except FileNotFoundError:
        return []


def open_segment(path: Path, estimator: Any) -> Segment:
    """A kept segment, memory-mapped.

    Raises
    ------
    ArtefactError, OSError, ValueError, KeyError
        When it is not whole or is another model's.
    """
    if path.name.startswith(".part-"):
        raise ArtefactError("left by a process that was killed")
    facts = json.loads((path / FACTS).read_text())
    if facts["format"] != FORMAT:
        raise ArtefactError(f"{path.name} has another format")
    segment = Segment(
        low=facts["low"],
        high=facts["high"],
        as_of=facts["as_of"],
        ids=Texts.read(path, "ids"),
        subjects=open_array(path / "subjects.npy"),
        names=Texts.read(path, "names"),
        seqs=open_array(path / "seqs.npy"),
        order=open_array(path / "order.npy"),
        columns=read_columns(path / "columns"),
        index=estimator.open_index(path / "index"),
    )
    sizes = {
        len(segment),
        len(segment.index),
        segment.subjects.size,
        segment.seqs.size,
        segment.order.size,
        facts["rows"],
    }
    if len(sizes) != 1:
        raise ArtefactError(f"{path.name} is not whole")
    return replace(segment, folder=path)


def remove(path: Path) -> None:
    """Remove a folder, so that nobody sees a part of it; who has it mapped keeps what is mapped."""
    hidden = path.with_name(f".part-{secrets.token_hex(8)}")
    try:
        path.rename(hidden)
    except FileNotFoundError:
        return
    shutil.rmtree(hidden, ignore_errors=True)
    # An erasure is promised to be over: a power cut must not bring the folder back.
    fsync_path(path.parent)
