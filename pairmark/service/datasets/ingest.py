"""The entry point of datasets: uploads in, versions listed, data opened."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from starlette.datastructures import UploadFile

from pairmark.schemas.base import Page, iso
from pairmark.schemas.datasets import DatasetOut, DatasetRequest, Format, InspectionOut, RowOut, RowsOut
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.datasets import repository
from pairmark.service.datasets.confined import FORMATS, FileLimits, format_of, parsed
from pairmark.service.datasets.data import LabelledData, load_data, vector_of
from pairmark.service.datasets.guarantees import dataset_guarantee, protocol_choices
from pairmark.service.datasets.table_bodies import TableForm
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, InvalidInput, TooLarge, storage_errors
from pairmark.service.names import EVERY_NAME, VisibleNames, checked_name
from pairmark.service.pagination import page_of, start_of
from pairmark.service.settings import Settings
from pairmark.service.tables import DatasetRow

_CHUNK = 1 << 20


class Datasets:
    """Stores uploads as immutable versions and opens them for trainers.

    An acknowledged upload is on disk: its blob is flushed before its row commits. An upload cut short leaves no
    row, and its files go with the next `pairmark.service.blobs.collect`.
    """

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._blobs, self._settings = db, blobs, settings

    def add(
        self,
        file: Path | UploadFile,
        request: DatasetRequest,
        *,
        pairs: Path | UploadFile | None = None,
        right: Path | UploadFile | None = None,
        chosen: bool = False,
    ) -> DatasetOut:
        """Store an upload as the next version of its name.

        Uploading what is the newest version already (same bytes, same columns named) changes nothing and gives
        that version, with ``existing`` true: an upload may be repeated after a lost answer.

        Parameters
        ----------
        file : a path, or a file that was sent, read in pieces.
        pairs : CSV or Parquet of explicit pairs: ``left``, ``right``, ``same`` and perhaps ``weight``.
        right : a second table of records, whose ids the ``right`` of pairs names.
        chosen : whether the pairs were chosen by looking at them, so that they may calibrate nothing.

        `InvalidInput` and `TooLarge` name row and column and say how to fix it; with `StorageFailed` (storage is full)
        nothing is left behind. Each takes hundreds of MB: the API runs it in one of `Services.upload_places`.
        """
        checked_name(request.name, "name")
        with self._blobs.workspace() as work, storage_errors("storing the upload"):
            task, digests, limits = self._take_all(work, file, request, pairs, right)
            sha256 = digests.pop("sha256")
            options = request.model_dump(exclude={"name", "format"}, exclude_defaults=True)
            spec = {**options, "format": task["kind"], **digests, **({"chosen": True} if chosen else {})}
            existing = self._existing(request.name, sha256, spec)
            if existing is not None:
                return existing
            out = work / "dataset"
            out.mkdir()
            task |= {"function": "dataset", "out": str(out), "scratch": str(work / "scratch")}
            facts = parsed(task, limits)
            facts["summary"]["spec"] = spec
            size = sum(path.stat().st_size for path in out.iterdir())
            key = self._blobs.put_folder(out)
        return self._registered(request.name, {"sha256": sha256, "blob": key, "size_bytes": size, **facts})

    def _registered(self, name: str, facts: dict[str, Any]) -> DatasetOut:
        with self._db.write() as session:
            hold(session, self._blobs, facts["blob"])
            repository.lock_name(session, name)
            row = repository.newest(session, name)
            same = row is not None and row.sha256 == facts["sha256"]
            if row is not None and same and row.summary["spec"] == facts["summary"]["spec"]:
                # The same upload, sent twice at once.
                return dataset_out(row, existing=True)
            row = repository.insert_version(session, name, {**facts, "created_at": self._db.now(session)})
            where = f"dataset:{row.name}:{row.version}"
            record(session, row.created_at, "dataset.create", where, after=_facts(row))
            return dataset_out(row)

    def inspect(
        self,
        file: Path | UploadFile,
        request: DatasetRequest,
        *,
        pairs: Path | UploadFile | None = None,
        right: Path | UploadFile | None = None,
    ) -> InspectionOut:
        """What `add` would read of a file, roles that are not named inferred; nothing is kept."""
        with self._blobs.workspace() as work, storage_errors("reading the file"):
            task, _, limits = self._take_all(work, file, request, pairs, right)
            task |= {"function": "inspection", "work": str(work)}
            return InspectionOut.model_validate(parsed(task, limits))

    def as_json(self, file: UploadFile, members: Mapping[str, str], form: TableForm) -> bytes:
        """The JSON body that a CSV or Parquet file and the members beside it stand for; nothing is kept."""
        kind = _table_kind(file, "file")
        with self._blobs.workspace() as work, storage_errors("reading the file"):
            upload, _ = self._take(file, work / "upload")
            out = work / "body.json"
            task = {
                "function": "table",
                "upload": str(upload),
                "scratch": str(work / "scratch"),
                "kind": kind,
                "members": members,
                "form": asdict(form),
                "out": str(out),
            }
            limits = FileLimits.of(self._settings, upload.stat().st_size, rows="max_calibration_pairs")
            parsed(task, limits)
            return out.read_bytes()

    def get(self, reference: str) -> DatasetOut:
        """The version that ``name`` (the newest) or ``name:version`` names, or `UnknownDataset`."""
        with self._db.read() as session:
            return dataset_out(repository.dataset_of(session, reference))

    def page(
        self, limit: int = 100, cursor: str | None = None, *, names: VisibleNames = EVERY_NAME
    ) -> Page[DatasetOut]:
        """Versions, newest first; of some names if given."""
        after = start_of(limit, cursor or None, float, str)
        with self._db.read() as session:
            rows = repository.page_of_datasets(session, limit + 1, after, names)
        return page_of(Page[DatasetOut], rows, limit, lambda row: (row.created_at, row.id), dataset_out)

    def delete(self, reference: str) -> DatasetOut:
        """Delete a version and its data; returns what it was. `Conflict` when a job that waits or runs reads it."""
        with self._db.write() as session:
            row = repository.dataset_of(session, reference)
            repository.lock_for_deletion(session, row)
            jobs = repository.jobs_using(session, row.id)
            if jobs:
                raise Conflict(
                    f"dataset {row.name}:{row.version} is used by job {jobs[0]}, which has not ended: cancel it or "
                    "wait for it",
                    jobs=jobs,
                )
            out, blob = dataset_out(row), row.blob
            record(
                session,
                self._db.now(session),
                "dataset.delete",
                f"dataset:{row.name}:{row.version}",
                before=_facts(row),
            )
            repository.remove(session, row)
        delete_unused(self._db, self._blobs, [blob])
        return out

    def rows(self, ref: str, positions: Iterable[int]) -> RowsOut:
        """Rows by number, as they were read; those beyond the last are left out."""
        dataset = self.get(ref)
        data = self.load(dataset.id)
        items = [
            RowOut(
                row=at,
                id=None if data.row_ids is None else data.row_ids[at],
                label=None if data.y is None else data.identities[int(data.y[at])],
                group=None if data.groups is None else data.group_names[int(data.groups[at])],
                vector=vector_of(data, at),
            )
            for at in positions
            if at < len(data)
        ]
        return RowsOut(dataset=f"{dataset.name}:{dataset.version}", rows=len(data), items=items)

    def load(self, dataset_id: str) -> LabelledData:
        """Open a version's data by its id, memory-mapped; `CorruptArtefact` when its bytes do not have their sha256."""
        with self._db.read() as session:
            row = repository.dataset_by_id(session, dataset_id)
        return load_data(
            self._blobs.folder(row.blob),
            dataset_id=row.id,
            name=row.name,
            version=row.version,
            sha256=row.sha256,
        )

    def _existing(self, name: str, sha256: str, spec: dict[str, Any]) -> DatasetOut | None:
        with self._db.read() as session:
            row = repository.newest(session, name)
        if row is None or row.sha256 != sha256 or row.summary["spec"] != spec:
            return None
        return dataset_out(row, existing=True) if self._blobs.exists(row.blob) else None

    def _take_all(
        self,
        work: Path,
        file: Path | UploadFile,
        request: DatasetRequest,
        pairs: Path | UploadFile | None,
        right: Path | UploadFile | None,
    ) -> tuple[dict[str, Any], dict[str, str], FileLimits]:
        """The reader's task, without its function; sha256 of each file; and the limits for all of them."""
        task: dict[str, Any] = {
            "kind": format_of(request.format, _name_of(file)),
            "request": request.model_dump(mode="json"),
        }
        kinds = {
            "pairs": None if pairs is None else _table_kind(pairs, "pairs"),
            "right": None if right is None else format_of(request.format, _name_of(right)),
        }
        upload, sha256 = self._take(file, work / "upload")
        task["file"], digests, size = str(upload), {"sha256": sha256}, upload.stat().st_size
        for name, other in (("pairs", pairs), ("right", right)):
            if other is not None:
                path, digests[f"{name}_sha256"] = self._take(other, work / name)
                task[name] = [str(path), kinds[name]]
                size += path.stat().st_size
        return task, digests, FileLimits.of(self._settings, size)

    def _take(self, file: Path | UploadFile, target: Path) -> tuple[Path, str]:
        """The upload as a file of a name that we chose, and its sha256."""
        limit, size, digest = self._settings.max_upload_bytes, 0, hashlib.sha256()
        copy = None
        if isinstance(file, Path):
            target.symlink_to(file.absolute())
            stream: BinaryIO = target.open("rb")
        else:
            stream, copy = file.file, target.open("wb")
        try:
            while chunk := stream.read(_CHUNK):
                size += len(chunk)
                if size > limit:
                    raise TooLarge(
                        f"the upload is larger than {limit} bytes; at most that is taken", limit=limit
                    )
                digest.update(chunk)
                if copy is not None:
                    copy.write(chunk)
        finally:
            (copy or stream).close()
        return target, digest.hexdigest()


