"""Exact top-10 of a gallery on one core: forests by bounds, metrics by scans, beside FAISS, HNSW and scoring it all.

People are random centres in 128 dimensions with ten enrolled rows each; rows lie around their centre with a deviation
of .5 (easy) or 1 (hard: a tenth-best row is as likely a stranger). A forest of 50 trees learns from 400 other people,
once with each aggregation. Queries are new rows of enrolled people, one at a time, contestants in turns.

FAISS flat (inner product of unit vectors) and usearch HNSW answer another question than a forest does, the cosine's, so
precision@10, the share of the ten that is the right person, stands beside every time: a fast wrong answer is shown as
such. Recall of HNSW is against FAISS flat, which is exact. Memory counts all that an index holds, vectors included;
ours is plain arrays that may stay mapped. "Scoring everything" is the same forest's own kernel over the whole gallery:
the exact search has to return its rows and scores to the bit, or the benchmark fails.

The quick preset builds HNSW at 100,000 items only: on one core it takes minutes for a million.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits
from usearch.index import Index

from benchmarks.common import Claim, Preset, Result, ratio
from pairmark.models import MetricSimilarity, SimilarityForest

D, EACH, K, N_TREES = 128, 10, 10, 50
HARDNESS = {"easy": 0.5, "hard": 1.0}
FLAT, HNSW = "FAISS flat, inner product", "usearch HNSW"
Search = Callable[[np.ndarray], np.ndarray]


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
            forests = {
                aggregation: SimilarityForest(
                    n_estimators=N_TREES, aggregation=aggregation, n_pairs=100_000, random_state=0
                ).fit(X, y)
                for aggregation in ("rank", "log-odds")
            }
            for n in (100_000, 1_000_000):
                _contest(n, hardness, forests, X, y, preset, rows, claims)
    facts = {"features": D, "rows_each": EACH, "k": K, "trees": N_TREES, "cores": 1}
    return Result(rows=rows, claims=claims, facts=facts)


def _contest(
    n: int,
    hardness: str,
    forests: dict[str, SimilarityForest],
    X: np.ndarray,
    y: np.ndarray,
    preset: Preset,
    rows: list[dict[str, Any]],
    claims: list[Claim],
) -> None:
    quick = preset == "quick"
    gallery, who, centres = people(n // EACH, EACH, HARDNESS[hardness], 7)
    rng = np.random.default_rng(8)
    asked = rng.integers(0, n // EACH, 20 if quick else 100)
    noise = rng.standard_normal((asked.size, D), dtype=np.float32)
    queries = centres[asked] + np.float32(HARDNESS[hardness]) * noise
    searches: dict[str, Search] = {}
    memory: dict[str, float | None] = {}
    built: dict[str, float] = {}

    def add(name: str, build: Callable[[], tuple[Search, float]]) -> None:
        started = time.perf_counter()
        searches[name], size = build()
        built[name], memory[name] = time.perf_counter() - started, size / n

    for aggregation, forest in forests.items():
        add(f"forest, {aggregation}", lambda forest=forest: _ours(forest, gallery))
    for metric in ("cosine", "manhattan"):
        model = MetricSimilarity(metric=metric).fit(X, y)
        add(f"metric, {metric}", lambda model=model: _ours(model, gallery))
    unit = gallery / np.linalg.norm(gallery, axis=1, keepdims=True)
    add(FLAT, lambda: _flat(unit))
    if n <= 100_000 or not quick:
        add(HNSW, lambda: _hnsw(unit))
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    answers: dict[str, list[np.ndarray]] = {name: [] for name in searches}
    for search in searches.values():
        search(queries[:1])
    for turn in range(asked.size):
        names = list(searches) if turn % 2 == 0 else list(reversed(searches))
        for name in names:
            started = time.perf_counter()
            found = searches[name](queries[turn : turn + 1])
            seconds[name].append(time.perf_counter() - started)
            answers[name].append(found)
    for aggregation, forest in forests.items():
        _everything(f"forest, {aggregation}", forest, gallery, queries, n, seconds, answers, memory, built)
    exact = answers[FLAT]
    for name, taken in seconds.items():
        found = np.stack(answers[name])
        right = who[found] == asked[: len(found), None]
        recall = np.mean([np.isin(a, b).mean() for a, b in zip(answers[name], exact, strict=False)])
        rows.append(
            {
                "items": n,
                "identities": hardness,
                "contestant": name,
                "p50 ms": 1e3 * float(np.median(taken)),
                "p95 ms": 1e3 * float(np.quantile(taken, 0.95)),
                "queries/s": 1.0 / float(np.mean(taken)),
                "time / FAISS flat": ratio(taken, seconds[FLAT][: len(taken)]),
                "precision@10": float(right.mean()),
                "recall@10 of cosine": float(recall) if name == HNSW else None,
                "bytes an item": memory[name],
                "build s": built[name],
            }
        )
    if n == 1_000_000:
        _claim(hardness, seconds, claims)


def _claim(hardness: str, seconds: dict[str, list[float]], claims: list[Claim]) -> None:
    most, least = (1.0, 150.0) if hardness == "easy" else (4.0, 50.0)
    for aggregation in ("rank", "log-odds"):
        name = f"forest, {aggregation}"
        taken, everything = seconds[name], seconds[f"{name}, scoring everything"]
        beside = ratio(taken, seconds[FLAT])
        faster = ratio(everything, taken[: len(everything)])
        claims += [
            Claim(what=f"{name}: time over FAISS flat's at 1e6, {hardness}", goal=f"at most {most:g}",
                  measured=beside, holds=beside <= most),
            Claim(what=f"{name}: times faster than scoring everything at 1e6, {hardness}", goal=f"at least {least:g}",
                  measured=faster, holds=faster >= least),
        ]  # fmt: skip
    beside = ratio(seconds["metric, cosine"], seconds[FLAT])
    claims.append(
        Claim(what=f"cosine: time over FAISS flat's at 1e6, {hardness}", goal="at most 1.1", measured=beside,
              holds=beside <= 1.1)
    )  # fmt: skip


def _ours(model: Any, gallery: np.ndarray) -> tuple[Search, float]:
    index = model.index(gallery)
    return (lambda query: model.top_k(query, index, K)[0][0]), float(index.nbytes)


def _flat(unit: np.ndarray) -> tuple[Search, float]:
    index = faiss.IndexFlatIP(D)
    index.add(unit)
    return (lambda query: index.search(query / np.linalg.norm(query), K)[1][0]), float(unit.nbytes)


def _hnsw(unit: np.ndarray) -> tuple[Search, float]:
    index = Index(ndim=D, metric="ip", dtype="f32")
    index.add(np.arange(len(unit)), unit, threads=1)

    def search(query: np.ndarray) -> np.ndarray:
        found = index.search((query / np.linalg.norm(query))[0], K, threads=1).keys.astype(np.intp)
        return np.pad(found, (0, K - found.size), mode="edge")

    return search, float(index.memory_usage)


def _everything(
    name: str,
    forest: SimilarityForest,
    gallery: np.ndarray,
    queries: np.ndarray,
    n: int,
    seconds: dict[str, list[float]],
    answers: dict[str, list[np.ndarray]],
    memory: dict[str, float | None],
    built: dict[str, float],
) -> None:
    """Score the whole gallery, which takes seconds, for some of the queries; and hold the exact search against it."""
    plain = f"{name}, scoring everything"
    seconds[plain], answers[plain], memory[plain], built[plain] = [], [], float(gallery.nbytes / n), 0.0
    index = forest.index(gallery)
    for at in range(3):
        started = time.perf_counter()
        scores = forest.score_against(queries[at : at + 1], gallery)[0]
        best = np.flatnonzero(scores >= np.partition(scores, n - K)[n - K])
        best = best[np.argsort(-scores[best], kind="stable")[:K]]
        seconds[plain].append(time.perf_counter() - started)
        answers[plain].append(best)
        found = forest.top_k(queries[at : at + 1], index, K)
        if found[0][0].tolist() != best.tolist() or found[1][0].tobytes() != scores[best].tobytes():
            raise AssertionError(
                "the search by bounds found other rows than scoring everything: one of them is wrong"
            )
