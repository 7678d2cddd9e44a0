"""RankBoost against its definition, every pair, feature and threshold written out; its kernel and embedding."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_score
from sklearn.svm import LinearSVC

import pairmark
from pairmark.models import AlignedKernel, RankBoostKernel
from pairmark.models.core.artefact import read_artefact
from pairmark.models.rankboost import aligned as network
from pairmark.models.rankboost.boosting import BoostSettings, RankingTask, Weights, best_ranker, boost
from pairmark.models.rankboost.rows import bin_rows, sparse_rows
from pairmark.models.registry import restore_learner
from tests.models.saving import reloaded


def world(seed: int, n: int = 14, d: int = 4, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """A few rows with zeros and repeated values, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 4, (n, d)).astype(np.float32) * (rng.random((n, d)) < 0.7)
    y = rng.integers(0, classes, n)
    y[:classes] = np.arange(classes)
    return X.astype(np.float32), y


def pair_matrix(y: np.ndarray, H: np.ndarray) -> np.ndarray:
    """D(i, j), explicitly: exp(H(i) - H(j)) where j is to be ranked above i, summing to one."""
    D = (y[:, None] < y[None, :]) * np.exp(H[:, None] - H[None, :])
    return D / D.sum()


def conditions(X: np.ndarray) -> list[np.ndarray]:
    """Every stump: rows that hold the feature and lie above, or below, each threshold."""
    found = []
    for column in X.T:
        there = column != 0
        values = np.unique(column[there])
        found.extend(there & (column >= value) for value in values)
        found.extend(there & (column < value) for value in values[1:])
    return found


def gain_of(h: np.ndarray, D: np.ndarray, criterion: str) -> float:
    """|r|, or sqrt(1 - Z) with Z at its best alpha."""
    difference = h[None, :].astype(float) - h[:, None]
    if criterion == "r":
        return abs(float((D * difference).sum()))
    right, wrong = D[difference == 1].sum(), D[difference == -1].sum()
    return float(np.sqrt(max(0.0, 1.0 - (D[difference == 0].sum() + 2 * np.sqrt(right * wrong)))))


def task_of(y: np.ndarray) -> RankingTask:
    return RankingTask(upper=y == 1, weight=np.ones(len(y)))


@pytest.mark.parametrize("criterion", ["r", "z"])
def test_each_stump_is_the_best_there_is(criterion: str) -> None:
    for seed in range(6):
        X, y = world(seed)
        data = bin_rows(sparse_rows(X), 256)
        weights = Weights(data, task_of(y))
        settings = BoostSettings(n_estimators=1, weak="stump", criterion=criterion)
        H = np.zeros(len(y))
        for _ in range(6):
            D = pair_matrix(y, H)
            best = max(gain_of(h, D, criterion) for h in conditions(X))
            found = best_ranker(data, settings, weights, 1.0)
            if found is None:
                assert best < 1e-9
                break
            h = np.isin(np.arange(len(y)), found.rows)
            assert found.gain == pytest.approx(best, abs=1e-7)
            assert gain_of(h, D, criterion) == pytest.approx(best, abs=1e-7)
            weights.add(found.rows, 0.37)
            H[found.rows] += 0.37


@pytest.mark.parametrize("criterion", ["r", "z"])
def test_each_grid_is_the_best_pair_of_conditions(criterion: str) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        X = (rng.random((24, 4)) < 0.6).astype(np.float32)  # one condition a feature: beams cover all
        y = ((X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=24)) > 0.4).astype(np.int64)
        y[:2] = 0, 1
        data = bin_rows(sparse_rows(X), 256)
        weights = Weights(data, task_of(y))
        settings = BoostSettings(n_estimators=1, weak="grid", criterion=criterion)
        D = pair_matrix(y, np.zeros(24))
        single = conditions(X)
        best = max(gain_of(a & b, D, criterion) for a in single for b in single)
        found = best_ranker(data, settings, weights, 1.0)
        assert found.gain == pytest.approx(best, abs=1e-7)
        assert gain_of(np.isin(np.arange(24), found.rows), D, criterion) == pytest.approx(best, abs=1e-7)


