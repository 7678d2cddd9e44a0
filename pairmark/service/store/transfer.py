"""A version as one file: exported, and imported elsewhere without running anything from it.

The file is a signed archive (`pairmark.service.store.archives`) of the folders ``artefact/``, ``report/`` and
``calibration/``; its manifest has the version's facts and the sha256 of every entry.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel, Field

from pairmark.models.core.artefact import Artefact, ArtefactError, file_sha256, read_artefact
from pairmark.models.core.spec import capabilities_of
from pairmark.models.evaluation.precision import MEASURES
from pairmark.models.registry import restored, spec_of
from pairmark.service.blobs import delete_unused
from pairmark.service.errors import CorruptArtefact, InvalidInput, TooLarge, storage_errors
from pairmark.service.names import ModelRef, checked_name
from pairmark.service.settings import Settings
from pairmark.service.store import repository
from pairmark.service.store.archives import SignedArchive
from pairmark.service.store.calibrations import read_calibration
from pairmark.service.store.reports import leaderboard_of
from pairmark.service.store.repository import NewCalibration, NewVersion
from pairmark.service.store.versions import (
    StoredReport,
    VersionStore,
    version_out,
)
from pairmark.service.tables import ModelVersion

FORMAT = "pairmark-export"
MADE_BY = "`pairmark models export`"
FORMAT_VERSION = 1
MAX_ENTRIES = 10_000
_ENTRY = re.compile(r"(artefact|report|calibration)/[A-Za-z0-9_-][A-Za-z0-9._-]{0,200}")


class _Facts(BaseModel, extra="forbid"):
    model: str
    version: int
    kind: str
    capabilities: list[str]
    params: dict[str, Any]
    metrics: dict[str, Any]
    lineage: dict[str, Any]
    facts: dict[str, Any]
    artefact_sha256: str


class _CalibrationFacts(BaseModel, extra="forbid"):
    name: str
    protocol: str
    summary: dict[str, Any]
    dataset_sha256: str | None


class _Export(BaseModel, extra="forbid"):
    format: str
    format_version: int
    version: _Facts
    calibration: _CalibrationFacts | None
    files: dict[str, str] = Field(description="entry -> sha256")


def export_version(versions: VersionStore, name: str, version: int, folder: Path) -> Path:
    """Write ``NAME-VERSION.pairmark.zip`` into ``folder``; returns its path."""
    with versions.db.read() as session:
        model, row = versions.resolved(session, ModelRef(name=name, version=version))
        calibration_row = (
            None if row.calibration_id is None else repository.find_calibration(session, row.calibration_id)
        )
    calibration = None if calibration_row is None else calibration_row[0]
    parts = {"artefact": row.artefact, "report": row.report, "calibration": calibration and calibration.blob}
    sources = {
        f"{part}/{path.name}": path
        for part, key in parts.items()
        if key
        for path in sorted(versions.blobs.folder(key).iterdir())
    }
    export = _Export(
        format=FORMAT,
        format_version=FORMAT_VERSION,
        version=_Facts(
            model=model.name,
            **{name: value for name, value in row.values().items() if name in _Facts.model_fields},
        ),
        calibration=calibration and _CalibrationFacts.model_validate(calibration, from_attributes=True),
        files={entry: file_sha256(path) for entry, path in sources.items()},
    )
    target = folder / f"{model.name.replace('/', '-')}-{row.version}.pairmark.zip"
    partial = folder / f".{target.name}.{secrets.token_hex(6)}.tmp"
    try:
        with storage_errors("exporting"):
            folder.mkdir(parents=True, exist_ok=True)
            with SignedArchive(partial, FORMAT, MADE_BY, to_write=True) as archive:
                archive.seal(export, versions.settings)
                for entry, path in sources.items():
                    archive.add(entry, path)
            os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


@contextmanager
def import_version(versions: VersionStore, file: BinaryIO, name: str | None) -> Iterator[NewVersion]:
    """What an exported file holds, verified and its blobs stored, for the block to register; when the block fails,
    blobs that no row came to name are deleted again. `InvalidInput` for what is not a whole, unchanged export that this
    code can read, `TooLarge` for one that unpacks to more than ``max_upload_bytes``."""
    with (
        versions.blobs.workspace() as artefact,
        versions.blobs.workspace() as report,
        versions.blobs.workspace() as calibration,
    ):
        folders = {"artefact": artefact, "report": report, "calibration": calibration}
        export, is_signed = _unpack(file, folders, versions.settings)
        new = _verified(export, folders, name, is_signed=is_signed)
        blob_keys: dict[str, str] = {}
        try:
            for part, folder in folders.items():
                if any(folder.iterdir()):
                    blob_keys[part] = versions.blobs.put_folder(folder)
            calibrated = new.calibration and replace(new.calibration, blob=blob_keys["calibration"])
            yield replace(
                new, artefact=blob_keys["artefact"], report=blob_keys.get("report"), calibration=calibrated
            )
        except BaseException:
            delete_unused(versions.db, versions.blobs, blob_keys.values())
            raise


def _unpack(file: BinaryIO, folders: dict[str, Path], settings: Settings) -> tuple[_Export, bool]:
    """Check names, sizes, the signature and hashes, and write each entry to its folder; says also whether it is
    signed."""
    max_bytes = settings.max_upload_bytes
    with SignedArchive(file, FORMAT, MADE_BY) as archive:
        entries = archive.bundle.infolist()
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > max_bytes:
            raise TooLarge(
                f"the export unpacks to more than {max_bytes} bytes or {MAX_ENTRIES} entries: raise "
                "PAIRMARK_MAX_UPLOAD_BYTES if it is yours",
                limit=max_bytes,
            )
        export, is_signed = archive.opened(_Export, settings)
        if export.format != FORMAT or export.format_version > FORMAT_VERSION:
            raise InvalidInput(
                f"file: format {export.format[:40]} {export.format_version}, this code reads {FORMAT} up to "
                f"{FORMAT_VERSION}: upgrade pairmark"
            )
        members = archive.members
        if sorted(members) != sorted(export.files) or not all(_ENTRY.fullmatch(name) for name in members):
            raise InvalidInput("file: its entries are not those its manifest lists; export the version again")
        for entry in members:
            part, name = entry.split("/")
            if archive.extract(entry, folders[part] / name) != export.files[entry]:
                raise InvalidInput(
                    f"file: {entry} was changed after the export (sha256 differs); export the version again"
                )
    return export, is_signed


def _verified(export: _Export, folders: dict[str, Path], name: str | None, *, is_signed: bool) -> NewVersion:
    """Load what is to be registered; facts come from the artefact itself."""
    described = export.version
    try:
        artefact = read_artefact(folders["artefact"])
        model = restored(artefact)
        if artefact.sha256 != described.artefact_sha256 or artefact.kind != described.kind:
            raise ArtefactError("the artefact is not the one that the manifest names")
        if (export.calibration is not None) != any(folders["calibration"].iterdir()):
            raise ArtefactError("the calibration's files and facts do not go together")
        new = _version_of(export, artefact, model, name, is_signed=is_signed)
        _check_shown(new, folders["report"])
        if new.calibration is not None:
            calibration = read_calibration(folders["calibration"])
            # Shown is what follows from the scores, not what the file says.
            is_trusted = new.calibration.summary["imported"] == "signed"
            own = calibration if is_trusted else calibration.without_guarantee()
            summary = {**new.calibration.summary, **own.summary()}
            new = replace(new, calibration=replace(new.calibration, summary=summary))
    except CorruptArtefact as error:
        raise InvalidInput(f"file: {error.detail}") from error
    except (ArtefactError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInput(f"file: cannot be loaded: {str(error)[:500]}") from error
    return new


def _capabilities(described: _Facts, model: Any) -> set[str]:
    """What the model can do, given what it is called; `ArtefactError` where names do not fit it."""
    if "scaling_" in vars(model):
        # Vectors are checked as they are parsed, and scored as they are.
        raise ArtefactError(
            "it scales columns itself, which no served model does: save the pipeline's last step alone, "
            "and scale vectors before they are sent"
        )
    spec = spec_of(described.kind)
    capabilities: set[str] = {*capabilities_of(spec, model)}
    if spec.needs == "rankings":
        _check_names("label_names", described.facts["label_names"], int(model.n_labels_))
    if described.facts.get("class_names") is None:
        # Learned from listed pairs: what its classes are called, nobody said.
        capabilities.discard("classify")
    elif "classify" in capabilities:
        _check_names("class_names", described.facts["class_names"], len(model.classes_))
    return capabilities


def _check_shown(new: NewVersion, report: Path) -> None:
    """Make the documents about the version, which every later request for them would fail to make."""
    row = ModelVersion(version=1, calibration_id=None, created_at=0.0, **new.columns())
    json.dumps([new.metrics, new.lineage, new.facts, new.params], allow_nan=False)
    version_out(new.model, row, [], [])
    leaderboard_of(row)
    if any(report.iterdir()):
        stored = StoredReport(report)
        stored.roc()
        if stored.pr() is not None:
            # What a decision by it tells.
            _ = [new.metrics[name]["value"] for name in MEASURES]
        _ = stored.columns, stored.trained_on


def _version_of(
    export: _Export, artefact: Artefact, model: Any, name: str | None, *, is_signed: bool
) -> NewVersion:
    """The version that the file holds, its blobs not stored yet."""
    described, calibration = export.version, export.calibration
    if calibration is not None:
        # Who signs a calibration that came unsigned signs that mark too.
        trusted = is_signed and calibration.summary.get("imported") != "unsigned"
        mark = {"imported": "signed" if trusted else "unsigned"}
        calibration = calibration.model_copy(update={"summary": {**calibration.summary, **mark}})
    return NewVersion(
        model=checked_name(name or described.model, "model"),
        kind=artefact.kind,
        capabilities=sorted(_capabilities(described, model)),
        params=artefact.params,
        metrics=described.metrics,
        lineage={**described.lineage, "imported_from": f"{described.model}:{described.version}"},
        facts={**described.facts, "n_features": int(model.n_features_in_)},
        artefact="",
        artefact_sha256=artefact.sha256,
        report=None,
        calibration=None
        if calibration is None
        else NewCalibration(**dict(calibration), blob="", dataset_id=None),
        job_id=None,
    )


def _check_names(what: str, names: Any, n: int) -> None:
    distinct = {name for name in names if isinstance(name, str)}
    if not isinstance(names, list) or not len(distinct) == len(names) == n:
        raise ArtefactError(f"{what} are not {n} distinct names")
