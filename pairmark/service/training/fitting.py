"""The middle stages of a job: the learner and the models of its folds fit, score what was held out, and calibrate."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from joblib import parallel_config
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pairmark.models.calibration.calibration import Calibration
from pairmark.models.core.arrays import Bool, Int64
from pairmark.models.core.inputs import checked_pairs
from pairmark.models.core.progress import as_part, listening
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.evaluation.validation import GroupedRows
from pairmark.models.pairs.sampling import HeldOutPairs
from pairmark.models.records.estimator import RecordSimilarity, ScoreWithout
from pairmark.models.records.tables import declaration
from pairmark.service.datasets.held_out import taken_by
from pairmark.service.errors import refusals
from pairmark.service.jobs.leases import Progress
from pairmark.service.processes import CONNECT_S, dask_client
from pairmark.service.settings import Settings
from pairmark.service.training.splitting import LoadedJob, SplitJob, encode


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


def fit(job: SplitJob, settings: Settings, progress: Progress) -> FittedJob:
    """The job with its learners fitted, or `InvalidInput` when one refuses its training part.

    What a learner chooses is chosen once, on the whole training part: scores of folds whose models differ in kind are
    not on one scale.
    """
    estimator = job.spec.estimator(
        **{**job.spec.params.model_validate(job.claim.params).model_dump(), **_data_params(job)}
    )
    options = _unlabelled_rows(job, settings)
    fold_models = []
    n_fits = 1 + len(job.parts.folds)
    with (
        _engine(job.spec, settings),
        listening(progress.within, progress.log),
        refusals("the learner refused the training part"),
    ):
        if n_fits == 1:
            learn(estimator, job, among_rivals=True, **options)
        else:
            with as_part(0.0, 1 / n_fits, "learning from all that train"):
                learn(estimator, job, among_rivals=True, **options)
        for number in range(1, n_fits):
            with as_part(number / n_fits, (number + 1) / n_fits, f"fold {number} of {n_fits - 1}"):
                settled = job.spec.settled(estimator)
                fold = replace(job, parts=job.parts.of_fold(number - 1))
                fold_models.append(learn(settled, encode(fold), **options))
    return FittedJob(**vars(job), estimator=estimator, fold_models=tuple(fold_models))


def _data_params(job: SplitJob) -> dict[str, Any]:
    """What the job knows and a learner that chooses by cross-validation should: the use it is meant for."""
    claim, schema = job.claim, job.data.schema
    params: dict[str, Any] = {}
    if claim.params.get("protocol") == "auto":
        params["protocol"] = job.parts.protocol
    if job.spec.takes_records and schema is not None:
        params["columns"] = declaration(schema)
    return params


def _unlabelled_rows(job: LoadedJob, settings: Settings) -> dict[str, Any]:
    """Further rows for a learner that takes some; sparse ones have the columns of the job's."""
    if job.unlabelled is None:
        return {}
    rows, width = taken_by(job.spec, job.unlabelled.X, settings.max_dense_bytes), int(job.X.shape[1])
    if not isinstance(rows, np.ndarray):
        rows = rows[:, :width]
        rows = csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], width))
    return {"unlabelled": rows}


@contextmanager
def _engine(spec: LearnerSpec, settings: Settings) -> Iterator[None]:
    """Run joblib's parallel parts inside the block on the cluster, if there is one and the learner can use it. Results
    do not depend on where they were made: learners draw every seed before parallel work begins."""
    if settings.dask_scheduler is None or not spec.distributes:
        yield
        return
    with (
        dask_client(settings.dask_scheduler, CONNECT_S) as client,
        parallel_config(backend="dask", client=client, n_jobs=-1),
    ):
        yield