def test_weights_and_scores_follow_the_paper() -> None:
    X, y = world(5, n=30)
    rules = boost(
        bin_rows(sparse_rows(X), 256), task_of(y), BoostSettings(n_estimators=8, weak="stump", criterion="r")
    )
    H = np.zeros(30)
    for at in range(len(rules)):
        column = X[:, rules.features[at, 0]]
        h = (column != 0) & (column > rules.low[at, 0]) & (column <= rules.high[at, 0])
        r = (pair_matrix(y, H) * (h[None, :].astype(float) - h[:, None])).sum()
        assert rules.alpha[at] == pytest.approx(0.5 * np.log((1 + r) / (1 - r)), abs=1e-9)
        H += rules.alpha[at] * h
    model = RankBoostKernel(n_estimators=8, criterion="r", random_state=0).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), H, atol=1e-12)


def test_one_feature_that_decides_all_gives_a_finite_weight_and_ends() -> None:
    X = np.ones((40, 2), dtype=np.float32)
    X[20:, 1] = 2.0
    y = np.repeat([0, 1], 20)
    for criterion in ("r", "z"):
        model = RankBoostKernel(n_estimators=50, criterion=criterion, random_state=0).fit(X, y)
        assert len(model.rules_) == 1
        assert 0 < abs(model.rules_.alpha[0]) < 10
        assert roc_auc_score(y, model.decision_function(X)) == 1.0


@given(st.integers(0, 10_000), st.sampled_from(["r", "z"]), st.sampled_from(["stump", "grid"]))
def test_sparse_rows_learn_and_score_as_dense_ones_to_the_last_bit(
    seed: int, criterion: Any, weak: Any
) -> None:
    X, y = world(seed, n=25, d=6, classes=2 + seed % 2)
    y[-2:] = y[:2]
    how = {"n_estimators": 6, "criterion": criterion, "weak": weak, "random_state": 0, "n_components": 5}
    assume(any(gain_of(h, pair_matrix((y == 1).astype(int), 0.0 * y), "r") > 0.01 for h in conditions(X)))
    dense = RankBoostKernel(**how).fit(X, y)
    rows, columns = np.nonzero(np.ones_like(X))
    shuffled = np.random.default_rng(seed).permutation(rows.size)
    # Unsorted entries, zeros stored, and one of them in two halves.
    rows, columns = np.append(rows[shuffled], 0), np.append(columns[shuffled], 0)
    values = X[rows, columns].copy()
    values[-1] /= 2
    values[np.flatnonzero((rows == 0) & (columns == 0))[0]] /= 2
    order = np.argsort(rows, kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(X)))])
    messy = csr_array((values[order], columns[order], starts), shape=X.shape)
    sparse = RankBoostKernel(**how).fit(messy, y)
    assert sparse.decision_function(X).tobytes() == dense.decision_function(messy).tobytes()
    assert sparse.transform(messy).tobytes() == dense.transform(X).tobytes()
    assert sparse.pair_score(messy[:5], messy[3:8]).tobytes() == dense.pair_score(X[:5], X[3:8]).tobytes()
    assert sparse.score_against(messy[:5], messy).tobytes() == dense.score_against(X[:5], X).tobytes()


X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)


def fitted(**how: Any) -> RankBoostKernel:
    return RankBoostKernel(**{"n_estimators": 15, "random_state": 0, **how}).fit(X, y)


@pytest.mark.parametrize("center", [False, True])
def test_kernel_is_the_inner_product_of_its_map(center: bool) -> None:
    model = fitted(center=center)
    phi = model.map_rows(X).toarray()
    if center:
        phi = phi - phi.mean(axis=0)
    np.testing.assert_allclose(model.score_against(X, X), phi @ phi.T, atol=2e-5)
    assert np.linalg.eigvalsh(model.score_against(X, X).astype(float)).min() > -1e-3


