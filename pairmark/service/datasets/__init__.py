"""Uploads: files in, typed arrays stored, versions listed."""

from pairmark.service.datasets.data import LabelledData
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.datasets.schemas import DatasetOut, DatasetPage, DatasetRequest

__all__ = ["DatasetOut", "DatasetPage", "DatasetRequest", "Datasets", "LabelledData"]
