"""What one gets without choosing: `similarity-auto` beside the quick candidates of its race and the usual peers.

Sets: keystrokes and faces (half of the people train, the other half's pairs test), MNIST with digits never met (five
digits train, five test) and with shared classes, people with typing errors (Febrl) as hashed n-grams, and published
lists of record pairs as hashed n-grams (DBLP and ACM, the same with misplaced cells, Amazon and Google, Abt and Buy).
Everybody sees the same training rows and is scored on the same test pairs, with its defaults. Peers of pairs (logistic
regression, a random forest, XGBoost, LightGBM) learn from as many same as different pairs of written-out features, half
as many of rows of over `WIDE` features. Where classes are shared, classifiers compete by the agreement of their
probabilities, the sum of p_k(x) p_k(y) over the classes. A contestant that took over `SLOW` CPU seconds to learn in the
first repetition of a set runs in two, and one that takes over `LIMIT` is left out: its row says so.

The race of `similarity-auto` runs without its slow candidates, so that nothing here depends on the clock; only with
shared digits, where these may win, it has 20 seconds for them. On eleven small sets (`SMALL`: 150 to 625
rows, rows of shared classes or people never met) everything is as users get it, the budget of 120 seconds too. There
the mean over the three rates is compared, and what the winner's line of the board leads to expect with what comes.

Repetitions move together, so contestants are compared repetition by repetition: intervals are those of the mean
difference, by Student's t. They treat repetitions as independent, which they are not quite. Published lists have one
split, so differences there have no interval.

``PAIRMARK_DEFAULTS`` names the sets to run, of all; rows and claims of the others are those of the result file, and the
column ``commit`` says what each row was measured on.
"""

import csv
import gzip
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from lightgbm import LGBMClassifier
from scipy.sparse import csr_array, issparse
from scipy.stats import rankdata
from scipy.stats import t as student
from sklearn import datasets
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier

from benchmarks.common import (
    RESULTS,
    Claim,
    Pairs,
    Preset,
    Result,
    kept,
    needed_data,
    published_records,
    read_csv,
)
from pairmark.models import MetricSimilarity, Plda, SimilarityAuto, SimilarityForest, SimilarityLogistic
from pairmark.models.evaluation.pairs import roc_curve_pairs
from pairmark.models.pairs.sampling import pair_features, sample_pairs
from pairmark.version import commit

Score = Callable[[np.ndarray, np.ndarray], np.ndarray]
Rows = tuple[np.ndarray, np.ndarray]
BLOCK = 50_000


def keystroke() -> tuple[np.ndarray, np.ndarray]:
    """Typing rhythms, and whose each is."""
    with needed_data("keystroke", "keystroke.csv").open(newline="") as file:
        lines = list(csv.reader(file))[1:]
    y = np.unique([line[0] for line in lines], return_inverse=True)[1]
    return np.array([line[1:] for line in lines], dtype=np.float32), y


def faces() -> tuple[np.ndarray, np.ndarray]:
    """Photographs, and whose each is."""
    with np.load(needed_data("faces", "yaleb.npz")) as file:
        return file["X"].astype(np.float32), np.unique(file["y"], return_inverse=True)[1]


def mnist(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """``n`` handwritten digits drawn from the training images of MNIST, and which each is."""
    with gzip.open(needed_data("mnist", "train-images-idx3-ubyte.gz")) as file:
        X = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)
    with gzip.open(needed_data("mnist", "train-labels-idx1-ubyte.gz")) as file:
        y = np.frombuffer(file.read(), dtype=np.uint8, offset=8)
    some = rng.permutation(y.size)[:n]
    return X[some].astype(np.float32), y[some].astype(np.int64)


class SmallSet(NamedTuple):
    """One of them: how it is read, and what new rows are of."""

    read: Callable[[], Rows]
    protocol: Literal["open-set", "closed-set"]
    size: str


