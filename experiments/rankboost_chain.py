"""The experiment of Tables 1 to 4 of Sokolov, Urvoy and Ricard on other data: AUC by kernel, rounds, pivots, chain.

Every method ends in a linear SVM on at most 100 dimensions (T dimensions for A-D), except where it says that it is one
score. Pivots are drawn from the unlabelled rows; figures are means and deviations over draws of pivots and projections.
Penalties of the logistic regressions, and which of our chains the claims are about, are chosen on a fifth of the
training rows; test rows are scored once. The challenge's own data are not to be had: its stand-in is made by
`_sparse.challenge_rows`, with a tenth of the training labels wrong.

The paper, on its data: 1,000 k-means and projection .98455, sparse logistic regression .99576, stumps .99203 to .99322,
grids .99378 to .99546, neural kernels .98718 to .99279.
"""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.svm import LinearSVC

from benchmarks.common import Claim, Preset, Result
from experiments import _sparse
from pairmark.models import AlignedKernel, RankBoostKernel
from pairmark.models.rankboost.estimator import binary_projection, chosen_pivots, compose

PENALTIES = (0.1, 0.22, 0.38, 1.0, 3.0, 10.0)
_GENERATOR = {"quick": (4_000, 20_000, 20_000), "full": (50_000, 1_000_000, 1_000_000)}


def run(preset: Preset) -> Result:
    """Quick: small sets, 2 draws (or 1). Full: all rows, the challenge's own sizes, 5 draws, 2,000 rounds."""
    quick = preset == "quick"
    warnings.simplefilter("ignore", ConvergenceWarning)
    sets = {
        "a9a": _less(_sparse.a9a(), 3_000) if quick else _sparse.a9a(),
        "sms": _sparse.sms(),
        "rcv1": _sparse.rcv1(),
        "challenge": _sparse.challenge(*_GENERATOR[preset], 0.1),
    }
    rows: list[dict[str, Any]] = []
    claims: list[Claim] = []
    for name, data in sets.items():
        pivots = 200 if name == "rcv1" else 1_000
        found = _kernels(name, data, pivots, quick) + _baselines(name, data, pivots, quick)
        rows += found
        if name == "challenge":
            claims += _claims(name, data, found, quick)
        if name == "a9a":
            # The claims are about all its rows, which the small preset does not have.
            whole = _sparse.a9a()
            claims += _claims(name, whole, _compared(name, whole, pivots, quick) if quick else found, quick)
    return Result(rows=rows, claims=claims)


def _less(data: _sparse.Sparse, n: int) -> _sparse.Sparse:
    at = np.random.default_rng(0).permutation(data.X.shape[0])[:n]
    return replace(data, X=data.X[at], y=data.y[at], unlabelled=data.X)


def _row(data: str, method: str, aucs: list[float], **facts: Any) -> dict[str, Any]:
    blank = dict.fromkeys(("rounds", "pivots", "whitened", "chain"))
    return {
        "data": data,
        "method": method,
        **blank,
        **facts,
        "AUC": float(np.mean(aucs)),
        "deviation": float(np.std(aucs)) if len(aucs) > 1 else None,
    }


def _kernels(name: str, data: _sparse.Sparse, pivots: int, quick: bool) -> list[dict[str, Any]]:
    """Tables 2 to 4: a kernel is learned once; its chains are evaluated for each draw of pivots."""
    draws = 2 if quick else 5
    rounds = (200,) if quick else (200, 2_000)
    rows = []
    for weak, criterion in (("stump", "r"), ("stump", "z"), ("grid", "r"), ("grid", "z")):
        for n_rounds in rounds:
            model = RankBoostKernel(
                n_estimators=n_rounds, weak=weak, criterion=criterion, n_bags=1, chain="A-C", random_state=0
            ).fit(data.X, data.y)
            method = f"{weak}s by {criterion}"
            score = roc_auc_score(data.y_test, model.decision_function(data.X_test))
            rows.append(_row(name, f"{method}, ranking score alone", [score], rounds=n_rounds))
            for facts, aucs in _chains(model, data, pivots, draws, quick):
                rows.append(_row(name, method, aucs, rounds=n_rounds, **facts))
    for psd, loss in ((True, "alignment"), (True, "squared"), (False, "alignment"), (False, "squared")):
        if quick and not psd:
            continue
        kernel = AlignedKernel(
            hidden=(20, 20),
            psd=psd,
            loss=loss,
            random_state=0,
        ).fit(data.X, data.y)
        train, test = (_embedded(kernel, rows, data.unlabelled) for rows in (data.X, data.X_test))
        auc = _svm_auc(train, data.y, test, data.y_test)
        form = "phi" if psd else "A-B-C-D"
        rows.append(_row(name, f"neural (20, 20), psd={psd}, {loss}", [auc], chain=form))
    return rows


