"""Scores of candidate pairs among their rivals, in the tables of a stored dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.registry import spec_of
from pairmark.service.datasets.data import LabelledData, rows_of_ids
from pairmark.service.errors import InvalidInput, ModelNotCapable, TooLarge
from pairmark.service.heldout.encoding import rows_for
from pairmark.service.store.calibrations import Calibrations
from pairmark.service.store.versions import VersionStore

MAX_ROWS = 200_000
"""Rows of the tables: rivals are looked up for each of them."""


class CandidateScorer:
    """Scores lists of pairs (all blocking)."""

    def __init__(self, versions: VersionStore, calibrations: Calibrations) -> None:
        self._versions, self._calibrations = versions, calibrations

    def score(
        self, name: str, version: int, dataset: str, pairs: Sequence[Sequence[str]], estimator: Any
    ) -> tuple[NDArray[np.float32], str]:
        """Scores of pairs of rows of a dataset, named by their ids (or, without ids, by 0-based numbers), and the
        dataset's id.

        Raises
        ------
        ModelNotCapable, InvalidInput, TooLarge, UnknownModel, UnknownDataset
        """
        row, data = self._calibrations.version_and_data(name, version, dataset)
        if getattr(estimator, "context_", None) is None:
            raise ModelNotCapable(
                f"{name}:{version} ({row.kind}) scores pairs alone; expected a record-trees model that was trained on "
                "a list of pairs of a table, some of either kind",
                field="model",
            )
        if len(data) > MAX_ROWS:
            raise TooLarge(
                f"dataset {data.name}:{data.version} has {len(data)} rows; rivals are looked up among at most "
                f"{MAX_ROWS}",
                limit=MAX_ROWS,
            )
        left, right = _rows(data, pairs)
        X = rows_for(estimator, spec_of(row.kind), data, self._versions.settings.max_dense_bytes)
        return estimator.score_among(X, left, right, n_left=data.n_left), data.dataset_id

    def is_calibrated_on(self, calibration_id: str, dataset_id: str) -> bool:
        """Whether a calibration's sample was drawn from the pairs of this dataset."""
        return self._calibrations.row(calibration_id)[0].dataset_id == dataset_id


def _rows(data: LabelledData, pairs: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """(2, n) rows that pairs name, or `InvalidInput` with the first that is not there."""
    sides = rows_of_ids(data)
    rows = np.empty((2, len(pairs)), dtype=np.int64)
    for at, pair in enumerate(pairs):
        for side, (of, word) in enumerate(zip(sides, ("left", "right"), strict=True)):
            row = of.get(pair[side])
            if row is None:
                raise InvalidInput(
                    f"pairs[{at}][{side}] is {pair[side][:100]!r}, which is not the id of a row"
                    + ("" if data.n_left is None else f" of the {word} table")
                    + ("" if data.row_ids is not None else f"; expected a row from 0 to {len(data) - 1}"),
                    field=f"pairs[{at}][{side}]",
                )
            rows[side, at] = row
        if rows[0, at] == rows[1, at]:
            raise InvalidInput(f"pairs[{at}] is one row twice; expected two rows", field=f"pairs[{at}]")
    return rows
