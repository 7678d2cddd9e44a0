"""One label ranking forest against scikit-learn's, of one output a label and of all at once, and the served prediction.

The peers are the paper's way, a `RandomForestRegressor` of 50 trees for each label's position, and a single one of all
positions, which is faster. All run on one thread and are fitted in turns; CPU seconds are the claim, memory is the peak
that a process of its own reaches above what it had before the fit, latency is one row's prediction. The served part
asks `GET /rank-labels` beside a raw echo, per second of the server's CPU (Linux only).
"""

from __future__ import annotations

import multiprocessing
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from benchmarks._rankings import RankingSet, read_sets
from benchmarks._served import environment_of, running_server, trained
from benchmarks._synthetic_rankings import linear_scores, make_ranking_data, truncated_gaussian
from benchmarks.common import Claim, Preset, Result, Skip, interleaved, ratio
from pairmark.models import LabelRankingForest
from pairmark.models.evaluation.rankings import kendall_tau, positions_of

TREES = 50


class PeerForests:
    """k single-output forests."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, X: np.ndarray, Y: np.ndarray) -> Self:
        """One forest a label."""
        self.forests = [
            RandomForestRegressor(n_estimators=TREES, random_state=self.seed, n_jobs=1).fit(X, Y[:, label])
            for label in range(Y.shape[1])
        ]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Positions by ascending predicted position."""
        return positions_of(-np.stack([forest.predict(X) for forest in self.forests], axis=1))


class PeerForest:
    """One forest of k outputs."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> Self:
        """All labels at once."""
        self.forest = RandomForestRegressor(n_estimators=TREES, random_state=0, n_jobs=1).fit(X, Y)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Positions by ascending predicted position."""
        return positions_of(-self.forest.predict(X))


def _ours() -> Any:
    return LabelRankingForest(n_estimators=TREES, random_state=0, n_jobs=1)


def run(preset: Preset) -> Result:
    """Fit, memory, latency on each set; then the served prediction."""
    quick = preset == "quick"
    rows, claims = [], []
    for data in _sets(quick):
        order = np.random.default_rng(0).permutation(len(data.X))
        cut = int(0.8 * len(order))
        train, test = order[:cut], order[cut:]
        fitted: dict[str, Any] = {}

        def fit(
            name: str, make: Callable[[], Any], data: RankingSet = data, rows: Any = train, kept: Any = fitted
        ) -> None:
            kept[name] = make().fit(data.X[rows], data.Y[rows])

        contestants = {
            "pairmark": _ours,
            f"{data.Y.shape[1]} scikit-learn forests": PeerForests,
            "scikit-learn's multi-output forest": PeerForest,
        }
        _ours().fit(data.X[:60], data.Y[:60])
        timings = interleaved(
            {
                name: lambda name=name, make=make, fit=fit: fit(name, make)
                for name, make in contestants.items()
            },
            rounds=1 if quick else 5,
            warmups=0,
        )
        ours, peer, multi = timings.values()
        times, share = ratio(peer.cpu, ours.cpu), ratio(ours.cpu, multi.cpu)
        tau = {}
        for name, model in fitted.items():
            tau[name] = float(kendall_tau(model.predict(data.X[test]), data.Y[test]).mean())
            rows.append(
                {
                    "data": data.name,
                    "ranker": name,
                    "fit CPU s": timings[name].median_cpu,
                    "times less CPU": times if name == "pairmark" else None,
                    "fit memory MiB": _peak(contestants[name], data, train),
                    "one prediction ms": _latency(model, data.X[test][:1]),
                    "held-out tau": tau[name],
                }
            )
        gap = tau["pairmark"] - min(tau[name] for name in tau if name != "pairmark")
        claims += [
            Claim(what=f"{data.name}: CPU of a fit against scikit-learn", goal="at least 5 times less", measured=times,
                  holds=times >= 5),
            Claim(what=f"{data.name}: CPU of a fit over that of scikit-learn's multi-output forest", goal="at most 0.5",
                  measured=share, holds=share <= 0.5),
            Claim(what=f"{data.name}: tau less scikit-learn's", goal="at least -0.005", measured=gap,
                  holds=gap >= -0.005),
        ]  # fmt: skip
    served, facts = _served(quick)
    claims.append(
        Claim(
            what="one GET /rank-labels of 16 features by a forest of 100 trees",
            goal="at least 0.2 of an echo endpoint's requests per CPU second",
            measured=served,
            holds=served >= 0.2,
        )
    )
    return Result(rows=rows, claims=claims, facts=facts)


