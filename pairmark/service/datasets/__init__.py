"""Uploads: files in, typed arrays stored, versions listed."""

from pairmark.schemas.datasets import DatasetOut, DatasetPage, DatasetRequest
from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.ingest import Datasets

__all__ = ["DatasetOut", "DatasetPage", "DatasetRequest", "Datasets", "LabelledData"]
