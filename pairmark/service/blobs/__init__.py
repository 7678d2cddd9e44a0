"""Content-addressed, immutable folders: what datasets, models and calibrations keep outside the database."""

from pathlib import Path

from pairmark.service.blobs.collect import collect, delete_unused, hold
from pairmark.service.blobs.local import Blobs
from pairmark.service.errors import InvalidInput
from pairmark.service.settings import Settings

__all__ = ["Blobs", "collect", "delete_unused", "hold", "open_blobs"]


def open_blobs(settings: Settings) -> Blobs:
    """The blob storage that the settings name: a folder, or ``s3://bucket/prefix``."""
    address = settings.resolved_artefacts
    if address.startswith("s3://"):
        from pairmark.service.blobs.s3 import S3Blobs

        return S3Blobs(address, cache=settings.home / "cache")
    if "://" in address:
        raise InvalidInput(f"PAIRMARK_ARTEFACTS is {address!r}; expected a folder or s3://bucket/prefix")
    return Blobs(Path(address))