def _table(name: str) -> Rows:
    with needed_data("uci", f"{name}.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    y = np.unique([line[-1] for line in lines], return_inverse=True)[1]
    return np.array([line[:-1] for line in lines], dtype=np.float32), y


def _some_people(read: Callable[[], Rows], n_people: int, each: int) -> Rows:
    X, y = read()
    rng = np.random.default_rng(n_people)
    people = rng.permutation(np.unique(y))[:n_people]
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == one))[:each] for one in people])
    return X[rows], np.unique(y[rows], return_inverse=True)[1]


def _by_rule(levels: tuple[int, ...], rule: Callable[..., np.ndarray]) -> Rows:
    """All rows of columns that hold 1 up to their levels, and the class that a rule gives each."""
    X = np.indices(levels).reshape(len(levels), -1).T + 1
    return X.astype(np.float32), rule(*X.T).astype(np.int64)


def _some_digits() -> Rows:
    X, y = datasets.load_digits(return_X_y=True)
    some = np.random.default_rng(0).permutation(y.size)[:600]
    return X[some], y[some]


_MONKS = (3, 3, 2, 3, 4, 2)
SMALL = {
    "wine": SmallSet(lambda: datasets.load_wine(return_X_y=True), "closed-set", "178 x 13, 3 classes"),
    "iris": SmallSet(lambda: datasets.load_iris(return_X_y=True), "closed-set", "150 x 4, 3 classes"),
    "sonar": SmallSet(lambda: _table("sonar"), "closed-set", "208 x 60, 2 classes"),
    "ionosphere": SmallSet(lambda: _table("ionosphere"), "closed-set", "351 x 34, 2 classes"),
    "breast cancer": SmallSet(
        lambda: datasets.load_breast_cancer(return_X_y=True), "closed-set", "569 x 30, 2 classes"
    ),
    "few digits": SmallSet(_some_digits, "closed-set", "600 x 64, 10 classes"),
    "monks-1": SmallSet(
        lambda: _by_rule(_MONKS, lambda a, b, c, d, e, f: (a == b) | (e == 1)),
        "closed-set",
        "432 x 6, 2 classes",
    ),
    "monks-2": SmallSet(
        lambda: _by_rule(_MONKS, lambda *columns: sum(column == 1 for column in columns) == 2),
        "closed-set",
        "432 x 6, 2 classes",
    ),
    "balance scale": SmallSet(
        lambda: _by_rule((5, 5, 5, 5), lambda a, b, c, d: np.sign(a * b - c * d) + 1),
        "closed-set",
        "625 x 4, 3 classes",
    ),
    "few at keyboards": SmallSet(
        lambda: _some_people(keystroke, 40, 8), "open-set", "320 x 31, 40 people of 8 samples"
    ),
    "few faces": SmallSet(lambda: _some_people(faces, 30, 10), "open-set", "300 x 1,024, 30 people of 10"),
}
FPR = (0.1, 0.01, 0.001)
AUTO = "pairmark similarity-auto"
LISTS = ("dblp-acm", "dblp-acm-dirty", "amazon-google", "abt-buy")
SETS = (*LISTS, "people", "keystroke", "faces", "digits never met", "digits shared", *SMALL)
SLOW, LIMIT = 8.0, 90.0
"""CPU seconds of learning above which a contestant runs in two repetitions only, and which no peer may exceed."""
WIDE = 500
_ONE_SPLIT = 0.02
"""Room for differences on published lists, which have one split: about two standard errors of a share of 400 pairs."""


