"""GHOST through jobs: from listed pairs, moved between deployments, and refused when nothing is left to serve."""

from __future__ import annotations

import numpy as np
import pytest

from pairmark.service.errors import InvalidInput
from tests.service.conftest import people


def test_listed_pairs_give_a_model_that_compares_but_names_no_classes(deployment):
    X, y = people(40, 4)
    rng = np.random.default_rng(1)
    lines = ["left,right,same"]
    lines += [f"{4 * who + i},{4 * who + j},1" for who in range(40) for i in range(4) for j in range(i)]
    while len(lines) < 2_000:
        i, j = rng.integers(0, 160, 2)
        if y[i] != y[j]:
            lines.append(f"{i},{j},0")
    deployment.upload("listed", X, pairs="\n".join(dict.fromkeys(lines)) + "\n")
    deployment.train(learner="ghost", dataset="listed", model="listed", params={"random_state": 0})
    version = deployment.store.version("listed", 1)
    assert version.capabilities == ["embed", "match", "search", "similarity"]
    assert version.metrics["auc"]["value"] > 0.9
    assert version.facts["weights"]
    assert "strategy" not in version.facts


def test_a_graph_model_moves_with_what_it_can_do(deployment):
    params = {
        "graph": "knn",
        "order": 3,
        "cluster_metric": True,
        "tau": 0.0,
        "random_state": 0,
        "max_iter": 10,
    }
    deployment.train(learner="ghost", model="linked", params=params)
    before = deployment.store.version("linked", 1)
    assert "embed" not in before.capabilities
    path = deployment.store.export("linked", 1, deployment.folder / "out")
    with path.open("rb") as file:
        deployment.store.import_file(file, by="test", name="moved", promote="production")
    after = deployment.store.version("moved", 1)
    assert after.capabilities == before.capabilities
    assert after.facts["weights"] == before.facts["weights"]
    X, _ = people(3, 4)
    mine, theirs = deployment.store.load("linked", 1), deployment.store.load("moved", 1)
    assert mine.pair_score(X[:6], X[6:]).tobytes() == theirs.pair_score(X[:6], X[6:]).tobytes()
    assert mine.predict_proba(X).tobytes() == theirs.predict_proba(X).tobytes()


def test_a_model_without_weights_is_reported_and_not_served(deployment):
    params = {"tau": 1e6, "tol": 0.0, "max_iter": 3, "random_state": 0}
    with pytest.raises(InvalidInput, match=r"weights were projected to zero|no meta-feature"):
        deployment.train(learner="ghost", model="nothing", params=params)
