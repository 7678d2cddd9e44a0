"""A version as one file: exported, and imported elsewhere without running anything from it; and the signed archives
that such files and backups are.

An archive is a zip of stored (not compressed) entries. Its manifest, ``NAME.json``, says what they are and holds their
hashes; where a key is set, ``NAME.sig`` is the manifest's HMAC-SHA256. That of a version has the folders ``artefact/``,
``report/`` and ``calibration/``; its manifest has the version's facts and the sha256 of every entry.
"""

import hashlib
import hmac
import json
import re
import shutil
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError

from pairmark.models.core.artefact import ArtefactError, file_sha256, read_artefact
from pairmark.models.core.spec import capabilities_of
from pairmark.models.evaluation.precision import MEASURES
from pairmark.models.registry import restore_learner, spec_of
from pairmark.service.blobs import delete_unused
from pairmark.service.datasets.confined import damage_refused
from pairmark.service.errors import CorruptArtefact, InvalidInput, NotReady, TooLarge, storage_errors
from pairmark.service.names import ModelRef, checked_name
from pairmark.service.settings import Settings
from pairmark.service.store.calibrations import read_calibration
from pairmark.service.store.reports import leaderboard_of
from pairmark.service.store.versions import (
    StoredReport,
    VersionStore,
    version_out,
)
from pairmark.service.tables import CalibrationRow, ModelVersion

LEAST_KEY_BYTES = 16
MAX_SIGNATURE_BYTES = 256
MAX_MANIFEST_BYTES = 256 * 1024**2
_CHUNK = 1024 * 1024
Manifest = TypeVar("Manifest", bound=BaseModel)


class SignedArchive:
    """One archive, open; closed when its block ends.

    Parameters
    ----------
    file : to write where ``to_write``, else to read. name : of the manifest.
    made_by : the command that writes such archives. label : what refusals call the file.
    """

    def __init__(
        self, file: BinaryIO | Path, name: str, made_by: str, label: str = "file", *, to_write: bool = False
    ) -> None:
        self._manifest, self._signature = f"{name}.json", f"{name}.sig"
        self._made_by, self._label = made_by, label
        self._damage = partial(
            damage_refused, f"{label}: not a whole zip file; expected a file made by {made_by}", "file"
        )
        with self._damage():
            self.bundle = zipfile.ZipFile(file, "w" if to_write else "r", allowZip64=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bundle.close()

    def add(self, entry: str, path: Path) -> None:
        """Add a file, unless it is there."""
        if entry not in self.bundle.NameToInfo:
            with path.open("rb") as source, self.bundle.open(_entry(entry), "w", force_zip64=True) as sink:
                shutil.copyfileobj(source, sink, _CHUNK)

    def seal(self, manifest: BaseModel, settings: Settings) -> None:
        """Add the manifest, signed where a key is set."""
        body = manifest.model_dump_json(indent=1).encode()
        self.bundle.writestr(_entry(self._manifest), body)
        if settings.import_key_file is not None:
            self.bundle.writestr(_entry(self._signature), _signature_of(body, settings.import_key_file))

    @property
    def members(self) -> list[str]:
        """Names of its entries, the manifest and the signature aside."""
        return [name for name in self.bundle.namelist() if name not in (self._manifest, self._signature)]

    def opened(self, form: type[Manifest], settings: Settings) -> tuple[Manifest, bool]:
        """The manifest, and whether it has a good signature.

        Raises
        ------
        InvalidInput
            When it is not in the expected form, or its signature does not allow it here.
        """
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in self.bundle.infolist()):
            raise InvalidInput(f"{self._label}: it was repacked; expected it as {self._made_by} wrote it")
        body = self._read(self._manifest, MAX_MANIFEST_BYTES)
        if body is None:
            raise InvalidInput(
                f"{self._label}: it contains no {self._manifest}; expected a file made by {self._made_by}"
            )
        is_signed = self._is_signed(body, settings)
        try:
            return form.model_validate_json(body), is_signed
        except ValidationError as error:
            raise InvalidInput(
                f"{self._label}: {self._manifest} is not in the expected form; write the file again"
            ) from error

    def extract(self, entry: str, path: Path) -> str:
        """Write an entry to a new file; returns its sha256. `CorruptArtefact` where there is none."""
        digest = hashlib.sha256()
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._damage(), self.bundle.open(entry) as source, path.open("xb") as sink:
                while chunk := source.read(_CHUNK):
                    digest.update(chunk)
                    with storage_errors(f"unpacking {self._label}"):
                        sink.write(chunk)
        except KeyError as error:
            raise CorruptArtefact(f"{self._label} lacks {entry}: it is not whole") from error
        return digest.hexdigest()

    def _read(self, name: str, most: int) -> bytes | None:
        """A short entry; None where there is not exactly one that is short enough."""
        with self._damage():
            if self.bundle.namelist().count(name) != 1 or self.bundle.getinfo(name).file_size > most:
                return None
            return self.bundle.read(name)

    def _is_signed(self, manifest: bytes, settings: Settings) -> bool:
        """Hold a manifest against its signature: True when it is good, False when no key is set to check it with.

        Raises
        ------
        InvalidInput
            When there is no signature though a key is set or signatures are required, or it was made with another key
            or for another manifest.
        """
        if settings.import_key_file is None:
            if settings.require_signed_imports:
                raise InvalidInput(
                    f"{self._label}: signatures cannot be checked here: set PAIRMARK_IMPORT_KEY_FILE"
                )
            return False
        signature = self._read(self._signature, MAX_SIGNATURE_BYTES)
        if signature is None:
            raise InvalidInput(
                f"{self._label}: is not signed, and this service takes signed files only; write it again where "
                "PAIRMARK_IMPORT_KEY_FILE holds the same key"
            )
        expected = _signature_of(manifest, settings.import_key_file)
        if not hmac.compare_digest(expected.encode(), signature.strip()):
            raise InvalidInput(
                f"{self._label}: the signature is not valid: the file was changed, or signed with another key"
            )
        return True