def _sets(quick: bool) -> list[RankingSet]:
    made = make_ranking_data(
        3_000, 60, linear_scores(60, 6, random_state=0), noise=truncated_gaussian(0.05), random_state=0
    )
    sets = [RankingSet(name="made (3000 x 60, k = 6)", X=made.X, Y=made.rankings)]
    try:
        shared = read_sets(("segment", "vowel") if quick else ("segment", "vowel", "cpu-small", "pendigits"))
    except Skip:
        shared = []
    return sets + shared


def _latency(model: Any, row: np.ndarray) -> float:
    model.predict(row)
    times = []
    for _ in range(50):
        started = time.perf_counter()
        model.predict(row)
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def _peak(make: Callable[[], Any], data: RankingSet, train: np.ndarray) -> float:
    """MiB that a fit takes at its peak, in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_grown, (make, data.X[train], data.Y[train]))


def _grown(make: Callable[[], Any], X: np.ndarray, Y: np.ndarray) -> float:
    make().fit(X[:60], Y[:60])
    unit = 1024 if sys.platform == "linux" else 1024 * 1024
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fitted = make().fit(X, Y)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    del fitted
    return grown / unit


# ---------------------------------------------------------------- served


def _served(quick: bool) -> tuple[float, dict[str, Any]]:
    rounds, requests = (7, 1_500) if quick else (25, 5_000)
    numbers = np.random.default_rng(0).normal(size=16).astype(np.float32)
    features = ",".join(f"{value:.6g}" for value in numbers)
    head = "Host: 127.0.0.1\r\n\r\n"
    request = f"GET /rank-labels?model=orders&features={features} HTTP/1.1\r\n{head}".encode()
    spent: dict[str, list[float]] = {"echo": [], "route": []}
    with tempfile.TemporaryDirectory(prefix="pairmark-bench-") as folder:
        environment = environment_of(folder)
        X = np.random.default_rng(1).normal(size=(600, 16)).astype(np.float32)
        job = {"learner": "label-ranking-forest", "model": "orders"}
        ranking = {"ranking": ["positions"]}
        trained(environment, [job], request=ranking, X=X, positions=positions_of(X[:, :6]))
        serve = [sys.executable, "-m", "pairmark.service.cli", "serve", "--port"]
        floor = [
            sys.executable,
            "-m",
            "uvicorn",
            "benchmarks.http_overhead:echo",
            "--no-access-log",
            "--loop",
            "uvloop",
        ]
        floor += ["--http", "httptools", "--lifespan", "off", "--log-level", "warning", "--port"]
        with (
            running_server(serve, environment, "/readyz") as service,
            running_server(floor, environment, "/") as echoing,
        ):
            contestants = {"echo": echoing, "route": service}
            for contestant in contestants.values():
                contestant.ask(request, requests // 4)
            for turn in range(rounds):
                order = list(contestants) if turn % 2 == 0 else list(reversed(contestants))
                for who in order:
                    before = contestants[who].cpu()
                    contestants[who].ask(request, requests)
                    spent[who].append((contestants[who].cpu() - before) / requests)
    micro = {who: round(1e6 * statistics.median(seconds), 1) for who, seconds in spent.items()}
    return round(ratio(spent["echo"], spent["route"]), 3), {"CPU us a request": micro}
