"""Learned pair features: what they estimate, out of fold, symmetric to the last bit, saved as plain arrays."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import pairmark
from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.pairs.sampling import pair_features, sample_pairs
from pairmark.models.pairs.splits import distinct_rows, identities_of_pairs
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.pair_features.gaussian import learn
from pairmark.models.similarity.pair_features.maps import LearnedFeatures, OutOfFold
from pairmark.models.similarity.trees import Tree

DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS.astype(np.float32)
ROWS = np.random.default_rng(0).permutation(len(LABELS))
TRAIN, TEST = ROWS[:700], ROWS[700:]


@cache
def learned() -> tuple[LearnedFeatures, OutOfFold]:
    return learn(DIGITS[TRAIN], LABELS[TRAIN], np.random.RandomState(0))


@cache
def forest(kind: Any = "discriminant") -> SimilarityForest:
    model = SimilarityForest(pair_features=kind, n_estimators=4, n_pairs=8000, random_state=0)
    return model.fit(DIGITS[TRAIN], LABELS[TRAIN])


def held_out() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pairs = sample_pairs(LABELS[TEST], 20_000, scheme="proportional", random_state=0)
    return DIGITS[TEST][pairs.left], DIGITS[TEST][pairs.right], pairs.same


def cell_of(tree: Tree, f: np.ndarray) -> int:
    cell = 0
    while tree.cells[cell, layout.CELL_NODE] >= 0:
        at = int(tree.cells[cell, layout.CELL_NODE])
        while at >= 0:
            at = int((tree.node_high if f[tree.features[at]] > tree.thresholds[at] else tree.node_low)[at])
        cell = -1 - at
    return cell


def test_each_feature_separates_pairs_and_out_of_fold_values_do_not_flatter() -> None:
    features, out_of_fold = learned()
    left, right, same = held_out()
    fresh = features.values(left, right)
    pairs = sample_pairs(LABELS[TRAIN], 20_000, scheme="proportional", random_state=1)
    training = out_of_fold.values(pairs.left, pairs.right)
    seen = features.values(DIGITS[TRAIN][pairs.left], DIGITS[TRAIN][pairs.right])
    assert fresh.shape == (len(same), 3)
    for k in range(3):
        auc = roc_auc_score(same, fresh[:, k])
        assert auc > 0.75
        assert abs(roc_auc_score(pairs.same, training[:, k]) - auc) < 0.03
        # In-sample values would promise more than held-out pairs keep.
        assert roc_auc_score(pairs.same, seen[:, k]) > roc_auc_score(pairs.same, training[:, k])


def test_the_likelihood_ratio_is_that_of_the_gaussian_model() -> None:
    # Identities around Gaussian centres: the feature must be the log-likelihood ratio itself, up to a constant.
    features, _ = learned()
    columns = features.columns(DIGITS[TEST][:60]).astype(np.float64)
    q = features.forms.shape[1]
    weight = features.forms[0].astype(np.float64)  # psi / (2 psi + 1)
    psi = weight / (1 - 2 * weight)
    z, other = columns[:30, :q], columns[30:, :q]
    expected = np.zeros(30)
    for i in range(q):
        joint = np.array([[psi[i] + 1, psi[i]], [psi[i], psi[i] + 1]])
        both = np.stack([z[:, i], other[:, i]])
        same = -0.5 * (both * np.linalg.solve(joint, both)).sum(axis=0)
        expected += same + 0.5 * (both**2).sum(axis=0) / (psi[i] + 1)
    values = features.values(DIGITS[TEST][:30], DIGITS[TEST][30:60])
    assert np.allclose(values[:, 0], expected, rtol=1e-3, atol=1e-3)
    assert np.allclose(values[:, 2], -((z - other) ** 2).sum(axis=1), rtol=1e-3, atol=1e-3)


def test_rows_score_alike_alone_and_in_company_whichever_way_round() -> None:
    model = forest()
    left, right = DIGITS[TEST][:150], DIGITS[TEST][150:300]
    together = model.pair_score(left, right)
    assert together.tobytes() == model.pair_score(right, left).tobytes()
    assert together.tobytes() == b"".join(
        model.pair_score(a[None], b[None]).tobytes() for a, b in zip(left, right, strict=True)
    )
    many = np.random.default_rng(0).integers(0, 150, 5000)
    assert model.pair_score(left[many], right[many]).tobytes() == together[many].tobytes()
    index = model.index(right)
    assert model.score_against(left[:3], index)[2].tobytes() == model.pair_score(left[2:3], right).tobytes()
    far = np.full((1, 64), np.float32(1e18))
    odd = np.concatenate([far, -far, left[:1]])
    scores = model.score_against(odd, odd)
    assert np.isfinite(scores).all()
    assert scores.tobytes() == scores.T.copy().tobytes()


def test_forest_with_learned_features_is_what_its_definition_says() -> None:
    model = forest()
    left, right, _ = (side[:60] for side in held_out())
    assert model.learned_ is not None
    f = np.hstack([pair_features(left, right), model.learned_.values(left, right)])
    for tree in model.trees_:
        assert (tree.features >= 128).any()
    totals = np.zeros(60)
    for tree in model.trees_:
        log_odds = dict(zip(tree.leaves.tolist(), tree.leaf_log_odds(), strict=True))
        totals += [log_odds[cell_of(tree, row)] for row in f]
    columns = (model.learned_.columns(np.asarray(side, dtype=np.float32)) for side in (left, right))
    assert np.allclose(
        model.pair_score(left, right), totals / 4 + model.learned_.tie_breaks(*columns), rtol=1e-6
    )


def listed_pairs(n: int, seed: int, d: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of rows that occur once, of identities that nobody meets twice; each feature says a little."""
    rng = np.random.default_rng(seed)
    same = rng.random(n) < 0.5
    centres = rng.normal(size=(2, n, d))
    centres[1, same] = centres[0, same]
    left, right = (centres + 1.5 * rng.normal(size=centres.shape)).astype(np.float32)
    return left, right, same


