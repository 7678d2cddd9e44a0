"""Compares a link job's candidates on a Dask cluster: parts of them, each by one worker, joined here.

The tables travel through the storage of blobs, so a worker has the service's own settings in its environment
(``PAIRMARK_ARTEFACTS``, ``PAIRMARK_HOME``, ``PAIRMARK_LINK_MEMORY_BYTES``). Parts do not overlap, and what is made of
them does not depend on their order or their number: links are the same to the bit as without a cluster.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairmark.models.core.progress import report
from pairmark.service.blobs import open_blobs
from pairmark.service.errors import NotReady
from pairmark.service.links import duck
from pairmark.service.processes import CONNECT_S, dask_client
from pairmark.service.settings import Settings

_PARTS_EACH = 4
"""Parts for each thread of the cluster, at least: some take longer than others."""

Columns = dict[str, NDArray[Any]]


def compare_part(key: str, tables: Sequence[str], first: str, query: str) -> Columns:
    """On a worker: what a query gives of a part that the first statement makes of the stored tables."""
    settings = Settings()
    blobs = open_blobs(settings)
    folder = blobs.folder(key)
    with (
        blobs.workspace() as scratch,
        duck.duckdb_session(**duck.bounds(settings, scratch, 1)) as connection,
    ):
        for name in tables:
            connection.execute(f"CREATE VIEW {name} AS FROM {duck.quoted_text(folder / f'{name}.parquet')}")
        connection.execute(first)
        return {column: np.ma.getdata(of) for column, of in connection.execute(query).fetchnumpy().items()}


def spread_over_cluster(connection: Any, settings: Settings) -> Callable[..., Iterator[Columns]]:
    """Runs statements about the tables of a connection on the cluster that the settings name."""

    def spread(
        tables: Sequence[str], first: Callable[[int, int], str], query: str, n_parts: int
    ) -> Iterator[Columns]:
        assert settings.dask_scheduler is not None
        client, blobs = dask_client(settings.dask_scheduler, CONNECT_S), open_blobs(settings)
        with ExitStack() as stack:
            stack.callback(client.close)
            try:
                client.wait_for_workers(1, timeout=CONNECT_S)
            except TimeoutError as error:
                raise NotReady(
                    "the Dask cluster has no workers; start some, or unset PAIRMARK_DASK_SCHEDULER"
                ) from error
            with blobs.workspace() as work:
                for name in tables:
                    duck.copy_to(connection, f"FROM {name}", work / f"{name}.parquet")
                # Of this run alone: nobody else deletes it.
                (work / "run").write_text(secrets.token_hex(16))
                key = blobs.put_folder(work)
            stack.callback(blobs.delete, key)
            yield from _parts(client, (key, tables), first, query, n_parts)

    return spread


def _parts(
    client: Any, stored: tuple[str, Sequence[str]], first: Callable[[int, int], str], query: str, n_parts: int
) -> Iterator[Columns]:
    import distributed

    as_completed: Any = distributed.as_completed
    n = max(n_parts, _PARTS_EACH * sum(client.nthreads().values()))
    parts = [client.submit(compare_part, *stored, first(number, n), query, pure=False) for number in range(n)]
    for n_done, part in enumerate(as_completed(parts), 1):
        yield part.result()
        # What is here leaves the worker's memory.
        part.release()
        report(0.4 + 0.3 * n_done / n, "comparing on the cluster")
