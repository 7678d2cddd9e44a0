"""A deployment to test with: database, storage and repositories, with small data."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.schemas.jobs import JobRequest
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.settings import Settings
from pairmark.service.store.store import ModelStore
from pairmark.service.training.trainer import Trainer
from pairmark.service.training.validation import TrainingQueue

SMALL_FOREST: dict[str, Any] = {
    "n_estimators": 3,
    "max_depth": 4,
    "leaf_depth": 2,
    "n_pairs": 2_000,
    "random_state": 0,
}


def people(
    n: int, rows: int, *, seed: int = 0, first: int = 0, width: int = 6
) -> tuple[np.ndarray, np.ndarray]:
    """``rows`` samples of each of ``n`` people around a point of their own."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(n, width)) * 2, rows, axis=0) + rng.normal(size=(n * rows, width)) * 0.5
    return X.astype(np.float32), np.repeat(np.arange(first, first + n), rows)


@dataclass(frozen=True)
class Deployment:
    """Everything a test of training or of the store needs."""

    settings: Settings
    db: Database
    blobs: Blobs
    folder: Path

    @property
    def datasets(self) -> Datasets:
        return Datasets(self.db, self.blobs, self.settings)

    @property
    def queue(self) -> TrainingQueue:
        return TrainingQueue(self.db, self.settings)

    @property
    def store(self) -> ModelStore:
        return ModelStore(self.db, self.blobs, self.settings)

    def upload(
        self, name: str, X: np.ndarray, y: np.ndarray | None = None, *, pairs: str | None = None
    ) -> DatasetOut:
        file = self.folder / f"{name}.npz"
        np.savez(file, **({"X": X} if y is None else {"X": X, "y": y}))
        listed = None
        if pairs is not None:
            listed = self.folder / f"{name}-pairs.csv"
            listed.write_text(pairs)
        few = y is not None and np.unique(y).size < 30
        return self.datasets.add(
            file,
            DatasetRequest(name=name, classes="y" if few else None, unlabelled=y is None and pairs is None),
            pairs=listed,
        )

    def request(self, **changes: Any) -> JobRequest:
        return JobRequest.model_validate(
            {
                "learner": "similarity-forest",
                "dataset": "people",
                "model": "faces",
                "params": SMALL_FOREST,
                "evaluation": {"n_pairs": 3_000},
                "promote": True,
                **changes,
            }
        )

    def train(self, **changes: Any) -> int:
        """Submit and run one job in this process; returns the version."""
        claim = self.queue.leases.claim("test", job_id=self.queue.submit(self.request(**changes)).id)
        assert claim is not None
        return Trainer(self.db, self.blobs, self.settings).run(claim)


@pytest.fixture
def deployment(settings: Settings, database: Database, blobs: Blobs, tmp_path: Path) -> Deployment:
    """A deployment with the dataset ``people``: 40 people, 5 samples each."""
    made = Deployment(settings, database, blobs, tmp_path)
    made.upload("people", *people(40, 5))
    return made


def of_all_pages(page: Callable[..., Any]) -> list[Any]:
    """The entries of every page; ``page`` takes a ``cursor``."""
    entries, part = [], page(cursor=None)
    while part.next_cursor is not None:
        entries += part.items
        part = page(cursor=part.next_cursor)
    return entries + part.items


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch):
    import boto3

    for name, value in {
        "AWS_ENDPOINT_URL": s3_server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = boto3.resource("s3").Bucket("bucket")
    bucket.create()
    yield bucket
    bucket.objects.all().delete()
    bucket.delete()