def test_map_holds_alpha_where_rankers_fire() -> None:
    model = fitted()
    rules = model.rules_
    column = X[:, rules.features[:, 0]]
    fires = (column > rules.low[:, 0]) & (column <= rules.high[:, 0]) & (column != 0)
    np.testing.assert_array_equal(model.map_rows(X).toarray(), fires * rules.alpha)
    scores = np.stack([(fires * rules.alpha)[:, model.task_ == task].sum(axis=1) for task in range(3)], 1)
    np.testing.assert_allclose(model.decision_function(X), scores, atol=1e-12)


@pytest.mark.parametrize("whiten", [False, True])
def test_embedding_is_the_chain_of_its_stages(whiten: bool) -> None:
    phi = fitted().map_rows(X).toarray()
    np.testing.assert_allclose(fitted(chain="A").transform(X), phi, rtol=1e-6)
    embedded = fitted(chain="A-B", n_pivots=150, whiten=whiten).transform(X).astype(float)
    gram = phi @ phi.T
    if whiten:
        # All rows are pivots, so every row is in their span and the projection changes no inner product.
        np.testing.assert_allclose(embedded @ embedded.T, gram, atol=1e-4)
    else:
        np.testing.assert_allclose(embedded, gram, rtol=1e-4, atol=1e-6)
    for chain in ("A-C", "A-B-C"):
        embedded = fitted(chain=chain, n_components=7, whiten=whiten).transform(X)
        assert embedded.shape == (150, 7)
        assert LinearSVC(random_state=0).fit(embedded, y).score(embedded, y) > 0.85


def test_pivots_are_chosen_in_two_ways() -> None:
    for how in ("random", "kmeans"):
        assert np.isfinite(fitted(pivots=how, n_pivots=20).transform(X)).all()


def test_pivots_come_from_unlabelled_rows_when_there_are_any() -> None:
    more = np.vstack([X] * 3)
    model = RankBoostKernel(n_estimators=5, n_pivots=400, chain="A-B", random_state=0)
    assert model.fit(X, y, unlabelled=csr_array(more)).transform(X).shape == (150, 400)
    for unlabelled, said in (
        (None, "n_pivots is 400 and there are 150 rows"),
        (more[:, :3], r"unlabelled has shape \(450, 3\)"),
        (np.full_like(more, np.nan), r"unlabelled.*NaN"),
    ):
        with pytest.raises(ValueError, match=said):
            model.fit(X, y, unlabelled=unlabelled)


def test_pairs_learn_what_both_sides_share() -> None:
    rng = np.random.default_rng(0)
    # Rows of a kind share one of eight columns, and hold noise beside.
    kinds = rng.integers(0, 8, 400)
    rows = np.hstack([np.eye(8)[kinds], rng.random((400, 20)) < 0.3]).astype(np.float32)
    i, j = rng.integers(0, 400, (2, 3000))
    same = kinds[i] == kinds[j]
    how = {"n_estimators": 16, "center": False, "random_state": 0}
    model = RankBoostKernel(**how).fit_pairs(rows[i], rows[j], same)
    assert (model.rules_.alpha > 0).all()
    phi = model.map_rows(rows).toarray()
    np.testing.assert_allclose(model.pair_score(rows[i], rows[j]), (phi[i] * phi[j]).sum(axis=1), atol=1e-5)
    scores = model.pair_score(rows[i], rows[j])
    assert np.median(scores[same]) > np.quantile(scores[~same], 0.95)
    with pytest.raises(ValueError, match="pairs"):
        model.decision_function(rows)
    # A weight is a number of copies.
    weight = rng.integers(0, 3, 3000)
    copies = np.repeat(np.arange(3000), weight)
    weighted = RankBoostKernel(**how).fit_pairs(rows[i], rows[j], same, sample_weight=weight)
    repeated = RankBoostKernel(**how).fit_pairs(rows[i[copies]], rows[j[copies]], same[copies])
    alike = weighted.pair_score(rows[i], rows[j]), repeated.pair_score(rows[i], rows[j])
    assert np.corrcoef(*alike)[0, 1] > 0.999
    negative = -rows - (rows != 0) * rng.random(rows.shape).astype(np.float32)  # type: ignore[attr-defined]
    assert np.isfinite(RankBoostKernel(**how).fit_pairs(negative[i], negative[j], same).rules_.alpha).all()


