"""Exact top-10 of a gallery on one core: forests, metrics and PLDA, beside FAISS and HNSW.

People are random centres in 128 dimensions with ten enrolled rows each; rows lie around their centre with a deviation
of .5 (easy) or 1 (hard: a tenth-best row is as likely a stranger). Models learn from 400 other people. Queries are new
rows of enrolled people, one at a time, contestants in turns.

FAISS flat (inner product of unit vectors) and usearch HNSW answer another question than our models do, the cosine's, so
precision@10, the share of the ten that is the right person, stands beside every time: a fast wrong answer is shown as
such. Memory counts all that an index holds, vectors included. The exact search has to return the rows and scores of
scoring the whole gallery, to the bit, or the benchmark fails.

``gallery_search``: forests of 50 trees, once with each aggregation, and metrics, by the clock. The quick preset builds
HNSW at 100,000 items only: on one core it takes minutes for a million. ``default_search``: what `similarity-auto`
trains by default, by CPU time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits
from usearch.index import Index

from benchmarks.common import Claim, Preset, Result, ratio
from pairmark.models import MetricSimilarity, Plda, SimilarityForest

D, EACH, K, N_TREES = 128, 10, 10, 50
HARDNESS = {"easy": 0.5, "hard": 1.0}
FLAT, HNSW = "FAISS flat, inner product", "usearch HNSW"
CHECKED = 3
"""Queries whose answers are compared with scoring the whole gallery, which takes seconds each."""
Search = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Enrolled rows, who each is, and queries of some of them."""

    rows: np.ndarray
    who: np.ndarray
    queries: np.ndarray
    asked: np.ndarray

    @classmethod
    def of(cls, n: int, noise: float, n_queries: int) -> Gallery:
        """``n`` items, drawn with fixed seeds."""
        rows, who, centres = people(n // EACH, EACH, noise, 7)
        rng = np.random.default_rng(8)
        asked = rng.integers(0, n // EACH, n_queries)
        queries = centres[asked] + np.float32(noise) * rng.standard_normal((n_queries, D), dtype=np.float32)
        return cls(rows=rows, who=who, queries=queries, asked=asked)

    def precision(self, answers: list[np.ndarray]) -> float:
        """Share of the answers that are the person asked for."""
        return float((self.who[np.stack(answers)] == self.asked[: len(answers), None]).mean())


def people(n: int, each: int, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, who each is, and the centres."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((n, D), dtype=np.float32)
    y = np.repeat(np.arange(n), each)
    rows = rng.standard_normal((n * each, D), dtype=np.float32)
    rows *= np.float32(noise)
    for start in range(0, len(y), 65_536):
        part = slice(start, start + 65_536)
        rows[part] += centres[y[part]]
    return rows, y, centres


def run(preset: Preset) -> Result:
    """Quick: 20 queries each, HNSW at 100,000 items only. Full: 100 queries, HNSW at a million too."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        for hardness, noise in HARDNESS.items():
            X, y, _ = people(400, 20, noise, 0)
            given: dict[str, Any] = {"n_estimators": N_TREES, "n_pairs": 100_000, "random_state": 0}
            forests = {
                f"forest, {aggregation}": SimilarityForest(aggregation=aggregation, **given).fit(X, y)
                for aggregation in ("rank", "log-odds")
            }
            models = forests | {
                f"metric, {metric}": MetricSimilarity(metric=metric).fit(X, y)
                for metric in ("cosine", "manhattan")
            }
            for n in (100_000, 1_000_000):
                gallery = Gallery.of(n, noise, 20 if preset == "quick" else 100)
                indexes = {name: model.index(gallery.rows) for name, model in models.items()}
                searches, memory = _searches(
                    models, indexes, gallery, with_hnsw=n <= 100_000 or preset == "full"
                )
                seconds, answers = _in_turns(searches, gallery.queries, time.perf_counter)
                for name, forest in forests.items():
                    plain = f"{name}, scoring everything"
                    seconds[plain], answers[plain] = _everything(forest, indexes[name], gallery)
                rows += [
                    {
                        "items": n,
                        "identities": hardness,
                        "contestant": name,
                        "p50 ms": 1e3 * float(np.median(taken)),
                        "p95 ms": 1e3 * float(np.quantile(taken, 0.95)),
                        "time / FAISS flat": ratio(taken, seconds[FLAT][: len(taken)]),
                        "precision@10": gallery.precision(answers[name]),
                        "bytes an item": memory.get(name),
                    }
                    for name, taken in seconds.items()
                ]
            claims += _claims(hardness, seconds)
    return Result(
        rows=rows, claims=claims, facts={"features": D, "rows_each": EACH, "k": K, "trees": N_TREES}
    )


def _claims(hardness: str, seconds: Mapping[str, list[float]]) -> list[Claim]:
    most, least = (1.0, 150.0) if hardness == "easy" else (4.0, 50.0)
    found = []
    for name in ("forest, rank", "forest, log-odds"):
        everything = seconds[f"{name}, scoring everything"]
        beside = ratio(seconds[name], seconds[FLAT])
        faster = ratio(everything, seconds[name][: len(everything)])
        found += [
            Claim(what=f"{name}: time over FAISS flat's at 1e6, {hardness}", goal=f"at most {most:g}",
                  measured=beside, holds=beside <= most),
            Claim(what=f"{name}: times faster than scoring everything at 1e6, {hardness}", goal=f"at least {least:g}",
                  measured=faster, holds=faster >= least),
        ]  # fmt: skip
    beside = ratio(seconds["metric, cosine"], seconds[FLAT])
    return [
        *found,
        Claim(what=f"cosine: time over FAISS flat's at 1e6, {hardness}", goal="at most 1.1", measured=beside,
              holds=beside <= 1.1),
    ]  # fmt: skip


def default_search(preset: Preset) -> Result:
    """Quick: 30 queries at 200,000 items. Full: 100 queries, 1,000,000 items too."""
    noise = HARDNESS["hard"]
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        X, y, _ = people(400, 20, noise, 0)
        given: dict[str, Any] = {
            "n_components": 128, "shrink_within": 0.05, "shrink_between": 0.1, "marginals": "normal",
            "length_norm": False,
        }  # fmt: skip
        models: dict[str, Any] = {
            "cosine": MetricSimilarity().fit(X, y),
            "plda": Plda(**given).fit(X, y),
            "plda + 50 trees": Plda(residual_rounds=50, **given).fit(X, y),
        }
        for n in (200_000,) if preset == "quick" else (200_000, 1_000_000):
            gallery = Gallery.of(n, noise, 30 if preset == "quick" else 100)
            indexes = {name: model.index(gallery.rows) for name, model in models.items()}
            searches, _ = _searches(models, indexes, gallery)
            seconds, answers = _in_turns(searches, gallery.queries, time.process_time)
            for name, model in models.items():
                _everything(model, indexes[name], gallery)
            for name, taken in seconds.items():
                beside = ratio(taken, seconds[FLAT])
                rows.append(
                    {
                        "items": n,
                        "search": name,
                        "CPU ms a query": 1e3 * float(np.median(taken)),
                        "over FAISS flat": beside,
                        "precision@10": gallery.precision(answers[name]),
                    }
                )
                if name != FLAT:
                    what = f"top-10 of {n:,} by {name}: CPU over FAISS flat"
                    claims.append(Claim(what=what, goal="at most 1.5", measured=beside, holds=beside <= 1.5))
    return Result(rows=rows, claims=claims, facts={"features": D, "k": K, "rows_each": EACH})


def _searches(
    models: Mapping[str, Any], indexes: Mapping[str, Any], gallery: Gallery, *, with_hnsw: bool = False
) -> tuple[dict[str, Search], dict[str, float]]:
    """Searches for one row, ours and theirs, and the bytes an item that they hold."""
    n = len(gallery.rows)
    searches: dict[str, Search] = {}
    for name, model in models.items():
        searches[name] = lambda query, model=model, index=indexes[name]: model.top_k(query, index, K)[0][0]
    memory = {
        name: sum(array.nbytes for array in (index.vectors, *index.arrays.values())) / n
        for name, index in indexes.items()
    }
    unit = gallery.rows / np.linalg.norm(gallery.rows, axis=1, keepdims=True)
    flat = faiss.IndexFlatIP(D)
    flat.add(unit)
    searches[FLAT], memory[FLAT] = (
        (lambda query: flat.search(query / np.linalg.norm(query), K)[1][0]),
        4.0 * D,
    )
    if with_hnsw:
        graph = Index(ndim=D, metric="ip", dtype="f32")
        graph.add(np.arange(n), unit, threads=1)

        def by_graph(query: np.ndarray) -> np.ndarray:
            found = graph.search((query / np.linalg.norm(query))[0], K, threads=1).keys.astype(np.intp)
            return np.pad(found, (0, K - found.size), mode="edge")

        searches[HNSW], memory[HNSW] = by_graph, float(graph.memory_usage) / n
    return searches, memory


def _in_turns(
    searches: Mapping[str, Search], queries: np.ndarray, clock: Callable[[], float]
) -> tuple[dict[str, list[float]], dict[str, list[np.ndarray]]]:
    """Seconds and answers of each query."""
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    answers: dict[str, list[np.ndarray]] = {name: [] for name in searches}
    for search in searches.values():
        search(queries[:1])
    for turn in range(len(queries)):
        for name in list(searches) if turn % 2 == 0 else list(reversed(searches)):
            started = clock()
            found = searches[name](queries[turn : turn + 1])
            seconds[name].append(clock() - started)
            answers[name].append(found)
    return seconds, answers


def _everything(model: Any, index: Any, gallery: Gallery) -> tuple[list[float], list[np.ndarray]]:
    """Score the whole gallery for some of the queries, and hold the exact search against it."""
    seconds, answers = [], []
    for at in range(CHECKED):
        query = gallery.queries[at : at + 1]
        started = time.perf_counter()
        scores = model.score_against(query, index)[0]
        best = np.flatnonzero(scores >= np.partition(scores, scores.size - K)[scores.size - K])
        best = best[np.argsort(-scores[best], kind="stable")[:K]]
        seconds.append(time.perf_counter() - started)
        answers.append(best)
        ids, found = model.top_k(query, index, K)
        if ids[0].tolist() != best.tolist() or found[0].tobytes() != scores[best].tobytes():
            raise AssertionError("the search found other rows than scoring everything: one of them is wrong")
    return seconds, answers