def _entry(name: str) -> zipfile.ZipInfo:
    # A fixed date: the same content always gives the same file.
    return zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))


def _signature_of(manifest: bytes, key_file: Path) -> str:
    try:
        key = key_file.read_bytes().strip()
    except OSError as error:
        raise NotReady(f"PAIRMARK_IMPORT_KEY_FILE cannot be read: {error.strerror}") from error
    if len(key) < LEAST_KEY_BYTES:
        raise NotReady(
            f"PAIRMARK_IMPORT_KEY_FILE holds {len(key)} bytes; expected at least {LEAST_KEY_BYTES}"
        )
    return f"hmac-sha256:{hmac.new(key, manifest, hashlib.sha256).hexdigest()}"


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
    """Write ``NAME-VERSION.pairmark.zip`` into ``folder``, one for the purpose; returns its path."""
    with versions.db.read() as session:
        model, row = versions.resolved(session, ModelRef(name=name, version=version))
        calibration = None if row.calibration_id is None else session.get(CalibrationRow, row.calibration_id)
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
    with storage_errors("exporting"):
        folder.mkdir(parents=True, exist_ok=True)
        with SignedArchive(target, FORMAT, MADE_BY, to_write=True) as archive:
            archive.seal(export, versions.settings)
            for entry, path in sources.items():
                archive.add(entry, path)
    return target


Imported = tuple[str, ModelVersion, CalibrationRow | None]
"""A name, and rows of a version and its calibration as `ModelStore.register` takes them."""


@contextmanager
def import_version(versions: VersionStore, file: BinaryIO, name: str | None) -> Iterator[Imported]:
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
        imported = _verify_export(export, folders, name, is_signed=is_signed)
        _, new, calibrated = imported
        blob_keys: dict[str, str] = {}
        try:
            for part, folder in folders.items():
                if any(folder.iterdir()):
                    blob_keys[part] = versions.blobs.put_folder(folder)
            new.artefact, new.report = blob_keys["artefact"], blob_keys.get("report")
            if calibrated is not None:
                calibrated.blob = blob_keys["calibration"]
            yield imported
        except BaseException:
            delete_unused(versions.db, versions.blobs, blob_keys.values())
            raise


