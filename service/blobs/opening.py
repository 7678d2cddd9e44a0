"""Which blob storage the settings name."""

from __future__ import annotations

from pathlib import Path

from pairmark.service.blobs.base import Blobs
from pairmark.service.blobs.local import LocalBlobs
from pairmark.service.errors import InvalidInput
from pairmark.service.settings import Settings


def open_blobs(settings: Settings) -> Blobs:
    """The blob storage that the settings name: a folder, or ``s3://bucket/prefix``.

    Raises
    ------
    InvalidInput
        When the address is of another scheme, or S3 is named and boto3 is not installed.
    """
    address = settings.resolved_artefacts
    if address.startswith("s3://"):
        from pairmark.service.blobs.s3 import S3Blobs

        return S3Blobs(address, cache=settings.home / "cache")
    if "://" in address:
        raise InvalidInput(f"PAIRMARK_ARTEFACTS is {address!r}; expected a folder or s3://bucket/prefix")
    return LocalBlobs(Path(address))