def learn(estimator: Any, job: SplitJob, *, among_rivals: bool = False, **options: Any) -> Any:
    """The estimator, fitted on the job's training part, or `ValueError`: of listed pairs, those of positive weight must
    be of both kinds.

    ``among_rivals`` : learn from a listed pair's rivals in the tables, too, which link jobs score by.
    """
    rows, numbers, pairs = job.parts.rows, job.parts.pairs, job.data.pairs
    if job.spec.needs == "rankings":
        estimator.fit(job.X[rows], np.asarray(job.data.rankings)[rows])
    elif numbers is None or pairs is None:
        if job.data.groups is not None and isinstance(estimator, GroupedRows):
            options["groups"] = np.asarray(job.data.groups)[rows]
        estimator.fit(job.X[rows], np.asarray(job.data.y)[rows], **options)
    else:
        weight = None if pairs.weight is None else np.asarray(pairs.weight)[numbers]
        left, right, same = (np.asarray(values)[numbers] for values in (pairs.left, pairs.right, pairs.same))
        # Some learners take pairs of one kind and learn a constant: nothing that a service should promote.
        checked_pairs(same.size, same, weight)
        if among_rivals and isinstance(estimator, RecordSimilarity):
            estimator.fit_among(job.X, left, right, same, weight, n_left=job.data.n_left)
        else:
            estimator.fit_pairs(job.X[left], job.X[right], same, sample_weight=weight, **options)
    if job.encoder is not None:
        estimator.encoder_ = job.encoder
    return estimator


def out_of_fold(
    model_of: Callable[[int], Any], folds: Int64, X: Any, left: Int64, right: Int64
) -> NDArray[np.float32]:
    """Scores of pairs, each by the model of its fold; ``model_of`` gives that of a fold's number."""
    scores = np.empty(folds.size, dtype=np.float32)
    for number in np.unique(folds).tolist():
        at, model = np.flatnonzero(folds == number), model_of(number)
        rows = X if model.encoder_ is None else model.encoder_.transform(X)
        scores[at] = model.score_pairs(rows, left[at], right[at])
    return scores


def score(job: FittedJob, progress: Progress) -> ScoredJob:
    """The job with scores of the held-out pairs and predictions for the held-out rows, or `InvalidInput` when the
    learner cannot score them."""
    parts, estimator, X = job.parts, job.estimator, job.X
    calibration = test = rows = None
    with refusals("the learner could not score the held-out part"):
        if parts.calibration is not None and parts.test is not None:
            share = len(parts.calibration) / (len(parts.calibration) + len(parts.test))

            def scores_of(pairs: HeldOutPairs, start: float, share: float) -> NDArray[np.float32]:
                if pairs.folds is not None:
                    models = job.fold_models.__getitem__
                    return out_of_fold(models, pairs.folds, job.unencoded, pairs.left, pairs.right)
                scores: NDArray[np.float32] = estimator.score_pairs(
                    X, pairs.left, pairs.right, lambda part: progress.within(start + part * share)
                )
                return scores

            calibration = scores_of(parts.calibration, 0.0, share)
            test = calibration if parts.calibrates_by_folds else scores_of(parts.test, share, 1 - share)
        if parts.test_rows is not None:
            ranks = job.spec.needs == "rankings"
            predict, size = (estimator.predict, 65_536) if ranks else (estimator.predict_proba, 4_096)
            rows = in_blocks(predict, X, parts.test_rows, size)
    return ScoredJob(**vars(job), calibration_scores=calibration, test_scores=test, row_predictions=rows)


def in_blocks(predict: Callable[[Any], Any], X: Any, rows: Int64, size: int = 65_536) -> NDArray[np.float64]:
    """What is predicted for some rows, (n, labels), ``size`` at a time."""
    starts = range(0, rows.size, size)
    return np.concatenate([np.asarray(predict(X[rows[start : start + size]])) for start in starts])


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

    def compare_once(self, X: Any, left: Int64, right: Int64) -> ScoreWithout | None:
        """Scores all pairs again without some columns, what the model of each fold compared being kept; None where all
        of that takes too much memory."""
        kept, parts = list[ScoreWithout](), [np.flatnonzero(self.folds == at) for at in np.unique(self.folds)]
        for part in parts:
            # A person is of one fold: each row is prepared once, not by each model.
            rows, ends = np.unique([left[part], right[part]], return_inverse=True)
            model, share = self.job.fold_models[self.folds[part[0]]], part.size / self.folds.size
            score_part = model.compare_once(X[rows], *ends.reshape(2, -1), share)
            if score_part is None:
                return None
            kept.append(score_part)
        order = np.argsort(np.concatenate(parts))

        def score(columns: Bool, numbers: Int64) -> NDArray[np.float32]:
            by_fold = [each(columns, np.arange(part.size)) for each, part in zip(kept, parts, strict=True)]
            return np.concatenate(by_fold)[order][numbers]

        return score

    def score_pairs(self, cells: Any, left: Int64, right: Int64) -> NDArray[np.float32]:
        """(n,) scores of the pairs, all of them in their order."""
        return out_of_fold(self.job.fold_models.__getitem__, self.folds, cells, left, right)
