"""Training of rankers: what is held out, and how good the rankings of those rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.evaluation.ranking_metrics import RankingSplit, ranking_metrics, split_rankings
from pairmark.service.datasets.data import LabelledData
from pairmark.service.jobs.schemas import Claim

Indices = NDArray[np.int64]

PROTOCOL = "held-out-rows"
GROUPED = "held-out-groups"
_BLOCK = 65_536


@dataclass(frozen=True, kw_only=True)
class RankerParts:
    """Rows that are learned from and rows that are judged by; rankers calibrate themselves, so none go to that."""

    protocol: str
    rows: Indices
    test: Indices
    sizes: dict[str, int]


def ranker_parts(data: LabelledData, claim: Claim, seed: int) -> RankerParts:
    """Split rows, groups whole.

    Raises
    ------
    ValueError
        When there are too few.
    """
    if data.rankings is None:
        raise ValueError("it has no rankings: upload it with `ranking`")
    split: RankingSplit = split_rankings(
        len(data), test_fraction=claim.evaluation.test_fraction, groups=data.groups, random_state=seed
    )
    return RankerParts(
        protocol=PROTOCOL if data.groups is None else GROUPED,
        rows=split.train,
        test=split.test,
        sizes={"train_rows": int(split.train.size), "test_rows": int(split.test.size)},
    )


def ranked(estimator: Any, X: Any, rows: Indices) -> NDArray[np.float64]:
    """Predicted positions of some rows, in blocks."""
    return np.concatenate(
        [
            np.asarray(estimator.predict(X[rows[start : start + _BLOCK]]))
            for start in range(0, rows.size, _BLOCK)
        ]
    )


def ranker_metrics(data: LabelledData, parts: RankerParts, predicted: NDArray[np.float64]) -> dict[str, Any]:
    """The report on held-out rows, and what one ranking for all would have done there."""
    truth = np.asarray(data.rankings)
    return ranking_metrics(
        predicted,
        truth[parts.test],
        reference=truth[parts.rows],
        units=None if data.groups is None else np.asarray(data.groups)[parts.test],
    )