def _name_of(file: Path | UploadFile) -> str | None:
    return file.name if isinstance(file, Path) else file.filename


def _table_kind(file: Path | UploadFile, field: str) -> Format:
    # A file of a form may have no name.
    name = _name_of(file) or f"{field}.csv"
    kind = FORMATS.get(Path(name.lower().removesuffix(".gz")).suffix)
    if kind not in ("csv", "parquet"):
        raise InvalidInput(
            f"{field}: {name[-60:]!r} is neither CSV nor Parquet by its name; expected .csv, .csv.gz or .parquet",
            field=field,
        )
    return kind


def _facts(row: DatasetRow) -> dict[str, Any]:
    return {"id": row.id, "sha256": row.sha256, "rows": row.rows, "features": row.features}


def dataset_out(row: DatasetRow, *, existing: bool = False) -> DatasetOut:
    facts = {
        name: value for name, value in row.summary.items() if name not in ("spec", "label_counts", "listed")
    }
    return DatasetOut(
        **{name: getattr(row, name) for name in ("id", "name", "version", "sha256", "rows", "features")},
        size_bytes=row.size_bytes,
        label_counts=dict(row.summary["label_counts"]),
        promise=dataset_guarantee(row.summary, row.rows),
        choices=protocol_choices(row.summary, row.rows),
        created_at=iso(row.created_at),
        chosen=row.summary["spec"].get("chosen", False),
        existing=existing,
        **facts,
    )
