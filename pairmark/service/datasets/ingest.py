"""The entry point of datasets: uploads in, versions listed, data opened; and all their SQL."""

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Literal

from sqlalchemy import String, and_, cast, or_, select
from sqlalchemy.orm import Session
from starlette.datastructures import UploadFile

from pairmark.schemas.base import Page, iso
from pairmark.schemas.datasets import DatasetOut, DatasetRequest, Format, InspectionOut, RowOut, RowsOut
from pairmark.service.audit.log import record
from pairmark.service.blobs import Blobs, delete_unused, hold
from pairmark.service.datasets.confined import FORMATS, FileLimits, format_of, read_confined
from pairmark.service.datasets.data import LabelledData, load_data, vector_of
from pairmark.service.datasets.guarantees import dataset_guarantee, protocol_choices
from pairmark.service.datasets.lists import TableForm
from pairmark.service.db import Database, insert_into, name_filter, read_page
from pairmark.service.errors import Conflict, InvalidInput, TooLarge, UnknownDataset, storage_errors
from pairmark.service.names import EVERY_NAME, VisibleNames, checked_name
from pairmark.service.settings import Settings
from pairmark.service.tables import DatasetName, DatasetRow, JobRow

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
            # 1. To files of our own names, hashed on the way.
            task, digests, limits = self._take_all(work, file, request, pairs, right)
            sha256 = digests.pop("sha256")
            options = request.model_dump(exclude={"name", "format"}, exclude_defaults=True)
            spec = {**options, "format": task["kind"], **digests, **({"chosen": True} if chosen else {})}
            # 2. What is the newest version already is not read again.
            with self._db.read() as session:
                row = _newest(session, request.name)
            if row is not None and _is_of(row, sha256, spec) and self._blobs.exists(row.blob):
                return dataset_out(row, existing=True)
            # 3. Read in a process of its own, and stored before the row that names it.
            out = work / "dataset"
            out.mkdir()
            task |= {"function": "dataset", "out": str(out), "scratch": str(work / "scratch")}
            facts = read_confined(task, limits)
            facts["summary"]["spec"] = spec
            size = sum(path.stat().st_size for path in out.iterdir())
            key = self._blobs.put_folder(out)
        return self._registered(request.name, {"sha256": sha256, "blob": key, "size_bytes": size, **facts})

    def _registered(self, name: str, facts: dict[str, Any]) -> DatasetOut:
        with self._db.write() as session:
            hold(session, self._blobs, facts["blob"])
            # Nobody else adds versions under a name that exists meanwhile.
            session.execute(select(DatasetName.name).where(DatasetName.name == name).with_for_update())
            row = _newest(session, name)
            if row is not None and _is_of(row, facts["sha256"], facts["summary"]["spec"]):
                # The same upload, sent twice at once.
                return dataset_out(row, existing=True)
            # Numbers are never given twice, not even after a deletion.
            following = session.scalar(
                insert_into(session, DatasetName)
                .values(name=name, next_version=2)
                .on_conflict_do_update(
                    index_elements=[DatasetName.name], set_={"next_version": DatasetName.next_version + 1}
                )
                .returning(DatasetName.next_version)
            )
            assert following is not None
            own = {"id": secrets.token_hex(16), "version": following - 1, "created_at": self._db.now(session)}
            row = DatasetRow(name=name, **own, **facts)
            session.add(row)
            session.flush()
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
            return InspectionOut.model_validate(read_confined(task, limits))

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
            read_confined(task, limits)
            return out.read_bytes()

    def get(self, reference: str) -> DatasetOut:
        """The version that ``name`` (the newest) or ``name:version`` names, or `UnknownDataset`."""
        with self._db.read() as session:
            return dataset_out(dataset_of(session, reference))

    def page(
        self, limit: int = 100, cursor: str | None = None, *, names: VisibleNames = EVERY_NAME
    ) -> Page[DatasetOut]:
        """Versions, newest first; of some names if given."""
        query, order = (
            select(DatasetRow).where(name_filter(names, DatasetRow.name)),
            (DatasetRow.created_at, DatasetRow.id),
        )
        with self._db.read() as session:
            return read_page(
                session, Page[DatasetOut], dataset_out, query, order, limit, cursor or None, newest_first=True
            )

    def delete(self, reference: str) -> DatasetOut:
        """Delete a version and its data; returns what it was. `Conflict` when a job that waits or runs reads it."""
        with self._db.write() as session:
            # Who refers to it just now is waited for, and nobody else comes in.
            row = dataset_of(session, reference, lock="exclusive")
            reading = or_(
                JobRow.dataset_id == row.id,
                JobRow.unlabelled_id == row.id,
                # The third table of links, and what follows it.
                and_(JobRow.task == "link", cast(JobRow.params, String).contains(row.id)),
            )
            using = select(JobRow.id).where(JobRow.state.in_(("queued", "running")), reading)
            jobs = session.scalars(using.order_by(JobRow.created_at).limit(5)).all()
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
            session.delete(row)
        delete_unused(self._db, self._blobs, [blob])
        return out

    def rows(self, ref: str, positions: Iterable[int]) -> RowsOut:
        """Rows by number, as they were read; those beyond the last are left out."""
        dataset = self.get(ref)
        data = self.load(dataset.id)
        items = [
            RowOut(
                row=row,
                id=None if data.row_ids is None else data.row_ids[row],
                label=None if data.y is None else data.identities[int(data.y[row])],
                group=None if data.groups is None else data.group_names[int(data.groups[row])],
                vector=vector_of(data, row),
            )
            for row in positions
            if row < len(data)
        ]
        return RowsOut(dataset=f"{dataset.name}:{dataset.version}", rows=len(data), items=items)

    def load(self, dataset_id: str) -> LabelledData:
        """Open a version's data by its id, memory-mapped; `CorruptArtefact` when its bytes do not have their sha256."""
        with self._db.read() as session:
            row = session.get(DatasetRow, dataset_id)
        if row is None:
            raise UnknownDataset("the dataset was deleted meanwhile", dataset_id=dataset_id)
        return load_data(
            self._blobs.folder(row.blob),
            dataset_id=row.id,
            name=row.name,
            version=row.version,
            sha256=row.sha256,
        )

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


