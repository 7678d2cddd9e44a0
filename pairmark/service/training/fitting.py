"""Fit a learner on the training part."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from joblib import parallel_config

from pairmark.models.core.inputs import checked_pairs
from pairmark.models.core.progress import listening
from pairmark.models.core.spec import LearnerSpec
from pairmark.models.records.encoder import RecordEncoder
from pairmark.models.records.estimator import RecordSimilarity
from pairmark.models.records.tables import declaration
from pairmark.service.cluster import connected
from pairmark.service.errors import refusals
from pairmark.service.heldout.scoring import taken_by, widened
from pairmark.service.jobs.progress import Progress
from pairmark.service.settings import Settings
from pairmark.service.training.stages import FittedJob, LoadedJob, SplitJob

CONNECT_S = 30
JobT = TypeVar("JobT", bound=SplitJob)


def fit(job: SplitJob, settings: Settings, progress: Progress) -> FittedJob:
    """The job with its learner fitted, or `InvalidInput` when it refuses the training part."""
    spec, parts = job.spec, job.parts
    estimator = spec.estimator(
        **{**spec.params.model_validate(job.claim.params).model_dump(), **_data_params(job)}
    )
    options = _unlabelled(job, settings)
    with (
        _engine(spec, settings),
        listening(progress.within, progress.log),
        refusals("the learner refused the training part"),
    ):
        if spec.needs == "rankings":
            estimator.fit(job.X[parts.rows], np.asarray(job.data.rankings)[parts.rows])
        elif parts.pairs is None:
            estimator.fit(job.X[parts.rows], np.asarray(job.data.y)[parts.rows], **options)
        else:
            fit_listed(estimator, job, **options)
    if job.encoder is not None:
        estimator.encoder_ = job.encoder
    return FittedJob(**vars(job), estimator=estimator)


def encoded(job: JobT, *, always: bool = False) -> JobT:
    """A table's job with vectors for rows, where the learner takes those (or ``always``); others as they are.

    The encoder learns from the training rows alone.
    """
    schema = job.data.schema
    if schema is None or job.encoder is not None or (job.spec.takes_records and not always):
        return job
    sparse = job.spec.accepts_sparse and not always
    encoder = RecordEncoder(schema, sparse=sparse).fit(np.asarray(job.X)[job.parts.rows])
    return replace(job, X=encoder.transform(job.X), encoder=encoder)


def _data_params(job: SplitJob) -> dict[str, Any]:
    """What the job knows and a learner that chooses by cross-validation should: the use it is meant for."""
    claim, schema = job.claim, job.data.schema
    params: dict[str, Any] = {}
    if claim.params.get("protocol") == "auto":
        params["protocol"] = job.parts.protocol
    if job.spec.takes_records and schema is not None:
        params["columns"] = declaration(schema)
    target = claim.evaluation.target_fpr
    if target is not None and "target_fpr" in claim.params and claim.params["target_fpr"] is None:
        params["target_fpr"] = target
    return params


def fit_listed(estimator: Any, job: SplitJob, **options: Any) -> None:
    """Fit on the listed training pairs, or `ValueError` when those of positive weight are not of both kinds."""
    pairs, X, training_pairs = job.data.pairs, job.X, job.parts.pairs
    assert pairs is not None
    weight = None if pairs.weight is None else np.asarray(pairs.weight)[training_pairs]
    same = np.asarray(pairs.same)[training_pairs]
    # Some learners take pairs of one kind and learn a constant: nothing that a service should promote.
    checked_pairs(same.size, same, weight)
    left, right = (np.asarray(end)[training_pairs] for end in (pairs.left, pairs.right))
    if isinstance(estimator, RecordSimilarity):
        estimator.fit_among(X, left, right, same, weight, n_left=job.data.n_left)
    else:
        estimator.fit_pairs(X[left], X[right], same, sample_weight=weight, **options)


def _unlabelled(job: LoadedJob, settings: Settings) -> dict[str, Any]:
    if job.unlabelled is None:
        return {}
    rows = taken_by(job.spec, job.unlabelled.X, settings.max_dense_bytes)
    return {"unlabelled": widened(rows, int(job.X.shape[1]))}


@contextmanager
def _engine(spec: LearnerSpec, settings: Settings) -> Iterator[None]:
    """Run joblib's parallel parts inside the block on the cluster, if there is one and the learner can use it. Results
    do not depend on where they were made: learners draw every seed before parallel work begins."""
    if settings.dask_scheduler is None or not spec.distributes:
        yield
        return
    client = connected(settings.dask_scheduler, CONNECT_S)
    try:
        with parallel_config(backend="dask", client=client, n_jobs=-1):
            yield
    finally:
        client.close()
