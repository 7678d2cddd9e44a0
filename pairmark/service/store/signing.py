"""Signatures of exported versions: HMAC-SHA256 under a key that the services of one owner share."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

from pairmark.service.errors import InvalidInput, NotReady
from pairmark.service.settings import Settings

LEAST_KEY_BYTES = 16
_SCHEME = "hmac-sha256:"


def signed(manifest: bytes, key_file: Path) -> str:
    """The signature of an export's manifest, which holds the hash of every other file."""
    return _SCHEME + hmac.new(_key(key_file), manifest, hashlib.sha256).hexdigest()


def check_signature(manifest: bytes, signature: str | None, settings: Settings) -> None:
    """Hold a manifest against its signature; `InvalidInput` when there is none though one is required, or it was made
    with another key or for another manifest."""
    if signature is None:
        if settings.require_signed_imports:
            raise InvalidInput(
                "file: is not signed, and this service imports signed versions only; export it from a service whose "
                "PAIRMARK_IMPORT_KEY_FILE holds the same key"
            )
        return
    if settings.import_key_file is None:
        raise InvalidInput("file: signatures cannot be checked here: set PAIRMARK_IMPORT_KEY_FILE")
    if not hmac.compare_digest(
        signed(manifest, settings.import_key_file).encode(), signature.strip().encode()
    ):
        raise InvalidInput(
            "file: the signature is not valid: the export was changed, or signed with another key"
        )


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