def _unpack(file: BinaryIO, folders: dict[str, Path], settings: Settings) -> tuple[_Export, bool]:
    """Check names, sizes, the signature and hashes, and write each entry to its folder; says also whether it is
    signed."""
    max_bytes = settings.max_upload_bytes
    with SignedArchive(file, FORMAT, MADE_BY) as archive:
        # 1. Bounds, before anything is unpacked.
        entries = archive.bundle.infolist()
        if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > max_bytes:
            raise TooLarge(
                f"the export unpacks to more than {max_bytes} bytes or {MAX_ENTRIES} entries: raise "
                "PAIRMARK_MAX_UPLOAD_BYTES if it is yours",
                limit=max_bytes,
            )
        # 2. The manifest and its signature, ...
        export, is_signed = archive.opened(_Export, settings)
        if export.format != FORMAT or export.format_version > FORMAT_VERSION:
            raise InvalidInput(
                f"file: format {export.format[:40]} {export.format_version}, this code reads {FORMAT} up to "
                f"{FORMAT_VERSION}: upgrade pairmark"
            )
        # 3. ... which lists each entry with its hash: none is missing, more or changed.
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


def _verify_export(
    export: _Export, folders: dict[str, Path], name: str | None, *, is_signed: bool
) -> Imported:
    """Load what is to be registered; facts come from the artefact itself."""
    described = export.version
    try:
        artefact = read_artefact(folders["artefact"])
        model = restore_learner(artefact)
        if artefact.sha256 != described.artefact_sha256 or artefact.kind != described.kind:
            raise ArtefactError("the artefact is not the one that the manifest names")
        if (export.calibration is not None) != any(folders["calibration"].iterdir()):
            raise ArtefactError("the calibration's files and facts do not go together")
        new_name = checked_name(name or described.model, "model")
        # What the file says of the model is not believed: kind, parameters and width are those of what was loaded.
        new = ModelVersion(
            kind=artefact.kind,
            capabilities=sorted(_capabilities(described, model)),
            params=artefact.params,
            metrics=described.metrics,
            lineage={**described.lineage, "imported_from": f"{described.model}:{described.version}"},
            facts={**described.facts, "n_features": int(model.n_features_in_)},
            artefact_sha256=artefact.sha256,
        )
        _check_shown(new_name, new, folders["report"])
        calibration = _calibration_of(export, folders["calibration"], is_signed=is_signed)
    except CorruptArtefact as error:
        raise InvalidInput(f"file: {error.detail}") from error
    except (ArtefactError, KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInput(f"file: cannot be loaded: {str(error)[:500]}") from error
    return new_name, new, calibration


def _calibration_of(export: _Export, folder: Path, *, is_signed: bool) -> CalibrationRow | None:
    """The calibration that the file holds: shown is what follows from its scores, not what the file says."""
    described = export.calibration
    if described is None:
        return None
    calibration = read_calibration(folder)
    # Who signs a calibration that came unsigned signs that mark too.
    is_trusted = is_signed and described.summary.get("imported") != "unsigned"
    own = calibration if is_trusted else calibration.without_guarantee()
    mark = {"imported": "signed" if is_trusted else "unsigned"}
    return CalibrationRow(**dict(described) | {"summary": {**described.summary, **mark, **own.summary()}})


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


def _check_shown(name: str, new: ModelVersion, report: Path) -> None:
    """Make the documents about the version, which every later request for them would fail to make."""
    row = ModelVersion(**new.values() | {"version": 1, "created_at": 0.0})
    json.dumps([new.metrics, new.lineage, new.facts, new.params], allow_nan=False)
    version_out(name, row, [], [])
    leaderboard_of(row)
    if any(report.iterdir()):
        stored = StoredReport(report)
        stored.roc()
        if stored.pr() is not None:
            # What a decision by it tells.
            _ = [new.metrics[name]["value"] for name in MEASURES]
        _ = stored.columns, stored.trained_on


def _check_names(what: str, names: Any, n: int) -> None:
    distinct = {name for name in names if isinstance(name, str)}
    if not isinstance(names, list) or not len(distinct) == len(names) == n:
        raise ArtefactError(f"{what} are not {n} distinct names")
