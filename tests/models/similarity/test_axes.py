"""Discriminant axes beside the features of listed pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pairmark import SimilarityForest, load
from pairmark.models.core.artefact import ArtefactError


def mixed(seed: int, n: int = 3_000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of people of whom no single feature tells much."""
    rng, mix = np.random.default_rng(seed), np.random.default_rng(99).standard_normal((2, 12, 12))
    who = rng.standard_normal((2, n, 12)) * np.linspace(1.5, 0.1, 12)
    same = np.arange(n) % 2 == 0
    who[1, same] = who[0, same]
    left, right = (who @ mix[0] + 0.7 * rng.standard_normal(who.shape) @ mix[1]).astype(np.float32)
    return left, right, same


def test_axes_of_listed_pairs_tell_what_no_feature_tells_and_are_saved(tmp_path: Path) -> None:
    left, right, same = mixed(0)
    forest = SimilarityForest(n_estimators=10, random_state=0).fit_pairs(left, right, same)
    a, b, truth = mixed(1)
    scores = forest.pair_score(a, b)
    auc = (scores[truth][:, None] > scores[~truth][None, :]).mean()
    alone = SimilarityForest(n_estimators=10, random_state=0, bootstrap=False).fit_pairs(left, right, same)
    by_features = alone.pair_score(a, b)
    assert auc > (by_features[truth][:, None] > by_features[~truth][None, :]).mean() + 0.03
    assert scores.tobytes() == forest.pair_score(b, a).tobytes()
    assert scores[:1].tobytes() == forest.pair_score(a[:1], b[:1]).tobytes()
    ids, best = forest.top_k(a[:1], forest.index(b), 3)
    assert best[0].tobytes() == forest.pair_score(a[:1], b)[ids[0]].tobytes()
    assert forest.explain(a[0], b[0])["score"] == scores[0]
    assert forest.pair_feature_importances_.shape == (24,)
    assert forest.feature_importances_.sum() == pytest.approx(1)
    forest.save(tmp_path / "model")
    assert load(tmp_path / "model").pair_score(a, b).tobytes() == scores.tobytes()
    arrays, facts = forest.to_state()
    facts = {**facts, "n_features_in": 12}
    for name in ("axes_centre", "axes_weights"):
        damaged = {**arrays, name: arrays[name][:-1]}
        with pytest.raises(ArtefactError, match="axes_"):
            SimilarityForest(n_estimators=10).from_state(damaged, facts)
    again = forest.fit(left[:60], np.arange(60) // 2)
    assert "axes_weights" not in again.to_state()[0]


def test_odd_columns_do_not_break_axes() -> None:
    left, right, same = mixed(0, 400)
    for side in (left, right):
        side[:, 0], side[:, 1], side[:, 3] = 7.0, side[:, 2], side[:, 3] * 1e20
        side[:5, 4] = 1e30
    forest = SimilarityForest(n_estimators=3, random_state=0).fit_pairs(left, right, same)
    assert np.isfinite(forest.pair_score(left, right)).all()
