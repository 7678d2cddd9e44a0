"""`Ghost.cluster` by its defaults, the number of clusters not told, beside k-means that is told the true number.

Half of the rows (at most 600) with their classes are learned from, as many others are clustered; adjusted Rand index.
"""

from __future__ import annotations

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from benchmarks._rankings import read_sets
from benchmarks.common import Claim, Preset, Result
from pairmark.models import Ghost


def run(preset: Preset) -> Result:
    """Quick: 5 divisions of each set; full: 20."""
    rows, claims = [], []
    (segment,) = read_sets(["segment"])
    sets = {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "segment": (segment.X, np.asarray(segment.Y).argmin(axis=1)),
    }
    for name, (X, y) in sets.items():
        found = []
        for seed in range(5 if preset == "quick" else 20):
            order = np.random.default_rng(seed).permutation(len(y))
            n = min(600, len(y) // 2)
            learned, other = order[:n], order[n : 2 * n]
            scaler = StandardScaler().fit(X[learned])
            k = np.unique(y).size
            means = KMeans(k, n_init=10, random_state=seed).fit_predict(scaler.transform(X[other]))
            labels = Ghost(random_state=seed).fit(X[learned], y[learned]).cluster(X[other])
            found.append(
                (
                    adjusted_rand_score(y[other], labels),
                    adjusted_rand_score(y[other], means),
                    np.unique(labels).size,
                )
            )
        ours, peer, clusters = np.mean(found, axis=0)
        rows.append(
            {
                "data": name,
                "classes": int(np.unique(y).size),
                "ARI, GHOST": ours,
                "clusters found": clusters,
                "ARI, k-means told k": peer,
            }
        )
        claims.append(
            Claim(
                what=f"{name}: ARI of GHOST less that of k-means told k",
                goal="at least -0.05",
                measured=float(ours - peer),
                holds=bool(ours - peer >= -0.05),
            )
        )
    return Result(rows=rows, claims=claims)
