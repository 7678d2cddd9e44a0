"""Forests of few people: pairs that share all leaves keep an order, and nobody is all that is learned of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pairmark
from pairmark import SimilarityForest
from pairmark.models.pairs.sampling import PairPopulation


def people(n: int, each: int, seed: int, d: int = 100) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    mix = np.random.default_rng(9).standard_normal((d, d)) / np.sqrt(d)
    y = np.repeat(np.arange(n), each)
    centres = rng.standard_normal((n, d)) * np.linspace(1.5, 0.1, d)
    return ((centres[y] + rng.standard_normal((y.size, d))) @ mix).astype(np.float32), y


def test_new_people_beyond_all_that_trees_learned_from_keep_an_order(tmp_path: Path) -> None:
    X, y = people(20, 30, 0)
    rows, codes = people(40, 8, 1)
    model = SimilarityForest(n_estimators=10, n_pairs=10_000, pair_features="discriminant").fit(X, y)
    left, right = np.triu_indices(codes.size, 1)
    scores, same = model.score_pairs(rows, left, right), codes[left] == codes[right]
    assert (scores == scores.max()).sum() < 5
    threshold = np.sort(scores[~same])[-(same.size - same.sum()) // 100]
    assert (scores[same] > threshold).mean() > 0.7
    pairmark.save(model, tmp_path / "model")
    loaded = pairmark.load(tmp_path / "model")
    assert loaded.score_pairs(rows, left, right).tobytes() == scores.tobytes()
    assert (
        model.pair_score(rows[:9], rows[9:18]).tobytes() == model.pair_score(rows[9:18], rows[:9]).tobytes()
    )
    assert (
        model.score_against(rows[:3], rows)[:, 5].tobytes() == model.pair_score(rows[:3], rows[5:6]).tobytes()
    )


@pytest.mark.parametrize("n_pairs", [50, 400, 3_000])
def test_same_pairs_are_drawn_evenly_where_one_person_has_most_rows(n_pairs: int) -> None:
    codes = np.concatenate([np.repeat(np.arange(20), 8), np.full(160, 20)])
    table, n_same = PairPopulation(codes).table(n_pairs, random_state=0)
    left, right = table[:, :n_same]
    assert (codes[left] == codes[right]).all()
    assert (left != right).all()
    assert np.unique(np.sort(table[:, :n_same], axis=0), axis=1).shape[1] == n_same
    counts = np.bincount(codes[left], minlength=21)
    # A person of eight rows has 28 pairs.
    short = counts < np.r_[np.full(20, 28), 12_720]
    assert counts[short].max() - counts[short].min() <= 1
