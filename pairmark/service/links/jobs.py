"""Link jobs: stored tables in, a file of links out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from pairmark.models.core.progress import listening
from pairmark.models.records.tables import declaration
from pairmark.service.blobs import Blobs, hold
from pairmark.service.datasets.data import LabelledData, row_name
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.jobs.queue import Claim, JobQueue, Progress
from pairmark.service.links import repository
from pairmark.service.links.linking import link_files
from pairmark.service.links.links import FILE
from pairmark.service.settings import Settings

_STAGES = {"loading": (0.0, 0.1), "linking": (0.1, 1.0)}
_ID = "__id__"
_ROWS = 4_096


class Linker:
    """Runs one attempt at a link job."""

    def __init__(self, db: Database, blobs: Blobs, settings: Settings) -> None:
        self._db, self._blobs, self._settings = db, blobs, settings
        self._queue = JobQueue(db, settings)
        self._datasets = Datasets(db, blobs, settings)

    def run(self, claim: Claim) -> str:
        """Link, and keep what was found; returns the id of the links."""
        progress = Progress(self._queue, claim, _STAGES)
        progress.stage("loading")
        with self._blobs.workspace() as work:
            files: list[Path] = []
            columns: dict[str, str] = {}
            for name, dataset_id in (("left", claim.dataset_id), ("right", claim.unlabelled_id)):
                if dataset_id is not None:
                    data = self._datasets.load(dataset_id)
                    files.append(_written(data, work / f"{name}.csv"))
                    columns |= _types(data)
            progress.stage("linking")
            out, scratch = work / "out", work / "scratch"
            out.mkdir()
            scratch.mkdir()
            with listening(progress.within):
                summary = link_files(
                    files,
                    scratch,
                    self._settings,
                    out=out / FILE,
                    id_column=_ID,
                    columns=columns,
                    false_links=claim.params["false_links"],
                )
            key = self._blobs.put_folder(out)
        with self._db.write() as session:
            hold(session, self._blobs, key)
            found = {"summary": summary.model_dump(mode="json"), "blob": key}
            repository.keep(session, claim.job_id, claim.model, claim.params, claim.created_at, **found)
            message = f"{summary.links:,} links, {summary.entities:,} entities"
            self._queue.finish(claim, session, result={"links": claim.job_id}, message=message)
        return claim.job_id


def _types(data: LabelledData) -> dict[str, str]:
    """Types of a table's columns as `_written` writes them."""
    assert data.schema is not None
    compared = {column.name for column in data.schema.fields}
    types = {name: kind for name, kind in declaration(data.schema).items() if name in compared}
    return {name: "date:YYYY-MM-DD" if kind.startswith("date") else kind for name, kind in types.items()}


def _written(data: LabelledData, path: Path) -> Path:
    """A stored table as CSV, its compared columns after its rows' ids."""
    assert data.schema is not None
    names = [column.name for column in data.schema.fields]
    with path.open("w", newline="", encoding="utf-8") as stream:
        lines = csv.writer(stream)
        lines.writerow([_ID, *names])
        for start in range(0, len(data), _ROWS):
            cells = np.asarray(data.X[start : start + _ROWS])
            for row, record in enumerate(data.schema.values(cells), start):
                lines.writerow([row_name(data, row), *(_text(record.get(name)) for name in names)])
    return path


def _text(cell: Any) -> Any:
    return ", ".join(map(str, cell)) if isinstance(cell, list) else cell
