"""Handwritten digits: are two images the same digit? The paper's real-data experiment (Clemencon & Vogel, section 6.5).

MNIST by principal components that keep 95 % of the variance. The same ten classes in training and test, so a
*closed-set* task. Contestants:

- the paper's forest: 44 trees of depth 15, LeafRank of depth 5, 1e5 pairs each, mean cell rank;
- our forest on the raw coordinates, and with features that use no class posterior (`distances`, `discriminant`,
  `kernel-discriminant`);
- our forest with out-of-fold class posteriors (`posteriors`), what a closed-set user gets;
- the neural encoding: four layers of 146, 140, 134 and 128 units trained to classify (scikit-learn's MLP: Adam 1e-3,
  L2 .01, early stopping with patience 20; its last layer has a ReLU where the paper's has none), cosine of the last
  layer, and the inner product of the same network's class posteriors;
- LMNN (metric-learn, regularisation .01), on as many rows as its memory and time allow;
- XGBoost on written-out pairs; cosine and Euclidean distance.

Rates are those of test pairs drawn without looking at scores, half of the same digit. Intervals draw test images with
replacement (`pairmark.models.evaluation.pairs.pair_report`). The test images were used for nothing else.

Ten classes that stay the same flatter whatever is learned from them. So, last, those without posteriors learn from the
digits 0 to 5 alone and are asked about pairs of 6 to 9: *open-set*, digits never met (but by the components, which
know no digit).
"""

from __future__ import annotations

import gzip
import resource
import time
import warnings
from typing import Any

import matplotlib
import numpy as np
from sklearn.decomposition import PCA
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from benchmarks._verification import Score, boosted, cosine, euclidean, in_blocks
from benchmarks.common import RESULTS, Claim, Preset, Result, needed_data
from pairmark.models import SimilarityForest
from pairmark.models.evaluation.pairs import pair_report
from pairmark.models.pairs.sampling import sample_pairs

matplotlib.use("Agg")
from matplotlib import pyplot

FPR = (1e-3, 1e-2, 1e-1)
CLOSED = "pairmark forest, posteriors"
OPEN = "pairmark forest, kernel-discriminant"
RAW, LINEAR = "pairmark forest, raw", "pairmark forest, discriminant"
ENCODING, XGBOOST = "neural encoding, cosine", "XGBoost on pairs"
DISTANCES = "pairmark forest, distances"
MEETING_NEW = ("unlearned", RAW, DISTANCES, LINEAR, OPEN, XGBOOST)


def run(preset: Preset) -> Result:
    """Full: the paper's sizes, LMNN on 5,000 rows. Quick, smaller: 6,000 images, 12 trees, half the test pairs."""
    quick = preset == "quick"
    X, y, test_X, test_y = _read()
    if quick:
        kept = np.random.default_rng(0).permutation(len(y))[:6_000]
        X, y = X[kept], y[kept]
    pca = PCA(n_components=0.95, svd_solver="full").fit(X)
    X, test_X = (pca.transform(rows).astype(np.float32) for rows in (X, test_X))
    n_pairs = 100_000 if quick else 200_000
    contestants = _contestants(quick)
    rows, curves = _measured("ten digits", contestants, X, y, test_X, test_y, n_pairs)
    met, asked = y < 6, test_y >= 6
    rows += _measured(
        "digits never met",
        {name: contestants[name] for name in MEETING_NEW},
        X[met], y[met], test_X[asked], test_y[asked], n_pairs,
    )[0]  # fmt: skip
    _draw(curves, preset)
    facts = {
        "training_images": len(y),
        "features": X.shape[1],
        "test_pairs": n_pairs,
        "memory": "growth of the process's peak while training; 0 where an earlier contestant needed more",
    }
    return Result(rows=rows, claims=_claims(rows), facts=facts)


def _measured(
    task: str, contestants: dict[str, Any], X: np.ndarray, y: np.ndarray, test_X: np.ndarray,
    test_y: np.ndarray, n_pairs: int,
) -> tuple[list[dict[str, Any]], dict[str, tuple[np.ndarray, np.ndarray]]]:  # fmt: skip
    """A row for each score of each contestant, and the ROC curves."""
    pairs = sample_pairs(test_y, n_pairs, random_state=0)
    rows, curves = [], {}
    for fit in contestants.values():
        wall, cpu = time.perf_counter(), time.process_time()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Threads of BLAS that wait by spinning would count as work.
        with threadpool_limits(1):
            scores = fit(X, y)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
        for label, score in scores.items():
            report = pair_report(
                in_blocks(score, test_X, pairs.left, pairs.right),
                pairs.same,
                np.stack([pairs.left, pairs.right], axis=1),
                protocol="closed-set",
                fpr_targets=FPR,
                n_replicates=100,
                random_state=0,
                n_jobs=2,
            )
            curves[label] = (report.fpr, report.tpr)
            rows.append({"task": task, **_row(label, report.metrics, cpu, wall, grown / 1024)})
            print(rows[-1], flush=True)
    return rows, curves


def _row(label: str, metrics: dict[str, Any], cpu: float, wall: float, grown: float) -> dict[str, Any]:
    row: dict[str, Any] = {"contestant": label}
    for at, rate in enumerate(FPR):
        found = metrics["tpr_at_fpr"][f"{rate:g}"]
        row[f"TPR at {rate:g}"] = found["value"]
        row[f"its interval{' ' * at}"] = "{:.3f} to {:.3f}".format(*found["interval"])
    row["AUC"] = metrics["auc"]["value"]
    row["AUC's interval"] = "{:.4f} to {:.4f}".format(*metrics["auc"]["interval"])
    row["training CPU s"], row["wall s"], row["peak memory grew by, MiB"] = cpu, wall, grown
    return row


