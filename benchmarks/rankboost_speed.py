"""RankBoost's stumps against XGBoost at depth 1 and AdaBoost's stumps: CPU seconds, peak memory, AUC against rounds.

"by Z" and "by r" are the boosting alone; "RankBoostKernel.fit", on a9a, is what users call: the same boosting, then the
embedding and the linear SVM at their defaults.

The large set is made like the challenge's (`_sparse.challenge_rows`): 50,000 rows of 200,000 columns, about 115 of them
active, a tenth of the labels wrong. a9a and rcv1 are real. Each contestant runs in a process of its own, after a small
fit that compiles and imports; CPU seconds are of all threads, from the CSR matrix to the fitted model, conversions to
the contestant's own format included. XGBoost runs with one thread, where it spends least CPU, and as it comes.
AdaBoost's stumps are scikit-learn's, on the two real sets only: on the large one they would take hours.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks import _sparse
from benchmarks.common import Claim, Preset, Result, Skip

ROUNDS = (25, 50, 100, 200)
OURS = {"pairmark, by Z": "z", "pairmark, by r": "r"}
ESTIMATOR = "pairmark, RankBoostKernel.fit"
PEER = "XGBoost, 1 thread"


def run(preset: Preset) -> Result:
    """Full: three repetitions of each, medians reported. Quick: one."""
    try:
        import xgboost  # noqa: F401
    except ImportError as error:
        raise Skip("needs xgboost: run it with `make bench`, whose environment has it") from error
    repeats = 3 if preset == "full" else 1
    rows: list[dict[str, Any]] = []
    for data in ("challenge 50k x 200k", "a9a", "rcv1"):
        names = [*OURS, PEER, "XGBoost, all threads"] + (
            ["AdaBoost stumps"] if data in ("a9a", "rcv1") else []
        )
        names += [ESTIMATOR] if data == "a9a" else []
        found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        for _ in range(repeats):
            for name in names:
                found[name].append(_alone(name, data))
        for name in names:
            middle = sorted(found[name], key=lambda one: one["cpu"])[repeats // 2]
            rows.append(
                {
                    "data": data,
                    "contestant": name,
                    "CPU s": middle["cpu"],
                    "peak MiB": middle["peak"],
                    **{f"AUC at {n}": middle[f"auc_{n}"] for n in ROUNDS},
                }
            )
    by = {(row["data"], row["contestant"]): row for row in rows}
    large = "challenge 50k x 200k"
    claims = [
        Claim(
            what=f"CPU of {peer} over that of RankBoost {name.partition(', ')[2]}, {large}, 200 rounds",
            goal="at least 10",
            measured=by[large, peer]["CPU s"] / by[large, name]["CPU s"],
            holds=by[large, peer]["CPU s"] >= 10 * by[large, name]["CPU s"],
        )
        for name in OURS
        for peer in (PEER, "XGBoost, all threads")
    ]
    share = by["a9a", ESTIMATOR]["CPU s"] / by["a9a", PEER]["CPU s"]
    claims.append(
        Claim(
            what="CPU of RankBoostKernel.fit over that of XGBoost at depth 1 on one thread, a9a, 200 rounds",
            goal="at most 1",
            measured=share,
            holds=share <= 1,
        )
    )
    for name in OURS:
        for data in ("a9a", "rcv1", large):
            gap = by[data, name]["AUC at 200"] - by[data, PEER]["AUC at 200"]
            claims.append(
                Claim(
                    what=f"AUC less XGBoost's, {name}, {data}",
                    goal="not below -0.01",
                    measured=gap,
                    holds=gap >= -0.01,
                )
            )
    return Result(rows=rows, claims=claims, facts={"rounds": 200, "repeats": repeats})


def _data(name: str) -> _sparse.Sparse:
    if name == "a9a":
        return _sparse.a9a()
    if name == "rcv1":
        return _sparse.rcv1()
    X, y = _sparse.challenge_rows(50_000, 200_000, 1, noise=0.1)
    X_test, y_test = _sparse.challenge_rows(10_000, 200_000, 2)
    return _sparse.Sparse(X=X, y=y, X_test=X_test, y_test=y_test, unlabelled=X)


def _alone(name: str, data: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rankboost_speed", name, data]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} on {data} failed:\n{done.stderr[-2000:]}")
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _main(name: str, data: str) -> None:
    given = _data(data)
    fit = _fitter(name)
    fit(given.X[:1_000], given.y[:1_000], 70)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    staged = fit(given.X, given.y, 200)
    measured = {"cpu": time.process_time() - started}
    measured["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    measured["before"] = before / 1024
    for n in ROUNDS:
        measured[f"auc_{n}"] = float(roc_auc_score(given.y_test, staged(given.X_test, n)))
    print(json.dumps(measured))


def _fitter(name: str) -> Any:
    """Fit -> scores of rows after so many rounds."""
    if name in OURS:
        return lambda X, y, rounds: _ours(OURS[name], X, y, rounds)
    if name == ESTIMATOR:
        return _estimator
    if name == "AdaBoost stumps":
        return _adaboost
    return lambda X, y, rounds: _xgboost(1 if name == PEER else None, X, y, rounds)


def _ours(criterion: Any, X: Any, y: np.ndarray, rounds: int) -> Any:
    from pairmark.models.rankboost.binning import bin_rows, sparse_rows
    from pairmark.models.rankboost.boosting import BoostSettings, boost, one_against_rest

    settings = BoostSettings(n_estimators=rounds, weak="stump", criterion=criterion, alternate=True)
    return _staged(boost(bin_rows(sparse_rows(X), 256), one_against_rest(y, np.array([1])), settings))


def _estimator(X: Any, y: np.ndarray, rounds: int) -> Any:
    from pairmark.models import RankBoostKernel

    return _staged(RankBoostKernel(n_estimators=rounds, random_state=0).fit(X, y).rules_)


def _staged(rules: Any) -> Any:
    from pairmark.models.rankboost.binning import sparse_rows
    from pairmark.models.rankboost.rules import FeatureMap, Rules

    def staged(rows: Any, n: int) -> np.ndarray:
        first = Rules(**{name: values[:n] for name, values in vars(rules).items()})
        phi = FeatureMap(first, first.alpha, np.zeros(len(first), np.int64), "rankers", rows.shape[1])
        return np.asarray(phi(sparse_rows(rows)).matrix().sum(axis=1)).ravel()

    return staged


def _xgboost(threads: int | None, X: Any, y: np.ndarray, rounds: int) -> Any:
    import xgboost
    from scipy.sparse import csr_matrix

    options: dict[str, Any] = {"max_depth": 1, "tree_method": "hist", "objective": "binary:logistic"}
    if threads:
        options["nthread"] = threads
    booster = xgboost.train(options, xgboost.DMatrix(csr_matrix(X), label=y), rounds)
    return lambda rows, n: booster.predict(xgboost.DMatrix(csr_matrix(rows)), iteration_range=(0, n))


def _adaboost(X: Any, y: np.ndarray, rounds: int) -> Any:
    from scipy.sparse import csc_matrix
    from sklearn.ensemble import AdaBoostClassifier

    model = AdaBoostClassifier(n_estimators=rounds, random_state=0).fit(csc_matrix(X), y)

    def staged(rows: Any, n: int) -> np.ndarray:
        scores = list(model.staged_decision_function(rows))
        return np.asarray(scores[min(n, len(scores)) - 1])

    return staged


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
