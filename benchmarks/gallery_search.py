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
from typing import Any, NamedTuple

import faiss
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.common import Claim, Preset, Result, in_turns, people, ratio
from pairmark.models import MetricSimilarity, Plda, SimilarityForest

D, EACH, K, N_TREES = 128, 10, 10, 50
HARDNESS = {"easy": 0.5, "hard": 1.0}
FLAT = "FAISS flat, inner product"
CHECKED = 2
"""Queries whose answers are compared with scoring the whole gallery, which takes seconds each."""
MOST_OF_ALL, MOST_OF_FLAT = 0.4, 1.1
"""Of the time of scoring everything, by a forest; of FAISS flat's, by the cosine."""


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
        rows, who, centres = people(n // EACH, EACH, D, noise, 7)
        rng = np.random.default_rng(8)
        asked = rng.integers(0, n // EACH, n_queries)
        queries = centres[asked] + np.float32(noise) * rng.standard_normal((n_queries, D), dtype=np.float32)
        return cls(rows=rows, who=who, queries=queries, asked=asked)

    def precision(self, answers: list[np.ndarray]) -> float:
        """Share of the answers that are the person asked for."""
        return float((self.who[np.stack(answers)] == self.asked[: len(answers), None]).mean())


def run(preset: Preset) -> Result:
    """Quick: 8 queries each. Full: 50."""
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        for hardness, noise in HARDNESS.items():
            X, y, _ = people(400, 20, D, noise, 0)
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
                found = _searched(models, n, noise, 8 if preset == "quick" else 50, time.perf_counter)
                rows += [
                    {
                        "items": n,
                        "identities": hardness,
                        "contestant": name,
                        "p50 ms": one.ms,
                        "over scoring everything": one.of_all if name in forests else None,
                        "over FAISS flat": one.of_flat,
                        "precision@10": one.precision,
                    }
                    for name, one in found.items()
                ]
            claims += [
                Claim.at_most(
                    f"{name}: time over scoring everything at 1e6, {hardness}",
                    MOST_OF_ALL,
                    found[name].of_all,
                )
                for name in forests
            ]
            what = f"cosine: time over FAISS flat's at 1e6, {hardness}"
            claims.append(Claim.at_most(what, MOST_OF_FLAT, found["metric, cosine"].of_flat))
    return Result(
        rows=rows, claims=claims, facts={"features": D, "rows_each": EACH, "k": K, "trees": N_TREES}
    )


def default_search(preset: Preset) -> Result:
    """Quick: 30 queries at 200,000 items. Full: 100 queries, 1,000,000 items too."""
    noise = HARDNESS["hard"]
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    faiss.omp_set_num_threads(1)
    with threadpool_limits(1):
        X, y, _ = people(400, 20, D, noise, 0)
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
            found = _searched(models, n, noise, 30 if preset == "quick" else 100, time.process_time)
            rows += [
                {
                    "items": n,
                    "search": name,
                    "CPU ms a query": one.ms,
                    "over FAISS flat": one.of_flat,
                    "precision@10": one.precision,
                }
                for name, one in found.items()
            ]
            claims += [
                Claim.at_most(f"top-10 of {n:,} by {name}: CPU over FAISS flat", 1.5, found[name].of_flat)
                for name in models
            ]
    return Result(rows=rows, claims=claims, facts={"features": D, "k": K, "rows_each": EACH})


class Searched(NamedTuple):
    """Median of a contestant's queries; its time over that of scoring everything and of FAISS; how many are right."""

    ms: float
    of_all: float
    of_flat: float
    precision: float


def _searched(
    models: Mapping[str, Any], n: int, noise: float, n_queries: int, clock: Callable[[], float]
) -> dict[str, Searched]:
    """Searches of a gallery for one row at a time, ours and FAISS's in turns."""
    gallery = Gallery.of(n, noise, n_queries)
    queries, flat = gallery.queries[:, None], faiss.IndexFlatIP(D)
    flat.add(gallery.rows / np.linalg.norm(gallery.rows, axis=1, keepdims=True))
    indexes = {name: model.index(gallery.rows) for name, model in models.items()}
    searches: dict[str, Callable[[int], np.ndarray]] = {
        name: lambda at, model=model, index=indexes[name]: model.top_k(queries[at], index, K)[0][0]
        for name, model in models.items()
    }
    searches[FLAT] = lambda at: flat.search(queries[at] / np.linalg.norm(queries[at]), K)[1][0]
    in_turns(searches, 1)
    seconds, answers = in_turns(searches, n_queries, clock)
    whole = {
        name: _everything(model, indexes[name], gallery, answers[name], clock)
        for name, model in models.items()
    }
    return {
        name: Searched(
            ms=1e3 * float(np.median(taken)),
            of_all=ratio(taken[:CHECKED], whole[name]) if name in whole else np.nan,
            of_flat=ratio(taken, seconds[FLAT]),
            precision=gallery.precision(answers[name]),
        )
        for name, taken in seconds.items()
    }


def _everything(
    model: Any, index: Any, gallery: Gallery, answers: list[np.ndarray], clock: Callable[[], float]
) -> list[float]:
    """Score the whole gallery for some of the queries, and hold the answers against it; seconds of each."""
    seconds = []
    for at in range(CHECKED):
        started = clock()
        scores = model.score_against(gallery.queries[at : at + 1], index)[0]
        best = np.flatnonzero(scores >= np.partition(scores, scores.size - K)[scores.size - K])
        best = best[np.argsort(-scores[best], kind="stable")[:K]]
        seconds.append(clock() - started)
        if answers[at].tolist() != best.tolist():
            raise AssertionError("the search found other rows than scoring everything: one of them is wrong")
    return seconds