_QUICK = 0.5
"""Budget, seconds, in which no slow candidate of a race begins."""
_BY_DEFAULT = 120.0
"""Budget that users get."""
_BEHIND, _TOO_GOOD = 0.02, 0.03
"""On small sets: mean TPR that may be missing to the best candidate, and by which expectations may be too high."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Training rows with identities (or listed pairs), and test pairs of other rows."""

    X: Any = field(repr=False)
    y: np.ndarray | None = field(repr=False)
    listed: Pairs | None = field(repr=False, default=None)
    rows: Any = field(repr=False)
    left: np.ndarray = field(repr=False)
    right: np.ndarray = field(repr=False)
    same: np.ndarray = field(repr=False)
    protocol: str


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much a preset does."""

    repetitions: int
    shared_budget: float
    test_pairs: int
    digits: int
    peer_pairs: int
    forests: bool


SIZES = {
    "quick": Size(
        repetitions=2, shared_budget=_QUICK, test_pairs=60_000, digits=1_000, peer_pairs=10_000,
        forests=False,
    ),
    "full": Size(
        repetitions=5, shared_budget=20.0, test_pairs=100_000, digits=1_500, peer_pairs=20_000,
        forests=True,
    ),
}  # fmt: skip


def run(preset: Preset) -> Result:
    """Full: 5 repetitions, all peers. Quick: 2, smaller, without the slow peers."""
    size = SIZES["full" if preset == "full" else "quick"]
    asked = os.environ.get("PAIRMARK_DEFAULTS", ",".join(SETS)).split(",")
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for name in (one for one in SETS if one in asked):
        found = _found(name, size)
        done = {key: np.array(values) for key, values in found.items() if values}
        _reported(name, done, rows, claims)
        rows += [
            {
                **dict.fromkeys(rows[-1]),
                "set": name,
                "contestant": key,
                "repetitions": f"not within {LIMIT:g} s",
            }
            for key in found
            if key not in done
        ]
    code = commit()[0]
    rows = [{**row, "commit": code} for row in rows]
    _take_over(rows, claims, preset)
    ranks = {name: _ranked([row for row in rows if row["set"] == name]) for name in SETS}
    rivals = {key for table in ranks.values() for key in table} - {AUTO}
    everywhere = {key: _mean_rank(ranks, key, key) for key in (AUTO, *sorted(rivals))}
    for other in sorted(rivals):
        n = sum(other in table for table in ranks.values())
        behind = _mean_rank(ranks, AUTO, other) - everywhere[other]
        claims.append(
            Claim(
                what=f"mean rank at FPR 0.01 over the {n} sets that {other} ran on, less that of {other}",
                goal="at most 0",
                measured=behind,
                holds=behind <= 0,
            )
        )
    return Result(rows=rows, claims=claims)


def _take_over(rows: list[dict[str, Any]], claims: list[Claim], preset: Preset) -> None:
    """Add rows and claims that the result file has of sets that did not run, if they were measured at this preset."""
    earlier = json.loads((RESULTS / "defaults.json").read_text())
    if earlier["preset"] != preset:
        return
    missing = set(SETS) - {row["set"] for row in rows}
    rows += [{"commit": earlier["commit"], **row} for row in earlier["rows"] if row["set"] in missing]
    claims += [
        Claim(**claim)
        for claim in earlier["claims"]
        if any(claim["what"].startswith((f"{name}: ", f"{name} (")) for name in missing)
    ]


def _mean_rank(ranks: dict[str, dict[str, float]], of: str, beside: str) -> float:
    """Mean rank of a contestant over the sets on which another ran too."""
    return float(np.mean([table[of] for table in ranks.values() if beside in table]))


def _ranked(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Ranks of a set's contestants at the second rate, ties shared."""
    means = {row["contestant"]: -row["TPR at 0.01"] for row in rows if row["TPR at 0.01"] is not None}
    return dict(zip(means, rankdata(list(means.values())).tolist(), strict=True))