def test_columns_never_seen_are_ignored_and_counted() -> None:
    model = fitted()
    wide = csr_array(np.hstack([X[:3], [[0, 7.0], [0, 0], [1.0, 2.0]]]).astype(np.float32))
    with pytest.warns(UserWarning, match="3 values in columns from 4 on"):
        scores = model.decision_function(wide)
    assert scores.tobytes() == model.decision_function(X[:3]).tobytes()
    with pytest.raises(ValueError, match="5 features"):
        model.decision_function(np.ones((1, 5)))


def test_empty_rows_are_like_nothing_and_useless_columns_are_passed_over() -> None:
    padded = np.hstack([X, np.zeros((150, 2)), np.ones((150, 1))]).astype(np.float32)
    padded[::10] = 0.0
    model = RankBoostKernel(n_estimators=10, center=False, random_state=0).fit(csr_array(padded), y)
    assert set(model.rules_.features[:, 0]) <= {0, 1, 2, 3, 6}
    empty = csr_array((1, 7), dtype=np.float32)
    assert model.pair_score(empty, csr_array(padded[1:2])) == 0.0
    assert np.isfinite(model.transform(empty)).all()
    for useless in (np.zeros((150, 3)), np.ones((150, 3))):
        with pytest.raises(ValueError, match="no feature separates the labels"):
            RankBoostKernel(n_estimators=3).fit(useless, y)


def test_many_identities_are_ranked_by_halves() -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(60, 12)) * 3
    people = np.repeat(np.arange(60), 6)
    rows = (centres[people] + 0.5 * rng.normal(size=(360, 12))).astype(np.float32)
    model = RankBoostKernel(n_estimators=10, random_state=0).fit(rows, people)
    assert model.decision_function(rows).shape == (360, 32)
    i, j = rng.integers(0, 360, (2, 4000))
    scores, same = model.pair_score(rows[i], rows[j]), people[i] == people[j]
    assert (scores[same][:, None] > scores[~same][None, :500]).mean() > 0.95


