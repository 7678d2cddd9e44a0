"""Signatures of exported versions and backups: HMAC-SHA256 under a key that the services of one owner share."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from pairmark.service.errors import InvalidInput, NotReady
from pairmark.service.settings import Settings

LEAST_KEY_BYTES = 16
_SCHEME = "hmac-sha256:"


def signature_of(manifest: bytes, key_file: Path) -> str:
    """The signature of an export's manifest, which holds the hash of every other file."""
    return _SCHEME + hmac.new(_key(key_file), manifest, hashlib.sha256).hexdigest()


def check_signature(
    manifest: bytes, signature: str | None, settings: Settings, *, file: str = "file"
) -> bool:
    """Hold a manifest against its signature: True when it is good, False when no key is set to check it with.

    Raises
    ------
    InvalidInput
        When there is no signature though a key is set or signatures are required, or it was made with another key or
        for another manifest.
    """
    if settings.import_key_file is None:
        if settings.require_signed_imports:
            raise InvalidInput(f"{file}: signatures cannot be checked here: set PAIRMARK_IMPORT_KEY_FILE")
        return False
    if signature is None:
        raise InvalidInput(
            f"{file}: is not signed, and this service takes signed files only; write it again where "
            "PAIRMARK_IMPORT_KEY_FILE holds the same key"
        )
    if not hmac.compare_digest(
        signature_of(manifest, settings.import_key_file).encode(), signature.strip().encode()
    ):
        raise InvalidInput(
            f"{file}: the signature is not valid: the file was changed, or signed with another key"
        )
    return True


def _key(file: Path) -> bytes:
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise NotReady(f"PAIRMARK_IMPORT_KEY_FILE cannot be read: {error.strerror}") from error
    if len(key) < LEAST_KEY_BYTES:
        raise NotReady(
            f"PAIRMARK_IMPORT_KEY_FILE holds {len(key)} bytes; expected at least {LEAST_KEY_BYTES}"
        )
    return key
