"""The calibrating stage: what operating points are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.arrays import Int64
from pairmark.service.errors import refusals
from pairmark.service.training.fitting import out_of_fold
from pairmark.service.training.stages import CalibratedJob, FittedJob, ScoredJob

FREQUENT_IN_FOLDS = 32
"""Choices of columns that are scored beforehand: the models of folds, which alone may score others, are not kept."""


def calibrate(job: ScoredJob) -> CalibratedJob:
    """The job with what operating points are computed from, or `InvalidInput` when the scores cannot be used."""
    pairs, scores = job.parts.calibration, job.calibration_scores
    if pairs is None or scores is None:
        return CalibratedJob(**vars(job), calibration=None)
    with refusals("the held-out calibration pairs cannot be used"):
        if pairs.folds is None:
            calibration = Calibration.of_pairs(
                scores,
                job.X,
                pairs,
                scorer=job.estimator,
                training=job.parts.learned,
                test=None if job.parts.folds else job.parts.test,
            )
        else:
            calibration = Calibration.of_pairs(scores, job.X, pairs)
            records = calibration.records
            if records is not None:
                fold_of = np.zeros(int(pairs.units.max()) + 1, dtype=np.int64)
                fold_of[pairs.units] = pairs.folds[:, None]
                scorer = FoldScorer(job, fold_of[records.units[:, 0]])
                calibration.with_records(records.with_patterns(scorer, FREQUENT_IN_FOLDS))
    return CalibratedJob(**vars(job), calibration=calibration)


@dataclass(frozen=True, eq=False)
class FoldScorer:
    """Scores records of calibration pairs, again without some columns, each pair by the model of its fold."""

    job: FittedJob
    folds: Int64

    def patterns(self, left: Any, right: Any) -> Any:
        """As of the model that is kept."""
        return self.job.estimator.patterns(left, right)

    def compare_once(self, X: Any, left: Int64, right: Int64) -> None:
        """Nothing that several models have compared serves all of them."""

    def score_pairs(self, cells: Any, left: Int64, right: Int64) -> NDArray[np.float32]:
        """(n,) scores of the pairs, all of them in their order."""
        return out_of_fold(self.job.fold_models.__getitem__, self.folds, cells, left, right)