def test_folds_of_one_class_are_judged_beside_those_learned_from() -> None:
    # Sorted labels: each third is one class, of which no two rows differ.
    assert cross_val_score(RankBoostKernel(n_estimators=5), X, y, cv=3).min() > 0.6


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"n_pivots": 151}, "n_pivots is 151 and there are 150 rows"),
        ({"chain": "A-E"}, "chain"),
        ({"criterion": "q"}, "criterion"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted(**how)


@pytest.mark.parametrize("how", [{}, {"weak": "grid"}, {"chain": "A"}])
def test_everything_it_can_do_survives_the_disk(how: dict[str, Any], tmp_path: Path) -> None:
    model = fitted(**how)
    loaded = reloaded(model, tmp_path / "model")
    for name in ("decision_function", "transform"):
        assert np.asarray(getattr(loaded, name)(X)).tobytes() == np.asarray(getattr(model, name)(X)).tobytes()


def test_models_that_held_a_linear_svm_load_without_it(tmp_path: Path) -> None:
    model = fitted()
    pairmark.save(model, tmp_path / "model")
    now = read_artefact(tmp_path / "model")
    svm = {"svm_coef": np.zeros((3, 100)), "svm_intercept": np.zeros(3)}
    before = replace(now, params={**now.params, "chain": "A-B-C-D"}, arrays={**now.arrays, **svm})
    assert restore_learner(before).transform(X).tobytes() == model.transform(X).tobytes()


def test_bags_rank_wide_rows_better_than_one_ranking() -> None:
    """More features than rows, each weakly informative: one ranking of stumps looks at too few of them."""
    rng = np.random.default_rng(0)
    y = rng.random(400) < 0.5
    X = csr_array((rng.random((400, 600)) < np.where(y[:, None], 0.13, 0.10)).astype(np.float32))
    one = RankBoostKernel(n_bags=1, random_state=0).fit(X[:200], y[:200]).decision_function(X[200:])
    model = RankBoostKernel(random_state=0).fit(X[:200], y[:200])
    assert roc_auc_score(y[200:], model.decision_function(X[200:])) > roc_auc_score(y[200:], one) + 0.02


IRISES, SPECIES = load_iris(return_X_y=True)
IRISES = IRISES.astype(np.float32)
QUICK = {"hidden": (6, 4), "n_iter": 3, "learning_rate": 0.1, "random_state": 0}


def kernel_alignment(K1: np.ndarray, K2: np.ndarray, weight: float | np.ndarray = 1.0) -> float:
    """The cosine between two kernel matrices (equation 5)."""
    return float((weight * K1 * K2).sum() / np.sqrt((weight * K1**2).sum() * (weight * K2**2).sum()))


def aligned(**how: Any) -> AlignedKernel:
    return AlignedKernel(**{**QUICK, **how}).fit(IRISES, SPECIES)


def small_batch(balanced: bool = False) -> network.Batch:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 5)) * (rng.random((7, 5)) < 0.6)
    return network.batch_of_rows(csr_array(rows), rng.integers(0, 2, 7), balanced, rng)


@pytest.mark.parametrize("balanced", [False, True])
def test_losses_are_the_papers(balanced: bool) -> None:
    batch = small_batch(balanced)
    K = np.random.default_rng(1).normal(size=batch.left.size)
    assert batch.weight.sum() == pytest.approx(1)
    squared, _ = network.loss_of(K, batch, "squared")
    assert squared == pytest.approx((batch.weight * (K - batch.target) ** 2).sum())
    alignment, _ = network.loss_of(K, batch, "alignment")
    if not balanced:
        perfect = batch.target.reshape(7, 7)
        assert alignment == pytest.approx(1 - kernel_alignment(K.reshape(7, 7), perfect))
    else:
        assert batch.weight[batch.target > 0].sum() == pytest.approx(0.5)


@pytest.mark.parametrize("loss", ["squared", "alignment"])
@pytest.mark.parametrize("psd", [True, False])
def test_gradients_are_slopes_of_the_loss(loss: Any, psd: bool) -> None:
    batch = small_batch()
    made = network.Network.random(batch.rows, (4, 3), psd, np.random.default_rng(2))

    def value() -> float:
        return network.loss_of(network.values_of(made, batch)[0], batch, loss)[0]

    slopes = []
    for part in made.parts:
        slope = np.zeros_like(part)
        for at in np.ndindex(part.shape):
            kept = part[at]
            part[at] = kept + 1e-6
            above = value()
            part[at] = kept - 1e-6
            slope[at] = (above - value()) / 2e-6
            part[at] = kept
        slopes.append(slope)
    objective, found = network.gradients(made, batch, loss)
    assert objective == pytest.approx(value())
    for expected, slope in zip(slopes, found, strict=True):
        np.testing.assert_allclose(slope, expected, atol=1e-7)


