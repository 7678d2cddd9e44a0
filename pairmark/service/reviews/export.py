"""Judged pairs as datasets: all of them train; only those that were drawn with one chance calibrate."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pairmark.schemas.datasets import DatasetOut, DatasetRequest
from pairmark.schemas.reviews import JudgedDatasetRequest, OutcomesDatasetRequest
from pairmark.service.datasets import Datasets
from pairmark.service.db import Database
from pairmark.service.errors import InvalidInput, UnknownModel
from pairmark.service.reviews import repository
from pairmark.service.reviews.progress import sizes_of
from pairmark.service.reviews.reviews import unknown_review

MOST_PAIRS: Final = 100_000


class JudgedPair(NamedTuple):
    """Two sides as they were sent, and what was said of them."""

    left: Any
    right: Any
    same: bool


class JudgedPairs:
    """Makes datasets of pairs that people judged, as far as their sides are kept."""

    def __init__(self, db: Database, datasets: Datasets) -> None:
        self._db = db
        self._datasets = datasets

    def of_review(self, review_id: str, request: JudgedDatasetRequest) -> DatasetOut:
        """The judged pairs of a review; what nobody could tell is left out."""
        with self._db.read() as session:
            review = repository.review(session, review_id)
            if review is None:
                raise unknown_review(review_id)
            rows = repository.judged_items(session, review_id)
            sizes = sizes_of(review)
        if request.use == "calibrate":
            if review.question != "missed-matches":
                raise InvalidInput(
                    "use=calibrate needs a review of missed-matches: the pairs of this one were chosen by their score",
                    field="use",
                )
            rows = same_chance(rows, sizes)
        pairs = [
            JudgedPair(row.sides["left"], row.sides["right"], row.same)
            for row in rows
            if row.sides is not None and row.same is not None
        ]
        return self._add_dataset(request.name, pairs, is_training=request.use == "train")

    def of_outcomes(self, request: OutcomesDatasetRequest) -> DatasetOut:
        """Outcomes from elsewhere, of pairs whose sides are kept under the same refs."""
        with self._db.read() as session:
            model_id = repository.model_id_of(session, request.model)
            if model_id is None:
                raise UnknownModel(f"there is no model {request.model!r}", field="model")
            rows = repository.outcomes_with_sides(session, request.model, model_id, MOST_PAIRS)
        return self._add_dataset(
            request.name,
            [JudgedPair(sides["left"], sides["right"], same) for sides, same in rows],
            is_training=True,
        )

    def _add_dataset(self, name: str, pairs: Sequence[JudgedPair], *, is_training: bool) -> DatasetOut:
        if not pairs:
            raise InvalidInput(
                "there is no judged pair whose sides are kept; expected some. A model's policy keeps sides with "
                '{"reviews": {"sides": true}}'
            )
        rows = [side for pair in pairs for side in (pair.left, pair.right)]
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
            {"left": 2 * at, "right": 2 * at + 1, "same": int(pair.same)} for at, pair in enumerate(pairs)
        )
        return self._datasets.add(
            _table(cells),
            DatasetRequest.model_validate({"name": name, "columns": {} if records else None}),
            filename="points.csv",
            pairs=_table(lines),
            pairs_filename="pairs.csv",
            chosen=is_training,
        )


def same_chance(rows: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    """As many of each stratum as makes their chances the same: of a stratum, judged items are in random order."""
    numbers = [sum(row.stratum == stratum for row in rows) for stratum in range(len(sizes))]
    chance = min(n / size for n, size in zip(numbers, sizes, strict=True) if size)
    n_taken = [0] * len(sizes)
    sample = []
    for row in rows:
        if n_taken[row.stratum] < math.floor(chance * sizes[row.stratum] + 1e-9):
            n_taken[row.stratum] += 1
            sample.append(row)
    return sample


def _table(rows: Iterable[Mapping[str, Any]]) -> io.BytesIO:
    text = io.StringIO(newline="")
    lines = list(rows)
    columns = dict.fromkeys(name for row in lines for name in row)
    writer = csv.DictWriter(text, list(columns), restval="")
    writer.writeheader()
    writer.writerows(lines)
    return io.BytesIO(text.getvalue().encode())