def _reported(
    name: str,
    table: dict[str, np.ndarray],
    rows: list[dict[str, Any]],
    claims: list[Claim],
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
    ours = [key for key in table if key.startswith("pairmark") and key != AUTO]
    if name in SMALL:
        _reported_small(name, table, ours, claims)
        return
    best = max(ours, key=lambda key: float(table[key][:, 1].mean()))
    duels = {
        f"similarity-auto less that of {other}": (AUTO, other) for other in (best, "pairmark cosine")
    } | {"trees over the ratio less that of the ratio": ("pairmark plda + trees", "pairmark plda")}
    for words, (one, other) in duels.items():
        if one not in table:
            continue
        apart, reach = _difference(table[one][:, 1], table[other][:, 1])
        claims.append(
            Claim(
                what=f"{name}: TPR at FPR 0.01 of {words}",
                goal=f"not below 0 by more than its interval, +-{reach:.3f}",
                measured=apart,
                holds=apart >= -reach,
            )
        )


def _reported_small(name: str, table: dict[str, np.ndarray], ours: list[str], claims: list[Claim]) -> None:
    # Over the splits that both ran on.
    ahead = {
        key: float((table[AUTO][: len(values), :3] - values[:, :3]).mean()) for key, values in table.items()
    }
    for whom, keys in (("own candidates", ours), ("contestants", [key for key in table if key != AUTO])):
        best = min(keys, key=lambda key: ahead[key])
        claims.append(
            Claim(
                what=f"{name} ({SMALL[name].size}): mean TPR of similarity-auto less that of the best of its {whom}, "
                f"{best}",
                goal=f"at least -{_BEHIND}",
                measured=ahead[best],
                holds=ahead[best] >= -_BEHIND,
            )
        )
    gaps = table[AUTO][:, 4]
    # Which rows of so few are hard to tell, and whether they train or test, is luck of the split.
    gap, reach = _difference(gaps[np.isfinite(gaps)], np.zeros(np.isfinite(gaps).sum()))
    claims.append(
        Claim(
            what=f"{name}: TPR to expect by the board less that on test pairs, mean over the rates shown",
            goal=f"not above {_TOO_GOOD} by more than its interval, +-{reach:.3f}",
            measured=gap,
            holds=gap <= _TOO_GOOD + reach,
        )
    )


def _too_good(model: Any, scores: np.ndarray, same: np.ndarray) -> float:
    """By how much a race's winner was expected to do better, mean over the rates that its board shows."""
    (line,) = (one for one in model.leaderboard_ if one["chosen"])
    shown = {float(rate): tpr for rate, tpr in line.get("validated_tpr", {}).items() if tpr is not None}
    return (
        float(np.mean(np.subtract(list(shown.values()), tpr_at(scores, same, tuple(shown)))))
        if shown
        else np.nan
    )


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[float, float]:
    """Mean difference over the repetitions that both ran in, and half of its interval."""
    n = min(a.size, b.size)
    apart = a[:n] - b[:n]
    if n < 2:
        return float(apart.mean()), _ONE_SPLIT
    reach = student.ppf(0.975, apart.size - 1) * apart.std(ddof=1) / np.sqrt(apart.size)
    return float(apart.mean()), float(reach)


def _found(name: str, size: Size) -> dict[str, list[list[float]]]:
    """By contestant on a set: for each repetition what `_measured` found; none, where it took too long."""
    found: dict[str, list[list[float]]] = {}
    for repetition in range(1 if name in LISTS else size.repetitions):
        for contestant in _contestants(name, _split(name, repetition, size), size, repetition):
            before = found.setdefault(contestant, [])
            slow = repetition > 1 and before and before[0][3] > SLOW and contestant != AUTO
            if slow or (repetition and not before):
                continue
            measured = kept(_measured)(name, repetition, contestant, size)
            if measured is not None:
                before.append(measured)
    return found


def _measured(name: str, repetition: int, contestant: str, size: Size) -> list[float] | None:
    """Rates at `FPR` and CPU seconds of learning, and by how much a race was expected to do better; None where a peer
    took too long."""
    split = _split(name, repetition, size)
    started = time.process_time()
    score = _contestants(name, split, size, repetition)[contestant](split)
    seconds = time.process_time() - started
    # Judged when it is over: libraries that are interrupted in the middle bring the process down.
    if seconds > LIMIT and not contestant.startswith("pairmark"):
        return None
    scores = in_blocks(score, split.rows, split.left, split.right)
    model = getattr(score, "__self__", None)
    found = [*tpr_at(scores, split.same, FPR), seconds]
    return [*found, _too_good(model, scores, split.same)] if isinstance(model, SimilarityAuto) else found


def _contestants(name: str, split: Split, size: Size, seed: int) -> dict[str, Callable[[Split], Score]]:
    reported = {"protocol": split.protocol}

    def ours(estimator: Any) -> Callable[[Split], Score]:
        def fit(data: Split) -> Score:
            if data.listed is None:
                return estimator.fit(data.X, data.y).pair_score
            left, right, same = data.listed
            return estimator.fit_pairs(data.X[left], data.X[right], same).pair_score

        return fit

    budget = size.shared_budget if name == "digits shared" else _BY_DEFAULT if name in SMALL else _QUICK
    peer_pairs = (
        size.peer_pairs // 2 if not issparse(split.X) and split.X.shape[1] > WIDE else size.peer_pairs
    )
    found = {
        AUTO: ours(SimilarityAuto(budget_seconds=budget, random_state=seed, **reported)),
        "pairmark cosine": ours(MetricSimilarity()),
        "pairmark logistic": ours(SimilarityLogistic(random_state=seed)),
        "logistic regression on pairs": lambda data: _logistic(data, peer_pairs, seed),
        "XGBoost on pairs": lambda data: _on_pairs(
            XGBClassifier(n_estimators=100, tree_method="hist", n_jobs=1, random_state=seed),
            lambda model, pairs: model.predict(pairs, output_margin=True),
            data,
            peer_pairs,
            seed,
        ),
    }
    if issparse(split.X):
        return found
    found |= {
        "pairmark whitened cosine": ours(MetricSimilarity(whiten=True)),
        "pairmark plda": ours(Plda(random_state=seed, **reported)),
        "pairmark plda + trees": ours(Plda(random_state=seed, residual_rounds=100, **reported)),
    }
    if size.forests or name in SMALL:
        found["pairmark forest"] = ours(SimilarityForest(random_state=seed))
    if name in SMALL:
        found["two-covariance"] = ours(
            Plda(marginals="raw", length_norm=False, shrink_within=0.05, shrink_between=0.0)
        )
    if split.protocol == "closed-set":
        found |= {
            f"class agreement, {what}": lambda data, model=model: _agreement(data, model)
            for what, model in (
                ("logistic regression", LogisticRegression(max_iter=500)),
                ("support vectors", CalibratedClassifierCV(SVC(), ensemble=False)),
                ("extra trees", ExtraTreesClassifier(100, random_state=seed)),
            )
        }
    if size.forests:
        found |= {
            "LightGBM on pairs": lambda data: _on_pairs(
                LGBMClassifier(n_jobs=1, random_state=seed, verbose=-1),
                lambda model, pairs: model.booster_.predict(pairs, raw_score=True),
                data,
                peer_pairs,
                seed,
            ),
            "random forest on pairs": lambda data: _on_pairs(
                RandomForestClassifier(100, min_samples_leaf=5, n_jobs=1, random_state=seed),
                lambda model, pairs: model.predict_proba(pairs)[:, 1],
                data,
                peer_pairs,
                seed,
            ),
        }
    return found


def _training_pairs(data: Split, n_pairs: int, seed: int) -> Pairs:
    if data.listed is not None:
        return data.listed
    return sample_pairs(data.y, n_pairs, random_state=seed)


def _apart(a: Any, b: Any) -> Any:
    return csr_array(abs(a - b)) if issparse(a) else np.abs(a - b)


def _logistic(data: Split, n_pairs: int, seed: int) -> Score:
    left, right, same = _training_pairs(data, n_pairs, seed)
    scale = StandardScaler(with_mean=not issparse(data.X), with_std=not issparse(data.X)).fit(data.X)
    Z = scale.transform(data.X)
    model = LogisticRegression(max_iter=200).fit(_apart(Z[left], Z[right]), same)
    return lambda a, b: model.decision_function(_apart(scale.transform(a), scale.transform(b)))


def _on_pairs(model: Any, score: Callable[[Any, Any], Any], data: Split, n_pairs: int, seed: int) -> Score:
    """Trees on features of pairs, and what they score by."""
    left, right, same = _training_pairs(data, n_pairs, seed)
    features = _apart if issparse(data.X) else pair_features
    model.fit(features(data.X[left], data.X[right]), same)
    return lambda a, b: score(model, features(a, b))


def _agreement(data: Split, classifier: Any) -> Score:
    model = make_pipeline(StandardScaler(), classifier).fit(data.X, data.y)
    return lambda a, b: (model.predict_proba(a) * model.predict_proba(b)).sum(axis=1)


@lru_cache(maxsize=1)
def _split(name: str, repetition: int, size: Size) -> Split:
    rng = np.random.default_rng(1_000 + repetition)
    if name in LISTS:
        return _records(name)
    if name in SMALL and SMALL[name].protocol == "closed-set":
        X, y = SMALL[name].read()
        train = rng.permutation(y.size) < y.size // 2
        protocol = "closed-set"
    elif name == "digits shared":
        X, y = mnist(2 * size.digits, rng)
        train = np.arange(y.size) < size.digits
        protocol = "closed-set"
    else:
        read = {"keystroke": keystroke, "faces": faces, "people": _people}
        read |= {one: SMALL[one].read for one in SMALL}
        X, y = read[name]() if name in read else mnist(2 * size.digits, rng)
        people = rng.permutation(int(y.max()) + 1)
        train = np.isin(y, people[: people.size // 2])
        protocol = "open-set"
    rows, codes = X[~train], y[~train]
    left, right = _test_pairs(codes.size, size.test_pairs, np.random.default_rng(repetition))
    return Split(
        X=X[train],
        y=y[train],
        rows=rows,
        left=left,
        right=right,
        same=codes[left] == codes[right],
        protocol=protocol,
    )


def _test_pairs(n: int, n_pairs: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of n rows, or of more than ``n_pairs`` so many at random."""
    if n * (n - 1) // 2 <= n_pairs:
        return np.triu_indices(n, 1)
    left = random.integers(0, n, n_pairs)
    return left, (left + random.integers(1, n, n_pairs)) % n


def _hashed(lines: list[dict[str, str]]) -> Any:
    """Rows of hashed character n-grams of all cells but those that name the row."""
    texts = [
        " ".join(v or "" for k, v in line.items() if k not in ("id", "source", "rec_id")) for line in lines
    ]
    hashed = HashingVectorizer(analyzer="char_wb", ngram_range=(3, 3), n_features=2**16, alternate_sign=False)
    return csr_array(hashed.transform(texts), dtype=np.float32)


def _people() -> tuple[Any, np.ndarray]:
    """Febrl's third set: 5,000 records of 2,000 people, with typing errors."""
    lines = read_csv(needed_data("records", "febrl", "dataset3.csv"))
    y = np.unique([line["rec_id"].split("-")[1] for line in lines], return_inverse=True)[1]
    return _hashed(lines), y


def _records(name: str) -> Split:
    """Records of two sources and the published lists of pairs."""
    lines, pairs = published_records(name)
    X, (left, right, same) = _hashed(lines), pairs["test"]
    return Split(
        X=X, y=None, listed=pairs["train"], rows=X, left=left, right=right, same=same, protocol="open-set"
    )


def tpr_at(scores: np.ndarray, same: np.ndarray, at: tuple[float, ...]) -> list[float]:
    """True positive rates of ``score > threshold`` at false positive rates; every pair weighs the same."""
    fpr, tpr, _ = roc_curve_pairs(scores, same)
    return [float(tpr[fpr <= rate].max()) for rate in at]


def in_blocks(score: Score, X: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Scores of pairs of rows of X, a bounded block at a time; our learners prepare each row once."""
    learner: Any = getattr(score, "__self__", None)
    if getattr(score, "__name__", "") == "pair_score" and hasattr(learner, "score_pairs"):
        return np.asarray(learner.score_pairs(X, left, right))
    return np.concatenate(
        [
            np.asarray(score(X[left[at : at + BLOCK]], X[right[at : at + BLOCK]]), dtype=np.float32)
            for at in range(0, len(left), BLOCK)
        ]
    )