def _embedded(kernel: AlignedKernel, rows: Any, unlabelled: Any) -> np.ndarray:
    """What the network makes of rows, or its kernel with 1,000 pivots, projected to 100 numbers."""
    if kernel.psd:
        return kernel.transform(rows)
    pivots = _sample(unlabelled, 1_000)
    projection = binary_projection(pivots.shape[0], 100, np.random.default_rng(0))
    return np.asarray(kernel.score_against(rows, pivots) @ projection)


def _chains(
    model: RankBoostKernel, data: _sparse.Sparse, pivots: int, draws: int, quick: bool
) -> list[tuple[dict[str, Any], list[float]]]:
    """AUC of every chain on one learned kernel, over draws."""
    phi, phi_test = model.map_rows(data.X), model.map_rows(data.X_test)
    pool = model.map_rows(_sample(data.unlabelled, 4_000 if quick else 20_000))
    variants: list[tuple[str, str, int, bool]] = [("A-D", "-", 0, False), ("A-C-D", "-", 0, False)]
    for n in sorted({min(100, pivots), pivots}):
        for whiten in (False, True):
            if n == pivots or not quick:
                variants += [(chain, "random", n, whiten) for chain in ("A-B-D", "A-B-C-D")]
    variants.append(("A-B-D", "random", min(100, pivots), False))
    variants.append(("A-B-C-D", "kmeans", pivots, False))
    found = []
    for chain, how, n, whiten in variants:
        aucs = []
        slow = quick and (how == "kmeans" or (chain == "A-B-D" and n > 100))
        for draw in range(1 if chain == "A-D" or slow else draws):
            rng = np.random.default_rng([draw, 5])
            chosen = None
            if "B" in chain:
                n_drawn = n if how == "random" else min(pool.shape[0], 5 * n)
                at = rng.choice(pool.shape[0], min(n_drawn, pool.shape[0]), replace=False)
                chosen = chosen_pivots(how, pool[np.sort(at)], n, draw)
            matrix = compose(chain, chosen, phi.shape[1], whiten, 100, rng)
            train, test = (
                np.asarray((rows @ matrix) if matrix is not None else rows.toarray(), dtype=np.float32)
                for rows in (phi, phi_test)
            )
            aucs.append(_svm_auc(train, data.y, test, data.y_test))
        label = chain if how in ("-", "random") else f"{chain}, {how} pivots"
        found.append(({"pivots": n or None, "whitened": whiten if n else None, "chain": label}, aucs))
    return found


def _svm_auc(train: Any, y: np.ndarray, test: Any, y_test: np.ndarray) -> float:
    # Lengths as the paper's kernels have them: C then means the same whatever a kernel's scale.
    size = float(np.sqrt(np.mean(np.einsum("ij,ij->i", train, train, dtype=np.float64)))) or 1.0
    svm = LinearSVC(C=1.0, dual=False, max_iter=200, random_state=0).fit(train / size, y)
    return float(roc_auc_score(y_test, svm.decision_function(test / size)))


def _sample(rows: Any, n: int, seed: int = 0) -> Any:
    if rows.shape[0] <= n:
        return rows
    return rows[np.sort(np.random.default_rng(seed).choice(rows.shape[0], n, replace=False))]


# ---------------------------------------------------------------- Table 1


def _baselines(name: str, data: _sparse.Sparse, pivots: int, quick: bool) -> list[dict[str, Any]]:
    # Columns that hold nothing are left out: centroids are dense.
    used = np.flatnonzero(np.asarray(abs(data.X).sum(axis=0)).ravel() > 0)
    small = replace(
        data,
        X=_csr(data.X[:, used]),
        X_test=_csr(data.X_test[:, used]),
        unlabelled=_csr(_sample(data.unlabelled, 5_000 if quick else 200_000)[:, used]),
    )
    y, y_test = data.y, data.y_test
    few, many = _means(small, 100, quick), _means(small, pivots, quick)
    rows = [_row(name, "100 k-means, RBF 0.01", [_svm_auc(few[0], y, few[1], y_test)])]
    aucs = []
    for draw in range(2 if quick else 5):
        R = binary_projection(pivots, 100, np.random.default_rng(draw))
        aucs.append(_svm_auc(many[0] @ R, y, many[1] @ R, y_test))
    rows.append(_row(name, f"{pivots} k-means, projection", aucs, pivots=pivots))
    l1 = _logistic(small.X, y, "l1")
    rows.append(_row(name, "logistic regression, L1 (one score)", [_auc(l1, small.X_test, y_test)]))
    l2 = _logistic(small.X, y, "l2")
    rows.append(_row(name, "logistic regression, L2 (one score)", [_auc(l2, small.X_test, y_test)]))
    return rows


