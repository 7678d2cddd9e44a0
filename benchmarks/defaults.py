"""What one gets without choosing: `similarity-auto` beside every candidate of its race and the usual peers.

Sets: keystrokes and faces (half of the people train, the other half's pairs test), MNIST with digits never met (five
digits train, five test) and with shared classes, and bibliographic records as hashed n-grams, by their published lists
of pairs. Everybody sees the same training rows and is scored on the same test pairs, with its defaults; test people are
looked at once. Peers of pairs (logistic regression, XGBoost, LightGBM) learn from as many same as different pairs of
written-out features.

Repetitions move together, so contestants are compared repetition by repetition: intervals are those of the mean
difference, by Student's t. They treat repetitions as independent, which they are not quite. ``PAIRMARK_DEFAULTS`` names
the sets to run, of all.
"""

from __future__ import annotations

import csv
import gzip
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.stats import t as student
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks._verification import Score, boosted, cosine, euclidean, in_blocks, rates, timed
from benchmarks.common import Claim, Parts, Preset, Result, needed_data
from pairmark.models import MetricSimilarity, Plda, SimilarityAuto, SimilarityForest
from pairmark.models.pairs.sampling import pair_features, sample_pairs

FPR = (0.1, 0.01, 0.001)
AUTO = "pairmark similarity-auto"
SETS = ("keystroke", "faces", "digits never met", "digits shared", "records")


@dataclass(frozen=True, kw_only=True)
class Split:
    """Training rows with identities (or listed pairs), and test pairs of other rows."""

    X: Any = field(repr=False)
    y: np.ndarray | None = field(repr=False)
    listed: tuple[np.ndarray, np.ndarray, np.ndarray] | None = field(repr=False, default=None)
    rows: Any = field(repr=False)
    left: np.ndarray = field(repr=False)
    right: np.ndarray = field(repr=False)
    same: np.ndarray = field(repr=False)
    protocol: str


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much a preset does."""

    repetitions: int
    budget: float
    test_pairs: int
    digits: int
    peer_pairs: int
    forests: bool


SIZES = {
    "quick": Size(
        repetitions=3, budget=0.5, test_pairs=60_000, digits=2_000, peer_pairs=10_000, forests=False
    ),
    "full": Size(
        repetitions=5, budget=120.0, test_pairs=300_000, digits=10_000, peer_pairs=100_000, forests=True
    ),
}


def run(preset: Preset) -> Result:
    """Full: 5 repetitions, the race's own budget, LightGBM and forests too. Quick: 3, smaller, quick candidates."""
    size = SIZES["full" if preset == "full" else "quick"]
    asked = os.environ.get("PAIRMARK_DEFAULTS", ",".join(SETS)).split(",")
    parts = Parts("defaults", f"{preset} {size}")
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    ranks: dict[str, list[float]] = {}
    for name in (one for one in SETS if one in asked):
        found: dict[str, list[list[float]]] = {}
        for repetition in range(1 if name == "records" else size.repetitions):
            got = parts.get(f"{name}, {repetition}", lambda name=name, n=repetition: _measured(name, n, size))
            for contestant, values in got.items():
                found.setdefault(contestant, []).append(values)
        _told(name, {key: np.array(values) for key, values in found.items()}, rows, claims, ranks)
    everywhere = {
        key: float(np.mean(values)) for key, values in ranks.items() if len(values) == len(ranks[AUTO])
    }
    best = min(value for key, value in everywhere.items() if key != AUTO)
    claims.append(
        Claim(
            what="mean rank over sets at FPR 0.01, less that of the best other",
            goal="at most 0",
            measured=everywhere[AUTO] - best,
            holds=everywhere[AUTO] <= best,
        )
    )
    parts.forget()
    return Result(rows=rows, claims=claims, facts={"size": str(size), "mean_rank": everywhere, "sets": asked})