def test_listed_pairs_are_described_by_maps_that_saw_neither_identity() -> None:
    # More features than pairs could teach: a map parts what it saw without an error, and what it did not see not.
    honest, ours = [], []
    for seed in range(4):
        left, right, same = listed_pairs(300, seed, d=60)
        points = np.concatenate([left, right])
        codes = identities_of_pairs(points, same)
        features, out_of_fold = learn(points, codes, np.random.RandomState(0))
        assert roc_auc_score(same, features.values(left, right)[:, 0]) > 0.99
        numbers = np.arange(300)
        ours.append(roc_auc_score(same, out_of_fold.values(numbers, numbers + 300)[:, 0]))
        a, b, later = listed_pairs(4_000, 10 + seed, d=60)
        honest.append(roc_auc_score(later, features.values(a, b)[:, 0]))
    assert abs(np.mean(ours) - np.mean(honest)) < 0.03
    assert np.mean(honest) < 0.9


def test_listed_pairs_get_learned_features_unless_raw_ones_are_asked_for() -> None:
    left, right, same = listed_pairs(2_000, 0)
    a, b, later = listed_pairs(4_000, 1)
    few: dict[str, Any] = {"n_estimators": 10, "random_state": 0}
    default = SimilarityForest(**few).fit_pairs(left, right, same)
    raw = SimilarityForest(pair_features="raw", **few).fit_pairs(left, right, same)
    assert (default.pair_features_, raw.pair_features_) == ("discriminant", "raw")
    # Some trees do without: where learned features mislead on new identities, those trees make up for it.
    assert 0 < sum((tree.features >= 16).any() for tree in default.trees_) < 10
    assert roc_auc_score(later, default.pair_score(a, b)) > roc_auc_score(later, raw.pair_score(a, b)) + 0.01
    # Same pairs that join everybody tell of no identities, and wide rows take long.
    ring = np.arange(2_000)
    joined = SimilarityForest(**few).fit_pairs(
        left[ring[:30]], left[(ring[:30] + 1) % 30], ring[:30] % 10 > 0
    )
    assert joined.pair_features_ == "raw"
    wide = np.zeros((60, 600), dtype=np.float32)
    wide[:, :8] = left[:60]
    assert SimilarityForest(**few).fit_pairs(wide, wide[::-1], same[:60]).pair_features_ == "raw"
    # Identities are learned from as before.
    plain = SimilarityForest(n_pairs=2_000, **few).fit(DIGITS[TRAIN], LABELS[TRAIN])
    asked = SimilarityForest(n_pairs=2_000, pair_features="raw", **few).fit(DIGITS[TRAIN], LABELS[TRAIN])
    some = DIGITS[TEST][:50], DIGITS[TEST][50:100]
    assert plain.pair_score(*some).tobytes() == asked.pair_score(*some).tobytes()