Lock = Literal["shared", "exclusive"]


def dataset_of(session: Session, reference: str, *, lock: Lock | None = None) -> DatasetRow:
    """The version that ``name`` (the newest) or ``name:version`` names, or `UnknownDataset`.

    ``lock`` : until the transaction ends, keep others from deleting the row (shared: for who is about to refer to it)
    or from referring to it (exclusive).
    """
    name, colon, version = reference.partition(":")
    checked_name(name, "dataset")
    if colon and not (version.isdecimal() and version.isascii() and len(version) < 10):
        raise UnknownDataset(f"dataset {reference[:120]!r}: expected NAME or NAME:VERSION, e.g. {name}:1")
    row = _newest(session, name, int(version) if colon else None, lock=lock)
    if row is None:
        raise UnknownDataset(
            f"there is no dataset {reference[:120]!r}; GET /datasets or `pairmark datasets list` lists them",
            dataset=reference[:120],
        )
    return row


def _newest(
    session: Session, name: str, version: int | None = None, *, lock: Lock | None = None
) -> DatasetRow | None:
    """The newest version under a name, or that of a number."""
    query = select(DatasetRow).where(DatasetRow.name == name).order_by(DatasetRow.version.desc()).limit(1)
    if version is not None:
        query = query.where(DatasetRow.version == version)
    return session.scalar(query if lock is None else query.with_for_update(read=lock == "shared"))


def _is_of(row: DatasetRow, sha256: str, spec: dict[str, Any]) -> bool:
    """Whether a version came of these bytes, read in this way."""
    return row.sha256 == sha256 and row.summary["spec"] == spec


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
