"""Where the parallel parts of a fit run: on this machine's cores, or on a Dask cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from joblib import parallel_config

from models.spec import LearnerSpec
from service.errors import NotReady
from service.settings import Settings

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


def connected(address: str, seconds: float) -> Any:
    """A client of the cluster.

    Raises
    ------
    NotReady
        When its scheduler does not answer within so many seconds, or Dask is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise NotReady(
            "PAIRMARK_DASK_SCHEDULER is set but Dask is not installed: pip install 'pairmark[dask]', or unset it"
        ) from error
    try:
        with warnings.catch_warnings():
            # A cluster of slightly other versions works or fails on its own; the job's log is no place for its table.
            warnings.simplefilter("ignore")
            return Client(address, timeout=seconds)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise NotReady(
            f"the Dask scheduler {address!r} does not answer within {seconds:g} s; start it, or unset "
            "PAIRMARK_DASK_SCHEDULER"
        ) from error