def test_listed_pairs_with_long_tails_are_tamed_and_others_left_straight() -> None:
    left, right, same = listed_pairs(2_000, 0)
    codes = identities_of_pairs(np.concatenate([left, right]), same)
    for curve, curved in ((np.asarray, False), (np.sinh, True)):
        rows = np.concatenate([curve(left), curve(right)]).astype(np.float32)
        found, _ = learn(rows, codes, np.random.RandomState(0))
        assert found.map.scaling.curved is curved


def test_they_make_better_forests() -> None:
    left, right, same = held_out()
    auc = {
        kind: roc_auc_score(same, forest(kind).pair_score(left, right)) for kind in ("raw", "discriminant")
    }
    assert auc["discriminant"] > auc["raw"]


def test_few_rows_identities_and_constant_columns_are_borne() -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((7, 3)), np.ones((7, 2))])
    y = np.array([0, 0, 0, 1, 1, 2, 3])
    model = SimilarityForest(pair_features="discriminant", n_estimators=2, random_state=0).fit(X, y)
    assert np.isfinite(model.pair_score(X, X[::-1])).all()
    ten = SimilarityForest(pair_features="discriminant", n_estimators=2, random_state=0).fit(X[:, :1], y)
    assert np.isfinite(ten.pair_score(X[:, :1], X[::-1, :1])).all()
    constant = SimilarityForest(pair_features="discriminant", n_estimators=2, random_state=0).fit(
        np.ones((7, 2)), y
    )
    assert np.unique(constant.pair_score(np.ones((7, 2)), np.ones((7, 2)))).size == 1


def test_equal_rows_are_one_whatever_the_sign_of_their_zeros() -> None:
    rows = np.array([[0.0, 1.0], [2.0, 3.0], [-0.0, 1.0], [2.0, 3.0], [0.0, 1.5]], dtype=np.float32)
    first, number = distinct_rows(rows)
    assert (rows[first][number] == rows).all()
    assert np.unique(number).size == first.size == 3


def test_identities_follow_from_points_in_common() -> None:
    points = np.array([[0.0], [1.0], [5.0], [1.0], [2.0], [6.0]], dtype=np.float32)
    # 0-1 and 1-2 are same pairs (1 occurs twice), 5-6 differ.
    assert identities_of_pairs(points, np.array([True, True, False])).tolist() == [0, 0, 1, 0, 0, 2]


def test_too_many_features_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"2049 features.*PCA"):
        SimilarityTree(pair_features="discriminant").fit(
            np.random.default_rng(0).random((8, 2049)), [0, 0, 1, 1] * 2
        )
    with pytest.raises(ValueError, match=r"pair_features.*'raw' or 'discriminant'"):
        SimilarityTree(pair_features="posteriors").fit(DIGITS[:50], LABELS[:50])


def test_models_with_features_of_earlier_versions_say_how_to_train_them_again(tmp_path: Path) -> None:
    pairmark.save(forest(), tmp_path / "model")
    manifest = tmp_path / "model" / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace('"pair_features": "discriminant"', '"pair_features": "posteriors"')
    )
    with pytest.raises(ValueError, match=r"posteriors.*pairmark train --learner similarity-forest --dataset"):
        pairmark.load(tmp_path / "model")