def _claims(rows: list[dict[str, Any]]) -> list[Claim]:
    by_name = {row["contestant"]: row for row in rows if row["task"] == "ten digits"}
    figures = [f"TPR at {rate:g}" for rate in FPR] + ["AUC"]
    claims = [
        Claim(
            what=f"{ours}: {figure} less that of {other}",
            goal="above 0",
            measured=by_name[ours][figure] - by_name[other][figure],
            holds=by_name[ours][figure] > by_name[other][figure],
        )
        for ours, others in ((CLOSED, (ENCODING,)), (OPEN, (XGBOOST, "LMNN")))
        for other in others
        for figure in figures
    ]
    times = by_name[CLOSED]["training CPU s"] / by_name[ENCODING]["training CPU s"]
    claims.append(
        Claim(
            what=f"{CLOSED}: training CPU over the encoding's",
            goal="at most 3",
            measured=times,
            holds=times <= 3,
        )
    )
    return claims


def _read() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    parts = []
    for part in ("train", "t10k"):
        with gzip.open(needed_data("mnist", f"{part}-images-idx3-ubyte.gz")) as file:
            images = np.frombuffer(file.read(), dtype=np.uint8, offset=16).reshape(-1, 784)
        with gzip.open(needed_data("mnist", f"{part}-labels-idx1-ubyte.gz")) as file:
            labels = np.frombuffer(file.read(), dtype=np.uint8, offset=8)
        parts += [images.astype(np.float32) / 255.0, labels.astype(np.int64)]
    return parts[0], parts[1], parts[2], parts[3]


def _contestants(quick: bool) -> dict[str, Any]:
    """How each is trained: from rows and classes to one or more named scores."""
    trees = 12 if quick else 44

    def forest(name: str, **more: Any) -> Any:
        def fit(X: np.ndarray, y: np.ndarray) -> dict[str, Score]:
            sizes = {"n_pairs": 50_000 if quick else 100_000, **more}
            model = SimilarityForest(n_estimators=trees, random_state=0, n_jobs=2, **sizes).fit(X, y)
            return {name: model.pair_score}

        return fit

    def xgboost(X: np.ndarray, y: np.ndarray) -> dict[str, Score]:
        n_pairs, n_trees = (20_000, 50) if quick else (400_000, 100)
        score = boosted(X, y, n_pairs=n_pairs, n_trees=n_trees, depth=8, seed=0, learning_rate=0.3)
        return {XGBOOST: score}

    def lmnn(X: np.ndarray, y: np.ndarray) -> dict[str, Score]:
        from metric_learn import LMNN

        some = np.random.default_rng(0).permutation(len(y))[: 1_000 if quick else 5_000]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = LMNN(n_neighbors=3, regularization=0.01, max_iter=20 if quick else 50).fit(
                X[some], y[some]
            )
        axes = model.components_.T
        return {"LMNN": lambda a, b: euclidean(a @ axes, b @ axes)}

    return {
        "unlearned": lambda X, y: {"cosine": cosine, "Euclidean": euclidean},
        RAW: forest(RAW),
        DISTANCES: forest(DISTANCES, pair_features="distances"),
        LINEAR: forest(LINEAR, pair_features="discriminant"),
        OPEN: forest(OPEN, pair_features="kernel-discriminant"),
        CLOSED: forest(CLOSED, pair_features="posteriors"),
        "paper": forest(
            "pairmark forest, as in the paper",
            max_depth=15,
            leaf_depth=5,
            aggregation="rank",
            n_pairs=100_000,
        ),
        "network": _encoding,
        XGBOOST: xgboost,
        "LMNN": lmnn,
    }


def _encoding(X: np.ndarray, y: np.ndarray) -> dict[str, Score]:
    network = MLPClassifier(
        hidden_layer_sizes=(146, 140, 134, 128),
        alpha=0.01,
        learning_rate_init=1e-3,
        early_stopping=True,
        n_iter_no_change=20,
        random_state=0,
    ).fit(X, y)

    def encoded(rows: np.ndarray) -> np.ndarray:
        for weights, bias in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
            rows = np.maximum(rows @ weights + bias, 0.0)
        return rows

    return {
        ENCODING: lambda a, b: cosine(encoded(a), encoded(b)),
        "the same network's posteriors, inner product": lambda a, b: np.einsum(
            "ij,ij->i", network.predict_proba(a), network.predict_proba(b)
        ),
    }


def _draw(curves: dict[str, tuple[np.ndarray, np.ndarray]], preset: str) -> None:
    figure, axes = pyplot.subplots(figsize=(10, 5), layout="constrained")
    for at, (name, (fpr, tpr)) in enumerate(curves.items()):
        # Ten colours, then the same ones dashed.
        axes.plot(np.maximum(fpr, 1e-5), tpr, label=name, linewidth=1.2, linestyle="-" if at < 10 else "--")
    axes.set(
        xscale="log", xlim=(1e-4, 1), ylim=(0, 1), xlabel="false positive rate", ylabel="true positive rate"
    )
    axes.set_title(f"MNIST, pairs of test images ({preset})")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    figure.savefig(RESULTS / "mnist.svg", bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
