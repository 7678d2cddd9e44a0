"""GHOST on real data, beside other metric learners, nearest neighbours and a forest.

Classification: balanced accuracy over repeated stratified splits (70 % to learn from), every contestant's own choices
made by cross-validation inside the learning part (nested). Features are standardised by the learning part. Contestants
are compared split by split: the interval is that of the mean difference to the best, by Student's t, with Nadeau and
Bengio's correction for splits that overlap.

Open-set: half of the keystroke people train, pairs of the other half's samples are told apart: the AUC, over splits of
people.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from scipy.stats import t as student
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.neighbors import KNeighborsClassifier, NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._verification import euclidean, in_blocks, rates
from benchmarks.common import Claim, Preset, Result, Skip, needed_data
from pairmark.models import Ghost
from pairmark.models.pairs.sampling import sample_pairs

TEST = 0.3
OURS = "ghost"
Table = dict[str, list[float]]


def run(preset: Preset) -> Result:
    """Full: 10 splits. Quick: 4, fewer rows of digits and keystroke, and no keystroke classification."""
    n_splits = 4 if preset == "quick" else 10
    rows: list[dict[str, Any]] = []
    good = []
    for name, (X, y) in _sets(preset).items():
        found: Table = {}
        splits = StratifiedShuffleSplit(n_splits, test_size=TEST, random_state=0).split(X, y)
        for number, (train, test) in enumerate(splits):
            scaler = StandardScaler().fit(X[train])
            A, B = scaler.transform(X[train]), scaler.transform(X[test])
            for who, fit in _classifiers(number).items():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    said = fit(A, y[train]).predict(B)
                found.setdefault(who, []).append(float(balanced_accuracy_score(y[test], said)))
        rows += _reported(name, "balanced accuracy", found, TEST / (1 - TEST))
        good.append(bool(rows[-len(found)]["within the best's interval"]))
    try:
        found = _open_set(preset, n_splits)
    except Skip as reason:
        facts: dict[str, Any] = {"splits": n_splits, "open_set": str(reason)}
    else:
        rows += _reported("keystroke, new people", "AUC", found, 1.0)
        good.append(bool(rows[-len(found)]["within the best's interval"]))
        facts = {"splits": n_splits}
    share = sum(good) / len(good)
    claims = [
        Claim(
            what=f"share of the {len(good)} sets on which GHOST is the best, or within the interval of the best",
            goal="at least 0.5",
            measured=share,
            holds=share >= 0.5,
        )
    ]
    return Result(rows=rows, claims=claims, facts=facts)


def _reported(name: str, measure: str, found: Table, overlap: float) -> list[dict[str, Any]]:
    """A row a contestant, GHOST first; whether it is within the interval of the best."""
    best = max(found, key=lambda who: np.mean(found[who]))
    rows = []
    for who in sorted(found, key=lambda who: who != OURS):
        behind = np.array(found[best]) - np.array(found[who])
        n = behind.size
        reach = float(student.ppf(0.975, n - 1) * behind.std(ddof=1) * np.sqrt(1 / n + overlap))
        rows.append(
            {
                "data": name,
                "measure": measure,
                "contestant": who,
                "mean": float(np.mean(found[who])),
                "sd": float(np.std(found[who], ddof=1)),
                "behind the best": float(behind.mean()),
                "interval": reach,
                "within the best's interval": bool(behind.mean() <= reach),
            }
        )
    return rows


def _sets(preset: Preset) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    found = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "breast cancer": load_breast_cancer(return_X_y=True),
    }
    X, y = load_digits(return_X_y=True)
    kept = slice(0, 700 if preset == "quick" else None)
    found["digits"] = (X[kept], y[kept])
    for name in ("sonar", "ionosphere"):
        try:
            path = needed_data("uci", f"{name}.csv")
        except Skip:
            continue
        with path.open(newline="") as file:
            lines = [line for line in csv.reader(file) if line]
        labels = np.unique([line[-1] for line in lines], return_inverse=True)[1]
        found[name] = (np.array([line[:-1] for line in lines], dtype=float), labels)
    if preset == "full":
        with suppress(Skip):
            found["keystroke"] = _keystroke()
    return found


def _keystroke() -> tuple[np.ndarray, np.ndarray]:
    with needed_data("keystroke", "keystroke.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    y = np.unique([line[0] for line in lines], return_inverse=True)[1]
    return np.array([line[1:] for line in lines], dtype=float), y


def _classifiers(seed: int) -> dict[str, Callable[[np.ndarray, np.ndarray], Any]]:
    """How each is fitted; what it may choose, it chooses inside the learning part."""
    neighbours = {"n_neighbors": [1, 3, 5, 9]}

    def searched(model: Any, grid: dict[str, list[Any]]) -> Callable[[np.ndarray, np.ndarray], Any]:
        search = GridSearchCV(model, grid, cv=3, scoring="balanced_accuracy")
        return lambda X, y: search.fit(X, y)

    def learned(make: Callable[[], Any]) -> Callable[[np.ndarray, np.ndarray], Any]:
        def fit(X: np.ndarray, y: np.ndarray) -> Any:
            metric = make().fit(X, y)
            voter = GridSearchCV(KNeighborsClassifier(), neighbours, cv=3, scoring="balanced_accuracy").fit(
                metric.transform(X), y
            )
            return make_pipeline(_Fitted(metric), voter)

        return fit

    contestants = {
        OURS: searched(Ghost(random_state=seed), _ghost_grid()),
        "kNN, Euclidean": searched(KNeighborsClassifier(), neighbours),
        "kNN, city block": searched(KNeighborsClassifier(metric="manhattan"), neighbours),
        "NCA + kNN": learned(lambda: NeighborhoodComponentsAnalysis(max_iter=30, random_state=seed)),
        "random forest": lambda X, y: RandomForestClassifier(200, random_state=seed, n_jobs=2).fit(X, y),
    }
    try:
        from metric_learn import LMNN, ITML_Supervised
    except ImportError:
        return contestants
    contestants["LMNN + kNN"] = learned(lambda: LMNN(n_neighbors=3, max_iter=50, random_state=seed))
    contestants["ITML + kNN"] = learned(
        lambda: ITML_Supervised(n_constraints=200, max_iter=100, random_state=seed)
    )
    return contestants


def _ghost_grid() -> dict[str, list[Any]]:
    return {"meta_features": [["features"], ["features", "euclidean", "cosine"]], "alpha": [0.1, 1.0]}


class _Fitted:
    """A fitted metric in a pipeline that only predicts."""

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    def fit(self, X: np.ndarray, y: np.ndarray | None = None) -> _Fitted:
        """Nothing is left to learn."""
        return self

    def transform(self, X: np.ndarray) -> np.ndarray:
        """By the metric."""
        return np.asarray(self.metric.transform(X))


def _open_set(preset: Preset, n_splits: int) -> Table:
    X, y = _keystroke()
    found: Table = {}
    for split in range(n_splits):
        rng = np.random.default_rng(split)
        people = rng.permutation(y.max() + 1)
        train = np.isin(y, people[: people.size // 2])
        scaler = StandardScaler().fit(X[train])
        A, B = (scaler.transform(rows).astype(np.float32) for rows in (X[train], X[~train]))
        pairs = sample_pairs(y[~train], 60_000, scheme="proportional", random_state=split)
        nca_rows = rng.choice(len(A), min(len(A), 700 if preset == "quick" else 1_400), replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            nca = NeighborhoodComponentsAnalysis(20, init="lda", max_iter=30, random_state=split).fit(
                A[nca_rows], y[train][nca_rows]
            )
        scores = {
            OURS: Ghost(random_state=split, strategy="center").fit(A, y[train]).pair_score,
            "Euclidean": euclidean,
            "city block": lambda a, b: -np.abs(a - b).sum(axis=1),
            "NCA": lambda a, b, nca=nca: euclidean(nca.transform(a), nca.transform(b)),
        }
        for who, score in scores.items():
            got = rates(in_blocks(score, B, pairs.left, pairs.right), pairs.same, (1e-2,))
            found.setdefault(who, []).append(got.auc)
    return found
