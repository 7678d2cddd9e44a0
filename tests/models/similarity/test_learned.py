"""Learned pair features: what they estimate, out of fold, symmetric to the last bit, saved as plain arrays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.linalg import cholesky, eigh
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import pairmark
from pairmark.models import SimilarityForest, SimilarityTree
from pairmark.models.core.two_covariance import ClassSums, moments
from pairmark.models.pairs.identities import distinct_rows, identities_of_pairs
from pairmark.models.pairs.sampling import pair_features, sample_pairs
from pairmark.models.similarity.kernels import layout
from pairmark.models.similarity.pair_features import learn, waves
from pairmark.models.similarity.pair_features.maps import LearnedFeatures, OutOfFold, OutOfFoldMaps
from pairmark.models.similarity.trees import Tree
from tests.models.similarity.axis_trees import axis

LEARNED = ["distances", "posteriors", "discriminant", "kernel-discriminant", "whitened"]
DIGITS, LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS.astype(np.float32)
ROWS = np.random.default_rng(0).permutation(len(LABELS))
TRAIN, TEST = ROWS[:700], ROWS[700:]

_learned: dict[str, tuple[LearnedFeatures, OutOfFold | OutOfFoldMaps]] = {}
_forests: dict[str, SimilarityForest] = {}


def learned(kind: Any) -> tuple[LearnedFeatures, OutOfFold | OutOfFoldMaps]:
    if kind not in _learned:
        _learned[kind] = learn(kind, DIGITS[TRAIN], LABELS[TRAIN], np.random.RandomState(0))
    return _learned[kind]


def forest(kind: Any) -> SimilarityForest:
    if kind not in _forests:
        model = SimilarityForest(pair_features=kind, n_estimators=4, n_pairs=8000, random_state=0)
        _forests[kind] = model.fit(DIGITS[TRAIN], LABELS[TRAIN])
    return _forests[kind]


def held_out() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    pairs = sample_pairs(LABELS[TEST], 20_000, scheme="proportional", random_state=0)
    return DIGITS[TEST][pairs.left], DIGITS[TEST][pairs.right], pairs.same


def cell_of(tree: Tree, f: np.ndarray) -> int:
    cell = 0
    while tree.cells[cell, layout.CELL_NODE] >= 0:
        at = int(tree.cells[cell, layout.CELL_NODE])
        while at >= 0:
            at = int(
                (
                    tree.node_high
                    if f[axis(tree).features[at]] > tree.splits.thresholds[at]
                    else tree.node_low
                )[at]
            )
        cell = -1 - at
    return cell


@pytest.mark.parametrize("kind", LEARNED)
def test_each_feature_separates_pairs_and_out_of_fold_values_do_not_flatter(kind: Any) -> None:
    features, out_of_fold = learned(kind)
    left, right, same = held_out()
    fresh = features.values(left, right)
    pairs = sample_pairs(LABELS[TRAIN], 20_000, scheme="proportional", random_state=1)
    training = out_of_fold.values(pairs.left, pairs.right)
    seen = features.values(DIGITS[TRAIN][pairs.left], DIGITS[TRAIN][pairs.right])
    assert fresh.shape == (len(same), len(features.names))
    for k in range(len(features.names)):
        auc = roc_auc_score(same, fresh[:, k])
        assert auc > (0.99 if kind == "posteriors" else 0.75)
        assert abs(roc_auc_score(pairs.same, training[:, k]) - auc) < 0.03
        if kind == "distances":
            # Nothing is learned that could flatter.
            assert np.array_equal(seen, training)
        else:
            # In-sample values would promise more than held-out pairs keep.
            assert roc_auc_score(pairs.same, seen[:, k]) > roc_auc_score(pairs.same, training[:, k])


def test_posteriors_feature_is_the_inner_product_of_two_posteriors() -> None:
    features, _ = learned("posteriors")
    columns = features.columns(DIGITS[TEST][:200])
    posteriors = columns[:, :10].astype(np.float64)
    assert np.allclose(posteriors.sum(axis=1), 1.0, atol=1e-5)
    assert (posteriors.argmax(axis=1) == LABELS[TEST][:200]).mean() > 0.95
    values = features.values(DIGITS[TEST][:100], DIGITS[TEST][100:200])
    a, b = posteriors[:100], posteriors[100:]
    assert np.allclose(values[:, 0], (a * b).sum(axis=1), atol=1e-5)
    cosine = (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    assert np.allclose(values[:, 1], cosine, atol=1e-5)


def test_class_scores_accompany_posteriors_as_a_gaussian_model_of_them() -> None:
    features, _ = learned("posteriors")
    columns = features.columns(DIGITS[TEST][:200]).astype(np.float64)
    scores = columns[:, 10:20]
    # The softmax hides how sure a classifier is; its scores, whitened within classes, do not.
    labels = LABELS[TEST][:200]
    residual = scores - np.stack([scores[labels == k].mean(axis=0) for k in range(10)])[labels]
    assert 0.3 < np.linalg.eigvalsh(residual.T @ residual / 190).mean() < 3.0
    assert (features.forms[:2, 10:] == 0).all()
    assert (features.forms[2:, :10] == 0).all()


@pytest.mark.parametrize("kind", ["discriminant", "kernel-discriminant"])
def test_the_likelihood_ratio_is_that_of_the_gaussian_model(kind: Any) -> None:
    # Identities around Gaussian centres: the feature must be the log-likelihood ratio itself, up to a constant.
    features, _ = learned(kind)
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


@pytest.mark.parametrize("n_classes", [5, 40])
def test_kernel_discriminant_of_sums_is_that_of_the_rows_waves(n_classes: int) -> None:
    random = np.random.RandomState(0)
    codes = np.sort(random.randint(n_classes, size=300))
    X = (random.standard_normal((n_classes, 4))[codes] + random.standard_normal((300, 4))).astype(np.float32)
    made = waves._random_waves(4, 20, 2.0, random)
    h = made.of(X).astype(np.float64)
    assert np.allclose(h, np.cos(2 * np.pi * (X @ made.frequencies + made.phases)), atol=1e-5)
    part = np.arange(300) % 3
    sums = [waves._sums(X[part == k], codes[part == k], made) for k in range(3)]
    for left_out in (None, 1):
        seen = part != left_out
        found = waves._discriminant([s for k, s in enumerate(sums) if k != left_out], 1e-2)
        present, number, counts = np.unique(codes[seen], return_inverse=True, return_counts=True)
        means = np.stack([h[seen][number == k].mean(axis=0) for k in range(present.size)])
        residual = h[seen] - means[number]
        within = residual.T @ residual / (int(seen.sum()) - present.size)
        within += 1e-2 * np.trace(within) / 20 * np.eye(20)
        between = np.cov(means.T)
        q = found.psi.size
        assert q == min(present.size - 1, 20)
        assert np.allclose(found.axes.T @ within @ found.axes, np.eye(q), atol=1e-3)
        values = eigh(between, within, eigvals_only=True)[::-1][:q]
        assert np.allclose(np.diag(found.axes.T @ between @ found.axes), values, rtol=1e-3, atol=1e-4)
        assert np.allclose(found.psi, np.maximum(values - (1 / counts).mean(), 0), rtol=1e-3, atol=1e-3)
        assert np.allclose(found.centre, h[seen].mean(axis=0), atol=1e-4)


def test_classifier_of_sums_is_ridge_regression_on_the_rows_waves() -> None:
    random = np.random.RandomState(0)
    codes, X = random.randint(3, size=200), random.standard_normal((200, 4)).astype(np.float32)
    made = waves._random_waves(4, 12, 2.0, random)
    h, prior = made.of(X).astype(np.float64), np.array([0.5, 0.3, 0.2])
    gram = h.T @ h
    gram += 1e-2 * np.trace(gram) / 12 * np.eye(12)
    expected = np.linalg.solve(gram, h.T @ (np.eye(3)[codes] - prior))
    sums = [waves._sums(X[k::2], codes[k::2], made) for k in range(2)]
    assert np.allclose(waves._classifier(sums, prior, 1e-2), expected, atol=1e-4)


def test_waves_without_information_are_accepted() -> None:
    # A kernel much wider than the rows' distances: sums of float32 products have no root at so small a ridge.
    random = np.random.RandomState(0)
    codes, X = random.randint(3, size=400), random.standard_normal((400, 2)).astype(np.float32)
    made = waves._random_waves(2, 200, 30.0, random)
    sums = [waves._sums(X, codes, made)]
    with pytest.raises(np.linalg.LinAlgError):
        cholesky(sums[0].gram.astype(np.float64) + 1e-12 * np.eye(200))
    assert np.isfinite(waves._classifier(sums, np.full(3, 1 / 3), 1e-12)).all()
    assert np.isfinite(waves._discriminant(sums, 1e-12).axes).all()


def test_kernel_discriminant_separates_what_no_linear_map_does() -> None:
    # Every identity's rows lie at a point of its own or opposite to it: all means are 0.
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(8), 60)
    signs = rng.choice([-1.0, 1.0], (480, 1))
    X = (signs * 3 * rng.standard_normal((8, 4))[codes] + 0.5 * rng.standard_normal((480, 4))).astype(
        np.float32
    )
    train = np.arange(480) % 2 == 0
    pairs = sample_pairs(codes[~train], 10_000, random_state=0)
    left, right = X[~train][pairs.left], X[~train][pairs.right]
    ratio = {}
    for kind in ("discriminant", "kernel-discriminant"):
        found, _ = learn(kind, X[train], codes[train], np.random.RandomState(0))
        ratio[kind] = roc_auc_score(pairs.same, found.values(left, right)[:, 0])
    assert ratio["kernel-discriminant"] > 0.95
    assert ratio["discriminant"] < 0.8


def test_whitening_leaves_rows_of_an_identity_with_unit_scatter() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(100), 10)
    mix = rng.standard_normal((5, 5))
    X = (3 * rng.standard_normal((100, 5))[codes] + rng.standard_normal((1000, 5)) @ mix).astype(np.float32)
    features, _ = learn("whitened", X, codes, np.random.RandomState(0))
    z = features.columns(X)[:, :5]
    residual = z - np.stack([z[codes == c].mean(axis=0) for c in range(100)])[codes]
    assert np.allclose(residual.T @ residual / 900, np.eye(5), atol=0.2)


@pytest.mark.parametrize("kind", LEARNED)
def test_rows_score_alike_alone_and_in_company_whichever_way_round(kind: Any) -> None:
    model = forest(kind)
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


@pytest.mark.parametrize("kind", LEARNED)
def test_forest_with_learned_features_is_what_its_definition_says(kind: Any) -> None:
    model = forest(kind)
    left, right, _ = (side[:60] for side in held_out())
    assert model.learned_ is not None
    f = np.hstack([pair_features(left, right), model.learned_.values(left, right)])
    for tree in model.trees_:
        assert (axis(tree).features >= 128).any()
    totals = np.zeros(60)
    for tree in model.trees_:
        log_odds = dict(zip(tree.leaves.tolist(), tree.leaf_log_odds(), strict=True))
        totals += [log_odds[cell_of(tree, row)] for row in f]
    columns = (model.learned_.columns(np.asarray(side, dtype=np.float32)) for side in (left, right))
    assert np.allclose(
        model.pair_score(left, right), totals / 4 + model.learned_.tie_breaks(*columns), rtol=1e-6
    )


def test_training_counts_follow_out_of_fold_values() -> None:
    left, right, same = (side[:3000] for side in held_out())
    model = SimilarityTree(pair_features="discriminant", max_depth=4, random_state=0)
    model.fit_pairs(left, right, same)
    tree = model.trees_[0]
    assert tree.cells[0, layout.CELL_SAME] == same.sum()
    for row in tree.cells[tree.cells[:, layout.CELL_NODE] >= 0]:
        children = tree.cells[row[[layout.CELL_LEFT, layout.CELL_RIGHT]]]
        assert children[:, [3, 4]].sum(axis=0).tolist() == row[[3, 4]].tolist()


def listed_pairs(n: int, seed: int, d: int = 8) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pairs of rows that occur once, of identities that nobody meets twice; each feature says a little."""
    rng = np.random.default_rng(seed)
    same = rng.random(n) < 0.5
    centres = rng.normal(size=(2, n, d))
    centres[1, same] = centres[0, same]
    left, right = (centres + 1.5 * rng.normal(size=centres.shape)).astype(np.float32)
    return left, right, same


