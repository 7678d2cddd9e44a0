"""Signed archives, which exported versions and backups are.

A zip of stored (not compressed) entries. Its manifest, ``NAME.json``, says what they are and holds their hashes; where
a key is set, ``NAME.sig`` is the manifest's HMAC-SHA256.
"""

from __future__ import annotations

import hashlib
import hmac
import shutil
import zipfile
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self, TypeVar

from pydantic import BaseModel, ValidationError

from pairmark.service.datasets.confined import damage_refused
from pairmark.service.errors import CorruptArtefact, InvalidInput, NotReady, storage_errors
from pairmark.service.settings import Settings

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
