"""GHOST through jobs: from listed pairs, moved between deployments, and refused when nothing is left to serve."""

from __future__ import annotations

import numpy as np

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