def _told(
    name: str,
    table: dict[str, np.ndarray],
    rows: list[dict[str, Any]],
    claims: list[Claim],
    ranks: dict[str, list[float]],
) -> None:
    for contestant, values in table.items():
        apart, reach = _difference(table[AUTO][:, 1], values[:, 1])
        rows.append(
            {
                "set": name,
                "contestant": contestant,
                **{f"TPR at {rate:g}": float(values[:, at].mean()) for at, rate in enumerate(FPR)},
                "auto ahead at 0.01": apart,
                "+-": reach,
                "training CPU s": float(values[:, 3].mean()),
                "repetitions": values.shape[0],
            }
        )
    order = sorted(table, key=lambda key: -float(table[key][:, 1].mean()))
    for place, contestant in enumerate(order):
        ranks.setdefault(contestant, []).append(place + 1.0)
    ours = [key for key in table if key.startswith("pairmark") and key != AUTO]
    for other in (max(ours, key=lambda key: float(table[key][:, 1].mean())), "pairmark cosine"):
        apart, reach = _difference(table[AUTO][:, 1], table[other][:, 1])
        claims.append(
            Claim(
                what=f"{name}: TPR at FPR 0.01 of similarity-auto less that of {other}",
                goal=f"not below 0 by more than its interval, +-{reach:.3f}",
                measured=apart,
                holds=apart >= -reach,
            )
        )
    if "pairmark plda + trees" in table:
        apart, reach = _difference(table["pairmark plda + trees"][:, 1], table["pairmark plda"][:, 1])
        claims.append(
            Claim(
                what=f"{name}: TPR at FPR 0.01 of trees over the ratio less that of the ratio",
                goal=f"not below 0 by more than its interval, +-{reach:.3f}",
                measured=apart,
                holds=apart >= -reach,
            )
        )


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    apart = a - b
    if apart.size < 2:
        return float(apart.mean()), 0.0
    reach = student.ppf(0.975, apart.size - 1) * apart.std(ddof=1) / np.sqrt(apart.size)
    return float(apart.mean()), float(reach)


def _measured(name: str, repetition: int, size: Size) -> dict[str, list[float]]:
    split = _split(name, repetition, size)
    found = {}
    for contestant, fit in _contestants(split, size, repetition).items():
        score, seconds = timed(lambda X, y, fit=fit: fit(split), split.X, split.y)
        scores = in_blocks(score, split.rows, split.left, split.right)
        found[contestant] = [*rates(scores, split.same, FPR).tpr, seconds]
    return found


def _contestants(split: Split, size: Size, seed: int) -> dict[str, Callable[[Split], Score]]:
    told = {"protocol": split.protocol}

    def ours(estimator: Any) -> Callable[[Split], Score]:
        def fit(data: Split) -> Score:
            if data.listed is None:
                return estimator.fit(data.X, data.y).pair_score
            left, right, same = data.listed
            return estimator.fit_pairs(data.X[left], data.X[right], same).pair_score

        return fit

    found = {
        AUTO: ours(SimilarityAuto(budget_seconds=size.budget, random_state=seed, **told)),
        "pairmark cosine": ours(MetricSimilarity()),
    }
    if split.listed is not None:
        return found | {"logistic regression on pairs": _logistic_listed}
    found |= {
        "pairmark whitened cosine": ours(MetricSimilarity(whiten=True)),
        "pairmark plda": ours(Plda(random_state=seed, **told)),
        "pairmark plda + trees": ours(Plda(random_state=seed, residual_rounds="auto", **told)),
        "LDA + cosine": _lda,
        "NCA + Euclidean": _nca,
        "logistic regression on pairs": lambda data: _logistic(data, size.peer_pairs, seed),
        "XGBoost on pairs": lambda data: boosted(
            data.X, data.y, n_pairs=size.peer_pairs, n_trees=100, depth=6, seed=seed
        ),
    }
    if size.forests:
        found["pairmark forest"] = ours(SimilarityForest(random_state=seed))
        found["LightGBM on pairs"] = lambda data: _lightgbm(data, size.peer_pairs, seed)
    return found


def _lda(data: Split) -> Score:
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(data.X, data.y)
    return lambda a, b: cosine(lda.transform(a), lda.transform(b))


