"""Uploads become versions that are opened as they were sent, on both databases."""

import io
from functools import partial

import numpy as np
import pytest
from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetRequest
from pairmark.service.blobs import Blobs
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import Conflict, UnknownDataset
from pairmark.service.settings import Settings
from pairmark.service.tables import JobRow
from tests.service.conftest import of_all_pages

pytestmark = pytest.mark.each_database

CSV = b"who,a,b\nann,1,0.5\nbob,2,0.25\nann,3,1e-3\n"


@pytest.fixture
def datasets(database: Database, blobs: Blobs, settings: Settings) -> Datasets:
    return Datasets(database, blobs, settings)


def add(datasets: Datasets, content: bytes = CSV, name: str = "people", label: str | None = "who", **request):
    return datasets.add(
        UploadFile(io.BytesIO(content), filename="file.csv"),
        DatasetRequest(name=name, label=label, **request),
    )


def test_the_same_upload_again_is_the_same_version_and_another_is_the_next(datasets: Datasets) -> None:
    first = add(datasets)
    again = add(datasets)
    assert (again.id, again.existing, first.existing) == (first.id, True, False)
    assert add(datasets, exclude=["b"]).version == 2
    # Going back is a new version: plain `people` must mean what was sent last.
    assert add(datasets).version == 3
    assert (datasets.get("people").version, datasets.get("people:1").id) == (3, first.id)


def test_deleting_takes_the_bytes_unless_another_version_holds_them(datasets: Datasets, blobs: Blobs) -> None:
    first = add(datasets, name="one")
    second = add(datasets, name="two")
    datasets.delete("one")
    np.testing.assert_array_equal(datasets.load(second.id).X[0], np.float32([1, 0.5]))
    datasets.delete("two")
    assert list(blobs.ages()) == []
    with pytest.raises(UnknownDataset):
        datasets.load(first.id)


@pytest.mark.parametrize("column", ["dataset_id", "unlabelled_id"])
def test_a_dataset_that_a_job_waits_for_stays(datasets: Datasets, database: Database, column: str) -> None:
    out = add(datasets)
    facts = dict.fromkeys(("dataset_id", "unlabelled_id"), "other") | {column: out.id}
    with database.write() as session:
        session.add(
            JobRow(
                id="j1",
                learner="l",
                dataset="people:1",
                model="m",
                params={},
                evaluation={},
                state="queued",
                created_at=0.0,
                **facts,
            )
        )
    with pytest.raises(Conflict, match="j1"):
        datasets.delete("people")
    with database.write() as session:
        session.get_one(JobRow, "j1").state = "succeeded"
    datasets.delete("people")


def test_pages_hold_every_dataset_once_newest_first(datasets: Datasets) -> None:
    for number in range(5):
        add(datasets, name=f"d{number}")
    assert [item.name for item in of_all_pages(partial(datasets.page, 2))] == ["d4", "d3", "d2", "d1", "d0"]
