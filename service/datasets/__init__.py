"""Uploads: files in, typed arrays stored, versions listed."""

from service.datasets.data import LabelledData, Pairs
from service.datasets.ingest import Datasets
from service.datasets.schemas import DatasetOut, DatasetPage, DatasetRequest

__all__ = ["DatasetOut", "DatasetPage", "DatasetRequest", "Datasets", "LabelledData", "Pairs"]