def _nca(data: Split) -> Score:
    steps = [StandardScaler()] + ([PCA(64, random_state=0)] if data.X.shape[1] > 128 else [])
    model = make_pipeline(*steps, NeighborhoodComponentsAnalysis(20, init="pca", max_iter=30, random_state=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X[:2_000], data.y[:2_000])
    return lambda a, b: euclidean(model.transform(a), model.transform(b))


def _logistic(data: Split, n_pairs: int, seed: int) -> Score:
    pairs = sample_pairs(data.y, n_pairs, random_state=seed)
    scale = StandardScaler().fit(data.X)
    Z = scale.transform(data.X)
    model = LogisticRegression(max_iter=200).fit(np.abs(Z[pairs.left] - Z[pairs.right]), pairs.same)
    return lambda a, b: model.decision_function(np.abs(scale.transform(a) - scale.transform(b)))


def _logistic_listed(data: Split) -> Score:
    left, right, same = data.listed
    model = LogisticRegression(max_iter=200).fit(abs(data.X[left] - data.X[right]), same)
    return lambda a, b: model.decision_function(abs(a - b))


def _lightgbm(data: Split, n_pairs: int, seed: int) -> Score:
    from lightgbm import LGBMClassifier

    pairs = sample_pairs(data.y, n_pairs, random_state=seed)
    model = LGBMClassifier(n_jobs=1, random_state=seed, verbose=-1)
    model.fit(pair_features(data.X[pairs.left], data.X[pairs.right]), pairs.same)
    return lambda a, b: model.booster_.predict(pair_features(a, b), raw_score=True)


def _split(name: str, repetition: int, size: Size) -> Split:
    rng = np.random.default_rng(1_000 + repetition)
    if name == "records":
        return _records()
    if name == "digits shared":
        X, y = _digits(2 * size.digits, rng)
        train = np.arange(y.size) < size.digits
        protocol = "closed-set"
    else:
        read = {"keystroke": _keystroke, "faces": _faces}
        X, y = read[name]() if name in read else _digits(2 * size.digits, rng)
        people = rng.permutation(int(y.max()) + 1)
        train = np.isin(y, people[: people.size // 2])
        protocol = "open-set"
    rows, codes = X[~train], y[~train]
    pairs = sample_pairs(codes, size.test_pairs, scheme="proportional", random_state=repetition)
    return Split(
        X=X[train],
        y=y[train],
        rows=rows,
        left=pairs.left,
        right=pairs.right,
        same=pairs.same,
        protocol=protocol,
    )


def _keystroke() -> tuple[np.ndarray, np.ndarray]:
    with needed_data("keystroke", "keystroke.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    y = np.unique([line[0] for line in lines], return_inverse=True)[1]
    return np.array([line[1:] for line in lines], dtype=np.float32), y


def _faces() -> tuple[np.ndarray, np.ndarray]:
    with np.load(needed_data("faces", "yaleb.npz")) as file:
        return file["X"].astype(np.float32), np.unique(file["y"], return_inverse=True)[1]


def _digits(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(needed_data("mnist", "train-images-idx3-ubyte.gz")) as file:
        X = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(needed_data("mnist", "train-labels-idx1-ubyte.gz")) as file:
        y = np.frombuffer(file.read(), dtype=np.uint8, offset=8)
    some = rng.permutation(y.size)[:n]
    return X[some].astype(np.float32), y[some].astype(np.int64)


def _records() -> Split:
    """DBLP and ACM: rows are hashed character n-grams, pairs are the published lists."""
    with needed_data("records", "dblp-acm", "records.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    place = {line["id"]: at for at, line in enumerate(lines)}
    texts = [" ".join(v for k, v in line.items() if k not in ("id", "source")) for line in lines]
    hashed = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 3), n_features=2**16, alternate_sign=False)
    X = csr_array(hashed.transform(texts), dtype=np.float32)

    def listed(part: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with needed_data("records", "dblp-acm", f"pairs-{part}.csv").open(newline="") as file:
            pairs = list(csv.DictReader(file))
        left, right = (np.array([place[pair[side]] for pair in pairs]) for side in ("left", "right"))
        return left, right, np.array([pair["same"] == "1" for pair in pairs])

    left, right, same = listed("test")
    return Split(
        X=X, y=None, listed=listed("train"), rows=X, left=left, right=right, same=same, protocol="open-set"
    )
