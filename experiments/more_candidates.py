"""Would more candidates help the race of `similarity-auto`? Kernel PLDA, a small network and a stack, beside PLDA.

Only training people are used, as the race does: half of the people of each set, four folds of them, three draws. What
is judged is the race's measure, the mean TPR at false positive rates of .1, .03, .01 and .003, fold by fold.

- kernel PLDA: PLDA of 400 Nystroem features (Gaussian kernel) of rows with normal marginals. Three widths times two
  shrinkages, and the best of the six *after the fact*, which flatters it.
- network: one hidden layer of 128 rectified units learns to tell the training identities apart (scikit-learn's
  `MLPClassifier`); hidden vectors are compared by cosine, or by PLDA, whichever is better after the fact.
- stack: non-negative logistic regression over the scores of cosine, PLDA, kernel PLDA and the network, its weights
  learned on the other folds' held-out pairs.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.stats import t as student
from sklearn.kernel_approximation import Nystroem
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import QuantileTransformer, StandardScaler

from benchmarks.common import Claim, Preset, Result
from benchmarks.defaults import faces, keystroke, mnist
from pairmark.models import MetricSimilarity, Plda
from pairmark.models.evaluation.validation import JUDGED_FPR, Fold, validation_folds

PLDA, KERNEL, NETWORK, STACK = "plda", "kernel PLDA", "network", "stack"
_WIDTHS, _SHRINKAGES = (0.5, 1.0, 2.0), (0.2, 0.5)


def run(preset: Preset) -> Result:
    """Quick: one draw of people; full: three."""
    found: dict[str, dict[str, list[float]]] = {}
    for name in ("keystroke", "faces", "digits never met"):
        for seed in range(1 if preset == "quick" else 3):
            for contestant, values in _draw(name, seed).items():
                found.setdefault(name, {}).setdefault(contestant, []).extend(values)
    rows, claims = [], []
    for name, by in found.items():
        for contestant, values in by.items():
            apart, reach = _difference(np.array(values), np.array(by[PLDA]))
            rows.append(
                {
                    "set": name,
                    "candidate": contestant,
                    "mean TPR": float(np.mean(values)),
                    "ahead of PLDA": apart,
                    "+-": reach,
                    "folds": len(values),
                }
            )
            if contestant != PLDA:
                claims.append(
                    Claim(
                        what=f"{name}: mean TPR of {contestant} less that of PLDA, on validation people",
                        goal="not above 0 by more than its interval: no reason to build it",
                        measured=apart,
                        holds=apart <= reach,
                    )
                )
    return Result(rows=rows, claims=claims)


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    apart = a - b
    reach = student.ppf(0.975, apart.size - 1) * apart.std(ddof=1) / np.sqrt(apart.size)
    return float(apart.mean()), float(reach)


def _draw(name: str, seed: int) -> dict[str, list[float]]:
    rng = np.random.default_rng(1_000 + seed)
    X, y = (
        {"keystroke": keystroke, "faces": faces}[name]() if name != "digits never met" else mnist(4_000, rng)
    )
    people = rng.permutation(int(y.max()) + 1)
    train = np.isin(y, people[: people.size // 2])
    X, codes = X[train], np.unique(y[train], return_inverse=True)[1]
    folds = validation_folds(codes, "open-set", rng, repeats=1)
    chosen = Plda(random_state=0, protocol="open-set").fit(X, codes).settings_
    squares = [_squares(X, codes, fold, chosen) for fold in folds]
    stacked = [_stacked(squares, folds, number) for number in range(len(folds))]
    found: dict[str, list[float]] = {}
    for fold, by, both in zip(folds, squares, stacked, strict=True):
        judged = {key: float(fold.rates(square, JUDGED_FPR).mean()) for key, square in by.items()}
        of = {
            "cosine": judged["cosine"],
            PLDA: judged[PLDA],
            KERNEL: max(value for key, value in judged.items() if key.startswith(KERNEL)),
            NETWORK: max(value for key, value in judged.items() if key.startswith(NETWORK)),
            STACK: float(fold.rates(both, JUDGED_FPR).mean()),
        }
        for key, value in of.items():
            found.setdefault(key, []).append(value)
    return found


def _squares(X: np.ndarray, codes: np.ndarray, fold: Fold, chosen: dict[str, Any]) -> dict[str, np.ndarray]:
    """Scores of all pairs of a fold's test rows, by contestant."""
    seen, rows = codes[fold.train], X[fold.test]
    found = {"cosine": MetricSimilarity().fit(X[fold.train], seen).score_against(rows, rows)}
    found[PLDA] = Plda(**chosen, random_state=0).fit(X[fold.train], seen).score_against(rows, rows)
    normal = QuantileTransformer(n_quantiles=200, output_distribution="normal", random_state=0)
    a = np.clip(normal.fit_transform(X[fold.train]), -4, 4).astype(np.float32)
    b = np.clip(normal.transform(rows), -4, 4).astype(np.float32)
    some = a[np.random.default_rng(0).permutation(len(a))[:300]]
    apart = float(np.median(((some[:, None] - some[None]) ** 2).sum(axis=2)[np.triu_indices(len(some), 1)]))
    for width in _WIDTHS:
        kernel = Nystroem(gamma=1.0 / (width * apart), n_components=min(400, len(a)), random_state=0)
        u, v = (part.astype(np.float32) for part in (kernel.fit_transform(a), kernel.transform(b)))
        for shrink in _SHRINKAGES:
            found[f"{KERNEL}, {width}, {shrink}"] = _plda(u, seen, v, shrink)
    scale = StandardScaler().fit(a)
    network = MLPClassifier((128,), early_stopping=True, max_iter=80, alpha=1e-3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network.fit(scale.transform(a), seen)
    u, v = (
        np.maximum(scale.transform(part) @ network.coefs_[0] + network.intercepts_[0], 0).astype(np.float32)
        for part in (a, b)
    )
    found[f"{NETWORK}, cosine"] = MetricSimilarity().fit(u, seen).score_against(v, v)
    found[f"{NETWORK}, plda"] = _plda(u, seen, v, 0.2)
    return found


def _plda(rows: np.ndarray, codes: np.ndarray, others: np.ndarray, shrink: float) -> np.ndarray:
    given: dict[str, Any] = {"marginals": "raw", "length_norm": False, "n_components": 256, "random_state": 0}
    model = Plda(shrink_within=shrink, shrink_between=0.1, **given).fit(rows, codes)
    return np.asarray(model.score_against(others, others))


def _stacked(squares: list[dict[str, np.ndarray]], folds: list[Fold], left_out: int) -> np.ndarray:
    """Scores of a fold by weights that were learned on the others."""
    names = ("cosine", PLDA, f"{KERNEL}, 1.0, 0.2", f"{NETWORK}, plda")
    columns, flags = [], []
    for number, (by, fold) in enumerate(zip(squares, folds, strict=True)):
        if number != left_out:
            for places, same in zip(fold.places, (True, False), strict=True):
                some = np.random.default_rng(number).permutation(places)[:10_000]
                columns.append(np.stack([by[name].reshape(-1)[some] for name in names], axis=1))
                flags.append(np.full(some.size, same))
    table = np.concatenate(columns).astype(np.float64)
    known: np.ndarray = np.concatenate(flags)
    mean, spread = table.mean(axis=0), table.std(axis=0)
    scaled, sign = (table - mean) / spread, np.where(known, 1.0, -1.0)
    share = np.where(known, 0.5 / known.sum(), 0.5 / (~known).sum())

    def loss(weights: np.ndarray) -> float:
        margin = sign * (scaled @ weights[:-1] + weights[-1])
        return float(share @ np.logaddexp(0.0, -margin))

    bounds = [(0.0, None)] * len(names) + [(None, None)]
    weights = minimize(loss, np.full(len(names) + 1, 0.5), method="L-BFGS-B", bounds=bounds).x
    of = np.stack([squares[left_out][name] for name in names])
    return np.asarray(np.tensordot(weights[:-1] / spread, of, axes=1))
