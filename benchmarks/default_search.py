"""Exact top-10 of a gallery with what `similarity-auto` trains by default, beside FAISS flat, one thread.

Gallery, people and queries are those of `gallery_search` (hard: rows lie around their centre with a deviation of 1):
vectors of 128 numbers, ten a person, 200,000 and 1,000,000 of them. Models learn from 400 other people: cosine, PLDA,
and PLDA with 50 boosted trees over its ratio. FAISS answers another question than PLDA, the cosine's; it is what an
exact scan costs. Queries are single rows, contestants take turns, and what counts is the median over queries of the CPU
seconds' ratio. Every answer of ours is checked against scores of the whole gallery at 200,000 items, to the bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Claim, Preset, Result, ratio
from benchmarks.gallery_search import EACH, HARDNESS, D, K, people
from pairmark.models import MetricSimilarity, Plda

FLAT = "FAISS flat, inner product"
_CHECKED, _CHECKED_SIZE = 3, 200_000


def run(preset: Preset) -> Result:
    """Quick: 30 queries at 200,000 items. Full: 100 queries, 1,000,000 items too."""
    noise = HARDNESS["hard"]
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        X, y, _ = people(400, 20, noise, 0)
        given: dict[str, Any] = {"n_components": 128, "shrink_within": 0.05, "shrink_between": 0.1}
        models = {
            "cosine": MetricSimilarity().fit(X, y),
            "plda": Plda(marginals="normal", length_norm=False, **given).fit(X, y),
            "plda + 50 trees": Plda(marginals="normal", length_norm=False, residual_rounds=50, **given).fit(
                X, y
            ),
        }
        for n in (_CHECKED_SIZE,) if preset == "quick" else (_CHECKED_SIZE, 1_000_000):
            _contest(n, models, noise, 30 if preset == "quick" else 100, rows, claims)
    return Result(rows=rows, claims=claims, facts={"features": D, "k": K, "rows_each": EACH})


def _contest(
    n: int,
    models: dict[str, Any],
    noise: float,
    n_queries: int,
    rows: list[dict[str, Any]],
    claims: list[Claim],
) -> None:
    gallery, who, centres = people(n // EACH, EACH, noise, 7)
    rng = np.random.default_rng(8)
    asked = rng.integers(0, n // EACH, n_queries)
    queries = centres[asked] + np.float32(noise) * rng.standard_normal((n_queries, D), dtype=np.float32)
    flat = faiss.IndexFlatIP(D)
    flat.add(gallery / np.linalg.norm(gallery, axis=1, keepdims=True))
    indexes = {name: model.index(gallery) for name, model in models.items()}
    searches: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        FLAT: lambda query: flat.search(query, K)[1][0]
    }
    for name, model in models.items():
        searches[name] = lambda query, model=model, index=indexes[name]: model.top_k(query, index, K)[0][0]
    taken: dict[str, list[float]] = {name: [] for name in searches}
    right: dict[str, list[float]] = {name: [] for name in searches}
    for search in searches.values():
        search(queries[:1])
    for turn in range(n_queries):
        for name in list(searches) if turn % 2 == 0 else list(reversed(searches)):
            begun = time.process_time()
            ids = searches[name](queries[turn : turn + 1])
            taken[name].append(time.process_time() - begun)
            right[name].append(float((who[ids] == asked[turn]).mean()))
    if n == _CHECKED_SIZE:
        for name, model in models.items():
            _check(name, model, indexes[name], queries[:_CHECKED])
    for name, seconds in taken.items():
        beside = ratio(seconds, taken[FLAT])
        rows.append(
            {
                "items": n,
                "search": name,
                "CPU ms a query": 1e3 * float(np.median(seconds)),
                "over FAISS flat": beside,
                "precision@10": float(np.mean(right[name])),
            }
        )
        if name != FLAT:
            claims.append(
                Claim(
                    what=f"top-10 of {n:,} by {name}: CPU over FAISS flat",
                    goal="at most 1.5",
                    measured=beside,
                    holds=beside <= 1.5,
                )
            )


def _check(name: str, model: Any, index: Any, queries: np.ndarray) -> None:
    ids, scores = model.top_k(queries, index, K)
    grid = model.score_against(queries, index)
    for at in range(len(queries)):
        order = np.lexsort((np.arange(grid.shape[1]), -grid[at]))[:K]
        if ids[at].tolist() != order.tolist() or scores[at].tobytes() != grid[at, order].tobytes():
            raise AssertionError(f"{name}: the search is not that of scoring everything")
