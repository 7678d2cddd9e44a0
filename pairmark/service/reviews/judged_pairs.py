"""Datasets made of what people judged."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from starlette.datastructures import UploadFile

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.schemas.reviews import (
    JudgedDatasetRequest,
    OutcomesDatasetRequest,
)
from pairmark.service.datasets.ingest import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput
from pairmark.service.reviews import repository
from pairmark.service.reviews.reviews import existing_review, known_model_id

MOST_PAIRS: Final = 100_000


class JudgedPairs:
    """Makes datasets of pairs that people judged, as far as their sides are kept: they train, and calibrate nothing."""

    def __init__(self, db: Database, datasets: Datasets) -> None:
        self._db, self._datasets = db, datasets

    def of_review(self, review_id: str, request: JudgedDatasetRequest) -> DatasetOut:
        """The judged pairs of a review; what nobody could tell is left out."""
        with self._db.read() as session:
            review = existing_review(session, review_id)
            rows, columns = repository.judged_items(session, review_id), review.source.get("columns")
        pairs = [
            (row.sides["left"], row.sides["right"], row.same)
            for row in rows
            if row.sides is not None and row.same is not None
        ]
        return self._add_dataset(request.name, pairs, columns)

    def of_outcomes(self, request: OutcomesDatasetRequest) -> DatasetOut:
        """Outcomes from elsewhere, of pairs whose sides are kept under the same refs."""
        with self._db.read() as session:
            model_id = known_model_id(session, request.model)
            rows = repository.outcomes_with_sides(session, request.model, model_id, MOST_PAIRS)
        pairs = [(sides["left"], sides["right"], same) for sides, same in rows]
        return self._add_dataset(request.name, pairs)

    def _add_dataset(
        self, name: str, pairs: Sequence[tuple[Any, Any, bool]], columns: dict[str, str] | None = None
    ) -> DatasetOut:
        if not pairs:
            raise InvalidInput(
                "there is no judged pair whose sides are kept; expected some. A model's policy keeps sides with "
                '{"reviews": {"sides": true}}'
            )
        rows = [side for left, right, _ in pairs for side in (left, right)]
        if (
            len({type(row) for row in rows}) > 1
            or len({len(row) for row in rows if isinstance(row, list)}) > 1
        ):
            raise InvalidInput(
                "the judged pairs are of several kinds or dimensions; expected those of one model"
            )
        records = isinstance(rows[0], dict)
        cells = rows if records else [{f"x{at}": cell for at, cell in enumerate(row)} for row in rows]
        lines = (
            {"left": 2 * at, "right": 2 * at + 1, "same": int(same)} for at, (*_, same) in enumerate(pairs)
        )
        return self._datasets.add(
            UploadFile(_table(cells), filename="points.csv"),
            DatasetRequest.model_validate({"name": name, "columns": columns or ({} if records else None)}),
            pairs=UploadFile(_table(lines), filename="pairs.csv"),
            chosen=True,
        )


def _table(rows: Iterable[Mapping[str, Any]]) -> io.BytesIO:
    text = io.StringIO(newline="")
    lines = list(rows)
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in lines for name in row)), restval="")
    writer.writeheader()
    writer.writerows(lines)
    return io.BytesIO(text.getvalue().encode())
