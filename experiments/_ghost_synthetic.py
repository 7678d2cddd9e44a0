"""The synthetic experiment of the GHOST paper (section 4), under its protocol and under one without its leak.

Two clusters of 50 points in 100 dimensions. On 40 of them the clusters' means (uniform in -50 to 50) and variances
(uniform in 0 to 200) differ; the other 60 are noise, one mean and variance for both. A training, a validation and a
test set have variances shifted by 10, 30, 50 (noise: 1000, 2000, 10000).

``paper``: each set draws means and variances of its own, and means are shifted by 0, 10, 50, so that features say
nothing of other sets; the graph has an edge between two points, of whatever set, when their *true labels* agree, test
points included, and each pair of points is rewired with probability p. Whoever classifies by paths reads the label off
the edges.

``leak-free``: one draw of means and variances for all sets, no shift of means, and a graph of nearest neighbours by
features, to which held-out points are linked by their features. Rewiring then adds and removes training edges only.
``leak-free, hard``: the same with all means divided by 20, since features alone solve the former.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from pairmark.models import Ghost

SPLITS = ("training", "validation", "test")
RATES = ("balanced_accuracy", "weighted_precision", "weighted_sensitivity", "weighted_specificity")
N, INFORMATIVE, NOISE = 100, 40, 60
PROTOCOLS: Final = {"paper (leaks)": 1.0, "leak-free": 1.0, "leak-free, hard": 20.0}
"""Each with what its means are divided by."""
PAPERS: Final = "paper (leaks)"


@dataclass(frozen=True, kw_only=True)
class World:
    """Rows of each split, the classes (the same in all), and what links splits to training rows."""

    rows: dict[str, np.ndarray]
    y: np.ndarray
    links: dict[str, np.ndarray | None]


def world(seed: int, rewiring: float, protocol: str) -> World:
    """One draw of the experiment."""
    rng, leaking = np.random.default_rng(seed), protocol == PAPERS
    y = np.arange(N) % 2
    shared = _base(rng)
    rows = {}
    for split, shift, spread, noise in zip(
        SPLITS, (0, 10, 50), (10, 30, 50), (1000, 2000, 10000), strict=True
    ):
        means, variances = _base(rng) if leaking else shared
        variances = variances + np.r_[np.full(INFORMATIVE, spread), np.full(NOISE, noise)]
        means = means / PROTOCOLS[protocol] + (shift if leaking else 0)
        rows[split] = (
            means[y] + rng.standard_normal((N, INFORMATIVE + NOISE)) * np.sqrt(variances[y])
        ).astype(np.float32)
    links: dict[str, np.ndarray | None] = dict.fromkeys(SPLITS)
    flips = np.random.default_rng([seed, 7])
    if leaking:
        for split in SPLITS:
            linked = (y[:, None] == y[None, :]) ^ (flips.random((N, N)) < rewiring)
            if split == "training":
                linked = np.triu(linked, 1)
                linked |= linked.T
            links[split] = np.argwhere(linked & (~np.eye(N, dtype=bool) if split == "training" else True))
    elif rewiring > 0:
        linked = nearest(rows["training"]) ^ _rewired(flips, rewiring)
        links["training"] = np.argwhere(np.triu(linked, 1))
    return World(rows=rows, y=y, links=links)


def nearest(X: np.ndarray, k: int = 5) -> np.ndarray:
    """Links between nearest neighbours by scaled city-block distance, as GHOST makes them."""
    from pairmark.models.ghost.space import scales_of

    scaled = X / scales_of(X).differences
    apart = np.abs(scaled[:, None] - scaled[None]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    linked = np.zeros(apart.shape, dtype=bool)
    linked[np.arange(len(X))[:, None], np.argsort(apart, axis=1, kind="stable")[:, :k]] = True
    return linked | linked.T


def _rewired(rng: np.random.Generator, rewiring: float) -> np.ndarray:
    flips = np.triu(rng.random((N, N)) < rewiring, 1)
    return flips | flips.T


def _base(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    means, variances = (
        rng.uniform(-50, 50, (2, INFORMATIVE + NOISE)),
        rng.uniform(0, 200, (2, INFORMATIVE + NOISE)),
    )
    means[1, INFORMATIVE:], variances[1, INFORMATIVE:] = means[0, INFORMATIVE:], variances[0, INFORMATIVE:]
    return means, variances


Found = dict[str, dict[str, dict[str, float]]]


def judged(
    drawn: World,
    strategies: tuple[str, ...],
    protocol: str,
    seed: int,
    *,
    graph: bool,
    candidates: tuple[list[str], ...],
    **params: Any,
) -> list[Found]:
    """Rates by strategy and split of GHOST fitted to the training set, with each list of meta-features."""
    every: list[Found] = []
    for names in candidates:
        model: Ghost | None = Ghost(random_state=seed, strategy="center", meta_features=names, **params)
        if graph and drawn.links["training"] is None:
            model.set_params(graph="knn")
        try:
            model.fit(drawn.rows["training"], drawn.y, edges=drawn.links["training"] if graph else None)
        except ValueError as refusal:
            if "projected to zero" not in str(refusal):
                raise
            model = (
                None  # nothing tells the classes apart, and it says so: counted as naming one class for all
            )
        found: Found = {}
        for strategy in strategies:
            got = found.setdefault(strategy, {})
            for split in SPLITS:
                if model is None:
                    got[split] = _rates(drawn.y, np.zeros_like(drawn.y))
                    continue
                # Training points are linked as they were learned from; held-out ones by their features, unless leaking.
                edges = drawn.links[split] if graph and (protocol == PAPERS or split == "training") else None
                table = model.class_distances(drawn.rows[split], edges=edges, strategy=strategy)
                got[split] = _rates(drawn.y, model.classes_[table.argmin(axis=1)])
        every.append(found)
    return every


def _rates(truth: np.ndarray, said: np.ndarray) -> dict[str, float]:
    """Balanced accuracy, and precision, sensitivity and specificity weighted as the paper's tables have them.

    Each class in turn is the positive one; its rates are weighted by its share of the true labels. A class that is
    never predicted has precision 0.
    """
    labels = np.unique(truth)
    counts, called, right = (
        np.array([(of == label).sum() for label in labels]) for of in (truth, said, said[truth == said])
    )
    share, others = counts / truth.size, truth.size - counts
    specificity = np.where(others > 0, (others - (called - right)) / np.maximum(others, 1), 1.0)
    return {
        "balanced_accuracy": float((right / counts).mean()),
        "weighted_precision": float(share @ (right / np.maximum(called, 1))),
        "weighted_sensitivity": float(share @ (right / counts)),
        "weighted_specificity": float(share @ specificity),
    }


def collected(every: list[list[Found]], strategy: str) -> dict[str, Any]:
    """Means and deviations over seeds, as columns of a table.

    Of several lists of meta-features, the one of best balanced accuracy on the validation sets, over all seeds.
    """
    by_candidate = [[one[at] for one in every] for at in range(len(every[0]))]
    found = max(by_candidate, key=lambda some: np.mean(_balanced(some, strategy, "validation")))
    row: dict[str, Any] = {}
    for split in SPLITS:
        values = _balanced(found, strategy, split)
        row[split] = float(values.mean())
        row[f"{split} sd"] = float(values.std(ddof=1))
    for rate in RATES[1:]:
        row[f"test {rate.replace('weighted_', '')}"] = float(
            np.mean([one[strategy]["test"][rate] for one in found])
        )
    row["chosen"] = by_candidate.index(found) if len(by_candidate) > 1 else None
    return row


def _balanced(found: list[Found], strategy: str, split: str) -> np.ndarray:
    return np.array([one[strategy][split]["balanced_accuracy"] for one in found])
