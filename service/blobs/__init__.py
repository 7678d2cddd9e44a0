"""Content-addressed, immutable folders: what datasets, models and calibrations keep outside the database."""

from pairmark.service.blobs.base import Blobs
from pairmark.service.blobs.collect import collect, delete_unused, hold
from pairmark.service.blobs.local import LocalBlobs
from pairmark.service.blobs.opening import open_blobs

__all__ = ["Blobs", "LocalBlobs", "collect", "delete_unused", "hold", "open_blobs"]