@pytest.mark.parametrize("loss", ["squared", "alignment"])
@pytest.mark.parametrize("psd", [True, False])
def test_scores_are_what_the_network_says(loss: str, psd: bool) -> None:
    model = aligned(loss=loss, psd=psd)
    narrow = IRISES[:, model.columns_].astype(float)

    def layers(state: np.ndarray) -> np.ndarray:
        for weight, bias in zip(model.weights_[1:], model.biases_[1:], strict=True):
            state = np.tanh(state @ weight + bias)
        return state

    if psd:
        phi = layers(np.tanh(narrow @ model.weights_[0] + model.biases_[0]))
        expected = phi @ phi.T / 4
        assert np.linalg.eigvalsh(model.score_against(IRISES, IRISES).astype(float)).min() > -1e-4
        np.testing.assert_allclose(model.transform(IRISES) @ model.transform(IRISES).T, expected, atol=1e-5)
    else:
        first, second = narrow @ model.weights_[0], narrow @ model.second_
        K = layers(np.tanh(first[:, None] + second[None, :] + model.biases_[0]))[:, :, 0]
        expected = (K + K.T) / 2
        assert np.abs(K - K.T).max() > 1e-4
    np.testing.assert_allclose(model.score_against(IRISES, IRISES), expected, atol=1e-5)


@pytest.mark.parametrize("psd", [True, False])
def test_sparse_and_dense_rows_score_alike_to_the_last_bit(psd: bool) -> None:
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(80, 30)) * (rng.random((80, 30)) < 0.2)).astype(np.float32)
    labels = rng.integers(0, 2, 80)
    dense = AlignedKernel(**QUICK, psd=psd).fit(rows, labels)
    sparse = AlignedKernel(**QUICK, psd=psd).fit(csr_array(rows), labels)
    assert sparse.score_against(csr_array(rows), rows).tobytes() == dense.score_against(rows, rows).tobytes()
    if psd:
        assert sparse.transform(csr_array(rows)).tobytes() == dense.transform(rows).tobytes()
    wide = csr_array(np.hstack([rows[:2], np.ones((2, 1))]).astype(np.float32))
    with pytest.warns(UserWarning, match="2 values"):
        scores = sparse.pair_score(wide, wide)
    assert scores.tobytes() == dense.pair_score(rows[:2], rows[:2]).tobytes()


def test_a_kernel_that_is_no_inner_product_says_so() -> None:
    model = aligned(psd=False)
    assert model.unavailable_ == {"embed"}
    with pytest.raises(ValueError, match="psd=True"):
        model.transform(IRISES)


def test_training_raises_the_alignment_with_the_perfect_kernel() -> None:
    same = SPECIES[:, None] == SPECIES[None, :]
    perfect, weight = np.where(same, 1.0, -1.0), np.where(same, 1.0 / same.sum(), 1.0 / (~same).sum())
    for how in ({"psd": True}, {"psd": False}, {"psd": True, "loss": "squared"}):
        few = AlignedKernel(hidden=(5,), n_iter=1, random_state=0, **how).fit(IRISES, SPECIES)
        many = AlignedKernel(hidden=(5,), n_iter=100, random_state=0, **how).fit(IRISES, SPECIES)
        before, after = (
            kernel_alignment(model.score_against(IRISES, IRISES), perfect, weight) for model in (few, many)
        )
        assert after > (0.6 if "loss" in how else max(before, 0.6))
        assert many.loss_curve_[-1] < many.loss_curve_[0]


def test_new_sparse_rows_are_told_apart() -> None:
    """Many rare columns: a network that learns each by heart knows nothing of rows to come."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 600)
    leaning = np.where(rng.random(1_000) < 0.1, 0.8 * rng.normal(size=1_000), 0.0)
    chance = np.clip(0.03 * np.exp(np.outer(2 * labels - 1, leaning)), 0.0, 0.5)
    rows = csr_array((rng.random(chance.shape) < chance).astype(np.float32))
    model = AlignedKernel(n_iter=100, random_state=0).fit(rows[:300], labels[:300])
    scores = model.score_against(rows[300:], rows[300:])
    same = labels[300:, None] == labels[None, 300:]
    upper = np.triu_indices(300, 1)
    assert roc_auc_score(same[upper], scores[upper]) > 0.7


def test_rows_of_zeros_teach_nothing() -> None:
    with pytest.raises(ValueError, match="zero everywhere"):
        AlignedKernel().fit(np.zeros((6, 3)), [0, 0, 0, 1, 1, 1])
