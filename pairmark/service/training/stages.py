"""The records of a job: each stage takes the one before and adds what it made."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.arrays import Int64
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.pairs import EvaluationReport
from pairmark.models.evaluation.precision import PrecisionReport
from pairmark.models.pairs.held_out import HeldOutPairs
from pairmark.models.records.encoder import RecordEncoder
from pairmark.service.datasets.data import LabelledData
from pairmark.service.jobs.leases import Claim


@dataclass(frozen=True, kw_only=True)
class LoadedJob:
    """The job and its data.

    Attributes
    ----------
    cells : the points as they were loaded; last those of ``strangers``.
    X : the points as the learner takes them, likewise.
    strangers : numbers of rows of which each is another person; none unless they were named.
    unlabelled : further rows for learners that use some; None without.
    encoder : what made vectors of a table's records, for a learner that takes vectors.
    seed : of the split and of what the learner draws: the learner's own, so that one number repeats the job.
    """

    claim: Claim
    spec: LearnerSpec
    data: LabelledData
    cells: Any = field(repr=False)
    X: Any = field(repr=False)
    strangers: Int64 = field(repr=False)
    unlabelled: LabelledData | None
    seed: int
    encoder: RecordEncoder | None = None

    @property
    def unencoded(self) -> Any:
        """The points as the learner takes them, those of a table as its records."""
        return self.X if self.data.schema is None else self.cells


@dataclass(frozen=True, kw_only=True)
class Fold:
    """What one fold's model learns from: rows, and numbers of listed pairs where the dataset lists some."""

    rows: Int64 = field(repr=False)
    pairs: Int64 | None = field(repr=False, default=None)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is trained on and what is held out.

    Attributes
    ----------
    rows : training rows. pairs : numbers of the listed training pairs, when the dataset lists pairs.
    learned : the rows that the learner learns from: ``rows``, or none where it learns nothing.
    calibration, test : held-out pairs to score; None for a learner that scores none.
    calibration_rows : rows held out to calibrate on.
    test_rows : held-out rows that are judged one by one: rankings, and rows of learned classes; else None.
    folds : where figures come from folds, what each fold's model learns from; `HeldOutPairs.folds` of ``test`` says
        whom it scores. The model that is kept learns from ``rows`` as a whole.
    sizes : rows (or listed pairs) in each part, for the lineage.
    """

    protocol: str
    rows: Int64 = field(repr=False)
    pairs: Int64 | None = field(repr=False, default=None)
    learned: Int64 = field(repr=False)
    calibration: HeldOutPairs | None = None
    test: HeldOutPairs | None = None
    calibration_rows: Int64 = field(repr=False, default_factory=lambda: np.empty(0, dtype=np.int64))
    test_rows: Int64 | None = field(repr=False, default=None)
    folds: tuple[Fold, ...] = field(repr=False, default=())
    sizes: dict[str, int]

    def of_fold(self, number: int) -> Parts:
        """The parts as that fold's model sees them."""
        fold = self.folds[number]
        return replace(self, rows=fold.rows, learned=fold.rows, pairs=fold.pairs)

    @property
    def calibrates_by_folds(self) -> bool:
        """Whether the threshold comes from folds, too: everybody trains, since nothing can be guaranteed."""
        return self.calibration is not None and self.calibration.folds is not None


@dataclass(frozen=True, kw_only=True)
class SplitJob(LoadedJob):
    """The job, split."""

    parts: Parts

    @property
    def row_units(self) -> Int64 | None:
        """The group of each of `Parts.test_rows`, where rows of one group depend on each other."""
        groups = self.data.groups
        return None if groups is None else np.asarray(groups)[self.parts.test_rows]


@dataclass(frozen=True, kw_only=True)
class FittedJob(SplitJob):
    """The job with its learner, fitted on the training part, and those of its folds."""

    estimator: Any
    fold_models: tuple[Any, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScoredJob(FittedJob):
    """The job with what the learner says of the held-out parts.

    Attributes
    ----------
    calibration_scores, test_scores : of the held-out pairs; None for a learner that scores none.
    row_predictions : of `Parts.test_rows`: predicted positions, or probabilities of classes.
    """

    calibration_scores: NDArray[np.float32] | None = field(repr=False, default=None)
    test_scores: NDArray[np.float32] | None = field(repr=False, default=None)
    row_predictions: NDArray[np.float64] | None = field(repr=False, default=None)


@dataclass(frozen=True, kw_only=True)
class CalibratedJob(ScoredJob):
    """The job with what operating points are computed from; None for a learner that scores no pairs."""

    calibration: Calibration | None


@dataclass(frozen=True, kw_only=True)
class Promotion:
    """What becomes of an alias.

    Attributes
    ----------
    alias : that moves to the new version; None for none.
    only_from : where the alias must stand for that: a version, or 0 for nowhere; None for anywhere.
    reason : a sentence for the job's owner.
    facts : JSON-able, kept with the version; None where nothing was compared.
    """

    alias: str | None
    only_from: int | None = None
    reason: str = ""
    facts: dict[str, Any] | None = field(default=None)


@dataclass(frozen=True, kw_only=True)
class EvaluatedJob(CalibratedJob):
    """The job with everything that was measured.

    Attributes
    ----------
    metrics : JSON-able. curve : the ROC, for a learner that scores pairs.
    precision : what matches are worth, for one that scores records.
    columns : what leaving columns of records out costs.
    leaderboard : the model among baselines.
    promotion : which alias moves to the version, and why.
    """

    metrics: dict[str, Any]
    curve: EvaluationReport | None
    precision: PrecisionReport | None
    leaderboard: dict[str, Any]
    promotion: Promotion
    columns: list[dict[str, Any]]
