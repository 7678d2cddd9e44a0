"""Exact top-10 of a gallery on one core: forests, metrics and PLDA, beside FAISS.

People are random centres in 128 dimensions with ten enrolled rows each; rows lie around their centre with a deviation
of .5 (easy) or 1 (hard: a tenth-best row is as likely a stranger). Models learn from 400 other people. Queries are new
rows of enrolled people, one at a time, contestants in turns.

FAISS flat (inner product of unit vectors) answers another question than our models do, the cosine's, so precision@10,
the share of the ten that is the right person, stands beside every time. The exact search has to return the rows of
scoring the whole gallery, or the benchmark fails.

``gallery_search``: forests of 50 trees, once with each aggregation, and metrics, by the clock; what counts for forests
is how much of the time of scoring everything a search takes. ``default_search``: what `similarity-auto` trains by
default, by CPU time.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Claim, Preset, Result, ratio
from pairmark.models import MetricSimilarity, Plda, SimilarityForest

D, EACH, K, N_TREES = 128, 10, 10, 50
HARDNESS = {"easy": 0.5, "hard": 1.0}
FLAT = "FAISS flat, inner product"
CHECKED = 2
"""Queries whose answers are compared with scoring the whole gallery, which takes seconds each."""
MOST_OF_ALL, MOST_OF_FLAT = 0.4, 1.1
"""Of the time of scoring everything, by a forest; of FAISS flat's, by the cosine."""
Search = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """Enrolled rows, who each is, and queries of some of them."""

    rows: np.ndarray
    who: np.ndarray
    queries: np.ndarray
    asked: np.ndarray

    @classmethod
    def of(cls, n: int, noise: float, n_queries: int) -> "Gallery":
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
    """Quick: 8 queries each. Full: 50."""
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
                gallery = Gallery.of(n, noise, 8 if preset == "quick" else 50)
                indexes = {name: model.index(gallery.rows) for name, model in models.items()}
                seconds, answers = _in_turns(
                    _searches(models, indexes, gallery), gallery.queries, time.perf_counter
                )
                shares = {
                    name: ratio(
                        seconds[name][:CHECKED], _everything(model, indexes[name], gallery, answers[name])
                    )
                    for name, model in forests.items()
                }
                rows += [
                    {
                        "items": n,
                        "identities": hardness,
                        "contestant": name,
                        "p50 ms": 1e3 * float(np.median(taken)),
                        "over scoring everything": shares.get(name),
                        "over FAISS flat": ratio(taken, seconds[FLAT]),
                        "precision@10": gallery.precision(answers[name]),
                    }
                    for name, taken in seconds.items()
                ]
            cosine = ratio(seconds["metric, cosine"], seconds[FLAT])
            claims += [
                _claim(f"{name}: time over scoring everything at 1e6, {hardness}", share, MOST_OF_ALL)
                for name, share in shares.items()
            ]
            claims.append(_claim(f"cosine: time over FAISS flat's at 1e6, {hardness}", cosine, MOST_OF_FLAT))
    return Result(
        rows=rows, claims=claims, facts={"features": D, "rows_each": EACH, "k": K, "trees": N_TREES}
    )


def _claim(what: str, measured: float, most: float) -> Claim:
    return Claim(what=what, goal=f"at most {most:g}", measured=measured, holds=measured <= most)


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
            searches = _searches(models, indexes, gallery)
            seconds, answers = _in_turns(searches, gallery.queries, time.process_time)
            for name, model in models.items():
                _everything(model, indexes[name], gallery, answers[name])
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
                    claims.append(_claim(what, beside, 1.5))
    return Result(rows=rows, claims=claims, facts={"features": D, "k": K, "rows_each": EACH})


def _searches(models: Mapping[str, Any], indexes: Mapping[str, Any], gallery: Gallery) -> dict[str, Search]:
    """Searches for one row, ours and FAISS's."""
    searches: dict[str, Search] = {
        name: lambda query, model=model, index=indexes[name]: model.top_k(query, index, K)[0][0]
        for name, model in models.items()
    }
    flat = faiss.IndexFlatIP(D)
    flat.add(gallery.rows / np.linalg.norm(gallery.rows, axis=1, keepdims=True))
    searches[FLAT] = lambda query: flat.search(query / np.linalg.norm(query), K)[1][0]
    return searches


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


def _everything(model: Any, index: Any, gallery: Gallery, answers: list[np.ndarray]) -> list[float]:
    """Score the whole gallery for some of the queries, and hold the answers against it; seconds of each."""
    seconds = []
    for at in range(CHECKED):
        started = time.perf_counter()
        scores = model.score_against(gallery.queries[at : at + 1], index)[0]
        best = np.flatnonzero(scores >= np.partition(scores, scores.size - K)[scores.size - K])
        best = best[np.argsort(-scores[best], kind="stable")[:K]]
        seconds.append(time.perf_counter() - started)
        if answers[at].tolist() != best.tolist():
            raise AssertionError("the search found other rows than scoring everything: one of them is wrong")
    return seconds
