"""The Dask cluster that `PAIRMARK_DASK_SCHEDULER` names: it grows forests and searches galleries."""

from __future__ import annotations

import warnings
from typing import Any

from pairmark.service.errors import NotReady


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
