"""Runs the parallel parts of a fit on this machine's cores or on a Dask cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from joblib import parallel_config

from pairmark.models.core.spec import LearnerSpec
from pairmark.service.cluster import connected
from pairmark.service.settings import Settings

CONNECT_S = 30


@contextmanager
def engine(spec: LearnerSpec, settings: Settings) -> Iterator[None]:
    """Run joblib's parallel parts inside the block on the cluster, if there is one and the learner can use it.

    Results do not depend on where they were made: learners draw every seed before parallel work begins.

    Raises
    ------
    NotReady
        When the cluster cannot be reached, or Dask is not installed.
    """
    if settings.dask_scheduler is None or not spec.distributes:
        yield
        return
    client = connected(settings.dask_scheduler, CONNECT_S)
    try:
        with parallel_config(backend="dask", client=client, n_jobs=-1):
            yield
    finally:
        client.close()