def _csr(rows: Any) -> csr_array:
    """With 32-bit indices, which is all that scikit-learn's solvers take."""
    made = csr_array(rows)
    made.indices, made.indptr = made.indices.astype(np.int32), made.indptr.astype(np.int32)
    return made


def _means(data: _sparse.Sparse, n: int, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    means = MiniBatchKMeans(
        n, random_state=0, n_init=1, init="random", batch_size=2_048, max_iter=3 if quick else 10
    )
    means.fit(_csr(data.unlabelled))

    def rbf(rows: Any) -> np.ndarray:
        return np.exp(-0.01 * means.transform(_csr(rows)) ** 2)

    # Short rows are all near 1 with every centroid: without this a linear SVM sees hardly more than that.
    train = rbf(data.X)
    centre = train.mean(axis=0)
    return train - centre, rbf(data.X_test) - centre


def _logistic(X: Any, y: np.ndarray, penalty: str) -> Any:
    """The penalty that is best on a fifth of the rows."""
    order = np.random.default_rng(0).permutation(len(y))
    held, kept = order[: len(y) // 5], order[len(y) // 5 :]
    X = _csr(X)

    def fit(C: float, at: np.ndarray) -> Any:
        return LogisticRegression(penalty=penalty, C=C, solver="liblinear", random_state=0).fit(X[at], y[at])

    best = max(PENALTIES, key=lambda C: _auc(fit(C, kept), X[held], y[held]))
    return fit(best, order)


def _auc(model: Any, rows: Any, y: np.ndarray) -> float:
    return float(roc_auc_score(y, model.decision_function(_csr(rows))))


# ---------------------------------------------------------------- claims


def _compared(name: str, data: _sparse.Sparse, pivots: int, quick: bool) -> list[dict[str, Any]]:
    """The two methods that claims compare with."""
    l1 = _logistic(data.X, data.y, "l1")
    many = _means(data, pivots, quick)
    R = binary_projection(pivots, 100, np.random.default_rng(0))
    return [
        _row(name, "logistic regression, L1 (one score)", [_auc(l1, data.X_test, data.y_test)]),
        _row(
            name,
            f"{pivots} k-means, projection",
            [_svm_auc(many[0] @ R, data.y, many[1] @ R, data.y_test)],
        ),
    ]


def _claims(name: str, data: _sparse.Sparse, rows: list[dict[str, Any]], quick: bool) -> list[Claim]:
    """Our 100 dimensions, chosen on held-out training rows, against k-means + projection and logistic regression."""
    order = np.random.default_rng(0).permutation(len(data.y))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    options = [
        {"weak": weak, "criterion": criterion, "whiten": whiten, "chain": chain, "n_estimators": n}
        for weak in ("stump", "grid")
        for criterion in ("r", "z")
        # By Z, more rounds overfit wrong labels.
        for n in ((300,) if quick and criterion == "z" else (300, 1_000))
        for chain, whiten in (("A-C", False), ("A-B-C", False), ("A-B-C", True))
    ]

    def fitted(option: dict[str, Any], at: np.ndarray) -> RankBoostKernel:
        return RankBoostKernel(**option, n_bags=1, random_state=0).fit(
            data.X[at], data.y[at], unlabelled=data.unlabelled
        )

    def auc_of(option: dict[str, Any], at: np.ndarray, rows: Any, y: np.ndarray) -> float:
        model = fitted(option, at)
        return _svm_auc(model.transform(data.X[at]), data.y[at], model.transform(rows), y)

    best = max(options, key=lambda option: auc_of(option, kept, data.X[held], data.y[held]))
    ours = auc_of(best, order, data.X_test, data.y_test)
    reported = ", ".join(f"{key}={value}" for key, value in best.items())

    def auc(part: str) -> float:
        return max(row["AUC"] for row in rows if part in row["method"])

    means, sparse = auc("k-means, projection"), auc("logistic regression, L1 (one score)")
    return [
        Claim(
            what=f"{name}: AUC of 100 dimensions ({reported}) less that of k-means + projection",
            goal="above 0",
            measured=ours - means,
            holds=ours > means,
        ),
        Claim(
            what=f"{name}: the same less sparse logistic regression's",
            goal="not below -0.002, on one of the two sets",
            measured=ours - sparse,
            holds=ours >= sparse - 0.002,
        ),
    ]