def test_sums_of_parts_of_whole_identities_give_the_moments_of_all_their_rows() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 200, 600)
    rows = (rng.normal(size=(200, 5))[codes] + rng.normal(size=(600, 5)) + 3.0).astype(np.float32)
    parts = [ClassSums.of(rows[codes % 3 == part], codes[codes % 3 == part]) for part in range(3)]
    for taken in ([0, 1, 2], [0, 2]):
        here = np.isin(codes % 3, taken)
        expected = moments(rows[here].astype(np.float64), codes[here])
        found = ClassSums.together([parts[part] for part in taken]).moments()
        for ours, its in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, its, rtol=1e-6, atol=1e-9)


def test_listed_pairs_are_described_by_maps_that_saw_neither_identity() -> None:
    # More features than pairs could teach: a map parts what it saw without an error, and what it did not see not.
    honest, ours = [], []
    for seed in range(4):
        left, right, same = listed_pairs(300, seed, d=60)
        points = np.concatenate([left, right])
        codes = identities_of_pairs(points, same)
        features, out_of_fold = learn(
            "discriminant", points, codes, np.random.RandomState(0), from_pairs=True
        )
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
    assert 0 < sum((axis(tree).features >= 16).any() for tree in default.trees_) < 10
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
        found, _ = learn("discriminant", rows, codes, np.random.RandomState(0), from_pairs=True)
        assert found.map.scaling.curved is curved


