"""A gallery of 10,000,000 vectors of 128 numbers on two Dask workers of 2 GB: building, searching, recall.

Segments are made, mapped and searched by the service's own code for workers, without its database; with the preset
quick the gallery has 1,000,000. People are random centres with ten rows each, as far apart as a person's own rows;
queries are new rows. Recall is the share of queries whose ten answers are those of scoring everything, which a matrix
product in float32 does here: rows within its rounding of the best are scored again.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.common import Claim, Preset, Result, people
from pairmark.models import MetricSimilarity
from pairmark.models.core.artefact import release_pages
from pairmark.models.core.search import TopRows
from pairmark.service.galleries.cluster import WorkerSegment, search
from pairmark.service.galleries.live_gallery import SEGMENT_ROWS
from pairmark.service.galleries.rows import StoredRows
from pairmark.service.galleries.segments import GalleryDisk, make_segment

D, EACH, K = 128, 10, 10
ITEMS = {"quick": 1_000_000, "full": 10_000_000}
N_QUERIES, N_TIMED = 1_000, 50
MEMORY = 2 * 10**9
"""Bytes that a worker may use."""
_ROUNDING = 1e-5
"""Of a cosine in float32, at most."""


def segment_rows(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a whole segment, whose they are, and the centres that they lie around."""
    return people(-(-SEGMENT_ROWS // EACH), EACH, D, seed=[7, number])


def built(home: str, model: Any, number: int, n: int) -> WorkerSegment:
    """The segment of that number, of n rows, mapped from files; ids say the place in the gallery."""
    first = number * SEGMENT_ROWS
    names = [f"{item:08}" for item in range(first, first + n)]
    none: list[str | None] = [None] * n
    seqs, vectors = np.arange(first + 1, first + n + 1), segment_rows(number)[0][:n]
    rows = StoredRows(seqs=seqs, ids=names, subjects=none, vectors=vectors, metadata=none)
    segment = make_segment(model, rows, low=first, high=first + n, as_of=0)
    state: Any = None
    return WorkerSegment(state, GalleryDisk(Path(home)).write(segment, model), model)


def everything(segments: Sequence[WorkerSegment], queries: np.ndarray) -> list[TopRows]:
    """The best of each query, from all rows."""
    unit = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    best = [TopRows(K) for _ in queries]
    for one in segments:
        vectors, first = one.segment.index.vectors, one.segment.low
        for start in range(0, len(vectors), 2_048):
            rows = np.array(vectors[start : start + 2_048])
            estimates = unit @ (rows / np.linalg.norm(rows, axis=1, keepdims=True)).T
            floors = np.array([top.floor for top in best]) - np.float32(_ROUNDING)
            asking, places = np.nonzero(estimates >= floors[:, None])
            for at in np.unique(asking):
                near = places[asking == at]
                query = np.broadcast_to(queries[at], (near.size, D))
                best[at].offer(first + start + near, one.estimator.pair_score(query, rows[near]))
        release_pages(vectors)
    return best


def used() -> tuple[float, int]:
    """CPU seconds of this process, and bytes of memory at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return time.process_time(), next(
        1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")
    )


def run(preset: Preset) -> Result:
    """One row."""
    from distributed import Client, LocalCluster, wait

    n = ITEMS[preset]
    model = MetricSimilarity().fit(np.eye(4, D, dtype=np.float32), [0, 0, 1, 1])
    rng, centres = np.random.default_rng(8), segment_rows(0)[2]
    queries = centres[:N_QUERIES] + rng.standard_normal((N_QUERIES, D), dtype=np.float32)
    with (
        TemporaryDirectory(prefix="pairmark-bench-") as home,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        submit: Any = client.submit
        workers = sorted(client.scheduler_info()["workers"])
        starts = range(0, n, SEGMENT_ROWS)
        parts: list[list[Any]] = [[], []]

        def cpu() -> float:
            return float(sum(seconds for seconds, _ in client.run(used).values()))

        def ask(function: Any, *args: Any) -> list[Any]:
            pairs = zip(workers, parts, strict=True)
            return client.gather(
                [submit(function, part, *args, workers=[worker], pure=False) for worker, part in pairs]
            )

        def top(batch: np.ndarray) -> list[list[int]]:
            none = np.empty(0, dtype=np.int64)
            pairs = zip(workers, parts, strict=True)
            tasks = [
                submit(search, part, [none] * len(part), batch, K, (), None, workers=[worker], pure=False)
                for worker, part in pairs
            ]
            answers = [hits for hits, _ in client.gather(tasks)]
            merged = [
                sorted([*a, *b], key=lambda hit: (-hit.score, hit.id)) for a, b in zip(*answers, strict=True)
            ]
            return [[int(hit.id) for hit in hits[:K]] for hits in merged]

        started, cpu_before = time.perf_counter(), cpu()
        for number, start in enumerate(starts):
            size, side = min(SEGMENT_ROWS, n - start), number % 2
            parts[side].append(submit(built, home, model, number, size, workers=[workers[side]]))
        wait([*parts[0], *parts[1]])
        built_s, built_cpu = time.perf_counter() - started, cpu() - cpu_before
        top(queries[:1])
        taken, answers = [], []
        cpu_before = cpu()
        for at in range(N_TIMED):
            started = time.perf_counter()
            answers += top(queries[at : at + 1])
            taken.append(time.perf_counter() - started)
        query_cpu = (cpu() - cpu_before) / N_TIMED
        for at in range(N_TIMED, N_QUERIES, 32):
            answers += top(queries[at : at + 32])
        memory = max(most for _, most in client.run(used).values())
        exact: list[list[int]] = []
        for pair in zip(*ask(everything, queries), strict=True):
            best = TopRows(K)
            for side in pair:
                best.offer(side.rows, side.scores)
            exact.append(best.rows.tolist())
    right = sum(a == b for a, b in zip(answers, exact, strict=True))
    interval = binomtest(right, N_QUERIES).proportion_ci()
    row = {
        "items": n,
        "built in s": built_s,
        "CPU us an item": 1e6 * built_cpu / n,
        "p50 ms": 1e3 * float(np.median(taken)),
        "CPU ms a query": 1e3 * query_cpu,
        "GB of a worker": 1e-9 * memory,
        "recall": right / N_QUERIES,
        "at 95 % from": interval.low,
    }
    claims = [
        Claim(
            what="recall of a thousand queries",
            goal="1",
            measured=right / N_QUERIES,
            holds=right == N_QUERIES,
        ),
        Claim.at_most("GB of a worker", 1e-9 * MEMORY, 1e-9 * memory),
    ]
    return Result(
        rows=[row], claims=claims, facts={"features": D, "k": K, "load_average": os.getloadavg()[0]}
    )