def test_they_make_better_forests() -> None:
    left, right, same = held_out()
    auc = {
        kind: roc_auc_score(same, forest(kind).pair_score(left, right))
        for kind in ("raw", "posteriors", "discriminant")
    }
    assert auc["posteriors"] > 0.99 > auc["raw"]
    assert auc["discriminant"] > auc["raw"]


@pytest.mark.parametrize("kind", LEARNED)
def test_saved_explained_and_drawn(kind: Any, tmp_path: Path) -> None:
    model = forest(kind)
    pairmark.save(model, tmp_path / "model")
    loaded = pairmark.load(tmp_path / "model")
    left, right, _ = held_out()
    assert loaded.pair_score(left, right).tobytes() == model.pair_score(left, right).tobytes()
    reported = loaded.explain(left[0], right[0])
    assert json.loads(json.dumps(reported)) == reported
    assert any(feature["map"] == "learned" for feature in reported["features"])
    assert any(node["map"] == "learned" for node in loaded.tree_data()["nodes"])


@pytest.mark.parametrize("kind", LEARNED)
def test_few_rows_identities_and_constant_columns_are_borne(kind: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([rng.standard_normal((7, 3)), np.ones((7, 2))])
    y = np.array([0, 0, 0, 1, 1, 2, 3])
    model = SimilarityForest(pair_features=kind, n_estimators=2, random_state=0).fit(X, y)
    assert np.isfinite(model.pair_score(X, X[::-1])).all()
    ten = SimilarityForest(pair_features=kind, n_estimators=2, random_state=0).fit(X[:, :1], y)
    assert np.isfinite(ten.pair_score(X[:, :1], X[::-1, :1])).all()
    constant = SimilarityForest(pair_features=kind, n_estimators=2, random_state=0).fit(np.ones((7, 2)), y)
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


def test_too_many_classes_or_features_are_refused_with_the_way_out() -> None:
    y = np.repeat(np.arange(1001), 2)
    with pytest.raises(ValueError, match=r"1001 classes.*discriminant"):
        SimilarityTree(pair_features="posteriors").fit(np.random.default_rng(0).random((2002, 2)), y)
    with pytest.raises(ValueError, match=r"2049 features.*PCA"):
        SimilarityTree(pair_features="whitened").fit(
            np.random.default_rng(0).random((8, 2049)), [0, 0, 1, 1] * 2
        )
    with pytest.raises(ValueError, match="pair_features"):
        SimilarityTree(pair_features="psychic").fit(DIGITS[:50], LABELS[:50])


@pytest.mark.parametrize("kind", LEARNED)
def test_the_seed_decides_alone(kind: Any) -> None:
    left, right, _ = (side[:500] for side in held_out())
    scores = [
        SimilarityForest(pair_features=kind, n_estimators=2, n_pairs=2000, random_state=4, n_jobs=n_jobs)
        .fit(DIGITS[TRAIN][:300], LABELS[TRAIN][:300])
        .pair_score(left, right)
        .tobytes()
        for n_jobs in (1, 2)
    ]
    assert scores[0] == scores[1]
